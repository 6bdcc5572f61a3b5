"""One attempt to place the missing pods of one gang within a set of nodes.

Chosen pods fit next to everything in the free space and next to each other, under the topology
rules of gang, role and slices. A failed trial leaves the free space unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from models.gang import Role
from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand, groups_of
from models.solution import PodPlacement
from planner.search.free_arrays import BoolArray, Capacity, IntArray, as_array, sums
from planner.search.free_space import FreeSpace
from planner.search.node_choice import Piece, Room, spread

Options = Iterable[IntArray]
"""Arrays of nodes to choose from."""

Batch = tuple[RoleDemand, ...]
"""Roles whose pods ask for the same and are held to no domain of their own: placed like one role."""


def batches(roles: Sequence[Role], demand: Demand) -> list[Batch]:
    """The roles of a demand in the order in which they are placed: the largest pods, then most pods first."""
    found: dict[object, Batch] = {}
    for role in demand.roles:
        spec = roles[role.role]
        own = spec.required is not None or spec.slice_layers or not role.gpus
        key = role.role if own else (role.gpus, role.requests, role.nodes, spec.mix_models)
        found[key] = (*found.get(key, ()), role)
    return sorted(found.values(), key=lambda b: (-b[0].gpus, -pods_of(b), b[0].role))


def pods_of(batch: Batch) -> int:
    """Number of pods."""
    return sum(role.count for role in batch)


class Trial:
    """``chosen``: (role, index, node) of the pods placed so far."""

    def __init__(self, space: FreeSpace, demand: Demand) -> None:
        self.space = space
        self.demand = demand
        self.gpus: dict[int, int] = {}
        self.used: dict[int, dict[str, int]] = {}
        self.chosen: list[tuple[RoleDemand, int, int]] = []
        self.tables: dict[int, Capacity] = {}
        self._tree = space.arrays.tree
        gang = space.instance.gangs[demand.gang]
        self._roles = gang.roles
        self._planned = as_array({pod.node for pod in gang.planned})

    def run(self, scope: IntArray | frozenset[int], model: str | None) -> bool:
        """Place every role, on one GPU model if one is given; after False the trial must not be used."""
        nodes = as_array(sorted(scope)) if isinstance(scope, frozenset) else scope
        for batch in batches(self._roles, self.demand):
            table = self.space.capacity(self.demand.gang, batch[0], model)
            self.tables[batch[0].role] = table
            if not self._place_batch(batch, self.usable(table, nodes)):
                return False
        return True

    def pods(self) -> tuple[PodPlacement, ...]:
        """The chosen pods with GPU indices."""
        pools = {n: self.space.pick(n, gpus) for n, gpus in sorted(self.gpus.items()) if gpus}
        placed = []
        for role, index, n in sorted(self.chosen, key=lambda c: (c[0].role, c[1])):
            mask: int | None = 0
            if role.gpus:
                pool = pools[n]
                mask = self._whole(n, role) if pool is None else _take(pool, role.gpus)
            placed.append(PodPlacement(role.role, index, n, mask))
        return tuple(placed)

    def free(self, n: int) -> int:
        """GPUs of the node that the trial may use, including those it already uses."""
        return self.space.by_node[n].free

    def conceded(self, n: int, resource: str) -> int:
        """Amount of a resource that other gangs would give up on the node: none here."""
        del n, resource
        return 0

    def usable(self, table: Capacity, scope: IntArray) -> IntArray:
        """The nodes that may take pods."""
        return scope[table.pods[scope] > 0]

    def free_of(self, nodes: IntArray) -> IntArray:
        """``free`` of each node."""
        return self.space.arrays.free[nodes]

    def capacities(self, role: RoleDemand, nodes: IntArray, most: int) -> IntArray:
        """``capacity`` of each node."""
        found = np.minimum(self.tables[role.role].pods[nodes], most)
        if self.used:
            for at in np.flatnonzero(np.isin(nodes, as_array(self.used))).tolist():
                found[at] = self.capacity(int(nodes[at]), role, most)
        return found

    def limits(self, role: RoleDemand, nodes: IntArray, most: int) -> IntArray:
        """Upper bounds of the pods that each node may take once room is made."""
        return self.capacities(role, nodes, most)

    def willing(self, nodes: IntArray) -> BoolArray:
        """The nodes on which no other gang would have to give up space: here all."""
        return np.full(len(nodes), fill_value=True)

    def choose(self, options: Options, attempt: Callable[[IntArray], bool]) -> bool:
        """Place pods on the first of these node lists that takes them."""
        for option in options:
            mark = self.mark()
            if attempt(option):
                return True
            self.undo(mark)
        return False

    def make_room(self, role: RoleDemand, count: int, nodes: IntArray) -> bool:
        """Make room for a number of pods before they are placed; False if that is impossible."""
        del self, role, count, nodes
        return True

    def mark(self) -> object:
        return len(self.chosen)

    def undo(self, mark: object) -> None:
        assert isinstance(mark, int)
        for role, _, n in self.chosen[mark:]:
            self.gpus[n] -= role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                self.used[n][resource] -= amount
            if not self.used[n][PODS]:
                del self.used[n]
        del self.chosen[mark:]

    def capacity(self, n: int, role: RoleDemand, most: int) -> int:
        """Number of pods of the role, at most ``most``, that fit on the node."""
        if role.gpus:
            most = min(most, (self.free(n) - self.gpus.get(n, 0)) // role.gpus)
        if most <= 0:
            return 0
        left, used = self.space.by_node[n].left, self.used.get(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            if amount and resource in left:
                room = left[resource] + self.conceded(n, resource) - used.get(resource, 0)
                most = min(most, room // amount)
        return max(0, most)

    def _place_batch(self, batch: Batch, nodes: IntArray) -> bool:
        if len(batch) > 1:
            return self._place_pods([(role, i) for role in batch for i in role.indices], nodes)
        role = batch[0]
        spec = self._roles[role.role]
        options: Options = (nodes,)
        if spec.required is not None:
            options = self._by_domain(role, role.count, spec.required, nodes)
        layers = len(spec.slice_layers)
        return self.choose(options, partial(self._place_layers, role, layers, list(role.indices)))

    def _by_domain(
        self, role: RoleDemand, count: int, level: int, nodes: IntArray
    ) -> Iterator[IntArray]:
        """The nodes of every domain that may take so many pods: used ones first, then the tightest."""
        of, size = self._tree.domain_of[level], self._tree.sizes[level]
        room = sums(of[nodes], self.limits(role, nodes, count), size)
        idle = sums(of[nodes], self.free_of(nodes), size)
        domains = np.flatnonzero(room >= count)
        unused = ~np.isin(domains, of[as_array({n for _, _, n in self.chosen})])
        order = np.lexsort((domains, idle[domains], room[domains], unused))
        for domain in domains[order].tolist():
            yield nodes[of[nodes] == domain]

    def _place_layers(
        self, role: RoleDemand, layers: int, indices: list[int], nodes: IntArray
    ) -> bool:
        """Place these pods slice by slice of the outermost of ``layers`` layers, recursively."""
        if not layers:
            return self._place_pods([(role, index) for index in indices], nodes)
        size, level = self._roles[role.role].slice_layers[layers - 1]
        cluster = self.space.instance.cluster
        fixed = dict(role.layers[layers - 1]) if role.layers else {}
        for members in groups_of(indices, size):
            domain = fixed.get(tuple(members))
            if domain is None:
                options = self._by_domain(role, len(members), level, nodes)
            else:
                inside = as_array(cluster.domains[level][domain].nodes)
                options = iter((nodes[np.isin(nodes, inside)],))
            attempt = partial(self._place_layers, role, layers - 1, members)
            if not self.choose(options, attempt):
                return False
        return True

    def _place_pods(self, pods: Sequence[tuple[RoleDemand, int]], nodes: IntArray) -> bool:
        """Place these pods, which ask for the same. Each: (role, index)."""
        like, count = pods[0][0], len(pods)
        if not self.make_room(like, count, nodes):
            return False
        room = self.capacities(like, nodes, count)
        if int(room.sum()) < count:
            return False
        ahead = iter(pods)
        for n, piece in self._pieces(count, nodes, room):
            for role, index in islice(ahead, piece):
                self._place_pod(role, index, n)
        return True

    def _pieces(self, count: int, nodes: IntArray, pods: IntArray) -> list[Piece]:
        """Pods a node: nodes that the gang uses first, then others. ``pods``: those that fit, by node."""
        if len(nodes) == 1:
            return [(int(nodes[0]), count)]
        free, found = self.free_of(nodes), list[Piece]()
        groups = (as_array(self.used), as_array(self.demand.standing_nodes))
        for group in groups:
            if not len(group):
                continue
            here = np.flatnonzero(np.isin(nodes, group) & (pods > 0))
            here = here[np.lexsort((here, free[here], -pods[here]))]
            for at in here.tolist():
                piece = min(count, int(pods[at]))
                found += [(int(nodes[at]), piece)] if piece else []
                count -= piece
            pods[here] = 0
        easily = np.where(self.willing(nodes), pods, 0)
        if int(easily.sum()) >= count:
            pods = easily
        unplanned = (~np.isin(nodes, self._planned)).astype(np.int64)
        room = Room(nodes, pods, free, unplanned).part(pods > 0)
        return [*found, *spread(self.space.arrays, count, room, np.concatenate(groups))]

    def _place_pod(self, role: RoleDemand, index: int, n: int) -> None:
        self.chosen.append((role, index, n))
        self.gpus[n] = self.gpus.get(n, 0) + role.gpus
        used = self.used.setdefault(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            used[resource] = used.get(resource, 0) + amount

    def _whole(self, n: int, role: RoleDemand) -> int | None:
        node, node_space = self.space.instance.cluster.nodes[n], self.space.by_node[n]
        return node_space.mask if not node_space.unknown and role.gpus == node.gpus else None


def _take(pool: list[int], count: int) -> int:
    """Take the first GPUs from the pool; returns their mask."""
    mask = sum(1 << i for i in pool[:count])
    del pool[:count]
    return mask
