"""Every variable of the program and what it means; rules read them through the records here.

A piece is what a gang puts on one node: a number of pods of each GPU role, and the type of GPU set they use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.instance.reshaping import Partitioning, Sharing, reshaping
from models.instance.solution import GangDecision
from models.program.base_state import PlacementRequests, classes
from models.program.interruption import TooLarge
from models.program.linear_program import Linear, Program
from models.program.options import Effect
from models.program.packing import SetType
from models.program.packing_flows import Admits, RegionFlow, flow_of
from models.program.regions import Region, RegionSet, is_single_piece
from models.program.server_cases import Case
from models.rules.demands import Demand, RoleDemand
from models.rules.pod_rules import most_on_a_node

Found = TypeVar("Found")

MAX_VECTORS = 200_000
"""Most numbers in the ways in which one node may carry pods of a gang: a number a role each.

The ways of 13 roles on 8 GPUs fit, those of 14 do not: each further role adds half as many again.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """``pods``: pods of each GPU role of the demand, in its order; ``variable`` counts such nodes."""

    region: int
    pods: tuple[int, ...]
    kind: SetType
    variable: int


SliceVariables = list[tuple[tuple[int, ...], list[tuple[set[int], int]]]]
"""Slices with variables of their own: the indices of each, and its boolean for every domain (as regions)."""


@dataclass
class GangVariables:
    """One option of a gang with pods to place. ``number``: of its demand; ``admit``: whether it is chosen.

    ``cpu_only_counts[(i, r)]``: pods of its i-th cpu-only role in region r. ``slices[role]``: for each layer,
    innermost first, slices with variables of their own. ``exchange[role]``: identical pods, by index, and
    how many of them are in each region.
    """

    number: int
    demand: Demand
    gang: Gang
    admit: int
    effect: Effect
    pieces: list[Piece] = field(default_factory=list)
    cpu_only_counts: dict[tuple[int, int], int] = field(default_factory=dict)
    cpu_only_follow: bool = True
    slices: dict[int, list[SliceVariables]] = field(default_factory=dict)
    exchange: dict[int, list[tuple[tuple[int, ...], dict[int, int]]]] = field(default_factory=dict)

    @cached_property
    def by_region(self) -> dict[int, list[Piece]]:
        """The pieces by region, ascending, once there are all of them."""
        return _by_region(self.pieces)

    @property
    def gpu_regions(self) -> list[int]:
        return list(self.by_region)

    @cached_property
    def regions(self) -> list[int]:
        return sorted(self.by_region.keys() | {region for _, region in self.cpu_only_counts})

    def admitted(self, factor: int = 1) -> Linear:
        return Linear().add(self.admit, factor)

    def gpu_pods(self, role: int, regions: Iterable[int]) -> Linear:
        """Pods of the i-th GPU role in these regions."""
        here = (self.by_region.get(region, ()) for region in sorted(regions))
        return Linear({p.variable: p.pods[role] for own in here for p in own if p.pods[role]})

    def cpu_only_pods(self, role: int, regions: Iterable[int]) -> Linear:
        """Pods of the i-th role without GPUs in these regions."""
        counts = self.cpu_only_counts
        return Linear({counts[role, r]: 1 for r in sorted(regions) if (role, r) in counts})


@dataclass
class StayVariables:
    """An option of a running gang that places nothing: kept as it is, or only shrunk."""

    demand: Demand
    gang: Gang
    admit: int
    effect: Effect


@dataclass
class GroupVariables:
    """Identical gangs that each take one piece on one node: numbers suffice.

    ``admits``: one boolean a gang, in the order in which they start (priority, age, name).
    """

    demands: tuple[Demand, ...]
    gangs: tuple[Gang, ...]
    admits: tuple[int, ...]
    pieces: list[Piece] = field(default_factory=list)


def _by_region(pieces: Iterable[Piece]) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.region, []).append(piece)
    return dict(sorted(found.items()))


@dataclass
class Partition:
    """GPUs of a node that get one geometry: pieces of one GPU. ``supply``: instances of each GPU."""

    supply: tuple[tuple[str, int], ...]
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class SharedGpus:
    """GPUs of a node that become shared: pieces of one GPU. ``most``: how many there can be."""

    sharing: Sharing
    region: int
    most: int
    pieces: list[Piece] = field(default_factory=list)


Owner = GangVariables | GroupVariables | Partition | SharedGpus


@dataclass
class Variables:
    """All variables. ``siblings``: identical gangs placed one by one, in the order in which they start.

    ``admits[c][o]``: whether option o of choice c is chosen. ``partitions``: of GPUs. ``keeping``: whether
    each GPU of ``PlacementRequests.keeping`` stays shared.
    """

    gangs: list[GangVariables]
    groups: list[GroupVariables]
    stays: list[StayVariables]
    flows: list[RegionFlow]
    siblings: list[tuple[int, ...]]
    admits: list[list[int]]
    partitions: list[Partition | SharedGpus] = field(default_factory=list)
    keeping: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class GangBandwidth:
    """What a gang reaches if it is admitted, in permille: of its ideal bandwidth and of its ideal speed.

    ``exact`` False: upper bounds.
    """

    share: Linear
    speed: Linear
    exact: bool


@dataclass
class Model:
    """A program under construction, as the rules see it.

    ``moved``: gangs and GPUs that move besides the choices of the program; ``evicted``: what their evictions
    take from each disruption budget. ``bandwidth``: by admit variable. ``base``: decisions about
    the gangs that are not decided about. ``loads``: what is used of a resource of a tight region by pods that
    come and those that may stay.
    """

    program: Program
    instance: Instance
    requests: PlacementRequests
    rooms: Sequence[Room]
    region_set: RegionSet
    variables: Variables
    moved: tuple[int, int] = (0, 0)
    evicted: Mapping[int, int] = field(default_factory=dict)
    bandwidth: dict[int, GangBandwidth] = field(default_factory=dict)
    base: Sequence[GangDecision] = ()
    loads: dict[tuple[int, str], Linear] = field(default_factory=dict)
    _fits: dict[tuple[int, int], int] = field(default_factory=dict)
    _kept: dict[object, object] = field(default_factory=dict)

    def pods_that_fit(self, region: int, gpus: int) -> int:
        """Pods of so many GPUs that the free GPUs of the region hold."""
        key = (region, gpus)
        if key not in self._fits:
            nodes = self.region_set.regions[region].nodes
            self._fits[key] = sum(self.rooms[n].free_gpus // gpus for n in nodes)
        return self._fits[key]

    def place_of(self, level: int, domain: int) -> int:
        """What stands for a domain in variables: itself; for a node its region, or a negative number."""
        if level < self.instance.cluster.node_level:
            return domain
        (n,) = self.instance.cluster.domains[level][domain].nodes
        return self.region_set.region_of.get(n, -1 - n)

    def once(self, find: Callable[[Model], Found]) -> Found:
        """What a function finds in the model once all variables are there, computed once."""
        if find not in self._kept:
            self._kept[find] = find(self)
        return cast("Found", self._kept[find])

    @cached_property
    def cases(self) -> dict[int, list[tuple[Case, int]]]:
        """By node, every case that a server may be in, with its boolean."""
        flows = zip(self.region_set.regions, self.variables.flows, strict=True)
        return {region.nodes[0]: flow.cases for region, flow in flows if flow.cases}


def create(
    instance: Instance,
    program: Program,
    requests: PlacementRequests,
    rooms: Sequence[Room],
    region_set: RegionSet,
) -> Variables:
    """Variables of every option and every region."""
    gangs: list[GangVariables] = []
    groups: list[GroupVariables] = []
    siblings: list[tuple[int, ...]] = []
    admits = [[-1] * len(choice.options) for choice in requests.choices]
    preferences = PieceBuilder(instance, region_set, rooms)
    for members in classes(instance, requests, region_set):
        first = members[0]
        if is_single_piece(
            instance, first[1], cpu_only_follow=region_set.cpu_only_follow[first[0]]
        ):
            group = GroupVariables(
                tuple(d for _, d in members),
                tuple(instance.gangs[d.gang] for _, d in members),
                tuple(program.boolean() for _ in members),
            )
            for (number, _), admit in zip(members, group.admits, strict=True):
                _note(admits, requests, number, admit)
            groups.append(group)
            preferences.is_single_piece(group)
            continue
        if len(members) > 1:
            siblings.append(tuple(range(len(gangs), len(gangs) + len(members))))
        for number, _ in members:
            variables = option_of(
                instance,
                program,
                requests,
                number,
                cpu_only_follow=region_set.cpu_only_follow[number],
            )
            _note(admits, requests, number, variables.admit)
            gangs.append(variables)
            preferences.alone(program, variables)
    stays = staying(instance, program, requests, admits)
    partitions = preferences.partitions()
    keeping = [program.boolean() for _ in requests.keeping]
    flows = preferences.flows(program, [*admits, *([one] for one in keeping)])
    preferences.pieces(program)
    return Variables(gangs, groups, stays, flows, siblings, admits, partitions, keeping)


def option_of(
    instance: Instance,
    program: Program,
    requests: PlacementRequests,
    number: int,
    *,
    cpu_only_follow: bool,
) -> GangVariables:
    """One option with pods to place."""
    demand = requests.demands[number]
    admit = program.boolean()
    if not demand.possible:
        program.fix(admit, 0)
    gang = instance.gangs[demand.gang]
    return GangVariables(
        number, demand, gang, admit, requests.effect(number), cpu_only_follow=cpu_only_follow
    )


def _note(admits: list[list[int]], requests: PlacementRequests, number: int, admit: int) -> None:
    choice, position = requests.origin[number]
    admits[choice][position] = admit


def staying(
    instance: Instance, program: Program, requests: PlacementRequests, admits: list[list[int]]
) -> list[StayVariables]:
    """The options that place nothing."""
    found = []
    for number, choice in enumerate(requests.choices):
        for position, option in enumerate(choice.options):
            if not option.demand.roles:
                admit = admits[number][position] = program.boolean()
                gang = instance.gangs[choice.gang]
                found.append(StayVariables(option.demand, gang, admit, option.effect))
    return found


class PieceBuilder:
    """Collects the pieces that each demand may put on each region; the flows then give their set types."""

    def __init__(self, instance: Instance, region_set: RegionSet, rooms: Sequence[Room]) -> None:
        self._instance = instance
        self._region_set = region_set
        self._most = [
            max(rooms[n].free_gpus for n in region.nodes) for region in region_set.regions
        ]
        self._rooms = rooms
        self._wanted: list[tuple[Owner, Demand | None, Region, tuple[int, ...], int]] = []
        self._sizes: list[set[int]] = [set() for _ in region_set.regions]
        self._kinds: list[dict[int, list[SetType]]] = []

    def is_single_piece(self, group: GroupVariables) -> None:
        self._gpu_pieces(group, group.demands[0], whole=True)

    def alone(self, program: Program, variables: GangVariables) -> None:
        self._gpu_pieces(variables, variables.demand, whole=False)
        if variables.cpu_only_follow:
            return
        for position, role in enumerate(variables.demand.cpu_only_roles):
            for region in self._region_set.regions:
                if region.nodes[0] in role.nodes:
                    variables.cpu_only_counts[position, region.number] = program.integer(
                        0, role.count
                    )

    def _gpu_pieces(self, owner: Owner, demand: Demand, *, whole: bool) -> None:
        roles = demand.roles if whole else demand.gpu_roles
        if not demand.gpu_roles:
            return
        kinds: dict[tuple[int, tuple[bool, ...]], list[tuple[tuple[int, ...], int]]] = {}
        for region in self._region_set.regions:
            most, n = self._most[region.number], region.nodes[0]
            key = (most, tuple(n in role.nodes for role in roles))
            if key not in kinds:
                kinds[key] = [
                    (pods, _gpus(demand.gpu_roles, pods))
                    for pods in vectors(self._instance, demand, region, most, whole=whole)
                ]
            for pods, size in kinds[key]:
                self._wanted.append((owner, demand, region, pods, size))
                self._sizes[region.number].add(size)

    def partitions(self) -> list[Partition | SharedGpus]:
        """GPUs that may be partitioned, in each geometry, or shared, where resources are counted."""
        known, found = reshaping(self._instance), list[Partition | SharedGpus]()
        for region in self._region_set.regions:
            one = known.get(region.nodes[0]) if region.tight else None
            made: list[Partition | SharedGpus] = []
            if isinstance(one, Sharing):
                made = [SharedGpus(one, region.number, self._most[region.number])]
            elif isinstance(one, Partitioning) and self._most[region.number]:
                pairs = (zip(one.resources, counts, strict=True) for counts in one.fillings(None))
                made = [Partition(tuple((r, c) for r, c in counts if c)) for counts in pairs]
            for owner in made:
                self._wanted.append((owner, None, region, (1,), 1))
                self._sizes[region.number].add(1)
            found += made
        return found

    def flows(self, program: Program, admits: Admits) -> list[RegionFlow]:
        requests = [size for size, _ in self._instance.policy.mix]
        flows = [
            flow_of(program, region, self._rooms, admits, sizes, requests)
            for region, sizes in zip(self._region_set.regions, self._sizes, strict=True)
        ]
        shared: dict[SetType, SetType] = {}
        self._kinds = [_by_size(flow.kinds, shared) for flow in flows]
        return flows

    def pieces(self, program: Program) -> None:
        for owner, demand, region, pods, size in self._wanted:
            most = self._most_of(owner, demand, region, pods)
            for kind in self._kinds[region.number].get(size, ()):
                owner.pieces.append(Piece(region.number, pods, kind, program.integer(0, most)))

    def _most_of(
        self, owner: Owner, demand: Demand | None, region: Region, pods: tuple[int, ...]
    ) -> int:
        if demand is None:
            return self._most[region.number]
        if isinstance(owner, GroupVariables):
            return len(owner.demands)
        if len(region.nodes) == 1:
            return 1
        by_role = min(
            role.count // count for role, count in zip(demand.gpu_roles, pods, strict=True) if count
        )
        return min(len(region.nodes), by_role)


def vectors(
    instance: Instance, demand: Demand, region: Region, most_gpus: int, *, whole: bool
) -> list[tuple[int, ...]]:
    """Pods of each GPU role that one node of the region may carry. ``whole``: only the whole gang.

    Raises TooLarge beyond MAX_VECTORS.
    """
    gang = instance.gangs[demand.gang]
    roles = demand.gpu_roles
    n = region.nodes[0]
    if whole:
        pods = tuple(role.count for role in roles)
        fits = all(n in role.nodes for role in demand.roles) and demand.gpus <= most_gpus
        return [pods] if fits else []
    partial: list[tuple[tuple[int, ...], int]] = [((), 0)]  # pods of the first roles, their GPUs
    for role in roles:
        counts = tuple(_counts(instance, demand, role, n, most_gpus))
        partial = [
            ((*pods, count), gpus + count * role.gpus)
            for pods, gpus in partial
            for count in counts
            if gpus + count * role.gpus <= most_gpus
        ]
        if len(partial) * len(roles) > MAX_VECTORS:
            raise TooLarge
    found = [pods for pods, gpus in partial if gpus]
    if gang.required == instance.cluster.node_level:
        found = [pods for pods in found if pods == tuple(role.count for role in roles)]
    return found


def _counts(
    instance: Instance, demand: Demand, role: RoleDemand, n: int, most_gpus: int
) -> Iterable[int]:
    """How many pods of the role one node may carry under its node-level rules."""
    if n not in role.nodes:
        return (0,)
    most = min(role.count, most_gpus // role.gpus)
    apart = None if demand.loose else most_on_a_node(instance, demand.gang, role.role)
    if apart is not None:
        most = min(most, apart)
    spec = instance.gangs[demand.gang].roles[role.role]
    node_level = instance.cluster.node_level
    if spec.required == node_level:
        return (0, role.count) if most == role.count else (0,)
    if spec.slice_level == node_level and spec.slice_size is not None:
        sizes = (len(indices) for indices, _ in role.groups) if role.groups else None
        if sizes is None:
            cut = role.cut(spec.slice_size)
            return [c for c in range(most + 1) if cut.fits(c)]
        sums = {0}
        for size in sizes:
            sums |= {total + size for total in sums}
        return sorted(c for c in sums if c <= most)
    return range(most + 1)


def _by_size(kinds: Iterable[SetType], shared: dict[SetType, SetType]) -> dict[int, list[SetType]]:
    """Distinct set types by their number of GPUs, in order; equal ones of all regions are one object."""
    found: dict[int, list[SetType]] = {}
    for kind in dict.fromkeys(kinds):
        found.setdefault(kind.gpus, []).append(shared.setdefault(kind, kind))
    return found


def _gpus(roles: Sequence[RoleDemand], pods: Sequence[int]) -> int:
    return sum(role.gpus * count for role, count in zip(roles, pods, strict=True))
