"""The shapes that a gang may have, and what it adds to tiers in each at most.

A gang is whole in one node, else in one rack, else in one block, else nowhere: its shape. On several nodes,
the bandwidth of a small gang depends on its smallest piece: a shape with pieces of q pods or more takes as
many sets of q pods as such a gang has at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from models.hardware import ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.instance.speed import FULL_SPEED
from models.program.linear_program import Integers, integers
from models.program.packing import MeshSets, by_count, inside_known_MBps, mesh_sets, network_MBps
from models.program.rules.bandwidth import LEAST_GANG, Speeds
from models.program.rules.bandwidth_carriers import GroupBounds, bounded_role, relative_speed
from models.program.tier_expressions import anywhere
from models.rates.gang_bandwidth import FULL_SHARE, ServerSet, exchange_factor, share_permille
from models.rates.gang_rates import ideal_of
from models.rates.gpu_sets import UnknownRate
from models.rates.group_bandwidth import Kind
from models.rules.demands import Demand, RoleDemand


@dataclass(frozen=True, slots=True)
class Shape:
    """What a gang may have.

    ``piece``: pods on every node that it uses, or more. ``preference``, ``bandwidth``: the most that such a
    gang adds to these tiers; ``span``: the least. ``speed``: the highest, in permille.
    ``fewest``: domains that it uses at least, by level, the node level last. ``share``: the highest share
    of its ideal bandwidth, in permille. ``inside``: where not only the number of GPUs
    counts, the least that the GPUs on each server give it, MB/s; or those in each NVLink domain, of which
    it has ``group`` pods or more in each.
    """

    piece: int = 1
    preference: int = 0
    bandwidth: int = 0
    span: int = 0
    speed: int = 0
    fewest: tuple[int, ...] = ()
    share: int = FULL_SHARE
    inside: Fraction | None = None
    group: int = 1


class ShapeBounds:
    """Shapes of gangs, with bounds that no plan beats. ``rooms``: next to the pods that stay in any case."""

    def __init__(self, instance: Instance, rooms: Sequence[Room]) -> None:
        self._instance = instance
        self._free = np.array([room.free_gpus for room in rooms], dtype=np.int64)
        self._of = [np.array(of, dtype=np.int64) for of in instance.cluster.domain_of]
        self._members: dict[frozenset[int], Integers] = {}
        self._largest: dict[frozenset[int], int] = {}
        self._node_level = instance.cluster.node_level
        self._hardware: dict[frozenset[int], tuple[Node, ...]] = {}
        self._speeds: dict[tuple[frozenset[int], bool], list[tuple[int, frozenset[int]]]] = {}
        self._fits: dict[tuple[int, frozenset[int], int], list[tuple[int, int]]] = {}
        self._groups: dict[tuple[tuple[Kind, ...], Role, frozenset[int]], GroupBounds | None] = {}

    def at(self, demand: Demand, level: int) -> Iterator[Shape]:
        """The shapes of one level, the largest pieces first."""
        if level == self._node_level:
            yield self.shape(demand, level)
            return
        most = self._largest_piece(demand)
        sizes = sorted({most, *(1 << power for power in range(most.bit_length()))}, reverse=True)
        yield self.shape(demand, level, sizes[0])
        for larger, size in pairwise(sizes):
            (role,) = demand.gpu_roles
            smallest = smallest_piece(role.count, self.most_pods(role), larger - 1)
            yield self.shape(demand, level, size, smallest)

    def most_pods(self, role: RoleDemand) -> int:
        """The most pods of the role on one node."""
        return max(node.gpus // role.gpus for node in self.kinds(role.nodes))

    def _largest_piece(self, demand: Demand) -> int:
        """The most pods that the smallest piece of a gang on several nodes can have."""
        if len(demand.gpu_roles) != 1:
            return 1
        (role,) = demand.gpu_roles
        gpus = max((self._least_piece(demand, node) for node in self.kinds(role.nodes)), default=0)
        return max(1, min(gpus // role.gpus, role.count // 2))

    def shape(
        self,
        demand: Demand,
        level: int,
        piece: int = 1,
        largest: int | None = None,
        *,
        inside: Fraction | None = None,
        relative: int | None = None,
    ) -> Shape:
        """The shape of a gang whose pods share a domain of this level (-1: none) and of no narrower one.

        ``piece``: pods of its smallest piece, at most ``largest``. ``inside``: see Shape; None: the best that
        there is. ``relative``: speed of its GPUs, by default that of the slowest.
        """
        fewest = tuple(
            self._fewest(demand, at) if at > level else 1 for at in range(self._node_level + 1)
        )
        gang, weights = self._instance.gangs[demand.gang], self._instance.cluster.span_weights
        share = None
        if demand.total_gpus >= LEAST_GANG:
            share = self._most_share(demand, level, largest, inside)
        counted = 0 if gang.pattern == "none" else share or 0
        speeds = Speeds(self._instance, demand.gang, gang)
        return Shape(
            piece,
            self._preference(demand, level),
            gang.weight * gang.weight_gpus * counted,
            sum(gang.weight_gpus * (n - 1) * own for n, own in zip(fewest, weights, strict=True)),
            speeds.of(share, self.slowest(demand) if relative is None else relative),
            fewest,
            FULL_SHARE if share is None else share,
            inside,
        )

    def capacity(self, role: RoleDemand, level: int) -> list[tuple[int, int]]:
        """(domain, pods of the role that may find room there), most first; only domains with any."""
        key = (role.gpus, role.nodes, level)
        if key not in self._fits:
            own, of = self._numbers(role.nodes), self._of[level]
            pods = np.zeros(len(self._instance.cluster.domains[level]), dtype=np.int64)
            np.add.at(pods, of[own], self._free[own] // role.gpus)
            some = np.flatnonzero(pods)
            order = some[np.argsort(-pods[some], kind="stable")]
            self._fits[key] = list(zip(order.tolist(), pods[order].tolist(), strict=True))
        return self._fits[key]

    def _numbers(self, nodes: frozenset[int]) -> Integers:
        """The nodes of a set, ascending."""
        if nodes not in self._members:
            self._members[nodes] = np.sort(integers(nodes))
        return self._members[nodes]

    def largest(self, demand: Demand) -> int:
        """The most GPUs that are free on a node which all roles may use."""
        first, *others = (role.nodes for role in demand.gpu_roles)
        common = first.intersection(*others) if others else first
        if common not in self._largest:
            self._largest[common] = int(self._free[self._numbers(common)].max(initial=0))
        return self._largest[common]

    def _preference(self, demand: Demand, level: int) -> int:
        gang = self._instance.gangs[demand.gang]
        worth = 0
        if gang.preferred is not None and gang.preferred <= level:
            worth += gang.weight_gpus
        own = {role.role for role in demand.gpu_roles}
        of_roles = [((n,), role.preferred) for n, role in enumerate(gang.roles)]
        for roles, preferred in (*of_roles, *((one.roles, one.level) for one in gang.together)):
            # some of the roles may be whole although the gang is not
            if preferred is not None and (preferred <= level or not own <= {*roles}):
                worth += gang.gpus_of(roles)
        if gang.near is not None and gang.near.level <= level:
            worth += anywhere(gang)
        return worth

    def slowest(self, demand: Demand) -> int:
        return min((relative for relative, _ in self.by_speed(demand)), default=FULL_SPEED)

    def by_speed(self, demand: Demand) -> list[tuple[int, frozenset[int]]]:
        """Relative speeds of the nodes that GPU roles may use, with the nodes; the slowest first."""
        nodes, gang = demand.gpu_nodes, self._instance.gangs[demand.gang]
        key = (nodes, gang.counts_speed)
        if key not in self._speeds:
            own, hardware = self._numbers(nodes), self.hardware_of
            kinds, examples = np.unique(hardware[own], return_index=True)
            found: dict[int, list[int]] = {}
            for kind, n in zip(kinds.tolist(), own[examples].tolist(), strict=True):
                found.setdefault(relative_speed(self._instance, gang, n), []).append(kind)
            self._speeds[key] = [
                (speed, frozenset(own[np.isin(hardware[own], found[speed])].tolist()))
                for speed in sorted(found)
            ]
        return self._speeds[key]

    def _most_share(
        self, demand: Demand, level: int, largest: int | None, inside: Fraction | None
    ) -> int:
        if demand.standing:  # no bound is known for pods next to pods that stay
            return FULL_SHARE
        kinds = {node.name: node for role in demand.gpu_roles for node in self.kinds(role.nodes)}
        shares = (self._share(demand, level, node, largest, inside) for node in kinds.values())
        return max(shares, default=0)

    def kinds(self, nodes: frozenset[int]) -> tuple[Node, ...]:
        """The first node of every kind of hardware."""
        if nodes not in self._hardware:
            own = self._numbers(nodes)
            examples = np.sort(np.unique(self.hardware_of[own], return_index=True)[1])
            all_nodes = self._instance.cluster.nodes
            self._hardware[nodes] = tuple(all_nodes[n] for n in own[examples].tolist())
        return self._hardware[nodes]

    @cached_property
    def hardware_of(self) -> Integers:
        """A number for the hardware of every node: server model and NICs."""
        numbers: dict[object, int] = {}
        known: dict[tuple[int, int], int] = {}
        found = []
        for node in self._instance.cluster.nodes:
            same = (id(node.model), id(node.effective_nics))
            if same not in known:
                key = node.model, node.effective_nics
                known[same] = numbers.setdefault(key, len(numbers))
            found.append(known[same])
        return integers(found)

    def _share(
        self,
        demand: Demand,
        level: int,
        node: Node,
        largest: int | None,
        inside: Fraction | None,
    ) -> int:
        model, mesh = node.model, mesh_sets(node)
        gang = self._instance.gangs[demand.gang]
        if model is None:
            return FULL_SHARE
        try:
            ideal = ideal_of(self._instance, gang, demand.counts, (model,), demand.total_gpus)
        except UnknownRate:
            return FULL_SHARE
        rate: Fraction | None = None
        if inside is not None:
            rate = None if gang.by_rank else inside
        elif level < self._node_level and joins(self._instance.cluster, gang, node):
            pass
        elif mesh is not None:
            rate = self._mesh_MBps(mesh, demand, level, node, largest)
        elif by_count(model, node.effective_nics):
            rate = self._counted_MBps(demand, level, node, largest)
        return FULL_SHARE if rate is None else share_permille(rate, ideal)

    def _counted_MBps(
        self, demand: Demand, level: int, node: Node, largest: int | None
    ) -> Fraction | None:
        """The most of a gang on servers on which only the number of GPUs counts; None: any."""
        gang = self._instance.gangs[demand.gang]
        gpus = demand.gpus
        if level < self._node_level:
            gpus = self._least_piece(demand, node)
            if largest is not None:
                gpus = min(gpus, largest * demand.gpu_roles[0].gpus)
        chosen = ServerSet((1 << min(gpus, node.gpus)) - 1)
        rate = inside_known_MBps(node, chosen)
        if level < self._node_level:
            network = network_MBps(node, chosen)
            if network is None:
                return None
            over = self.over(level)
            if gang.in_groups:
                return self._groups_MBps(demand, node, chosen.count, over)
            return network / over if rate is None else min(rate, network / over)
        return None if gang.by_rank else rate

    def over(self, level: int) -> Fraction:
        """Oversubscription between domains within one of this level."""
        inner = self._instance.cluster.levels[level + 1 :]
        return max((own.oversubscription for own in inner), default=Fraction(1))

    def _mesh_MBps(
        self,
        mesh: MeshSets,
        demand: Demand,
        level: int,
        node: Node,
        largest: int | None,
    ) -> Fraction | None:
        """The most of a gang on servers of a kind on which not only the number of GPUs counts; None: any."""
        gang = self._instance.gangs[demand.gang]
        if gang.by_rank or (gang.in_groups and level < self._node_level):
            return None
        if level == self._node_level:
            return mesh.rates((demand.gpus,), None)[0] if 1 < demand.gpus <= mesh.gpus else None
        sizes, most = {role.gpus for role in demand.gpu_roles}, self._least_piece(demand, node)
        step = sizes.pop() if len(sizes) == 1 else 1
        if largest is not None:
            most = min(most, largest * step)
        rates = mesh.rates(range(step, most + 1, step), self.over(level)) if mesh.connected else ()
        return max(rates, default=None)

    def _groups_MBps(
        self, demand: Demand, node: Node, most: int, over: Fraction
    ) -> Fraction | None:
        """The most of a gang in groups with at most so many GPUs on such a node; None if unknown."""
        gang = self._instance.gangs[demand.gang]
        if any(len(self.kinds(role.nodes)) > 1 for role in demand.gpu_roles):
            most = node.gpus  # its smallest set may be on another kind, with another ideal
        sets = _networks(node, most)
        if sets is None:
            return None
        if not gang.by_rank:
            total = demand.total_gpus
            return max(
                network * exchange_factor(gang.pattern, own, total) / over for network, own in sets
            )
        bounds = self._group_bounds(demand)
        if bounds is None:
            return None
        return max(bounds.across(network, own, over) for network, own in sets)

    def _group_bounds(self, demand: Demand) -> GroupBounds | None:
        """Bounds of the groups of a gang on any nodes that it may use; None where a rate is unknown."""
        found = bounded_role(self._instance.gangs[demand.gang], demand.counts)
        if found is None:
            return None
        role, kinds = found
        nodes = frozenset[int]().union(*(one.nodes for one in demand.gpu_roles))
        key = kinds, role, nodes
        if key not in self._groups:
            self._groups[key] = self._new_group_bounds(*key)
        return self._groups[key]

    def _new_group_bounds(
        self, kinds: tuple[Kind, ...], role: Role, nodes: frozenset[int]
    ) -> GroupBounds | None:
        servers: list[tuple[ServerModel, Fraction, int]] = []
        for node in self.kinds(nodes):
            sets = _networks(node, node.gpus)
            if sets is None or node.model is None:
                return None
            servers += [(node.model, network, own) for network, own in sets]
        try:
            return GroupBounds(role, kinds, servers)
        except UnknownRate:
            return None

    def _least_piece(self, demand: Demand, node: Node) -> int:
        """The most GPUs that the smallest of two or more sets can have: pods are spread evenly."""
        sizes = {role.gpus for role in demand.gpu_roles}
        if len(sizes) > 1 or any(
            role.mix_models for role in self._instance.gangs[demand.gang].roles
        ):
            return node.gpus
        (size,) = sizes
        pods = sum(role.count for role in demand.gpu_roles)
        most = node.gpus // size
        return node.gpus if not most else size * max(1, pods // max(2, -(-pods // most)))

    def _fewest(self, demand: Demand, level: int) -> int:
        """Fewest domains of a level that such a gang uses: two, or as many as hold its pods."""
        most = 2
        for role in demand.gpu_roles:
            left, used = role.count, 0
            for _, pods in self.capacity(role, level):
                if left <= 0 or not pods:
                    break
                left, used = left - pods, used + 1
            most = max(most, used)
        return most


def _networks(node: Node, most: int) -> list[tuple[Fraction, int]] | None:
    """N of sets of up to so many GPUs, with their size; None if a rate is unknown."""
    rates = [network_MBps(node, ServerSet((1 << size) - 1)) for size in range(1, most + 1)]
    known = [rate for rate in rates if rate is not None]
    return None if len(known) < len(rates) else list(zip(known, range(1, most + 1), strict=True))


def smallest_piece(pods: int, most: int, limit: int) -> int:
    """The largest that the smallest of several pieces of at most ``most`` pods can be, up to ``limit``."""
    for size in range(min(limit, pods // 2), 1, -1):
        # the smallest has so many pods, the others as many or more
        if any(pods <= size + (n - 1) * most for n in range(2, pods // size + 1)):
            return size
    return 1


def nvlink_level(cluster: Cluster) -> int | None:
    """The widest level whose domains act as one server."""
    return next((level for level, spec in enumerate(cluster.levels) if spec.nvlink), None)


def joins(cluster: Cluster, gang: Gang, node: Node) -> bool:
    """Whether a gang uses NVLink between such a node and others of its domain."""
    several = node.model is not None and node.model.nvlink_domain_nodes > 1
    return several and gang.nvlink_across_nodes and nvlink_level(cluster) is not None


def domain_rates(
    gang: Gang, demand: Demand, kinds: Sequence[Node], over: Fraction
) -> Iterable[Fraction]:
    """What the network gives a gang at most with 1, 2, ... pods in the NVLink domain with fewest, MB/s.

    A gang has the network of that domain. With l pods or more in each it has there a number of sets of l
    pods, and of other pods beside them, fewer than l for each set.

    ``kinds``: a node of each kind that it may use; ``over``: oversubscription. Nothing if it is not known.
    """
    counted = all(node.model and by_count(node.model, node.effective_nics) for node in kinds)
    if not counted or gang.in_groups or len(demand.gpu_roles) > 1:
        return
    each = Fraction(0)
    for node in kinds:
        for gpus in range(1, node.gpus + 1):
            network = network_MBps(node, ServerSet((1 << gpus) - 1))
            if network is None:
                return
            each = max(each, network / gpus)
    (role,) = demand.gpu_roles
    for pods in range(1, role.count // 2 + 1):
        yield each * role.gpus * pods / over
