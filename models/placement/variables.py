"""Every variable of the formulation and what it means.

Promises: the only place that creates variables shared between rules; rules read them through the
records here and may add helpers of their own. Called by ``formulation`` and ``pooled``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.gang import Gang
from models.instance import Instance
from models.occupancy import Room
from models.placement.demands import Demand, RoleDemand, identity
from models.placement.packing import Arc, MaskPacking, SetType, subsets
from models.placement.pieces import Piece, arcs_of, vectors
from models.placement.program import Linear, Program
from models.placement.regions import Pools, Region, local


@dataclass
class GangVariables:
    """One gang placed by itself. ``zeros[(i, r)]``: pods of its i-th role without GPUs in region r."""

    number: int
    demand: Demand
    gang: Gang
    admit: int
    pieces: list[Piece] = field(default_factory=list)
    zeros: dict[tuple[int, int], int] = field(default_factory=dict)
    rides: bool = True

    @property
    def gpu_regions(self) -> list[int]:
        return sorted({piece.region for piece in self.pieces})

    @property
    def regions(self) -> list[int]:
        return sorted({p.region for p in self.pieces} | {region for _, region in self.zeros})

    def admitted(self, factor: int = 1) -> Linear:
        return Linear().add(self.admit, factor)

    def gpu_pods(self, role: int, regions: Sequence[int] | set[int]) -> Linear:
        """Pods of the i-th GPU role in these regions."""
        expression = Linear()
        for piece in self.pieces:
            if piece.region in regions:
                expression.add(piece.variable, piece.pods[role])
        return expression

    def zero_pods(self, role: int, regions: Sequence[int] | set[int]) -> Linear:
        """Pods of the i-th role without GPUs in these regions."""
        expression = Linear()
        for (number, region), variable in self.zeros.items():
            if number == role and region in regions:
                expression.add(variable)
        return expression


@dataclass
class GroupVariables:
    """Identical gangs that each take one piece on one node: counts say it all.

    ``admits``: one boolean a gang, in the order in which they go (priority, age, name).
    """

    demands: tuple[Demand, ...]
    gangs: tuple[Gang, ...]
    admits: tuple[int, ...]
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class PodPool:
    """Single pods of one size, node set and requests, of many gangs. ``level``: the required level of those.

    ``demands``: one stand-in demand with the role and a count of one.
    """

    role: RoleDemand
    level: int | None
    demands: tuple[Demand, ...]
    pieces: list[Piece] = field(default_factory=list)

    def pods(self, regions: Sequence[int] | None = None) -> Linear:
        """Pods of the pool in these regions, or in all."""
        return Linear().add_all(
            p.variable for p in self.pieces if regions is None or p.region in regions
        )


Owner = GangVariables | GroupVariables | PodPool


@dataclass
class RegionFlow:
    """Integer flow of a region's servers through packing states.

    ``sets``: where the region is one mesh server, its GPU sets themselves (mask, type, boolean)
    instead of arcs: 255 booleans for eight GPUs against some 1,700 arcs. ``rests[state]``: servers left so.
    """

    starts: dict[int, int]
    arcs: list[tuple[Arc, int]] = field(default_factory=list)
    sets: list[tuple[int, SetType, int]] = field(default_factory=list)
    rests: dict[int, int] = field(default_factory=dict)


@dataclass
class Variables:
    """All of it. ``siblings``: identical gangs placed one by one, in the order in which they go."""

    gangs: list[GangVariables]
    groups: list[GroupVariables]
    flows: list[RegionFlow]
    siblings: list[tuple[int, ...]]


def create(
    instance: Instance,
    program: Program,
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    pools: Pools,
) -> Variables:
    """Variables of every demand and every region."""
    gangs: list[GangVariables] = []
    groups: list[GroupVariables] = []
    siblings: list[tuple[int, ...]] = []
    wishes = Wishes(instance, pools, rooms)
    for members in classes(instance, demands, pools):
        first = members[0]
        if local(instance, first[1], rides=pools.riding[first[0]]):
            group = GroupVariables(
                tuple(d for _, d in members),
                tuple(instance.gangs[d.gang] for _, d in members),
                tuple(program.boolean() for _ in members),
            )
            groups.append(group)
            wishes.local(group)
            continue
        siblings.append(tuple(range(len(gangs), len(gangs) + len(members))))
        for number, demand in members:
            admit = program.boolean()
            if not demand.possible:
                program.fix(admit, 0)
            variables = GangVariables(
                number, demand, instance.gangs[demand.gang], admit, rides=pools.riding[number]
            )
            gangs.append(variables)
            wishes.alone(program, variables)
    flows = wishes.flows(program)
    wishes.pieces(program)
    return Variables(gangs, groups, flows, siblings)


def classes(
    instance: Instance, demands: Sequence[Demand], pools: Pools
) -> list[list[tuple[int, Demand]]]:
    """Identical gangs together, each class in the order (priority, age, name) in which they go."""
    classes: dict[object, list[tuple[int, Demand]]] = {}
    for number, demand in enumerate(demands):
        key = (identity(instance, demand), pools.riding[number])
        classes.setdefault(key, []).append((number, demand))

    def order(member: tuple[int, Demand]) -> tuple[int, int, int]:
        gang = instance.gangs[member[1].gang]
        return (-gang.priority, -instance.age(gang), member[1].gang)

    return [sorted(members, key=order) for members in classes.values()]


class Wishes:
    """Collects which vectors each demand may put on each region before the flow tells the set types."""

    def __init__(self, instance: Instance, pools: Pools, rooms: Sequence[Room]) -> None:
        self._instance = instance
        self._pools = pools
        self._most = [max(rooms[n].free_gpus for n in region.nodes) for region in pools.regions]
        self._rooms = rooms
        self._starts = [_starts(region, rooms) for region in pools.regions]
        self._wanted: list[tuple[Owner, Demand, Region, tuple[int, ...]]] = []
        self._sizes: list[set[int]] = [set() for _ in pools.regions]
        self._kinds: list[dict[int, dict[SetType, None]]] = []

    def local(self, group: GroupVariables) -> None:
        self._gpu_pieces(group, group.demands[0], whole=True)

    def pool(self, pool: PodPool) -> None:
        """Single pods of a pool, wherever they may run."""
        self._gpu_pieces(pool, pool.demands[0], whole=False)

    def alone(self, program: Program, variables: GangVariables) -> None:
        self._gpu_pieces(variables, variables.demand, whole=False)
        if variables.rides:
            return
        for position, role in enumerate(variables.demand.zero_roles):
            for region in self._pools.regions:
                if region.nodes[0] in role.nodes:
                    variables.zeros[position, region.number] = program.integer(0, role.count)

    def _gpu_pieces(self, owner: Owner, demand: Demand, *, whole: bool) -> None:
        if not demand.gpu_roles:
            return
        for region in self._pools.regions:
            most = self._most[region.number]
            for pods in vectors(self._instance, demand, region, most, whole=whole):
                self._wanted.append((owner, demand, region, pods))
                self._sizes[region.number].add(_gpus(demand.gpu_roles, pods))

    def flows(self, program: Program) -> list[RegionFlow]:
        return [
            self._sets(program, region, starts, sizes)
            if sizes and isinstance(region.packing, MaskPacking) and len(region.nodes) == 1
            else self._flow(program, region, starts, sizes)
            for region, starts, sizes in zip(
                self._pools.regions, self._starts, self._sizes, strict=True
            )
        ]

    def _flow(
        self, program: Program, region: Region, starts: dict[int, int], sizes: set[int]
    ) -> RegionFlow:
        arcs = arcs_of(region, starts, sizes)
        servers = len(region.nodes)
        flow = RegionFlow(dict(starts))
        flow.arcs = [(arc, program.integer(0, servers)) for arc in arcs]
        states = dict.fromkeys([*starts, *(arc.target for arc in arcs)])
        flow.rests = {state: program.integer(0, servers) for state in states}
        self._kinds.append(_by_size(arc.kind for arc in arcs))
        return flow

    def _sets(
        self, program: Program, region: Region, starts: dict[int, int], sizes: set[int]
    ) -> RegionFlow:
        packing = region.packing
        assert isinstance(packing, MaskPacking)
        mask = self._rooms[region.nodes[0]].mask
        flow = RegionFlow(dict(starts))
        flow.sets = [
            (chosen, packing.kind(chosen), program.boolean())
            for size in sorted(sizes)
            for chosen in subsets(mask, size)
        ]
        # a rest is told by its size alone: any mask of that size stands for it
        flow.rests = {(1 << left) - 1: program.boolean() for left in range(mask.bit_count() + 1)}
        self._kinds.append(_by_size(kind for _, kind, _ in flow.sets))
        return flow

    def pieces(self, program: Program) -> None:
        for owner, demand, region, pods in self._wanted:
            size = _gpus(demand.gpu_roles, pods)
            for kind in self._kinds[region.number].get(size, {}):
                most = self._most_of(owner, demand, region, pods)
                owner.pieces.append(Piece(region.number, pods, kind, program.integer(0, most)))

    def _most_of(self, owner: Owner, demand: Demand, region: Region, pods: tuple[int, ...]) -> int:
        if isinstance(owner, GroupVariables):
            return len(owner.demands)
        if isinstance(owner, PodPool):
            return sum(self._rooms[n].free_gpus // demand.gpu_roles[0].gpus for n in region.nodes)
        by_role = min(
            role.count // count for role, count in zip(demand.gpu_roles, pods, strict=True) if count
        )
        return min(len(region.nodes), by_role)


def _by_size(kinds: Iterable[SetType]) -> dict[int, dict[SetType, None]]:
    """Distinct set types by their number of GPUs, in order."""
    found: dict[int, dict[SetType, None]] = {}
    for kind in kinds:
        found.setdefault(kind.gpus, {})[kind] = None
    return found


def _gpus(roles: Sequence[RoleDemand], pods: Sequence[int]) -> int:
    return sum(role.gpus * count for role, count in zip(roles, pods, strict=True))


def _starts(region: Region, rooms: Sequence[Room]) -> dict[int, int]:
    starts: dict[int, int] = {}
    for n in region.nodes:
        state = region.packing.state(rooms[n].mask, rooms[n].free_gpus)
        starts[state] = starts.get(state, 0) + 1
    return dict(sorted(starts.items()))
