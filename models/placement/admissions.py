"""What the admission program knows of its gangs, and of a plan to stay close to.

Promises: which option, shape and nodes of each gang the liked plan takes; nothing is decided here.
Called by ``pooled`` and ``dealing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.instance import Instance
from models.placement.asking import Asked
from models.placement.demands import Demand
from models.placement.ground import placed
from models.placement.regions import Pools
from models.placement.shapes import Shape
from models.placement.variables import PodPool, Variables
from models.solution import GangDecision, PodPlacement

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
