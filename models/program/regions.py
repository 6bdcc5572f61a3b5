"""On which nodes cpu, memory, the number of pods or another resource may bind at all.

Promises: a node that is not tight needs no row of its own: nothing that its free GPUs admit reaches a limit.
Called by ``regions``.

Regions: pools of nodes that no rule can tell apart, so that they need no variables of their own.

Promises: nodes of one region share hardware, eligibility, domains and the way free GPUs may be cut;
a node where cpu, memory or the pod count may bind, or where an incomplete gang stands, is alone.
Built once per formulation; every rule works on regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.cluster import Node
from models.instance import Instance
from models.occupancy import PODS, Room
from models.program.demands import Demand
from models.program.packing import LARGEST_MESH_STATE, CountPacking, MaskPacking, Packing, by_count
from models.program.rules.declarations import node_key, own_variables
from models.program.server_cases import CasePacking, Contents, Left, cases_of, told_apart
from models.rates.gang_bandwidth import ServerSet


def tight_nodes(
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    contents: Contents,
    signatures: dict[int, tuple[int, ...]],
    placed: Sequence[bool],
) -> tuple[frozenset[int], tuple[bool, ...]]:
    """Nodes where some resource may bind, and which demands' pods without GPUs ride along.

    A node is safe when the worst set of GPU pods its free GPUs admit beside what may be left there, the
    riders of the gangs those pods belong to, and every pod that does not ride, fit together. Riders of
    a gang that may use a tight node stop riding, which may make more nodes tight: repeated until nothing
    changes. ``placed``: demands of which no pod rides.
    """
    riding = [
        _may_ride(demand) and not (by_itself and demand.zero_roles)
        for demand, by_itself in zip(demands, placed, strict=True)
    ]
    keys: dict[int, object] = {
        n: (signature, rooms[n].free_gpus, rooms[n].left, tuple(contents.get(n, {}).items()))
        for n, signature in signatures.items()
    }
    while True:
        known: dict[object, bool] = {}
        for n, key in keys.items():
            if key not in known:
                lefts = list(contents.get(n, {}).values())
                known[key] = _may_bind(demands, rooms[n], lefts, riding, n)
        tight = frozenset(n for n, key in keys.items() if known[key])
        again = [
            rides and not any(n in tight for role in demand.gpu_roles for n in role.nodes)
            for rides, demand in zip(riding, demands, strict=True)
        ]
        again = [
            rides or not demand.zero_roles for rides, demand in zip(again, demands, strict=True)
        ]
        if again == riding:
            return tight, tuple(riding)
        riding = again


def _may_ride(demand: Demand) -> bool:
    if not demand.zero_roles:
        return True
    if not demand.gpu_roles or demand.stays:
        return False
    gpu_nodes = frozenset().union(*(role.nodes for role in demand.gpu_roles))
    return all(gpu_nodes <= role.nodes for role in demand.zero_roles)


def _gpus(left: Left) -> int:
    return left.known.bit_count() + left.blind


def _stood(lefts: Sequence[tuple[Left, ...]], resource: str, most: int) -> list[int]:
    """The most of a resource that may be left on a node together with so many GPUs or fewer."""
    worst = [0] * (most + 1)
    for options in lefts:
        uses = [(_gpus(left), dict(left.use).get(resource, 0)) for left in options]
        worst = [
            max([worst[g]] + [worst[g - gpus] + use for gpus, use in uses if gpus <= g])
            for g in range(most + 1)
        ]
    return worst


def _may_bind(
    demands: Sequence[Demand],
    room: Room,
    lefts: Sequence[tuple[Left, ...]],
    riding: Sequence[bool],
    n: int,
) -> bool:
    if sum(max(_gpus(left) for left in options) for options in lefts) > room.free_gpus:
        return True  # what stands there is too much already
    for resource, left in room.left:
        worst = _stood(lefts, resource, room.free_gpus)
        riders: dict[int, int] = {}
        loose: dict[int, int] = {}
        by_size: dict[int, int] = {}
        for demand, rides in zip(demands, riding, strict=True):
            zero = 0
            for role in demand.roles:
                if n not in role.nodes:
                    continue
                amount = 1 if resource == PODS else dict(role.requests).get(resource, 0)
                if role.gpus:
                    by_size[role.gpus] = max(by_size.get(role.gpus, 0), amount)
                else:
                    zero += amount * role.count
            if zero:
                # of one gang's options only one comes true
                where = riders if rides else loose
                where[demand.gang] = max(where.get(demand.gang, 0), zero)
        for gpus in range(1, room.free_gpus + 1):
            worst[gpus] = max(
                [worst[gpus], worst[gpus - 1]]
                + [worst[gpus - size] + need for size, need in by_size.items() if size <= gpus]
            )
        most = sorted(riders.values(), reverse=True)[: room.free_gpus]
        if worst[room.free_gpus] + sum(most) + sum(loose.values()) > left:
            return True
    return False


@dataclass(frozen=True)
class Region:
    """A pool of alike nodes; ``model`` is one of them.

    ``domains[l]``: the domain of all its nodes at level l (the node level left out), None where
    levels do not matter. ``tight``: one node whose resources are counted. ``specials``: demands (by
    index) with GPUs that stay on the node, and their place in ``SetType.beside``. ``content``: what is
    left there by each choice; of several nodes all are left alike, by one choice.
    """

    number: int
    nodes: tuple[int, ...]
    model: Node
    packing: Packing
    domains: tuple[int | None, ...]
    tight: bool
    specials: Mapping[int, int] = field(default_factory=dict)
    content: Mapping[int, tuple[Left, ...]] = field(default_factory=dict)

    @property
    def gpu_name(self) -> str | None:
        return self.model.model.gpu if self.model.model else None


@dataclass(frozen=True)
class Pools:
    """``riding[d]``: the demand's pods without GPUs go along on a node it uses anyway, at no cost."""

    regions: tuple[Region, ...]
    riding: tuple[bool, ...]
    exact: bool


def pools_of(
    instance: Instance,
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    contents: Contents,
    *,
    split: bool,
    held: Sequence[int] | None = None,
    yielding: int | None = None,
) -> Pools:
    """Group the nodes that any demand may use or any choice may empty.

    ``split``: every node on its own (exact on any hardware). ``held``: mask of GPUs known held whatever is
    chosen, a node; by default all that are not free. ``yielding``: priority of the least gang that gives
    room to those who come: where they are told apart, pods of a higher gang do not ride.
    """
    if held is None:
        nodes = instance.cluster.nodes
        held = [n.healthy & ~room.mask for n, room in zip(nodes, rooms, strict=True)]
    used = sorted({n for d in demands for role in d.roles for n in role.nodes} | set(contents))
    signatures = _signatures(demands, used)
    fixed = [
        yielding is not None and instance.gangs[demand.gang].priority > yielding
        for demand in demands
    ]
    tight, riding = tight_nodes(demands, rooms, contents, signatures, fixed)
    standing = {n for demand in demands for n in demand.standing_nodes}
    specials: dict[int, list[int]] = {}
    for number, demand in enumerate(demands):
        for node, _ in demand.standing:
            specials.setdefault(node, []).append(number)
    by_level = _levels_matter(instance, demands, riding)
    grouped: dict[tuple[object, ...], list[int]] = {}
    for n in used:
        content = contents.get(n, {})
        alone = split or n in tight or n in specials or n in standing or len(content) > 1
        alone = alone or told_apart(instance.cluster.nodes[n], rooms[n], content)
        key = (
            tuple(content.items()),
            _hardware_key(instance, rooms, n),
            node_key(instance, n),
            signatures[n],
            _innermost(instance, n) if by_level else None,
            n if alone else None,
        )
        grouped.setdefault(key, []).append(n)
    regions = tuple(
        _region(
            instance,
            rooms,
            demands,
            contents,
            number,
            nodes,
            tight,
            specials,
            held[nodes[0]],
            by_level=by_level,
        )
        for number, nodes in enumerate(sorted(grouped.values()))
    )
    return Pools(regions, riding, all(region.packing.exact for region in regions))


def _innermost(instance: Instance, node: int) -> tuple[int, ...]:
    return tuple(of[node] for of in instance.cluster.domain_of[:-1])


def _signatures(demands: Sequence[Demand], used: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Which of the distinct node sets of all roles a node belongs to."""
    sets = list({role.nodes: None for demand in demands for role in demand.roles})
    return {n: tuple(i for i, nodes in enumerate(sets) if n in nodes) for n in used}


def _hardware_key(instance: Instance, rooms: Sequence[Room], n: int) -> tuple[object, ...]:
    node, room = instance.cluster.nodes[n], rooms[n]
    if node.model is None:
        return ("none",)
    free = room.mask if room.blind and not by_count(node.model, node.effective_nics) else None
    return (node.model, node.effective_nics, room.blind, free)


def _levels_matter(instance: Instance, demands: Sequence[Demand], riding: Sequence[bool]) -> bool:
    """Whether any demand may use several nodes, or requests of the mix count whole nodes by domain."""
    if any(not local(instance, d, rides=r) for d, r in zip(demands, riding, strict=True)):
        return True
    if instance.policy.lists("defragment"):
        return True
    largest = min((n.gpus for n in instance.cluster.nodes if n.gpus), default=0)
    return any(size > largest for size, _ in instance.policy.mix)


def local(instance: Instance, demand: Demand, *, rides: bool) -> bool:
    """Whether the whole gang is one piece on one node: by its own rule, or one GPU pod with riders."""
    gang = instance.gangs[demand.gang]
    if not demand.sole or gang.running or not demand.gpu_roles or own_variables(instance, gang):
        return False
    if gang.required == instance.cluster.node_level:
        return True
    return rides and sum(role.count for role in demand.gpu_roles) == 1


def _region(
    instance: Instance,
    rooms: Sequence[Room],
    demands: Sequence[Demand],
    contents: Contents,
    number: int,
    nodes: list[int],
    tight: frozenset[int],
    specials: dict[int, list[int]],
    held: int,
    *,
    by_level: bool,
) -> Region:
    first = instance.cluster.nodes[nodes[0]]
    beside: dict[ServerSet, int] = {}
    special: dict[int, int] = {}
    for d in specials.get(nodes[0], ()):
        own = dict(demands[d].standing)[nodes[0]]
        special[d] = beside.setdefault(own, len(beside))
    content = contents.get(nodes[0], {})
    domains: tuple[int | None, ...] = tuple(None for _ in instance.cluster.levels)
    if by_level:
        domains = _innermost(instance, nodes[0])
    return Region(
        number,
        tuple(nodes),
        first,
        packing_of(first, [rooms[n] for n in nodes], tuple(beside), content=content, held=held),
        domains,
        nodes[0] in tight,
        special,
        content,
    )


def packing_of(
    node: Node,
    rooms: Sequence[Room],
    beside: tuple[ServerSet, ...] = (),
    *,
    content: Mapping[int, tuple[Left, ...]] | None = None,
    held: int = 0,
) -> Packing:
    """How the free GPUs of such nodes may be cut.

    ``content``: what the choices leave there. ``held``: mask of GPUs known held whatever is chosen.
    """
    # where only the number counts one room stands for all: it must hold the largest set of any
    room = max(rooms, key=lambda r: r.mask.bit_count())
    if node.model is None:
        return CountPacking(node, 0, blind=False, relaxed=False)
    counted = by_count(node.model, node.effective_nics)
    if content and told_apart(node, room, content):
        cases = cases_of(node, room, held, content)
        indexed = [case.mask.bit_count() for case in cases or () if not case.hidden]
        if cases is None or max(indexed, default=0) > LARGEST_MESH_STATE:
            return CountPacking(node, room.mask, blind=room.blind, relaxed=True, beside=beside)
        return CasePacking(node, cases, beside)
    if room.blind or counted:
        return CountPacking(node, room.mask, blind=room.blind, relaxed=False, beside=beside)
    if max(r.mask.bit_count() for r in rooms) > LARGEST_MESH_STATE:
        return CountPacking(node, room.mask, blind=False, relaxed=True, beside=beside)
    return MaskPacking(node, beside)
