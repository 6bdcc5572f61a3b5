"""One attempt to place the missing pods of one gang within a set of nodes.

Chosen pods fit next to everything in the free space and next to each other, under the topology
rules of gang, role and slices. A failed trial leaves the free space unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from models.gang import Gang
from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand, groups_of
from models.solution import PodPlacement
from planner.search.free_space import FreeSpace

Counts = tuple[int, ...]
"""Number of pods of each role."""


def counts_of(gang: Gang, pods: Iterable[PodPlacement]) -> Counts:
    """Pods a role."""
    found = [0] * len(gang.roles)
    for pod in pods:
        found[pod.role] += 1
    return tuple(found)


Options = Sequence[list[int]]


class Trial:
    """``chosen``: (role, index, node) of the pods placed so far."""

    def __init__(self, space: FreeSpace, demand: Demand) -> None:
        self.space = space
        self.demand = demand
        self.gpus: dict[int, int] = {}
        self.used: dict[int, dict[str, int]] = {}
        self.chosen: list[tuple[RoleDemand, int, int]] = []
        gang = space.instance.gangs[demand.gang]
        self._roles = gang.roles
        self._search = {pod.node for pod in gang.planned}

    def run(self, scope: frozenset[int], model: str | None) -> bool:
        """Place every role; after False the trial must not be used."""
        for role in sorted(self.demand.roles, key=lambda r: (-r.gpus, r.role)):
            nodes = [n for n in sorted(scope & role.nodes) if self._of_model(n, role, model)]
            if not self._role(role, nodes):
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
                mask = self._whole(n, role) if pool is None else _taken(pool, role.gpus)
            placed.append(PodPlacement(role.role, index, n, mask))
        return tuple(placed)

    def free(self, n: int) -> int:
        """GPUs of the node that the trial may use, including those it already uses."""
        return self.space.by_node[n].free

    def fits(self, n: int, role: RoleDemand, gpus: int, used: dict[str, int]) -> bool:
        """Whether one more pod fits next to what this trial has placed on the node."""
        return self.space.fits(n, gpus + role.gpus, role.requests, used)

    def first(self, options: Options, attempt: Callable[[list[int]], bool]) -> bool:
        """Place pods on one of these node lists: here the first that takes them."""
        for option in options:
            mark = self.mark()
            if attempt(option):
                return True
            self.undo(mark)
        return False

    def open(self, role: RoleDemand, count: int, nodes: list[int]) -> bool:
        """Make room for a number of pods before they are placed; False if that is impossible."""
        del self, role, count, nodes
        return True

    def opened(self, n: int) -> bool:
        """Whether other gangs would have to give up space on the node."""
        del n
        return False

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
        gpus = self.gpus.get(n, 0)
        if role.gpus:
            most = min(most, (self.free(n) - gpus) // role.gpus)
        if most <= 0:
            return 0
        used = dict(self.used.get(n, {}))
        count = 0
        while count < most and self.fits(n, role, gpus, used):
            count += 1
            gpus += role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                used[resource] = used.get(resource, 0) + amount
        return count

    def _of_model(self, n: int, role: RoleDemand, model: str | None) -> bool:
        spec = self.space.instance.cluster.nodes[n].model
        if not role.gpus:
            return True
        return spec is not None and (model is None or spec.gpu == model)

    def _role(self, role: RoleDemand, nodes: list[int]) -> bool:
        spec = self._roles[role.role]
        options = [nodes] if spec.required is None else self._by_domain(spec.required, nodes)
        layers = len(spec.slice_layers)
        return self.first(options, lambda o: self._layered(role, layers, list(role.indices), o))

    def _by_domain(self, level: int, nodes: list[int]) -> list[list[int]]:
        """The nodes by domain: domains the gang already uses first, then the tightest."""
        of = self.space.instance.cluster.domain_of[level]
        domains: dict[int, list[int]] = {}
        for n in nodes:
            domains.setdefault(of[n], []).append(n)
        mine = {of[n] for _, _, n in self.chosen}
        room = {d: sum(self.space.by_node[n].free for n in domains[d]) for d in domains}
        return [domains[d] for d in sorted(domains, key=lambda d: (d not in mine, room[d], d))]

    def _layered(self, role: RoleDemand, layers: int, indices: list[int], nodes: list[int]) -> bool:
        """Place these pods slice by slice of the outermost of ``layers`` layers, recursively."""
        if not layers:
            return self._fill(role, indices, nodes)
        size, level = self._roles[role.role].slice_layers[layers - 1]
        of = self.space.instance.cluster.domain_of[level]
        fixed = dict(role.layers[layers - 1]) if role.layers else {}
        for members in groups_of(indices, size):
            own = fixed.get(tuple(members))
            options = [[n for n in nodes if of[n] == own]]
            if own is None:
                options = self._by_domain(level, nodes)
            if not self.first(options, self._slice(role, layers - 1, members)):
                return False
        return True

    def _slice(
        self, role: RoleDemand, layers: int, members: list[int]
    ) -> Callable[[list[int]], bool]:
        return lambda option: self._layered(role, layers, members, option)

    def _fill(self, role: RoleDemand, indices: list[int], nodes: list[int]) -> bool:
        """Use few nodes: those of the gang first, then those that take most, tightest first."""
        if not self.open(role, len(indices), nodes):
            return False
        rest, home = list(indices), self.demand.standing_nodes
        capacity = {n: self.capacity(n, role, len(rest)) for n in nodes}
        near = {n: (n not in self.used, n not in home, self.opened(n)) for n in nodes}
        order = sorted(
            (n for n in nodes if capacity[n]),
            key=lambda n: (near[n], -capacity[n], self.free(n), n not in self._search, n),
        )
        while rest and order:
            best = order[0]
            if best not in self.used and best not in home:
                whole = [n for n in order if capacity[n] >= len(rest)]
                best = min(whole, key=self._tightest(near), default=best)
            order.remove(best)
            for index in rest[: capacity[best]]:
                self._put(role, index, best)
            rest = rest[capacity[best] :]
        return not rest

    def _tightest(
        self, near: Mapping[int, tuple[bool, ...]]
    ) -> Callable[[int], tuple[object, ...]]:
        """Sort key: free GPUs, then nodes of an earlier plan."""
        return lambda n: (near[n], self.free(n), n not in self._search, n)

    def _put(self, role: RoleDemand, index: int, n: int) -> None:
        self.chosen.append((role, index, n))
        self.gpus[n] = self.gpus.get(n, 0) + role.gpus
        used = self.used.setdefault(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            used[resource] = used.get(resource, 0) + amount

    def _whole(self, n: int, role: RoleDemand) -> int | None:
        node, node_space = self.space.instance.cluster.nodes[n], self.space.by_node[n]
        return node_space.mask if not node_space.unknown and role.gpus == node.gpus else None


def _taken(pool: list[int], count: int) -> int:
    """Take the first GPUs from the pool; returns their mask."""
    mask = sum(1 << i for i in pool[:count])
    del pool[:count]
    return mask
