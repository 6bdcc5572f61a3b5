"""Regions: sets of nodes that no rule distinguishes and that share variables.

Nodes of one region have the same hardware, eligibility, domains and splits of their free GPUs. A node on
which cpu, memory or the pod count may bind (a tight node), or on which an incomplete gang stands, is a
region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from models.hardware import Nic, ServerModel
from models.instance.cluster import Node
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room
from models.instance.reshaping import reshaping
from models.program.interruption import Question, check, never
from models.program.packing import LARGEST_MESH_STATE, CountPacking, MaskPacking, Packing, by_count
from models.program.server_cases import (
    CasePacking,
    NodeUsage,
    NodeUsages,
    needs_cases,
    server_cases,
)
from models.queues.queue_shares import bare_shares
from models.rates.gang_bandwidth import ServerSet
from models.rules.demands import Demand, RoleDemand
from models.rules.giving_way import Victims
from models.rules.pod_rules import pod_rules
from models.rules.registry import node_key, own_variables


def tight_nodes(
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    node_usages: NodeUsages,
    signatures: Mapping[int, tuple[int, ...]],
    placed: Sequence[bool],
    shares: Mapping[str, int],
    always: Collection[int] = (),
    interrupted: Question = never,
) -> tuple[frozenset[int], tuple[bool, ...]]:
    """Tight nodes, on which some resource may bind, and the demands whose cpu-only pods follow the others.

    A node is not tight if the worst set of GPU pods that fits its free GPUs and what may stay there, the
    cpu-only pods that follow them, and all other cpu-only pods fit together. The cpu-only pods of a gang that
    may use a tight node do not follow, which may make more nodes tight: repeat until nothing changes.
    ``placed``: demands whose cpu-only pods are always placed on their own. ``shares``: what a GPU that
    is left free needs of each resource. ``always``: nodes that are tight.
    """
    follow = [
        _may_follow(demand) and not (by_itself and demand.cpu_only_roles)
        for demand, by_itself in zip(demands, placed, strict=True)
    ]
    alike: dict[object, list[int]] = {}
    lefts = {
        # which choice leaves something there, and which GPUs, does not matter
        n: tuple(_amounts(options) for options in node_usages.get(n, {}).values())
        for n in signatures
    }
    for n, signature in signatures.items():
        key = (signature, rooms[n].free_gpus, rooms[n].left, lefts[n], n in always)
        alike.setdefault(key, []).append(n)
    while True:
        load, found = _Load(demands, follow, shares), list[int]()
        for nodes in alike.values():
            check(interrupted)
            if nodes[0] in always or load.may_bind(rooms[nodes[0]], lefts[nodes[0]], nodes[0]):
                found += nodes
        tight = frozenset(found)
        clear = {nodes: tight.isdisjoint(nodes) for nodes in load.gpu_nodes}
        again = [
            not demand.cpu_only_roles
            or (follows and all(clear[role.nodes] for role in demand.gpu_roles))
            for follows, demand in zip(follow, demands, strict=True)
        ]
        if again == follow:
            return tight, tuple(follow)
        follow = again


def _may_follow(demand: Demand) -> bool:
    if not demand.cpu_only_roles:
        return True
    if not demand.gpu_roles or demand.stays:
        return False
    return all(
        gpu.nodes <= cpu_only.nodes
        for gpu in demand.gpu_roles
        for cpu_only in demand.cpu_only_roles
    )


Use = tuple[int, tuple[tuple[str, int], ...]]
"""GPUs and resources of what an option leaves on a node."""


def _amounts(options: Sequence[NodeUsage]) -> tuple[Use, ...]:
    return tuple((left.known.bit_count() + left.blind, left.use) for left in options)


def _stood(lefts: Sequence[Sequence[Use]], resource: str, most: int) -> list[int]:
    """The most of a resource that may be left on a node together with so many GPUs or fewer."""
    worst = [0] * (most + 1)
    for options in lefts:
        uses = [(gpus, dict(use).get(resource, 0)) for gpus, use in options]
        worst = [
            max([worst[g]] + [worst[g - gpus] + use for gpus, use in uses if gpus <= g])
            for g in range(most + 1)
        ]
    return worst


class _Load:
    """What all demands together may put on a node. Demands and gangs that are alike count once.

    A GPU that is left free counts like a pod with its share of the node.
    """

    def __init__(
        self, demands: Sequence[Demand], follow: Sequence[bool], shares: Mapping[str, int]
    ) -> None:
        self._shares = shares
        self._gpu_roles: dict[tuple[frozenset[int], int], dict[tuple[tuple[str, int], ...], None]]
        self._gpu_roles = {}
        loads: dict[int, dict[tuple[bool, tuple[RoleDemand, ...]], None]] = {}
        kinds: dict[object, tuple[RoleDemand, ...]] = {}
        for demand, follows in zip(demands, follow, strict=True):
            for role in demand.gpu_roles:
                self._gpu_roles.setdefault((role.nodes, role.gpus), {})[role.requests] = None
            roles = demand.cpu_only_roles
            if roles:
                kind = kinds.setdefault(
                    tuple((role.nodes, role.requests, role.count) for role in roles), roles
                )
                loads.setdefault(demand.gang, {})[follows, kind] = None
        # a gang has several options, of which only one is chosen
        self._gangs = Counter(tuple(options) for options in loads.values())

    @property
    def gpu_nodes(self) -> set[frozenset[int]]:
        """Distinct node sets of the roles with GPUs."""
        return {nodes for nodes, _ in self._gpu_roles}

    def may_bind(self, room: Room, lefts: Sequence[Sequence[Use]], n: int) -> bool:
        if sum(max(gpus for gpus, _ in options) for options in lefts) > room.free_gpus:
            return True  # more stands there than fits already
        return any(
            self._most(resource, room.free_gpus, lefts, n) > left for resource, left in room.left
        )

    def _most(self, resource: str, gpus: int, lefts: Sequence[Sequence[Use]], n: int) -> int:
        """The most of a resource that may be used on the node when so many of its GPUs are."""
        by_size: dict[int, int] = {}
        for (nodes, size), requests in self._gpu_roles.items():
            if n in nodes:
                amount = max(_requested(own, resource) for own in requests)
                by_size[size] = max(by_size.get(size, 0), amount)
        if resource in self._shares:
            by_size[1] = max(by_size.get(1, 0), self._shares[resource])
        worst = _stood(lefts, resource, gpus)
        for used in range(1, gpus + 1):
            worst[used] = max(
                [worst[used], worst[used - 1]]
                + [worst[used - size] + need for size, need in by_size.items() if size <= used]
            )
        most, followers = worst[gpus], Counter[int]()
        for options, gangs in self._gangs.items():
            amounts = {True: 0, False: 0}
            for follows, roles in options:
                here = sum(
                    _requested(role.requests, resource) * role.count
                    for role in roles
                    if n in role.nodes
                )
                amounts[follows] = max(amounts[follows], here)
            most += amounts[False] * gangs
            followers[amounts[True]] += gangs
        for amount, gangs in sorted(followers.items(), reverse=True):
            most += amount * min(gangs, gpus)
            gpus -= min(gangs, gpus)
        return most


def _requested(requests: Sequence[tuple[str, int]], resource: str) -> int:
    return 1 if resource == PODS else dict(requests).get(resource, 0)


@dataclass(frozen=True)
class Region:
    """A set of identical nodes; ``model`` is one of them.

    ``domains[l]``: the domain of all its nodes at level l (without the node level), None where levels do
    not matter. ``tight``: one node whose resources are counted. ``standing_demands``: demands (by index)
    with GPUs that stay on the node, and their position in ``SetType.with_standing``. ``usages``: what each
    choice may leave on which of its nodes; if there are several nodes, at most one choice on each.
    """

    number: int
    nodes: tuple[int, ...]
    model: Node
    packing: Packing
    domains: tuple[int | None, ...]
    tight: bool
    standing_demands: Mapping[int, int] = field(default_factory=dict)
    usages: NodeUsages = field(default_factory=dict)

    @property
    def node_usages(self) -> Mapping[int, tuple[NodeUsage, ...]]:
        """What each choice may leave on the one node, or on the first."""
        return self.usages.get(self.nodes[0], {})

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
    apart: Collection[int] = (),
    held: Sequence[int] | None = None,
    stopped: Victims | None = None,
    shares: Mapping[str, int] | None = None,
    interrupted: Question = never,
) -> RegionSet:
    """Group the nodes that any demand may use or any choice may empty.

    ``split``: every node is a region (exact on any hardware); ``apart``: these are. ``held``: mask of GPUs
    known to be held under every option, a node; by default all that are not free. ``stopped``: gangs that
    may be stopped or shrunk: cpu-only pods of one to which such a gang gives way are then placed on their
    own, as are those that a rule about pods counts, and parts of GPUs that queues count by model.
    ``shares``: what a GPU that is left free needs of each resource, if that is to be counted.
    """
    if held is None:
        nodes = instance.cluster.nodes
        held = [n.givable & ~room.mask for n, room in zip(nodes, rooms, strict=True)]
    counted = pod_rules(instance).by_role
    sets = {role.nodes: None for demand in demands for role in demand.roles}
    used = sorted(frozenset(node_usages).union(*sets))
    signatures = _signatures(list(sets), used)
    queues = bare_shares(instance)
    by_model = queues is not None and bool(queues.models)
    fixed = [
        (stopped is not None and stopped.give_way_to(demand.gang))
        or any(
            (demand.gang, role.role) in counted or (by_model and role.has_parts)
            for role in demand.cpu_only_roles
        )
        for demand in demands
    ]
    tight, cpu_only_follow = tight_nodes(
        demands,
        rooms,
        node_usages,
        signatures,
        fixed,
        shares or {},
        reshaping(instance),
        interrupted,
    )
    standing = {n for demand in demands for n in demand.standing_nodes}
    standing_demands: dict[int, list[int]] = {}
    for number, demand in enumerate(demands):
        for node, _ in demand.standing:
            standing_demands.setdefault(node, []).append(number)
    by_level = _levels_matter(instance, demands, cpu_only_follow)
    hardware = instance.once(_hardware)
    packings: Packings = {}
    grouped: dict[tuple[object, ...], list[int]] = {}
    for n in used:
        usages = node_usages.get(n, {})
        alone = split or n in tight or n in standing_demands or n in standing or len(usages) > 1
        alone = alone or n in apart
        alone = alone or needs_cases(instance.cluster.nodes[n], rooms[n], usages)
        key = (
            tuple(usages.items()),
            hardware[n],
            _hidden_free(instance, rooms, n),
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
            packings,
            by_level=by_level,
        )
        for number, nodes in enumerate(sorted(grouped.values()))
    )
    return RegionSet(regions, cpu_only_follow, all(region.packing.exact for region in regions))


def _innermost(instance: Instance, node: int) -> tuple[int, ...]:
    return tuple(of[node] for of in instance.cluster.domain_of[:-1])


def _signatures(sets: Sequence[frozenset[int]], used: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Which of the distinct node sets of all roles a node belongs to."""
    found: dict[int, list[int]] = {n: [] for n in used}
    for number, nodes in enumerate(sets):
        for n in nodes:
            found[n].append(number)
    return {n: tuple(numbers) for n, numbers in found.items()}


def _hardware(instance: Instance) -> tuple[int, ...]:
    """A number for the hardware of every node: server model and NICs."""
    numbers: dict[object, int] = {}
    known: dict[tuple[int, int], int] = {}
    found = []
    for node in instance.cluster.nodes:
        same = (id(node.model), id(node.effective_nics))
        if same not in known:
            key = node.model and (node.model, node.effective_nics)
            known[same] = numbers.setdefault(key, len(numbers))
        found.append(known[same])
    return tuple(found)


def _hidden_free(instance: Instance, rooms: Sequence[Room], n: int) -> tuple[bool, int | None]:
    """Whether pods get no GPU indices there, and the free GPUs if these then matter."""
    node, room = instance.cluster.nodes[n], rooms[n]
    if not room.blind or node.model is None:
        return room.blind and node.model is not None, None
    return True, None if by_count(node.model, node.effective_nics) else room.mask


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
    packings: Packings,
    *,
    by_level: bool,
) -> Region:
    first = instance.cluster.nodes[nodes[0]]
    with_standing: dict[ServerSet, int] = {}
    standing_index: dict[int, int] = {}
    for d in standing_demands.get(nodes[0], ()):
        own = dict(demands[d].standing)[nodes[0]]
        standing_index[d] = with_standing.setdefault(own, len(with_standing))
    usages = {n: node_usages[n] for n in nodes if n in node_usages}
    domains: tuple[int | None, ...] = tuple(None for _ in instance.cluster.levels)
    if by_level:
        domains = _innermost(instance, nodes[0])
    return Region(
        number,
        tuple(nodes),
        first,
        packing_of(
            first,
            [rooms[n] for n in nodes],
            tuple(with_standing),
            usages=usages.get(nodes[0]),
            held=held,
            packings=packings,
        ),
        domains,
        nodes[0] in tight,
        standing_index,
        usages,
    )


Packings = dict[tuple[ServerModel, tuple[Nic, ...]], Packing]
"""Packings that depend on the hardware alone, which servers share: they remember what they compute."""


def packing_of(
    node: Node,
    rooms: Sequence[Room],
    with_standing: tuple[ServerSet, ...] = (),
    *,
    usages: Mapping[int, tuple[NodeUsage, ...]] | None = None,
    held: int = 0,
    packings: Packings | None = None,
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
    if room.blind:
        return CountPacking(node, room.mask, blind=True, relaxed=False, with_standing=with_standing)
    if not counted and max(r.mask.bit_count() for r in rooms) > LARGEST_MESH_STATE:
        return CountPacking(node, room.mask, blind=False, relaxed=True, with_standing=with_standing)
    if packings is None or with_standing:
        packings = {}
    key = (node.model, node.effective_nics)
    if key not in packings:
        packings[key] = (
            CountPacking(node, 0, blind=False, relaxed=False, with_standing=with_standing)
            if counted
            else MaskPacking(node, with_standing)
        )
    return packings[key]
