"""A greedy start: gangs one at a time, by priority, each into the tightest domain that holds it.

Promises: every plan it returns obeys the contract's section 2; about a second at any size; no solver.
It is a start and a test of "would it fit alone", not a proof that something does not fit.
Called by ``solve`` and ``reasons``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.evaluating import gang_value, known_masks
from models.instance import Instance
from models.masks import bits
from models.occupancy import PODS, rooms
from models.placement.demands import Demand, RoleDemand, demands_of
from models.placement.packing import CountPacking, Packing
from models.placement.regions import packing_of
from models.placement.slicing import groups_of
from models.solution import Decision, GangDecision, PodPlacement


class Ground:
    """What is free on every node while gangs are put down; ``known``: masks held, a node."""

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.known = known_masks(instance, decisions)
        self.rooms = rooms(instance, decisions)
        self.mask = [room.mask for room in self.rooms]
        self.free = [room.free_gpus for room in self.rooms]
        self.left = [dict(room.left) for room in self.rooms]
        self._packings: dict[tuple[object, ...], Packing] = {}

    def packing(self, n: int) -> Packing:
        node, room = self.instance.cluster.nodes[n], self.rooms[n]
        key = (node.model, node.effective_nics, room.blind, room.mask if room.blind else None)
        if key not in self._packings:
            self._packings[key] = packing_of(node, [room])
        return self._packings[key]

    def fits(self, n: int, role: RoleDemand, gpus: int, used: dict[str, int]) -> bool:
        """Whether one more pod fits beside what the gang at hand has already put on the node."""
        if gpus + role.gpus > self.free[n]:
            return False
        left = self.left[n]
        for resource, amount in ((PODS, 1), *role.requests):
            need = used.get(resource, 0) + amount
            if amount and resource in left and need > left[resource]:
                return False
        return True

    def take(self, gang_roles: Sequence[RoleDemand], pods: Iterable[PodPlacement]) -> None:
        """Occupy what these pods use."""
        by_role = {role.role: role for role in gang_roles}
        for pod in pods:
            role = by_role[pod.role]
            self.free[pod.node] -= role.gpus
            self.mask[pod.node] &= ~(pod.gpus or 0)
            self.known[pod.node] |= pod.gpus or 0
            for resource, amount in ((PODS, 1), *role.requests):
                if resource in self.left[pod.node]:
                    self.left[pod.node][resource] -= amount


class Trial:
    """One attempt to put one gang down within a set of nodes."""

    def __init__(self, ground: Ground, demand: Demand) -> None:
        self._ground = ground
        self._demand = demand
        self._gpus: dict[int, int] = {}
        self._used: dict[int, dict[str, int]] = {}
        self.chosen: list[tuple[RoleDemand, int, int]] = []

    def run(self, scope: frozenset[int], model: str | None) -> bool:
        """Place every role; False leaves the trial useless."""
        for role in sorted(self._demand.roles, key=lambda r: (-r.gpus, r.role)):
            nodes = [n for n in sorted(scope & role.nodes) if self._of_model(n, role, model)]
            if not self._role(role, nodes):
                return False
        return True

    def _of_model(self, n: int, role: RoleDemand, model: str | None) -> bool:
        spec = self._ground.instance.cluster.nodes[n].model
        if not role.gpus:
            return True
        return spec is not None and (model is None or spec.gpu == model)

    def _role(self, role: RoleDemand, nodes: list[int]) -> bool:
        spec = self._ground.instance.gangs[self._demand.gang].roles[role.role]
        options = [nodes] if spec.required is None else self._by_domain(spec.required, nodes)
        for option in options:
            mark = len(self.chosen)
            if self._slices(role, option):
                return True
            self._undo(mark)
        return False

    def _by_domain(self, level: int, nodes: list[int]) -> list[list[int]]:
        """The nodes by domain; those the gang already uses first, then the tightest."""
        of = self._ground.instance.cluster.domain_of[level]
        domains: dict[int, list[int]] = {}
        for n in nodes:
            domains.setdefault(of[n], []).append(n)
        mine = {of[n] for _, _, n in self.chosen}
        free = self._ground.free
        return [
            domains[d]
            for d in sorted(
                domains, key=lambda d: (d not in mine, sum(free[n] for n in domains[d]), d)
            )
        ]

    def _slices(self, role: RoleDemand, nodes: list[int]) -> bool:
        spec = self._ground.instance.gangs[self._demand.gang].roles[role.role]
        return self._layered(role, len(spec.slice_layers), list(role.indices), nodes)

    def _layered(self, role: RoleDemand, layers: int, indices: list[int], nodes: list[int]) -> bool:
        """These pods, slice by slice of the outermost of so many layers; inside each the next one."""
        if not layers:
            return self._fill(role, indices, nodes)
        spec = self._ground.instance.gangs[self._demand.gang].roles[role.role]
        size, level = spec.slice_layers[layers - 1]
        of = self._ground.instance.cluster.domain_of[level]
        fixed = dict(role.layers[layers - 1]) if role.layers else {}
        for members in groups_of(indices, size):
            own = fixed.get(tuple(members))
            options = [[n for n in nodes if of[n] == own]]
            if own is None:
                options = self._by_domain(level, nodes)
            if not any(self._attempt(role, layers - 1, members, option) for option in options):
                return False
        return True

    def _attempt(self, role: RoleDemand, layers: int, indices: list[int], nodes: list[int]) -> bool:
        mark = len(self.chosen)
        if self._layered(role, layers, indices, nodes):
            return True
        self._undo(mark)
        return False

    def _fill(self, role: RoleDemand, indices: list[int], nodes: list[int]) -> bool:
        """Few nodes: those the gang uses, then the one that takes most of the rest, tightest first."""
        rest = list(indices)
        capacity = {n: self._capacity(n, role, len(rest)) for n in nodes}
        order = sorted(
            (n for n in nodes if capacity[n]),
            key=lambda n: (n not in self._used, -capacity[n], self._ground.free[n], n),
        )
        while rest and order:
            best = order[0]
            if best not in self._used:
                whole = [n for n in order if capacity[n] >= len(rest)]
                best = min(whole, key=lambda n: (self._ground.free[n], n)) if whole else best
            order.remove(best)
            for index in rest[: capacity[best]]:
                self._put(role, index, best)
            rest = rest[capacity[best] :]
        return not rest

    def _capacity(self, n: int, role: RoleDemand, most: int) -> int:
        gpus, used = self._gpus.get(n, 0), dict(self._used.get(n, {}))
        count = 0
        while count < most and self._ground.fits(n, role, gpus, used):
            count += 1
            gpus += role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                used[resource] = used.get(resource, 0) + amount
        return count

    def _put(self, role: RoleDemand, index: int, n: int) -> None:
        self.chosen.append((role, index, n))
        self._gpus[n] = self._gpus.get(n, 0) + role.gpus
        used = self._used.setdefault(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            used[resource] = used.get(resource, 0) + amount

    def _undo(self, mark: int) -> None:
        for role, _, n in self.chosen[mark:]:
            self._gpus[n] -= role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                self._used[n][resource] -= amount
            if not self._used[n][PODS]:
                del self._used[n]
        del self.chosen[mark:]

    def pods(self) -> tuple[PodPlacement, ...]:
        """The chosen pods with GPU indices: on a mesh the fastest set the node has left."""
        pools: dict[int, list[int] | None] = {}
        for n, gpus in self._gpus.items():
            if gpus:
                pools[n] = self._pick(n, gpus)
        placed = []
        for role, index, n in sorted(self.chosen, key=lambda c: (c[0].role, c[1])):
            mask: int | None = 0
            if role.gpus:
                pool = pools[n]
                if pool is not None:
                    mask = sum(1 << i for i in pool[: role.gpus])
                    del pool[: role.gpus]
                else:
                    mask = self._whole(n, role)
            placed.append(PodPlacement(role.role, index, n, mask))
        return tuple(placed)

    def _whole(self, n: int, role: RoleDemand) -> int | None:
        node, room = self._ground.instance.cluster.nodes[n], self._ground.rooms[n]
        return room.mask if not room.unknown and role.gpus == node.gpus else None

    def _pick(self, n: int, gpus: int) -> list[int] | None:
        ground = self._ground
        if ground.rooms[n].blind:
            return None
        packing, mask = ground.packing(n), ground.mask[n]
        options = packing.carve(packing.state(mask, ground.free[n]), gpus)
        if isinstance(packing, CountPacking):
            chosen = packing.choose(mask, options[0])
        else:
            best = max(options, key=lambda arc: (arc.kind.inside or 0, arc.kind.network or 0))
            chosen = packing.choose(mask, best)
        assert chosen is not None
        return list(bits(chosen))


def greedy(instance: Instance, base: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """A plan: every gang placed or completed that still fits when its turn comes."""
    ground = Ground(instance, base)
    decisions = list(base)
    demands = demands_of(instance, ground.known)
    gangs = instance.gangs

    def turn(demand: Demand) -> tuple[int, int, int, int, int]:
        gang = gangs[demand.gang]
        largest = max((role.gpus for role in demand.roles), default=0)
        return (-gang.priority, -largest, -demand.gpus, -instance.age(gang), demand.gang)

    for demand in sorted((d for d in demands if d.possible), key=turn):
        pods = place(ground, demand)
        if pods is None:
            continue
        ground.take(demand.roles, pods)
        kind: Decision = "complete" if gangs[demand.gang].running else "place"
        both = sorted((*base[demand.gang].pods, *pods), key=lambda p: (p.role, p.index))
        decisions[demand.gang] = GangDecision(kind, tuple(both))
    return tuple(decisions)


def place(ground: Ground, demand: Demand) -> tuple[PodPlacement, ...] | None:
    """Pods for one gang on what is free, None if this heuristic finds no room."""
    for scope in scopes(ground, demand):
        for model in _models(ground, demand, scope):
            trial = Trial(ground, demand)
            if trial.run(scope, model):
                pods = trial.pods()
                if fast_enough(ground, demand, pods):
                    return pods
    return None


def _models(ground: Ground, demand: Demand, scope: frozenset[int]) -> list[str | None]:
    """GPU models to try one at a time; None lets roles mix them."""
    gang = ground.instance.gangs[demand.gang]
    nodes = ground.instance.cluster.nodes
    found = sorted({m.gpu for n in scope if (m := nodes[n].model) is not None})
    mixing = all(gang.roles[role.role].mix_models for role in demand.gpu_roles)
    return [None] if mixing or len(found) < 2 else [*found]


def scopes(ground: Ground, demand: Demand) -> Iterable[frozenset[int]]:
    """Node sets to try: narrow domains first, the tightest that may hold the gang, then everything."""
    cluster, gang = ground.instance.cluster, ground.instance.gangs[demand.gang]
    allowed = frozenset().union(*(role.nodes for role in demand.roles))
    if gang.running:
        return [allowed]
    found: list[frozenset[int]] = []
    widest = 0 if gang.required is None else gang.required
    for level in range(cluster.node_level, widest - 1, -1):
        of = cluster.domain_of[level]
        domains: dict[int, list[int]] = {}
        for n in sorted(allowed):
            domains.setdefault(of[n], []).append(n)
        room = {d: sum(ground.free[n] for n in members) for d, members in domains.items()}
        fitting = [d for d in domains if room[d] >= demand.gpus]
        found += [frozenset(domains[d]) for d in sorted(fitting, key=lambda d: (room[d], d))]
    if gang.required is None:
        found.append(allowed)
    return found


def fast_enough(ground: Ground, demand: Demand, pods: tuple[PodPlacement, ...]) -> bool:
    """Whether the placement reaches minBandwidthShare."""
    instance = ground.instance
    gang = instance.gangs[demand.gang]
    if not instance.min_share(gang):
        return True
    known = list(ground.known)
    for pod in pods:
        known[pod.node] |= pod.gpus or 0
    standing = tuple(
        PodPlacement(p.role, p.index, p.node, p.gpus if gang.roles[p.role].gpus else 0)
        for p in gang.standing
        if p.node is not None
    )
    return gang_value(instance, gang, (*standing, *pods), known).meets_min_share
