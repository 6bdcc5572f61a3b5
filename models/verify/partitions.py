"""GPUs that a plan partitions: from then on the nodes have instances in their place.

Everything that the judge works out is about the nodes as they are then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import le

from models.documents.plan import PlanPartition
from models.mig import Board, boards
from models.verify.facts import Facts, Gang, Node
from models.verify.violation import quoted

INSTANCES = "nvidia.com/mig-"
"""Begins the resources of MIG instances. A node that states none has none."""

NO_NUMBER = 1 << 20
"""GPUs that instances take which no GPU has."""

MOST_OF_ONE = 8
"""Instances of one profile on a GPU: it has eight slices at most."""

Instances = Sequence[tuple[str, int]]
"""Resources of instances on a GPU, and the memory slices where they begin."""

Fault = tuple[str, str, str]
"""Rule, place in the document, and what is wrong."""


def with_partitions(stated: Sequence[PlanPartition], facts: Facts) -> tuple[Facts, Sequence[Fault]]:
    """The facts with instances in the place of these GPUs, and what is wrong with them."""
    faults = list[Fault]()
    positions = {node.name: n for n, node in enumerate(facts.nodes)}
    nodes = list(facts.nodes)
    last, given = ("", -1), set[tuple[int, int]]()
    for i, one in enumerate(stated):
        where = f"spec.partitions[{i}]"
        n = positions.get(one.node)
        if n is None:
            faults.append(("reference", f"{where}.node", f"no node {quoted(one.node)}"))
            continue
        if (one.node, one.gpu) < last:
            faults.append(("order", where, "partitions must be sorted by node and GPU"))
        last = (one.node, one.gpu)
        if (n, one.gpu) in given:
            faults.append(("partition", where, f"GPU {one.gpu} of {one.node} is partitioned twice"))
            continue
        given.add((n, one.gpu))
        nodes[n] = _with(faults, one, nodes[n], where)
    for n, gpu in facts.releases:
        node = facts.nodes[n]
        gone = node.dynamic_mig is not None and node.released >> gpu & 1
        if gone and (n, gpu) not in given:
            what = f"that all instances of GPU {gpu} of {node.name} are gone is not listed"
            faults.append(("partition", "spec.partitions", what))
    return replace(facts, nodes=tuple(nodes)), faults


def with_could(
    nodes: Sequence[Node], instances: Collection[str], gangs: Sequence[Gang], binding: str
) -> tuple[Node, ...]:
    """The nodes with what their GPUs could have of instances that roles request.

    Nothing where GPUs of unknown index are held or unhealthy, the node chooses GPUs that are not alike, or
    pods hold more instances than there are.
    """
    blind, held = set[int](), Counter[tuple[int, str]]()
    for gang in gangs:
        for pod in gang.running_pods.values():
            if pod.gpus is None and gang.held(pod):
                blind.add(pod.node)
            for name, amount in gang.roles[pod.role].requests.items():
                held[pod.node, name] += amount
    blind |= {
        n for (n, name), amount in held.items() if amount > nodes[n].allocatable.get(name, amount)
    }
    found = []
    for n, node in enumerate(nodes):
        board = board_of(node)
        chooses = binding == "none" and node.model is not None and not node.model.switched
        if board is None or n in blind or node.unknown_unhealthy or chooses:
            found.append(node)
            continue
        most = {
            INSTANCES + name.replace("+", "."): profile.most * node.healthy.bit_count()
            for profile in board.profiles
            for name in profile.names
            if profile.starts
        }
        for one in node.sharers:
            for name in most.keys() & set(instances):
                most[name] += most_beside(node, name, one.instances)
        could = {name: most[name] for name in instances if most.get(name)}
        found.append(replace(node, could=could))
    return tuple(found)


def _with(faults: list[Fault], one: PlanPartition, node: Node, where: str) -> Node:
    board = board_of(node)
    bit = 1 << one.gpu if one.gpu < node.gpus else 0
    if board is None:
        faults.append(("partition", where, f"node {node.name} has no dynamicMig"))
        return node
    in_use = next((own for own in node.sharers if own.gpu == one.gpu), None)
    if not bit & node.healthy and (in_use is None or not node.could):
        what = f"GPU {one.gpu} of {node.name} is not there, unhealthy or partitioned"
        faults.append(("partition", where, what))
        return node
    if one.anew != bool(bit & node.released) or (one.anew and not one.profiles):
        if one.anew != bool(bit & node.released):
            what = (
                f"GPU {one.gpu} of {node.name} has no instances that all leave, or is not said to"
            )
            faults.append(("partition", f"{where}.anew", what))
        return node
    used = () if in_use is None else in_use.instances
    if not one.profiles or not _stands(board, one.profiles, used):
        what = f"these instances cannot stand on one {board.name} at once"
        faults.append(("partition", f"{where}.profiles", what))
        return node
    offered = dict(node.allocatable)
    for profile, count in Counter(one.profiles).items():
        resource = INSTANCES + profile.replace("+", ".")
        if resource in offered:
            offered[resource] += count
    could = {
        name: most - (offered[name] - node.allocatable[name]) for name, most in node.could.items()
    }
    node = replace(node, allocatable=offered, could=could)
    if in_use is not None:
        return node
    return replace(
        node,
        partitioned=node.partitioned | bit,
        unhealthy=node.unhealthy | bit,
        comes=node.comes | bit,
    )


def board_of(node: Node) -> Board | None:
    """The board of GPUs that may be partitioned."""
    return next((board for board in boards() if board.name == node.dynamic_mig), None)


def most_beside(node: Node, resource: str, used: Instances) -> int:
    """How many instances of one kind a GPU can have beside those in use."""
    board = board_of(node)
    names = () if board is None else [n for p in board.profiles for n in p.names]
    name = next((n for n in names if INSTANCES + n.replace("+", ".") == resource), None)
    if board is None or name is None:
        return 0
    counts = range(1, MOST_OF_ONE + 1)
    return max((count for count in counts if _stands(board, [name] * count, used)), default=0)


def slices_of(node: Node, instances: Instances) -> frozenset[int] | None:
    """The memory slices of instances on one GPU; None if they cannot be there at once."""
    board = board_of(node)
    taken = frozenset[int]()
    counts = Counter[str]()
    for resource, start in instances:
        profiles = () if board is None else board.profiles
        mine = [p for p in profiles for n in p.names if INSTANCES + n.replace("+", ".") == resource]
        if not mine or start not in mine[0].starts:
            return None
        slices = frozenset(range(start, start + mine[0].size))
        counts[resource] += 1
        if taken & slices or counts[resource] > mine[0].most or _two_with_media(counts):
            return None
        taken |= slices
    return taken


def fewest(board: Board, wanted: Mapping[str, int], in_use: Sequence[Instances] = ()) -> int:
    """The fewest idle GPUs that have these instances, by resource, at once with those ``in_use``.

    One GPU after another in every way.
    """
    names = {name: INSTANCES + name.replace("+", ".") for p in board.profiles for name in p.names}
    known = {resource: name for name, resource in names.items()}
    if any(resource not in known for resource in wanted):
        return NO_NUMBER
    asked = [known[resource] for resource, amount in wanted.items() if amount > 0]
    most = [min(wanted[names[name]], MOST_OF_ONE) for name in asked]
    left, gpus = {tuple(wanted[names[name]] for name in asked)}, 0
    for used in in_use:
        left = _after(left, _sets(board, asked, most, used))
    sets = _sets(board, asked, most, ())
    while all(map(any, left)):
        least = _after(left, sets)
        if least == left:
            return NO_NUMBER
        left, gpus = least, gpus + 1
    return gpus


def _sets(
    board: Board, asked: Sequence[str], most: Sequence[int], used: Instances
) -> list[tuple[int, ...]]:
    """Every number of each profile that stands beside the others, and beside those in use."""
    sets = [(0,) * len(asked)]
    for k, name in enumerate(asked):
        sets = [
            (*one[:k], count, *one[k + 1 :])
            for one in sets
            for count in range(most[k] + 1)
            if _stands(
                board,
                [n for n, c in zip(asked, one, strict=True) for _ in range(c)] + [name] * count,
                used,
            )
        ]
    return sets


def _after(left: set[tuple[int, ...]], sets: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """The least that is left once one more GPU has one of these sets."""
    after = {
        tuple(max(0, a - b) for a, b in zip(one, taken, strict=True))
        for one in left
        for taken in sets
    }
    return {one for one in after if not any(o != one and all(map(le, o, one)) for o in after)}


def _two_with_media(resources: Iterable[str]) -> bool:
    """Whether several of these instances have media engines, of which a GPU has one set."""
    return sum(name.endswith(".me") for name in resources) > 1


def _stands(board: Board, names: Sequence[str], used: Instances = ()) -> bool:
    """Whether instances of these profiles have disjoint places on one GPU: each in turn in every way.

    ``used``: resources of instances that are there, and where they begin.
    """
    known = {name: profile for profile in board.profiles for name in profile.names}
    there = {INSTANCES + name.replace("+", "."): profile for name, profile in known.items()}
    if any(name not in known for name in names):
        return False
    counts = Counter(known[name] for name in names)
    total = counts + Counter(there[resource] for resource, _ in used)
    if any(count > profile.most for profile, count in total.items()):
        return False
    if _two_with_media(INSTANCES + p.names[0].replace("+", ".") for p in total.elements()):
        return False
    if any(not profile.starts for profile in counts):
        return len(counts) == 1
    taken = (range(start, start + there[resource].size) for resource, start in used)
    ways = {frozenset(slice_ for own in taken for slice_ in own)}
    for profile, count in counts.items():
        for _ in range(count):
            ways = {
                taken | slices
                for taken in ways
                for start in profile.starts
                if taken.isdisjoint(slices := frozenset(range(start, start + profile.size)))
            }
    return bool(ways)
