"""One attempt to place the missing pods of one gang within a set of nodes.

Chosen pods fit next to everything in the free space and next to each other, under the topology
rules of gang, role and slices. A failed trial leaves the free space unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand, groups_of
from models.solution import PodPlacement
from planner.search.free_space import FreeSpace

Options = Sequence[list[int]]
"""Node lists to choose from."""


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
        self._planned_nodes = {pod.node for pod in gang.planned}

    def run(self, scope: frozenset[int], model: str | None) -> bool:
        """Place every role; after False the trial must not be used."""
        for role in sorted(self.demand.roles, key=lambda r: (-r.gpus, r.role)):
            nodes = [n for n in sorted(scope & role.nodes) if self._of_model(n, role, model)]
            if not self._place_role(role, nodes):
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

    def choose(self, options: Options, attempt: Callable[[list[int]], bool]) -> bool:
        """Place pods on the first of these node lists that takes them."""
        for option in options:
            mark = self.mark()
            if attempt(option):
                return True
            self.undo(mark)
        return False

    def make_room(self, role: RoleDemand, count: int, nodes: list[int]) -> bool:
        """Make room for a number of pods before they are placed; False if that is impossible."""
        del self, role, count, nodes
        return True

    def has_concessions(self, n: int) -> bool:
        """Whether other gangs would have to give up space on the node: never here."""
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

    def _of_model(self, n: int, role: RoleDemand, model: str | None) -> bool:
        spec = self.space.instance.cluster.nodes[n].model
        if not role.gpus:
            return True
        return spec is not None and (model is None or spec.gpu == model)

    def _place_role(self, role: RoleDemand, nodes: list[int]) -> bool:
        spec = self._roles[role.role]
        options = [nodes] if spec.required is None else self._by_domain(spec.required, nodes)
        layers = len(spec.slice_layers)
        return self.choose(options, partial(self._place_layers, role, layers, list(role.indices)))

    def _by_domain(self, level: int, nodes: list[int]) -> list[list[int]]:
        """The nodes by domain: domains the gang already uses first, then the tightest."""
        of = self.space.instance.cluster.domain_of[level]
        domains: dict[int, list[int]] = {}
        for n in nodes:
            domains.setdefault(of[n], []).append(n)
        used = {of[n] for _, _, n in self.chosen}
        room = {d: sum(self.space.by_node[n].free for n in domains[d]) for d in domains}
        return [domains[d] for d in sorted(domains, key=lambda d: (d not in used, room[d], d))]

    def _place_layers(
        self, role: RoleDemand, layers: int, indices: list[int], nodes: list[int]
    ) -> bool:
        """Place these pods slice by slice of the outermost of ``layers`` layers, recursively."""
        if not layers:
            return self._place_pods(role, indices, nodes)
        size, level = self._roles[role.role].slice_layers[layers - 1]
        of = self.space.instance.cluster.domain_of[level]
        fixed = dict(role.layers[layers - 1]) if role.layers else {}
        for members in groups_of(indices, size):
            domain = fixed.get(tuple(members))
            if domain is None:
                options = self._by_domain(level, nodes)
            else:
                options = [[n for n in nodes if of[n] == domain]]
            attempt = partial(self._place_layers, role, layers - 1, members)
            if not self.choose(options, attempt):
                return False
        return True

    def _place_pods(self, role: RoleDemand, indices: list[int], nodes: list[int]) -> bool:
        """Use few nodes: those of the gang first, then those that take most, tightest first."""
        if not self.make_room(role, len(indices), nodes):
            return False
        indices_left, running_nodes = list(indices), self.demand.standing_nodes
        capacity = {n: self.capacity(n, role, len(indices_left)) for n in nodes}
        rank = {
            n: (n not in self.used, n not in running_nodes, self.has_concessions(n)) for n in nodes
        }
        order = sorted(
            (n for n in nodes if capacity[n]),
            key=lambda n: (rank[n], -capacity[n], self.free(n), n not in self._planned_nodes, n),
        )

        def tightness(n: int) -> tuple[object, ...]:
            return (rank[n], self.free(n), n not in self._planned_nodes, n)

        while indices_left and order:
            best = order[0]
            if best not in self.used and best not in running_nodes:
                whole = [n for n in order if capacity[n] >= len(indices_left)]
                best = min(whole, key=tightness, default=best)
            order.remove(best)
            for index in indices_left[: capacity[best]]:
                self._place_pod(role, index, best)
            indices_left = indices_left[capacity[best] :]
        return not indices_left

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
