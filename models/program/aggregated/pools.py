"""Shapes: the narrowest domain that a pooled gang is whole in, and what that is worth at best.

A plan has a gang on one node, else whole in one rack, else in one block, else anywhere; with its shape its
preference is known, and no placement of that shape has more bandwidth or less span than is said here.
Promises: bounds no plan beats, exact where sizes divide one another. Called by ``pooled``.

What the admission program knows of its gangs, and of a plan to stay close to.

Promises: which option, shape and nodes of each gang the liked plan takes; nothing is decided here.
Called by ``pooled`` and ``dealing``.

Pooled pods (the admission program): every gang finds its pods in the domain it is whole in.

For every pool: sum of its pieces == sum over gangs and shapes of pods x gangs of that shape.
For every domain D some gang may be whole in: pieces in D >= pods of all gangs that are whole in D or in
a domain within it. Domains are nested, so that this is enough (Hall's theorem for nested sets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from models.cluster import Node
from models.instance import Instance
from models.occupancy import Room
from models.program.base_state import Asked, placed
from models.program.demands import Demand, RoleDemand
from models.program.linear_program import Linear, Program
from models.program.packing import by_count, inside_known_MBps, network_MBps
from models.program.regions import Pools
from models.program.variables import PodPool, Variables
from models.rates.gang_bandwidth import FULL_SHARE, ServerSet, ideal_MBps, share_permille
from models.rates.gpu_sets import UnknownRate
from models.solution import GangDecision, PodPlacement


@dataclass(frozen=True, slots=True)
class Shape:
    """``level``: the narrowest at which all pods share one domain, None for none.

    ``preference``, ``bandwidth``: the most one such gang adds to those tiers; ``span``: the least.
    """

    level: int | None
    preference: int
    bandwidth: int
    span: int


class Shaper:
    """Shapes of gangs of one instance. ``rooms``: beside what stays in any case."""

    def __init__(self, instance: Instance, rooms: Sequence[Room]) -> None:
        self._instance = instance
        self._rooms = rooms
        self._node_level = instance.cluster.node_level
        self._hardware: dict[frozenset[int], tuple[Node, ...]] = {}
        self._fits: dict[tuple[int, frozenset[int], int], list[tuple[int, int]]] = {}

    def shapes(self, demand: Demand) -> Iterator[Shape]:
        """Of a gang that is tied together by no more than its own required level, narrowest first."""
        gang = self._instance.gangs[demand.gang]
        widest = -1 if gang.required is None else gang.required
        for level in range(self._node_level, widest - 1, -1):
            if level == self._node_level and demand.gpus > self._largest(demand):
                continue
            if level < self._node_level and sum(role.count for role in demand.gpu_roles) == 1:
                return
            yield self.shape(demand, level)

    def shape(self, demand: Demand, level: int) -> Shape:
        """That of a gang whose pods share a domain of this level, -1 for no level, and of no narrower one."""
        return Shape(
            None if level < 0 else level,
            self._preference(demand, level),
            self.bandwidth(demand, level),
            self._span(demand, level),
        )

    def domains(self, demand: Demand, level: int) -> list[int]:
        """Domains of a level with room for the whole gang."""
        found: dict[int, int] = {}
        for role in demand.gpu_roles:
            for domain, pods in self._capacity(role, level):
                if pods >= role.count:
                    found[domain] = found.get(domain, 0) + 1
        return sorted(d for d, roles in found.items() if roles == len(demand.gpu_roles))

    def _capacity(self, role: RoleDemand, level: int) -> list[tuple[int, int]]:
        """(domain, pods of the role that may find room there), most first."""
        key = (role.gpus, role.nodes, level)
        if key not in self._fits:
            of = self._instance.cluster.domain_of[level]
            pods: dict[int, int] = {}
            for n in role.nodes:
                pods[of[n]] = pods.get(of[n], 0) + self._rooms[n].free_gpus // role.gpus
            self._fits[key] = sorted(pods.items(), key=lambda item: (-item[1], item[0]))
        return self._fits[key]

    def _largest(self, demand: Demand) -> int:
        common = frozenset.intersection(*(role.nodes for role in demand.gpu_roles))
        return max((self._rooms[n].free_gpus for n in common), default=0)

    def _preference(self, demand: Demand, level: int) -> int:
        gang = self._instance.gangs[demand.gang]
        worth = 0
        if gang.preferred is not None and gang.preferred <= level:
            worth += gang.weight_gpus
        alone = len(demand.gpu_roles) == 1
        for number, role in enumerate(gang.roles):
            if role.preferred is not None:
                # one of several roles may be whole though the gang is not
                torn = alone and number == demand.gpu_roles[0].role and role.preferred > level
                worth += 0 if torn else role.min * role.gpus or 1
        return worth

    def bandwidth(self, demand: Demand, level: int) -> int:
        """The most that a gang adds whose pods share a domain of the level, but of no narrower one."""
        gang = self._instance.gangs[demand.gang]
        if gang.pattern == "none" or demand.total_gpus < 2:
            return 0
        if demand.standing:  # beside pods that stay its pods may be as fast as any
            return gang.weight * gang.weight_gpus * FULL_SHARE
        kinds = {node.name: node for role in demand.gpu_roles for node in self._kinds(role.nodes)}
        share = max((self._share(demand, level, node) for node in kinds.values()), default=0)
        return gang.weight * gang.weight_gpus * share

    def _kinds(self, nodes: frozenset[int]) -> tuple[Node, ...]:
        """One node of every kind of hardware."""
        if nodes not in self._hardware:
            found: dict[tuple[object, object], Node] = {}
            for n in sorted(nodes):
                node = self._instance.cluster.nodes[n]
                found.setdefault((node.model, node.effective_nics), node)
            self._hardware[nodes] = tuple(found.values())
        return self._hardware[nodes]

    def _share(self, demand: Demand, level: int, node: Node) -> int:
        model = node.model
        gang = self._instance.gangs[demand.gang]
        joined = gang.nvlink_across_nodes and model is not None and model.nvlink_domain_nodes > 1
        if model is None or joined or not by_count(model, node.effective_nics):
            return FULL_SHARE
        try:
            ideal = ideal_MBps((model,), demand.total_gpus, joined=gang.nvlink_across_nodes)
        except UnknownRate:
            return FULL_SHARE
        gpus = demand.gpus if level == self._node_level else self._least_piece(demand, node)
        chosen = ServerSet((1 << min(gpus, model.gpus)) - 1)
        rate = inside_known_MBps(node, chosen)
        if level < self._node_level:
            network = network_MBps(node, chosen)
            if network is None:
                return FULL_SHARE
            over = max(
                (lv.oversubscription for lv in self._instance.cluster.levels[level + 1 :]),
                default=Fraction(1),
            )
            rate = network / over if rate is None else min(rate, network / over)
        return FULL_SHARE if rate is None else share_permille(rate, ideal)

    def _least_piece(self, demand: Demand, node: Node) -> int:
        """The most GPUs that the smallest of its two or more sets can have: its pods spread evenly."""
        sizes = {role.gpus for role in demand.gpu_roles}
        if len(sizes) > 1 or any(
            role.mix_models for role in self._instance.gangs[demand.gang].roles
        ):
            return node.gpus
        (size,) = sizes
        pods = sum(role.count for role in demand.gpu_roles)
        most = node.gpus // size
        return node.gpus if not most else size * max(1, pods // max(2, -(-pods // most)))

    def _span(self, demand: Demand, level: int) -> int:
        gang = self._instance.gangs[demand.gang]
        return sum(
            gang.weight_gpus
            * (self._fewest(demand, narrower) - 1)
            * 4 ** (self._node_level - narrower)
            for narrower in range(level + 1, self._node_level + 1)
        )

    def _fewest(self, demand: Demand, level: int) -> int:
        """Domains of a level that such a gang uses at least: two, or as many as hold its pods."""
        most = 2
        for role in demand.gpu_roles:
            left, used = role.count, 0
            for _, pods in self._capacity(role, level):
                if left <= 0 or not pods:
                    break
                left, used = left - pods, used + 1
            most = max(most, used)
        return most


Place = tuple[int, int | None]
"""(position of a shape in its class, domain or None)."""


@dataclass
class PooledClass:
    """Identical gangs. ``pools``: of each GPU role; ``alone``: of a whole gang on one node.

    ``shapes``: how narrow a domain they are whole in, and how many of them are by domain.
    """

    demands: tuple[Demand, ...]
    admits: tuple[int, ...]
    pools: tuple[PodPool, ...]
    alone: PodPool | None = None
    shapes: list[tuple[Shape, dict[int | None, int]]] = field(default_factory=list)


@dataclass
class Admissions:
    """What the admission program knows. ``base``: the gangs it does not decide about.

    ``liked``: decisions of a plan to stay close to, by gang.
    """

    instance: Instance
    asks: Asked
    base: tuple[GangDecision, ...]
    pools: Pools
    variables: Variables
    pooled: list[PooledClass]
    pods: list[PodPool]
    liked: dict[int, GangDecision] = field(default_factory=dict)

    def like(self, liked: Sequence[GangDecision]) -> None:
        """Stay close to this plan: one decision a gang."""
        self.liked = {choice.gang: liked[choice.gang] for choice in self.asks.choices}

    def is_liked(self, demand: Demand) -> bool:
        """Whether the liked plan takes this option: as many pods, those that stay where they stand."""
        pods = self.liked.get(demand.gang, GangDecision("wait")).pods
        if not pods:
            return False
        there = {(p.role, p.index): p for p in pods}
        counts = [0] * len(demand.counts)
        for pod in pods:
            counts[pod.role] += 1
        return tuple(counts) == demand.counts and all(
            there.get((p.role, p.index)) == p
            for p in placed(self.instance, demand.gang, demand.stays)
        )

    def liked_pods(self, demand: Demand) -> list[PodPlacement]:
        """Where the liked plan has the pods that this option places; none if it takes another."""
        if not self.is_liked(demand):
            return []
        wanted = {(role.role, index) for role in demand.roles for index in role.indices}
        pods = self.liked[demand.gang].pods
        return [pod for pod in pods if (pod.role, pod.index) in wanted]

    def liked_place(self, own: PooledClass, demand: Demand) -> Place | None:
        """The narrowest shape and domain that the liked plan has the gang whole in."""
        pods = self.liked_pods(demand)
        cluster = self.instance.cluster
        for number, (shape, places) in enumerate(own.shapes if pods else ()):
            domain = None
            if shape.level is not None:
                used = {cluster.domain_of[shape.level][pod.node] for pod in pods}
                if len(used) > 1:
                    continue
                domain = used.pop() if shape.level < cluster.node_level else None
            if domain in places:
                return number, domain
        return None

    def liked_nodes(self, own: PooledClass, demand: Demand, pool: PodPool) -> list[int]:
        """Nodes where the liked plan has what this gang takes from the pool."""
        place = self.liked_place(own, demand)
        if place is None:
            return []
        pods = self.liked_pods(demand)
        if own.shapes[place[0]][0].level == self.instance.cluster.node_level:
            return [pods[0].node] if own.alone is pool else []
        roles = {
            role.role
            for role, used in zip(demand.gpu_roles, own.pools, strict=True)
            if used is pool
        }
        return [pod.node for pod in pods if pod.role in roles]


Domain = tuple[int, int]
"""(level, its index there)."""


def add(
    program: Program,
    instance: Instance,
    pools: Pools,
    pool: PodPool,
    pooled: Sequence[PooledClass],
) -> None:
    total = pool.pods()
    pinned: dict[Domain, Linear] = {}
    for level, domain, variable, pods in _asked(instance, pool, pooled):
        total.add(variable, -pods)
        if domain is not None and level is not None:
            pinned.setdefault((level, domain), Linear()).add(variable, pods)
    program.equal(total)
    _nested(program, instance, pools, pool, pinned)


def _asked(
    instance: Instance, pool: PodPool, pooled: Sequence[PooledClass]
) -> Iterator[tuple[int | None, int | None, int, int]]:
    """(level, domain, variable, pods a unit of it) of everything that takes from the pool."""
    for own in pooled:
        roles = zip(own.demands[0].gpu_roles, own.pools, strict=bool(own.pools))
        apart = sum(role.count for role, used in roles if used is pool)
        for shape, places in own.shapes:
            alone = shape.level == instance.cluster.node_level
            pods = int(own.alone is pool) if alone else apart
            for domain, variable in places.items() if pods else ():
                yield shape.level, domain, variable, pods


def _nested(
    program: Program,
    instance: Instance,
    pools: Pools,
    pool: PodPool,
    pinned: dict[Domain, Linear],
) -> None:
    cluster = instance.cluster
    first = {key: cluster.domains[key[0]][key[1]].nodes[0] for key in pinned}
    levels = sorted({level for level, _ in pinned})
    regions: dict[Domain, list[int]] = {}
    for number in sorted({piece.region for piece in pool.pieces}):
        n = pools.regions[number].nodes[0]
        for level in levels:
            regions.setdefault((level, cluster.domain_of[level][n]), []).append(number)
    within: dict[Domain, list[Domain]] = {}
    for inner in pinned:
        for level in levels:
            if level <= inner[0]:
                around = (level, cluster.domain_of[level][first[inner]])
                within.setdefault(around, []).append(inner)
    for key in pinned:
        row = pool.pods(regions.get(key, ()))
        for inner in within[key]:
            row.add_linear(pinned[inner], -1)
        program.at_least(row)
