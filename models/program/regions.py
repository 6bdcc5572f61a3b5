"""Regions: sets of nodes that no rule distinguishes and that share variables.

Nodes of one region have the same hardware, eligibility, domains and splits of their free GPUs. A node on
which cpu, memory or the pod count may bind (a tight node), or on which an incomplete gang stands, is a
region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from models.cluster import Node
from models.instance import Instance
from models.occupancy import PODS, Room
from models.program.demands import Demand
from models.program.packing import LARGEST_MESH_STATE, CountPacking, MaskPacking, Packing, by_count
from models.program.rules.declarations import node_key, own_variables
from models.program.server_cases import (
    CasePacking,
    NodeUsage,
    NodeUsages,
    needs_cases,
    server_cases,
)
from models.rates.gang_bandwidth import ServerSet


def tight_nodes(
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    node_usages: NodeUsages,
    signatures: dict[int, tuple[int, ...]],
    placed: Sequence[bool],
) -> tuple[frozenset[int], tuple[bool, ...]]:
    """Tight nodes, on which some resource may bind, and the demands whose cpu-only pods follow the others.

    A node is not tight if the worst set of GPU pods that fits its free GPUs and what may stay there, the
    cpu-only pods that follow them, and all other cpu-only pods fit together. The cpu-only pods of a gang that
    may use a tight node do not follow, which may make more nodes tight: repeat until nothing changes.
    ``placed``: demands whose cpu-only pods are always placed on their own.
    """
    cpu_only_follow = [
        _may_follow(demand) and not (by_itself and demand.cpu_only_roles)
        for demand, by_itself in zip(demands, placed, strict=True)
    ]
    keys: dict[int, object] = {
        n: (signature, rooms[n].free_gpus, rooms[n].left, tuple(node_usages.get(n, {}).items()))
        for n, signature in signatures.items()
    }
    while True:
        known: dict[object, bool] = {}
        for n, key in keys.items():
            if key not in known:
                lefts = list(node_usages.get(n, {}).values())
                known[key] = _may_bind(demands, rooms[n], lefts, cpu_only_follow, n)
        tight = frozenset(n for n, key in keys.items() if known[key])
        again = [
            cpu_only_follow and not any(n in tight for role in demand.gpu_roles for n in role.nodes)
            for cpu_only_follow, demand in zip(cpu_only_follow, demands, strict=True)
        ]
        again = [
            cpu_only_follow or not demand.cpu_only_roles
            for cpu_only_follow, demand in zip(again, demands, strict=True)
        ]
        if again == cpu_only_follow:
            return tight, tuple(cpu_only_follow)
        cpu_only_follow = again


def _may_follow(demand: Demand) -> bool:
    if not demand.cpu_only_roles:
        return True
    if not demand.gpu_roles or demand.stays:
        return False
    gpu_nodes = frozenset().union(*(role.nodes for role in demand.gpu_roles))
    return all(gpu_nodes <= role.nodes for role in demand.cpu_only_roles)


def _gpus(left: NodeUsage) -> int:
    return left.known.bit_count() + left.blind


def _stood(lefts: Sequence[tuple[NodeUsage, ...]], resource: str, most: int) -> list[int]:
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
    lefts: Sequence[tuple[NodeUsage, ...]],
    cpu_only_follow: Sequence[bool],
    n: int,
) -> bool:
    if sum(max(_gpus(left) for left in options) for options in lefts) > room.free_gpus:
        return True  # more stands there than fits already
    for resource, left in room.left:
        worst = _stood(lefts, resource, room.free_gpus)
        followers: dict[int, int] = {}
        loose: dict[int, int] = {}
        by_size: dict[int, int] = {}
        for demand, follows in zip(demands, cpu_only_follow, strict=True):
            cpu_only = 0
            for role in demand.roles:
                if n not in role.nodes:
                    continue
                amount = 1 if resource == PODS else dict(role.requests).get(resource, 0)
                if role.gpus:
                    by_size[role.gpus] = max(by_size.get(role.gpus, 0), amount)
                else:
                    cpu_only += amount * role.count
            if cpu_only:
                # only one option of a gang is chosen
                where = followers if follows else loose
                where[demand.gang] = max(where.get(demand.gang, 0), cpu_only)
        for gpus in range(1, room.free_gpus + 1):
            worst[gpus] = max(
                [worst[gpus], worst[gpus - 1]]
                + [worst[gpus - size] + need for size, need in by_size.items() if size <= gpus]
            )
        most = sorted(followers.values(), reverse=True)[: room.free_gpus]
        if worst[room.free_gpus] + sum(most) + sum(loose.values()) > left:
            return True
    return False


@dataclass(frozen=True)
class Region:
    """A set of identical nodes; ``model`` is one of them.

    ``domains[l]``: the domain of all its nodes at level l (without the node level), None where levels do
    not matter. ``tight``: one node whose resources are counted. ``standing_demands``: demands (by index)
    with GPUs that stay on the node, and their position in ``SetType.with_standing``. ``usages``: what each
    choice may leave there; if there are several nodes, one choice leaves the same on all.
    """

    number: int
    nodes: tuple[int, ...]
    model: Node
    packing: Packing
    domains: tuple[int | None, ...]
    tight: bool
    standing_demands: Mapping[int, int] = field(default_factory=dict)
    usages: Mapping[int, tuple[NodeUsage, ...]] = field(default_factory=dict)

    @property
    def gpu_name(self) -> str | None:
        return self.model.model.gpu if self.model.model else None


@dataclass(frozen=True)
class RegionSet:
    """``cpu_only_follow[d]``: cpu-only pods of the demand go to a node that the gang uses anyway."""

    regions: tuple[Region, ...]
    cpu_only_follow: tuple[bool, ...]
    exact: bool

    @cached_property
    def region_of(self) -> dict[int, int]:
        """Number of the region of every node in one."""
        return {n: region.number for region in self.regions for n in region.nodes}


def build_regions(
    instance: Instance,
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    node_usages: NodeUsages,
    *,
    split: bool,
    held: Sequence[int] | None = None,
    least_victim: int | None = None,
) -> RegionSet:
    """Group the nodes that any demand may use or any choice may empty.

    ``split``: every node is a region (exact on any hardware). ``held``: mask of GPUs known to be held under
    every option, a node; by default all that are not free. ``least_victim``: lowest priority of a gang that
    may be stopped or shrunk: cpu-only pods of a higher gang are then placed on their own.
    """
    if held is None:
        nodes = instance.cluster.nodes
        held = [n.healthy & ~room.mask for n, room in zip(nodes, rooms, strict=True)]
    used = sorted({n for d in demands for role in d.roles for n in role.nodes} | set(node_usages))
    signatures = _signatures(demands, used)
    fixed = [
        least_victim is not None and instance.gangs[demand.gang].priority > least_victim
        for demand in demands
    ]
    tight, cpu_only_follow = tight_nodes(demands, rooms, node_usages, signatures, fixed)
    standing = {n for demand in demands for n in demand.standing_nodes}
    standing_demands: dict[int, list[int]] = {}
    for number, demand in enumerate(demands):
        for node, _ in demand.standing:
            standing_demands.setdefault(node, []).append(number)
    by_level = _levels_matter(instance, demands, cpu_only_follow)
    grouped: dict[tuple[object, ...], list[int]] = {}
    for n in used:
        usages = node_usages.get(n, {})
        alone = split or n in tight or n in standing_demands or n in standing or len(usages) > 1
        alone = alone or needs_cases(instance.cluster.nodes[n], rooms[n], usages)
        key = (
            tuple(usages.items()),
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
            node_usages,
            number,
            nodes,
            tight,
            standing_demands,
            held[nodes[0]],
            by_level=by_level,
        )
        for number, nodes in enumerate(sorted(grouped.values()))
    )
    return RegionSet(regions, cpu_only_follow, all(region.packing.exact for region in regions))


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


def _levels_matter(
    instance: Instance, demands: Sequence[Demand], cpu_only_follow: Sequence[bool]
) -> bool:
    """Whether any demand may use several nodes, or requests of the mix count whole nodes by domain."""
    if any(
        not is_single_piece(instance, d, cpu_only_follow=r)
        for d, r in zip(demands, cpu_only_follow, strict=True)
    ):
        return True
    if instance.policy.lists("defragment"):
        return True
    largest = min((n.gpus for n in instance.cluster.nodes if n.gpus), default=0)
    return any(size > largest for size, _ in instance.policy.mix)


def is_single_piece(instance: Instance, demand: Demand, *, cpu_only_follow: bool) -> bool:
    """Whether the whole gang is one piece on one node: by its own rule, or one GPU pod with followers."""
    gang = instance.gangs[demand.gang]
    if (
        not demand.only_option
        or gang.running
        or not demand.gpu_roles
        or own_variables(instance, gang)
    ):
        return False
    if gang.required == instance.cluster.node_level:
        return True
    return cpu_only_follow and sum(role.count for role in demand.gpu_roles) == 1


def _region(
    instance: Instance,
    rooms: Sequence[Room],
    demands: Sequence[Demand],
    node_usages: NodeUsages,
    number: int,
    nodes: list[int],
    tight: frozenset[int],
    standing_demands: dict[int, list[int]],
    held: int,
    *,
    by_level: bool,
) -> Region:
    first = instance.cluster.nodes[nodes[0]]
    with_standing: dict[ServerSet, int] = {}
    standing_index: dict[int, int] = {}
    for d in standing_demands.get(nodes[0], ()):
        own = dict(demands[d].standing)[nodes[0]]
        standing_index[d] = with_standing.setdefault(own, len(with_standing))
    usages = node_usages.get(nodes[0], {})
    domains: tuple[int | None, ...] = tuple(None for _ in instance.cluster.levels)
    if by_level:
        domains = _innermost(instance, nodes[0])
    return Region(
        number,
        tuple(nodes),
        first,
        packing_of(
            first, [rooms[n] for n in nodes], tuple(with_standing), usages=usages, held=held
        ),
        domains,
        nodes[0] in tight,
        standing_index,
        usages,
    )


def packing_of(
    node: Node,
    rooms: Sequence[Room],
    with_standing: tuple[ServerSet, ...] = (),
    *,
    usages: Mapping[int, tuple[NodeUsage, ...]] | None = None,
    held: int = 0,
) -> Packing:
    """How the free GPUs of such nodes may be split.

    ``usages``: what the choices leave there. ``held``: mask of GPUs known to be held under every option.
    """
    # where only the number counts one room stands for all: the one with the largest set
    room = max(rooms, key=lambda r: r.mask.bit_count())
    if node.model is None:
        return CountPacking(node, 0, blind=False, relaxed=False)
    counted = by_count(node.model, node.effective_nics)
    if usages and needs_cases(node, room, usages):
        cases = server_cases(node, room, held, usages)
        indexed = [case.mask.bit_count() for case in cases or () if not case.hidden]
        if cases is None or max(indexed, default=0) > LARGEST_MESH_STATE:
            return CountPacking(
                node, room.mask, blind=room.blind, relaxed=True, with_standing=with_standing
            )
        return CasePacking(node, cases, with_standing)
    if room.blind or counted:
        return CountPacking(
            node, room.mask, blind=room.blind, relaxed=False, with_standing=with_standing
        )
    if max(r.mask.bit_count() for r in rooms) > LARGEST_MESH_STATE:
        return CountPacking(node, room.mask, blind=False, relaxed=True, with_standing=with_standing)
    return MaskPacking(node, with_standing)
