"""GPUs that several pods share: those of pods that run, and those that a plan gives parts of.

A shared GPU is never given whole. Everything that the judge works out is about the nodes as the plan shares
their GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import groupby, islice

from models.documents.cluster import GpuSharing
from models.documents.plan import PlanShare
from models.verify.facts import Facts, Gang, Node, Pod, Sharer
from models.verify.partitions import (
    INSTANCES,
    NO_NUMBER,
    Fault,
    board_of,
    most_beside,
    with_could,
)
from models.verify.violation import quoted

PART = re.compile(
    r"share\.gangplan\.dev/(?:(0\.[0-9]{1,3})|([0-9]+)Mi)(?:-([0-9]+))?(?:x([0-9]{1,3}))?"
)
"""Fraction of the memory or memory in MiB, cores in percent, and of how many GPUs a pod has so much."""

MOST_WAYS = 2_000
"""Ways in which parts lie on GPUs that are followed at once."""

MOST_KNOWN = 1 << 14
"""Answers that are kept: nodes are much alike."""

Amounts = tuple[Fraction, Fraction, Fraction]
"""Shares of the memory and of the cores of a GPU, and pods."""

ONE, NONE = Fraction(1), Fraction(0)

Owner = tuple[str, str, int]
"""Namespace and name of a gang, and a role of it."""


def is_part(resource: str) -> bool:
    """Whether it counts parts of GPUs."""
    return resource.startswith("share.gangplan.dev/")


@lru_cache(maxsize=MOST_KNOWN)
def amounts(resource: str, sharing: GpuSharing | None) -> Amounts | None:
    """What a part takes of a GPU that may be shared so; None if such GPUs have no such part."""
    found = PART.fullmatch(resource)
    if found is None or sharing is None:
        return None
    fraction, memory, cores, _ = found.groups()
    if fraction is not None:
        of_cores = Fraction(fraction) if cores is None else Fraction(int(cores), 100)
        return Fraction(fraction), of_cores, ONE
    if sharing.memory is None:
        return None
    return Fraction(int(memory), sharing.memory), Fraction(int(cores or 0), 100), ONE


def gpus_of_pod(resource: str) -> int:
    """Of how many GPUs a pod has such a part."""
    found = PART.fullmatch(resource)
    return 1 if found is None else int(found[4] or 1)


def shared_names(part: str, groups: str | None, pod: str) -> list[str]:
    """Names of the GPUs of which a pod has such parts: those of its groups, then some of its own."""
    several = gpus_of_pod(part)
    if several == 1:
        return [pod if groups is None else groups]
    names = [] if groups is None else groups.split(",")[:several]
    while len(names) < several:
        names.append(f"{pod}#{len(names)}")
    return names


def with_sharers(
    nodes: Sequence[Node],
    sharers: Mapping[int, Mapping[int | str, Sequence[tuple[str, int | None]]]],
) -> tuple[Node, ...]:
    """The nodes of whose GPUs pods that run have such parts, by index or by name where that is not known."""
    found = list(nodes)
    for n, own in sharers.items():
        node, unknown = nodes[n], sum(isinstance(gpu, str) for gpu in own)
        mask, offered = 0, Counter(node.allocatable)
        for gpu, parts in own.items():
            mask |= 0 if isinstance(gpu, str) else 1 << gpu
            offered.update(part for part, _ in parts)
        found[n] = replace(
            node,
            sharers=tuple(
                Sharer(
                    gpu,
                    tuple(part for part, _ in parts),
                    tuple((part, start) for part, start in parts if start is not None),
                )
                for gpu, parts in own.items()
            ),
            allocatable=dict(offered),
            unhealthy=node.unhealthy | mask,
            partitioned=node.partitioned | mask,
            unknown_unhealthy=node.unknown_unhealthy + unknown,
            unknown_partitioned=node.unknown_partitioned + unknown,
        )
    return tuple(found)


def releasable(
    nodes: Sequence[Node],
    gangs: Sequence[Gang],
    sharers: Mapping[int, Mapping[int | str, Sequence[tuple[str, int | None]]]],
    owners: Mapping[tuple[int, int], Collection[Owner]],
    binding: str,
    could: Collection[int],
) -> dict[tuple[int, int], frozenset[Owner]]:
    """GPUs, by node and index, that are idle once no pod of the roles with parts of them is on the node.

    None where it is not known which GPUs are held or unhealthy, none of which a gang can neither stop nor
    move, and none of which pods have parts that have others elsewhere; nor where a node has instances that
    nobody states. ``nodes``: without what pods share; ``could``: those where GPUs may be partitioned.
    """
    hidden = {
        pod.node
        for gang in gangs
        for pod in gang.running_pods.values()
        if pod.gpus is None and gang.roles[pod.role].gpus
    }
    leaves = {gang.key for gang in gangs if gang.movable or gang.preemptible}
    found = {}
    for (n, gpu), own in owners.items():
        node = nodes[n]
        blind = binding == "none" and node.model is not None and not node.model.switched
        named = not any(isinstance(one, str) for one in sharers[n])
        clear = named and not blind and not node.unknown_unhealthy and n not in hidden
        able = all((namespace, name) in leaves for namespace, name, _ in own)
        able = able and all(gpus_of_pod(part) == 1 for part, _ in sharers[n][gpu])
        if (node.sharing is not None or n in could) and clear and able and node.healthy >> gpu & 1:
            found[n, gpu] = frozenset(own)
    return found


def with_released(facts: Facts, after: Iterable[tuple[Gang, Iterable[Pod]]]) -> Facts:
    """The facts with GPUs idle that nobody shares any more. ``after``: the pods of each gang in the plan."""
    if not facts.releases:
        return facts
    nodes = list(facts.nodes)
    for n, gpu in left_by_all(facts, after):
        nodes[n] = _released(nodes[n], gpu)
    return replace(facts, nodes=tuple(nodes))


def left_by_all(facts: Facts, after: Iterable[tuple[Gang, Iterable[Pod]]]) -> list[tuple[int, int]]:
    """By node and index, shared GPUs that all have left. ``after``: the pods of each gang in the plan."""
    if not facts.releases:
        return []
    there = {(*gang.key, pod.role, pod.node) for gang, pods in after for pod in pods}
    found = facts.releases.items()
    return [(n, gpu) for (n, gpu), own in found if not any((*one, n) in there for one in own)]


def _released(node: Node, gpu: int) -> Node:
    (mine,) = (one for one in node.sharers if one.gpu == gpu)
    offered = Counter(node.allocatable)
    offered.subtract(mine.parts)
    could = dict(node.could)
    for name in node.could if mine.instances else ():
        could[name] += most_beside(node, name, ()) - most_beside(node, name, mine.instances)
    before = Counter(one.parts for one in node.sharers)
    before[()] += max(0, node.healthy.bit_count() - node.unknown_unhealthy)
    after = before + Counter({(): 1})
    after[mine.parts] -= 1
    for resource in filter(is_part, node.allocatable) if node.sharing is not None else ():
        more = _most(resource, node.sharing, after) - _most(resource, node.sharing, before)
        could[resource] = could.get(resource, 0) + more
    bit = 1 << gpu
    return replace(
        node,
        sharers=tuple(one for one in node.sharers if one is not mine),
        allocatable=dict(offered),
        could=could,
        partitioned=node.partitioned & ~bit,
        unhealthy=node.unhealthy & ~bit,
        released=node.released | bit,
    )


def with_parts(nodes: Sequence[Node], requested: Collection[str]) -> tuple[Node, ...]:
    """The nodes with what their GPUs could have of each part that roles request."""
    parts = sorted(filter(is_part, requested))
    found = []
    for node in nodes:
        idle = max(0, node.healthy.bit_count() - node.unknown_unhealthy)
        on = Counter(one.parts for one in node.sharers) + Counter({(): idle})
        most = ((resource, _most(resource, node.sharing, on)) for resource in parts)
        could = {resource: count for resource, count in most if count}
        offered = dict.fromkeys(parts, 0) | dict(node.allocatable)
        found.append(replace(node, allocatable=offered, could={**node.could, **could}))
    return tuple(found)


def unshared(node: Node, binding: str, *, repaired: bool = False) -> Node:
    """The node if no pod of a gang ran on it, with all that its GPUs could have at once.

    ``repaired``: and if all of them were healthy.
    """
    if node.sharing is None and board_of(node) is None:
        return node
    mask, unknown = node.comes, node.unknown_comes
    for one in node.sharers:
        mask |= 0 if isinstance(one.gpu, str) or one.gpu in node.mig_mode else 1 << one.gpu
        unknown += isinstance(one.gpu, str)
    partitioned, somewhere = node.partitioned & ~mask, node.unknown_partitioned - unknown
    alone = replace(
        node,
        sharers=tuple(Sharer(gpu, ()) for gpu in node.mig_mode if node.dynamic_mig is not None),
        comes=0,
        released=0,
        unknown_comes=0,
        partitioned=partitioned,
        unhealthy=partitioned if repaired else node.unhealthy & ~mask,
        unknown_unhealthy=somewhere if repaired else node.unknown_unhealthy - unknown,
        unknown_partitioned=somewhere,
        allocatable={
            n: 0 if is_part(n) else c for n, c in {**node.allocatable, **node.stated}.items()
        },
        could={},
    )
    if node.sharing is not None:
        return with_parts((alone,), node.allocatable)[0].as_it_was
    instances = [name for name in node.allocatable if name.startswith(INSTANCES)]
    return with_could((alone,), instances, (), binding)[0].as_it_was


@lru_cache(maxsize=MOST_KNOWN)
def room(sharing: GpuSharing | None, parts: tuple[str, ...]) -> Amounts:
    """What is left of a GPU beside these parts; nothing of one where nobody knows what they take."""
    sizes = [amounts(part, sharing) for part in parts]
    if sharing is None or None in sizes:
        return NONE, NONE, NONE
    memory, cores, pods = ONE, ONE, Fraction(sharing.pods)
    for size in sizes:
        if size is not None:
            memory, cores, pods = memory - size[0], cores - size[1], pods - size[2]
    return memory, cores, pods


def _most(resource: str, sharing: GpuSharing | None, on: Mapping[tuple[str, ...], int]) -> int:
    """How many more of a part GPUs have room for at once, given how many GPUs have which parts.

    Those of one pod are on GPUs of their own.
    """
    several = gpus_of_pod(resource)
    rooms = []
    if sharing is not None:
        rooms = [(_more(resource, sharing, own), gpus) for own, gpus in on.items()]
    pods = sum(here * gpus for here, gpus in rooms) // several
    if several == 1:
        return pods
    while sum(min(here, pods) * gpus for here, gpus in rooms) < pods * several:
        pods -= 1
    return pods * several


@lru_cache(maxsize=MOST_KNOWN)
def _more(resource: str, sharing: GpuSharing, parts: tuple[str, ...]) -> int:
    """How many more of a part have room on a GPU beside these."""
    size = amounts(resource, sharing)
    return 0 if size is None else _times(size, room(sharing, parts))


def _times(size: Amounts, left: Amounts) -> int:
    """How many parts of a size have room."""
    return max(0, min(int(have // need) for need, have in zip(size, left, strict=True) if need))


def with_shares(stated: Sequence[PlanShare], facts: Facts) -> tuple[Facts, Sequence[Fault]]:
    """The facts with parts in the place of these GPUs, and what is wrong with them."""
    faults, nodes = list[Fault](), list(facts.nodes)
    positions = {node.name: n for n, node in enumerate(nodes)}
    given: set[tuple[int, int | str]] = set()
    before = ""
    for i, one in enumerate(stated):
        where, n = f"spec.shares[{i}]", positions.get(one.node)
        if n is None:
            faults.append(("reference", f"{where}.node", f"no node {quoted(one.node)}"))
            continue
        if one.node < before:
            faults.append(("order", where, "shares must be sorted by node"))
        before, gpu = one.node, one.gpu if one.gpu_group is None else one.gpu_group
        if gpu is not None and (n, gpu) in given:
            faults.append(("gpu-part", where, "this GPU is shared twice"))
            continue
        if gpu is not None:
            given.add((n, gpu))
        nodes[n] = _with(faults, one, nodes[n], where, binding=facts.policy.gpu_binding)
    faults += _one_above_another(stated)
    return replace(facts, nodes=tuple(nodes)), faults


def _one_above_another(stated: Sequence[PlanShare]) -> Iterator[Fault]:
    """Parts that pods have on several GPUs, more of them on one GPU than such pods come to the node."""
    coming = Counter((one.node, part) for one in stated for part in one.parts)
    for i, one in enumerate(stated):
        for part, here in Counter(one.parts).items():
            several = gpus_of_pod(f"share.gangplan.dev/{part}")
            if several > 1 and here * several > coming[one.node, part]:
                what = (
                    f"{here} of {coming[one.node, part]} parts {part} are on one GPU of {one.node}"
                )
                yield "gpu-part", f"spec.shares[{i}].parts", what


def _with(faults: list[Fault], one: PlanShare, node: Node, where: str, *, binding: str) -> Node:
    held = {sharer.gpu: sharer.parts for sharer in node.sharers}
    gpu = one.gpu if one.gpu_group is None else one.gpu_group
    parts = tuple(f"share.gangplan.dev/{part}" for part in one.parts)
    sizes = [amounts(part, node.sharing) for part in parts]
    if not parts or None in sizes:
        faults.append(("gpu-part", f"{where}.parts", f"node {node.name} has no such parts of GPUs"))
        return node
    sharers = () if gpu is None else held.get(gpu, ())
    if any(amount < 0 for amount in room(node.sharing, (*sharers, *parts))):
        faults.append(("gpu-part", f"{where}.parts", f"they do not fit on one GPU of {node.name}"))
        return node
    offered = dict(node.allocatable)
    for part in parts:
        offered[part] = offered.get(part, 0) + 1
    could = {
        name: most - (offered[name] - node.allocatable[name]) for name, most in node.could.items()
    }
    node = replace(node, allocatable=offered, could=could)
    if gpu in held:
        return node
    blind = binding == "none" and node.model is not None and not node.model.switched
    bit = 1 << gpu if isinstance(gpu, int) and gpu < node.gpus else 0
    if gpu is None:
        return replace(
            node,
            unknown_unhealthy=node.unknown_unhealthy + 1,
            unknown_partitioned=node.unknown_partitioned + 1,
            unknown_comes=node.unknown_comes + 1,
        )
    if not bit & node.healthy or blind or node.unknown_unhealthy:
        what = f"GPU {gpu} of {node.name} is not there, unhealthy, partitioned, or its index is not known"
        faults.append(("gpu-part", f"{where}.gpu", what))
        return node
    return replace(
        node,
        partitioned=node.partitioned | bit,
        unhealthy=node.unhealthy | bit,
        comes=node.comes | bit,
    )


def fewest_shared(node: Node, wanted: Mapping[str, int]) -> int:
    """The fewest idle GPUs that, with what is left of shared ones, have these parts.

    All ways in which parts lie on GPUs are followed, the largest part first; of very many those alone that
    need the fewest GPUs, so that it can say too many, and never too few.
    """
    sizes = [(amounts(part, node.sharing), gpus_of_pod(part), wanted[part]) for part in wanted]
    if any(size is None for size, _, count in sizes if count > 0):
        return NO_NUMBER
    pods = sorted(
        ((s, several) for s, several, count in sizes if s for _ in range(-(-count // several))),
        reverse=True,
    )
    shared, idle = [room(node.sharing, one.parts) for one in node.sharers], room(node.sharing, ())
    ways = {tuple(sorted(shared))}
    for size, several in pods:
        after = set[tuple[Amounts, ...]]()
        for way in ways:
            after.update(_ways_beside(way, size, several, idle))
        if not after:
            return NO_NUMBER
        ways = set(sorted(after, key=lambda way: (len(way), way))[:MOST_WAYS])
    return min(map(len, ways)) - len(shared)


def _ways_beside(
    way: tuple[Amounts, ...], size: Amounts, several: int, idle: Amounts
) -> Iterator[tuple[Amounts, ...]]:
    """What is left of the GPUs after one more pod with parts of this size on several of them."""
    lefts = [*way, *[idle] * several]
    able = [k for k, left in enumerate(lefts) if _times(size, left)]
    for chosen in islice(_combinations(lefts, able, several), MOST_WAYS):
        after = list(lefts)
        for k in chosen:
            left = lefts[k]
            after[k] = (left[0] - size[0], left[1] - size[1], left[2] - size[2])
        yield tuple(sorted(after[: len(way) + sum(k >= len(way) for k in chosen)]))


def _combinations(
    lefts: Sequence[Amounts], able: Sequence[int], several: int
) -> Iterator[tuple[int, ...]]:
    """Choices of so many of these GPUs; of those of which as much is left the first."""
    alike = [
        list(own) for _, own in groupby(sorted(able, key=lefts.__getitem__), lefts.__getitem__)
    ]

    def choose(k: int, more: int) -> Iterator[tuple[int, ...]]:
        if not more:
            yield ()
        elif k < len(alike):
            for count in range(min(more, len(alike[k])), -1, -1):
                for rest in choose(k + 1, more - count):
                    yield (*alike[k][:count], *rest)

    return choose(0, several)
