"""Shapes: the narrowest domain that a pooled gang is whole in, and what that is worth at best.

A plan has a gang on one node, else whole in one rack, else in one block, else anywhere; with its shape its
preference is known, and no placement of that shape has more bandwidth or less span than is said here.
Promises: bounds no plan beats, exact where sizes divide one another. Called by ``pooled``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.bandwidth import UnknownRate
from models.cluster import Node
from models.instance import Instance
from models.occupancy import Room
from models.placement.demands import Demand, RoleDemand
from models.placement.packing import by_count, inside_known_MBps, network_MBps
from models.pricing import FULL_SHARE, ServerSet, ideal_MBps, share_permille


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
