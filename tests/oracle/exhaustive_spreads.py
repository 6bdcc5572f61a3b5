"""Every way to spread the new pods of one gang over the nodes of a tiny instance, GPUs not yet chosen.

Promises: complete up to exchanges of pods that nothing tells apart (not where they stand now, nor where an
earlier plan wanted them); takes nothing from the formulation.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exhaustive_nodes import may_stand
from exhaustive_options import Option
from exhaustive_pins import shut_out
from exhaustive_prices import domains_used
from exhaustive_services import models_before, service_of
from exhaustive_shape import balanced
from exhaustive_values import Pods, standing

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement

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
