"""One attempt to place the missing pods of one gang within a set of nodes.

Chosen pods fit next to everything in the free space and next to each other, under the topology
rules of gang, role and slices. A failed trial leaves the free space unchanged. Pods of a gang that is spread
evenly (contract 2.19) are dealt to few domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import heapify, heapreplace
from itertools import islice

import numpy as np

from models.instance.gang import Role
from models.instance.occupancy import PODS
from models.instance.solution import PodPlacement
from models.rules.demands import Demand, RoleDemand, groups_of
from planner.search.free_arrays import Capacity, IntArray, as_array, sums
from planner.search.free_space import FreeSpace, Pods
from planner.search.start.node_choice import Piece, Room, spread
from planner.search.start.pod_limits import Limits, trimmed

Options = Iterable[IntArray]
"""Arrays of nodes to choose from."""

Batch = tuple[RoleDemand, ...]
"""Roles whose pods ask for the same and are held to no domain of their own: placed like one role."""


def batches(roles: Sequence[Role], demand: Demand) -> list[Batch]:
    """The roles of a demand in the order in which they are placed: the largest pods, then most pods first."""
    found: dict[object, Batch] = {}
    for role in demand.roles:
        spec = roles[role.role]
        about_pods = spec.pod_sets or spec.anti_affinity or spec.affinity or spec.spread
        own = about_pods or spec.required is not None or spec.slice_layers or not role.gpus
        key = role.role if own else (role.gpus, role.requests, role.nodes, spec.mix_models)
        found[key] = (*found.get(key, ()), role)
    return sorted(found.values(), key=lambda b: (-b[0].gpus, -pods_of(b), b[0].role))


def pods_of(batch: Batch) -> int:
    return sum(role.count for role in batch)


class Trial:
    """``roles``: in the place of the gang's.

    ``_chosen``: (role, index, node) of the pods so far. ``_gpus``, ``_used``: what they take, by node.
    """

    def __init__(
        self, space: FreeSpace, demand: Demand, limits: Limits, roles: Sequence[Role] | None = None
    ) -> None:
        self._space = space
        self._limits = limits
        self._demand = demand
        self._gpus: dict[int, int] = {}
        self._used: dict[int, dict[str, int]] = {}
        self._chosen: list[tuple[RoleDemand, int, int]] = []
        self._tables: dict[int, Capacity] = {}
        self._tree = space.arrays.tree
        gang = space.instance.gangs[demand.gang]
        self._roles = gang.roles if roles is None else roles
        self._planned = as_array({pod.node for pod in gang.planned})

    def run(self, demand: Demand, scope: IntArray, model: str | None) -> bool:
        """Place pods of the demand, on one GPU model if one is given; after False it must not be used."""
        for batch in batches(self._roles, demand):
            table = self._space.capacity(self._demand.gang, batch[0], model)
            self._tables[batch[0].role] = table
            if not self._place_batch(batch, scope[table.pods[scope] > 0]):
                return False
        return True

    def pods(self) -> Pods:
        pools = {n: self._space.pick(n, gpus) for n, gpus in sorted(self._gpus.items()) if gpus}
        placed = []
        for role, index, n in sorted(self._chosen, key=lambda c: (c[0].role, c[1])):
            mask: int | None = 0
            if role.gpus and (pool := pools[n]) is not None:
                mask = sum(1 << gpu for gpu in pool[: role.gpus])
                del pool[: role.gpus]
            elif role.gpus:  # where the node chooses, only a pod of the whole node has indices
                node, here = self._space.instance.cluster.nodes[n], self._space.by_node[n]
                mask = here.mask if not here.unknown and role.gpus == node.gpus else None
            placed.append(PodPlacement(role.role, index, n, mask))
        return tuple(placed)

    def _capacities(self, role: RoleDemand, nodes: IntArray, most: int) -> IntArray:
        """Number of pods of the role, at most ``most``, that fit on each node."""
        found = np.minimum(self._tables[role.role].pods[nodes], most)
        if self._used:
            for at in np.flatnonzero(np.isin(nodes, as_array(self._used))).tolist():
                found[at] = self._beside_own(int(nodes[at]), role, most)
        for limit in self._limits.get(role.role, ()):
            of, left = self._tree.domain_of[limit.level], limit.most.copy()
            for chosen, _, n in self._chosen:
                left[of[n]] -= chosen.role in limit.roles
            found = trimmed(found, of[nodes], np.maximum(left, 0))
        return found

    def _choose(self, options: Options, attempt: Callable[[IntArray], bool]) -> bool:
        """Place pods on the first of these node lists that takes them."""
        for option in options:
            mark = len(self._chosen)
            if attempt(option):
                return True
            self._undo(mark)
        return False

    def _undo(self, mark: int) -> None:
        for role, _, n in self._chosen[mark:]:
            self._gpus[n] -= role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                self._used[n][resource] -= amount
            if not self._used[n][PODS]:
                del self._used[n]
        del self._chosen[mark:]

    def _beside_own(self, n: int, role: RoleDemand, most: int) -> int:
        """The same of a node that has pods of this trial already."""
        node, used = self._space.by_node[n], self._used[n]
        left = {
            r: node.left[r] - used.get(r, 0)
            for r, _ in ((PODS, 1), *role.requests)
            if r in node.left
        }
        free = node.free - self._gpus[n]
        if (beside := self._space.left_beside(n, self._gpus[n], used)) is not None:
            free, left = beside[0], {**left, **beside[1]}
        if role.gpus:
            most = min(most, free // role.gpus)
        for resource, amount in ((PODS, 1), *role.requests):
            if amount and resource in left:
                most = min(most, left[resource] // amount)
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
        return self._choose(options, partial(self._place_layers, role, layers, list(role.indices)))

    def _by_domain(
        self, role: RoleDemand, count: int, level: int, nodes: IntArray
    ) -> Iterator[IntArray]:
        """The nodes of every domain that may take so many pods: used ones first, then the tightest."""
        of, size = self._tree.domain_of[level], self._tree.sizes[level]
        room = sums(of[nodes], self._capacities(role, nodes, count), size)
        idle = sums(of[nodes], self._space.arrays.free[nodes], size)
        domains = np.flatnonzero(room >= count)
        unused = ~np.isin(domains, of[as_array({n for _, _, n in self._chosen})])
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
        cluster = self._space.instance.cluster
        fixed = dict(role.layers[layers - 1]) if role.layers else {}
        for members in groups_of(indices, size):
            domain = fixed.get(tuple(members))
            if domain is None:
                options = self._by_domain(role, len(members), level, nodes)
            else:
                inside = as_array(cluster.domains[level][domain].nodes)
                options = iter((nodes[np.isin(nodes, inside)],))
            attempt = partial(self._place_layers, role, layers - 1, members)
            if not self._choose(options, attempt):
                return False
        return True

    def _place_pods(self, pods: Sequence[tuple[RoleDemand, int]], nodes: IntArray) -> bool:
        """Place these pods, which ask for the same. Each: (role, index)."""
        like, count = pods[0][0], len(pods)
        room = self._capacities(like, nodes, count)
        if int(room.sum()) < count:
            return False
        ahead = iter(pods)
        for n, piece in self._pieces(count, nodes, room):
            for role, index in islice(ahead, piece):
                self._chosen.append((role, index, n))
                self._gpus[n] = self._gpus.get(n, 0) + role.gpus
                used = self._used.setdefault(n, {})
                for resource, amount in ((PODS, 1), *role.requests):
                    used[resource] = used.get(resource, 0) + amount
        return True

    def _pieces(self, count: int, nodes: IntArray, pods: IntArray) -> list[Piece]:
        """Pods a node: nodes that the gang uses first, then others. ``pods``: those that fit, by node."""
        if len(nodes) == 1:
            return [(int(nodes[0]), count)]
        free, found = self._space.arrays.tightness[nodes], list[Piece]()
        groups = (as_array(self._used), as_array(self._demand.standing_nodes))
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
        unplanned = (~np.isin(nodes, self._planned)).astype(np.int64)
        room = Room(nodes, pods, free, unplanned).part(pods > 0)
        return [*found, *spread(self._space.arrays, count, room, np.concatenate(groups))]


MAX_NUMBERS = 8
"""Numbers of domains that are tried."""

Part = tuple[Demand, IntArray]
"""Pods to place, and the nodes for them."""


def parts(
    space: FreeSpace, demand: Demand, nodes: IntArray, model: str | None
) -> Iterator[list[Part]]:
    """Ways to divide the pods of a gang between domains; one with all pods where it need not be even."""
    level, roles = space.instance.gangs[demand.gang].balance, demand.gpu_roles
    if level is None or not roles:
        yield [(demand, nodes)]
        return
    of = space.arrays.tree.domain_of[level]
    spec = space.instance.gangs[demand.gang]
    standing = Counter(
        int(of[pod.node]) for pod in space.pods[demand.gang] if spec.roles[pod.role].gpus
    )
    if not standing and len(np.unique(of[nodes])) == 1:
        yield [(demand, nodes)]
        return
    units = [_units(space, demand, role, level, nodes) for role in roles]
    if any(own is None for own in units):
        return
    others = replace(demand, roles=demand.cpu_only_roles)
    for left in islice(_shares(space, demand, nodes, model, standing), MAX_NUMBERS):
        dealt = [_deal(own or [], left) for own in units]
        if any(left.values()):
            continue
        found = []
        for d in left:
            pairs = zip(roles, dealt, strict=True)
            here = tuple(replace(role, indices=own[d]) for role, own in pairs if own[d])
            if here:
                found.append((replace(demand, roles=here), nodes[of[nodes] == d]))
        yield [*found, (others, nodes)] if others.roles else found


def _shares(
    space: FreeSpace, demand: Demand, nodes: IntArray, model: str | None, standing: Counter[int]
) -> Iterator[dict[int, int]]:
    """Pods to come to each domain, for each number of domains that has room for them."""
    tree, level = space.arrays.tree, space.instance.gangs[demand.gang].balance
    assert level is not None, "see parts"
    of, roles = tree.domain_of[level], demand.gpu_roles
    pods = sum(role.count for role in roles)
    if len(roles) == 1:
        room = space.capacity(demand.gang, roles[0], model).pods[nodes]
    else:  # about as many as there are GPUs for
        room = space.arrays.free[nodes] * pods // max(1, demand.gpus)
    found = sums(of[nodes], room, tree.sizes[level])
    empty = [d for d in np.flatnonzero(found).tolist() if d not in standing]
    empty.sort(key=lambda d: (int(found[d]), d))
    total = pods + standing.total()
    for number in range(max(1, len(standing)), min(total, len(empty) + len(standing)) + 1):
        least, larger = divmod(total, number)
        most = least + bool(larger)
        wide = [d for d in empty if found[d] >= most]
        narrow = [d for d in empty if least <= found[d] < most]
        wanted = number - len(standing)
        chosen = wide[:wanted]
        chosen += narrow[len(narrow) - (wanted - len(chosen)) :] if wanted > len(chosen) else []
        if len(chosen) < wanted:
            continue
        # the larger shares to those that hold one already, then to the roomiest
        order = sorted((*standing, *chosen), key=lambda d: (-standing[d], -int(found[d]), d))
        left = {d: least + (at < larger) - standing[d] for at, d in enumerate(order)}
        if all(0 <= pods_left <= found[d] for d, pods_left in left.items()):
            yield left


def _units(
    space: FreeSpace, demand: Demand, role: RoleDemand, level: int, nodes: IntArray
) -> list[tuple[int, ...]] | None:
    """Pods of the role that come to one domain together; None where slices or domains may not be cut so."""
    spec, tree = space.instance.gangs[demand.gang].roles[role.role], space.arrays.tree
    ruled = [*spec.slice_layers, *([(0, spec.required)] if spec.required is not None else [])]
    wider = [own for _, own in ruled if own < level]
    if role.layers or any(len(np.unique(tree.domain_of[own][nodes])) > 1 for own in wider):
        return None
    if spec.required is not None and spec.required >= level:
        return [role.indices]
    size = max((size for size, own in spec.slice_layers if own >= level), default=1)
    return [tuple(own) for own in groups_of(role.indices, size)]


def _deal(units: Sequence[tuple[int, ...]], left: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """Indices by domain, each unit to a domain that takes most; these are taken off ``left``, also below 0.

    Units of one size are dealt so that a domain has consecutive ones.
    """
    heap = [(-pods, at, d) for at, (d, pods) in enumerate(left.items())]
    heapify(heap)
    turns = []
    for unit in units:
        pods, at, d = heap[0]
        heapreplace(heap, (pods + len(unit), at, d))
        left[d] -= len(unit)
        turns.append((at, d))
    if len({len(unit) for unit in units}) == 1:
        turns.sort()
    found: dict[int, tuple[int, ...]] = dict.fromkeys(left, ())
    for unit, (_, d) in zip(units, turns, strict=True):
        found[d] += unit
    return {d: tuple(sorted(indices)) for d, indices in found.items()}
