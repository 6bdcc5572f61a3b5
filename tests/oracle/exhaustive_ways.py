"""Every way to go on with a gang of a tiny instance: its options, spread over the nodes, with their worth.

Promises: complete up to exchanges of pods that nothing tells apart; of those that ask the same, the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from effort import Effort
from exhaustive_gangs import (
    Key,
    Option,
    Pods,
    balanced,
    counted,
    keeps_pod_rules,
    may_stand,
    models_before,
    options,
    pod_counts,
    service_of,
    shut_out,
    standing,
)
from exhaustive_queues import Part, arrived, promises
from exhaustive_rates import domains_used, relative_speed, speed, usable
from exhaustive_reserving import Reserving
from exhaustive_values import (
    LEFTOVER,
    MINIMISED,
    WHOLE_OR_FREE,
    earnings,
    leftover,
    performance,
    speed_limits,
    spots,
    stability_value,
    tier_names,
)

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement

# Every way to spread the new pods of one gang over the nodes of a tiny instance, GPUs not yet chosen.


Room = tuple[int, tuple[int, ...]]
"""What one node has left: GPUs, and amounts of the resources named by ``Spreading.limits``."""


@dataclass(frozen=True)
class Spread:
    """``pods``: (role, index, node) of the new pods; ``gpus`` and ``needs``: asked of each node.

    ``arrivals``: nodes to which a pod comes that does not stand there now. ``served``: the GPU model on
    which a service of which nothing ran must then be, None for none.
    """

    pods: tuple[tuple[int, int, int], ...]
    gpus: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    arrivals: frozenset[int]
    served: str | None


@dataclass(frozen=True)
class Batch:
    """Pods of one gang that nothing tells apart: one role, one slice (0 where it has no slices).

    ``origin``: the node where each stands now, ``wanted``: where an earlier plan put it; -1 for none.
    """

    role: int
    slice_number: int
    origin: int
    wanted: int
    indices: tuple[int, ...]


class Spreading:
    """Enumerates spreads; ``limits[n]``: the resources of node n that could bind."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.cluster = instance.cluster
        most: Counter[str] = Counter()
        for gang in instance.gangs:
            for number, role in enumerate(gang.roles):
                stand = sum(p.role == number and p.node is not None for p in gang.pods)
                for name, amount in _asks(role).items():
                    most[name] += max(role.max, stand) * amount
        # A resource that holds everything that could ever come never binds, but may be what GPUs need.
        needed = dict(instance.policy.per_gpu)
        self.limits = tuple(
            tuple(
                name
                for name, amount in sorted(node.allocatable)
                if amount < most[name] or name in needed
            )
            for node in self.cluster.nodes
        )
        self.services = models_before(instance)
        self._may: dict[tuple[Role, int], bool] = {}

    def room(self, stays: Sequence[Sequence[PodPlacement]]) -> tuple[tuple[int, ...], ...]:
        """What each node has left of what may bind, beside these pods of each gang; may be negative."""
        left = [dict(node.allocatable) for node in self.cluster.nodes]
        for gang, pods in zip(self.instance.gangs, stays, strict=True):
            for pod in pods:
                asked = _asks(gang.roles[pod.role])
                for name in left[pod.node]:
                    left[pod.node][name] -= asked.get(name, 0)
        return tuple(tuple(left[n][name] for name in names) for n, names in enumerate(self.limits))

    def fits(self, room: Sequence[Room], spread: Spread) -> bool:
        """Whether each node has what the spread asks of it."""
        return all(
            gpus >= asked and holds(amounts, need)
            for (gpus, amounts), asked, need in zip(room, spread.gpus, spread.needs, strict=True)
        )

    def of(self, g: int, option: Option) -> Iterator[Spread]:
        """Spreads of the new pods on the cluster with nothing on it; may repeat one."""
        gang = self.instance.gangs[g]
        batches = list(self._batches(gang, option.new))
        nodes = self.cluster.nodes
        empty = self.room([()] * len(self.instance.gangs))
        room: list[Room] = [
            (n.healthy.bit_count(), left) for n, left in zip(nodes, empty, strict=True)
        ]
        stays = [
            (p.role, p.index, p.node) for p in standing(gang) if (p.role, p.index) in option.stays
        ]
        for counts in self._place(gang, batches, room, ()):
            pods = [
                (batch.role, index, node)
                for batch, where in zip(batches, counts, strict=True)
                for index, node in zip(batch.indices, where, strict=True)
            ]
            if self._allowed(gang, stays, pods):
                yield self._spread(gang, pods)

    def _batches(self, gang: Gang, pods: Sequence[tuple[int, int]]) -> Iterator[Batch]:
        stand = {(p.role, p.index): p.node for p in standing(gang)}
        wanted = {(p.role, p.index): p.node for p in gang.planned}
        groups: dict[tuple[int, int, int, int], list[int]] = {}
        for r, index in pods:
            size = gang.roles[r].slice_size
            number = 0 if size is None else index // size
            kind = (r, number, stand.get((r, index), -1), wanted.get((r, index), -1))
            groups.setdefault(kind, []).append(index)
        for (r, number, origin, planned), indices in sorted(groups.items()):
            yield Batch(r, number, origin, planned, tuple(indices))

    def _place(
        self, gang: Gang, batches: list[Batch], room: list[Room], done: tuple[tuple[int, ...], ...]
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Nodes of every pod, batch by batch; within a batch the nodes ascend."""
        if len(done) == len(batches):
            yield done
            return
        batch = batches[len(done)]
        least: tuple[int, ...] = ()
        if done and self._alike(gang, batches[len(done) - 1], batch):
            least = done[-1]  # whole slices of one size change places without any effect
        for where in self._choose(gang.roles[batch.role], len(batch.indices), room, 0):
            if where >= least:
                after = self._take(gang.roles[batch.role], room, where)
                yield from self._place(gang, batches, after, (*done, where))

    def _alike(self, gang: Gang, first: Batch, second: Batch) -> bool:
        """Whether two batches are slices of one role, of one size, all of whose pods are new."""
        size = gang.roles[first.role].slice_size
        if first.role != second.role or size is None or len(first.indices) != len(second.indices):
            return False
        around = [layer for layer, _ in gang.roles[first.role].outer_slices]
        if any(first.indices[0] // big != second.indices[0] // big for big in around):
            return False
        slices = (first.slice_number, second.slice_number)
        named = [(p.role, p.index) for p in standing(gang)]
        named += [(p.role, p.index) for p in gang.planned]
        return not any(r == first.role and index // size in slices for r, index in named)

    def _choose(
        self, role: Role, pods: int, room: list[Room], first: int
    ) -> Iterator[tuple[int, ...]]:
        """Ascending nodes, from ``first`` on, for so many pods of the role."""
        if pods == 0:
            yield ()
            return
        for n in range(first, len(room)):
            if self._may_stand(role, n) and self._has(role, room, n):
                for rest in self._choose(role, pods - 1, self._take(role, room, (n,)), n):
                    yield (n, *rest)

    def _may_stand(self, role: Role, n: int) -> bool:
        if (role, n) not in self._may:
            self._may[role, n] = may_stand(self.instance, role, self.cluster.nodes[n])
        return self._may[role, n]

    def _has(self, role: Role, room: list[Room], n: int) -> bool:
        gpus, amounts = room[n]
        return gpus >= role.gpus and holds(amounts, self._need(role, n))

    def _need(self, role: Role, n: int) -> tuple[int, ...]:
        asked = _asks(role)
        return tuple(asked.get(name, 0) for name in self.limits[n])

    def _take(self, role: Role, room: list[Room], where: tuple[int, ...]) -> list[Room]:
        after = list(room)
        for n in where:
            gpus, amounts = after[n]
            need = self._need(role, n)
            left = tuple(a - b for a, b in zip(amounts, need, strict=True))
            after[n] = (gpus - role.gpus, left)
        return after

    def _allowed(self, gang: Gang, stays: Pods, new: Pods) -> bool:
        """Rules 4 and 5 for the gang and for every role and slice that gets a pod."""
        pods = [*stays, *new]
        if any(gang.roles[r].gpus and shut_out(self.instance, gang, n) for r, _, n in new):
            return False
        if new and not self._one(gang.required, [n for _, _, n in pods]):
            return False
        for number in {r for r, _, _ in new}:
            role = gang.roles[number]
            nodes = [n for r, _, n in pods if r == number]
            if not self._one(role.required, nodes) or not self._one_model(role, nodes):
                return False
        for number, index in {(r, i) for r, i, _ in new}:
            role = gang.roles[number]
            for size, level in ((role.slice_size, role.slice_level), *role.outer_slices):
                if size is not None:
                    same = [n for r, i, n in pods if r == number and i // size == index // size]
                    if not self._one(level, same):
                        return False
        return balanced(self.instance, gang, stays, new) and self._serves(gang, new)

    def _serves(self, gang: Gang, new: Pods) -> bool:
        """Rule 5 for a service: where some of it runs, else on one GPU model."""
        service = service_of(gang)
        if service is None:
            return True
        models, before = self._service_models(gang, new), self.services[service]
        return models <= before if before else len(models) <= 1

    def _service_models(self, gang: Gang, new: Pods) -> set[str]:
        """GPU models of the new pods that the rule of services binds."""
        bound = [n for r, _, n in new if gang.roles[r].gpus and not gang.roles[r].mix_models]
        models = [self.cluster.nodes[n].model for n in bound]
        return {model.gpu for model in models if model}

    def _served(self, gang: Gang, new: Pods) -> str | None:
        service = service_of(gang)
        if service is None or self.services[service]:
            return None
        return next(iter(self._service_models(gang, new)), None)

    def _one(self, level: int | None, nodes: Sequence[int]) -> bool:
        return level is None or domains_used(self.cluster, level, nodes) == 1

    def _one_model(self, role: Role, nodes: Sequence[int]) -> bool:
        models = [self.cluster.nodes[n].model for n in nodes]
        return role.gpus == 0 or role.mix_models or len({m.gpu for m in models if m}) == 1

    def _spread(self, gang: Gang, pods: Pods) -> Spread:
        stand = {(p.role, p.index): p.node for p in standing(gang)}
        gpus = [0] * len(self.cluster.nodes)
        needs = [[0] * len(names) for names in self.limits]
        for r, _, n in pods:
            gpus[n] += gang.roles[r].gpus
            needs[n] = [a + b for a, b in zip(needs[n], self._need(gang.roles[r], n), strict=True)]
        arrivals = frozenset(n for r, i, n in pods if stand.get((r, i)) != n)
        return Spread(
            tuple(sorted(pods)),
            tuple(gpus),
            tuple(tuple(need) for need in needs),
            arrivals,
            self._served(gang, pods),
        )


def holds(amounts: Sequence[int], need: Sequence[int]) -> bool:
    """Rule 2 with rule 6: what is asked must be there; what is not asked may be overfilled."""
    return all(b == 0 or a >= b for a, b in zip(amounts, need, strict=True))


def _asks(role: Role) -> dict[str, int]:
    """Amounts one pod takes; every pod takes one of ``pods``."""
    return {**dict(role.requests), "pods": 1}


# What each way to go on with a gang of a tiny instance is worth, whatever the other gangs do.


Left = tuple[int, int]
"""GPUs free on a node, and those of them that have their share of it."""

Vector = tuple[int, ...]
"""One entry a tier, larger is better. Vectors compare like plans, and so do their sums."""


def summed(*vectors: Vector) -> Vector:
    return tuple(map(sum, zip(*vectors, strict=True)))


@dataclass(frozen=True)
class Way:
    """One option and one spread. ``value``: what it adds to every sum whichever GPUs it gets; ``most``:
    with the ideal bandwidth. ``relative``: speed of its slowest GPU; ``gpus``: asked in all. ``part``: what
    it adds for the rules and tiers about queues, and where it stands for gangs that should be near it.
    """

    option: Option
    spread: Spread
    value: Vector
    most: Vector
    relative: int
    part: Part

    @cached_property
    def gpus(self) -> int:
        return sum(self.spread.gpus)

    @property
    def idle(self) -> bool:
        """Whether it can always be taken: nothing is placed, and nobody has to come."""
        return not self.option.new and not self.option.excuse


class Scale:
    """The tiers of one instance as entries of a vector."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.names = tier_names(instance)
        self.zero: Vector = (0,) * len(self.names)
        self.usable = tuple(usable(instance, node) for node in instance.cluster.nodes)
        self._before = speed_limits(instance)
        self._left: dict[tuple[Left, ...], Vector] = {}
        self._performance: dict[tuple[int, int | None, int], Vector] = {}

    def vector(self, values: Mapping[str, int]) -> Vector:
        """Values by tier; absent counts 0."""
        return tuple(
            -values.get(name, 0) if name in MINIMISED else values.get(name, 0)
            for name in self.names
        )

    def room(self, counts: Sequence[Left]) -> Vector:
        """What so many GPUs left free, a node, are worth in the end."""
        left = tuple(n if ours else (0, 0) for n, ours in zip(counts, self.usable, strict=True))
        if left not in self._left:
            free, useful = zip(*left, strict=True)
            tiers = [tier for tier in LEFTOVER if tier in self.names]
            values = {tier: leftover(self.instance, tier, free, useful) for tier in tiers}
            self._left[left] = self.vector(values)
        return self._left[left]

    def ceiling(self, counts: Sequence[Left]) -> Vector:
        """No plan that leaves no more than so many GPUs is worth more for what it leaves.

        Whole pieces and free GPUs only become fewer, and nothing is the least that can be stranded.
        """
        after = zip(self.names, self.room(counts), strict=True)
        return tuple(value if name in WHOLE_OR_FREE else 0 for name, value in after)

    def performance(self, g: int, share: int | None, relative: int) -> Vector:
        """What gang g adds if it is admitted and its GPUs have this share and this relative speed."""
        key = (g, share, relative)
        if key not in self._performance:
            gang, before = self.instance.gangs[g], self._before[g]
            after = speed(gang, share, relative)
            permille = after if before is None else min(before, after)
            self._performance[key] = self.vector(performance(self.instance, gang, share, permille))
        return self._performance[key]


class Ways:
    """``of[g]``: the ways of gang g by the pods that stay in them, the one that changes nothing first;
    ``most[g]``: by the pods that stay, the most any way may add.
    """

    def __init__(
        self,
        scale: Scale,
        spreading: Spreading,
        immovable: frozenset[int],
        reserving: Reserving,
        away: frozenset[tuple[int, int, int]] = frozenset(),
    ) -> None:
        self.scale = scale
        self.effort = Effort()
        self.promises = promises(scale.instance)
        self.spreading = spreading
        self.reserving = reserving
        self.away = away
        instance = scale.instance
        self.of = [self._ways(g, immovable=g in immovable) for g in range(len(instance.gangs))]
        self.most = [
            {stays: max(way.most for way in ways) for stays, ways in of.items()} for of in self.of
        ]

    def _ways(self, g: int, *, immovable: bool) -> dict[tuple[Key, ...], list[Way]]:
        instance = self.scale.instance
        found: dict[tuple[Key, ...], dict[object, Way]] = {}
        for option in options(instance, instance.gangs[g], immovable=immovable):
            if option.moved and self._too_many(g):
                continue
            for spread in self.spreading.of(g, option):
                self.effort.one()
                if self.away and not self.away.isdisjoint(self._there(g, option, spread)):
                    continue
                stays = self.staying(g, option.stays)
                if not keeps_pod_rules(instance, g, stays, spread.pods):
                    continue
                if not self.reserving.may_come(g, spread.pods):
                    continue
                way = self._way(g, option, spread)
                rest = (option.excuse, option.moved, option.bound, option.admitted, way.part)
                key = (spread.gpus, spread.needs, spread.arrivals, spread.served, rest)
                same = found.setdefault(option.stays, {})
                if key not in same or way.value > same[key].value:
                    same[key] = way
        return {stays: list(ways.values()) for stays, ways in found.items()}

    def _there(self, g: int, option: Option, spread: Spread) -> set[tuple[int, int, int]]:
        """(gang, role, node) of its pods."""
        stays = {(g, pod.role, pod.node) for pod in self.staying(g, option.stays)}
        return stays | {(g, role, n) for role, _, n in spread.pods}

    def _too_many(self, g: int) -> bool:
        """Whether the gang is alone more than may move."""
        limits = self.scale.instance.policy.moves
        return limits is not None and (
            limits.max_gangs == 0
            or (limits.max_gpus is not None and self.standing_gpus(g) > limits.max_gpus)
        )

    def standing_gpus(self, g: int) -> int:
        """What the move of the gang counts against the limit of GPUs."""
        gang = self.scale.instance.gangs[g]
        return counted(gang, (pod.role for pod in standing(gang)))

    def _way(self, g: int, option: Option, spread: Spread) -> Way:
        instance = self.scale.instance
        gang = instance.gangs[g]
        stand = {(p.role, p.index): p.node for p in standing(gang)}
        pods = [*((r, i, stand[r, i]) for r, i in option.stays), *spread.pods]
        values = {
            f"kept/{gang.priority}": option.kept,
            "disruption": option.disruption,
            "stability": stability_value(gang, pods),
            **(earnings(instance, gang, pods) if option.admitted else {}),
        }
        value = self.scale.vector(values)
        relative = relative_speed(instance, gang, {n for r, _, n in pods if gang.roles[r].gpus})
        most = summed(value, self.scale.performance(g, 1000, relative))
        part = self._part(g, option, spread)
        if option.admitted:
            part |= spots(instance, g, pods)
        return Way(option, spread, value, most if option.admitted else value, relative, part)

    def _part(self, g: int, option: Option, spread: Spread) -> Part:
        """What the gang adds for the rules and tiers about queues."""
        gang = self.scale.instance.gangs[g]
        pods = [(r, n, pod_counts(gang.roles[r]), 0) for r, _, n in spread.pods]
        for pod in self.staying(g, option.stays):
            gpus = pod_counts(gang.roles[pod.role])
            pods.append((pod.role, pod.node, gpus, self.promises.odd(pod.node, gpus, pod.gpus)))
        come = arrived(gang, spread.pods)
        return self.promises.part(g, pods, come)

    def staying(self, g: int, stays: tuple[Key, ...]) -> tuple[PodPlacement, ...]:
        """The pods of a gang that stay."""
        gang = self.scale.instance.gangs[g]
        return tuple(pod for pod in standing(gang) if (pod.role, pod.index) in stays)
