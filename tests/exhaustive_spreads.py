"""Every way to spread the new pods of one gang over the nodes of a tiny instance, GPUs not yet chosen.

Promises: complete up to exchanges of pods that nothing tells apart; takes nothing from the formulation.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from exhaustive_prices import domains_used
from exhaustive_values import labels_of, usable

from models.affinity import NodeExpression
from models.cluster import Node, Taint
from models.gang import Gang, Role, Toleration
from models.hardware import slug
from models.instance import Instance

Room = tuple[int, tuple[int, ...]]
"""What one node has left: GPUs, and amounts of the resources named by ``Spreading.limits``."""


@dataclass(frozen=True)
class Spread:
    """``pods``: (role, index, node) of the new pods; ``gpus`` and ``needs``: asked of each node."""

    pods: tuple[tuple[int, int, int], ...]
    gpus: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Batch:
    """Pods of one gang that nothing tells apart: one role, one slice (0 where it has no slices)."""

    role: int
    indices: tuple[int, ...]
    slice_number: int


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Kubernetes' matching of one taint; PreferNoSchedule never keeps a pod away."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(
        t.effect in ("", taint.effect)
        and (
            (t.operator == "Exists" and t.key in ("", taint.key))
            or (t.operator != "Exists" and (t.key, t.value) == (taint.key, taint.value))
        )
        for t in tolerations
    )


NAME = "(metadata.name)"
"""Stands among the labels for the field; no label is called so."""


def attracted(role: Role, labels: Mapping[str, str]) -> bool:
    """Whether the role's node affinity holds: some term has expressions, and all of them hold."""
    fulfilled = [
        [met(one, labels.get(NAME if one.field else one.key)) for one in term]
        for term in role.node_affinity
    ]
    return not fulfilled or any(term != [] and False not in term for term in fulfilled)


def met(one: NodeExpression, value: str | None) -> bool:
    """One expression against the label's value."""
    if one.operator in ("Gt", "Lt"):
        if value is None or not value.isdigit() or int(value) >= 1 << 63:
            return False
        difference = int(value) - int(one.values[0])
        return difference > 0 if one.operator == "Gt" else difference < 0
    return {
        "In": value in one.values,
        "NotIn": value not in one.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[one.operator]


def may_stand(instance: Instance, role: Role, node: Node) -> bool:
    """Whether a new pod of the role may go to the node, whatever room there is."""
    labels = labels_of(instance.cluster, node)
    wanted = None if role.model is None else slug(role.model)
    names = (slug(node.model.gpu), *node.model.slugs) if node.model else ()
    return (
        usable(instance, node)
        and all(labels.get(key) == value for key, value in role.node_selector)
        and attracted(role, {**labels, NAME: node.name})
        and all(tolerated(role.tolerations, taint) for taint in node.taints)
        and (wanted is None or wanted in names)
        and (role.gpus == 0 or node.model is not None)
    )


class Spreading:
    """Enumerates spreads; ``limits[n]``: the resources of node n that could bind, ``room[n]``: left."""

    def __init__(self, instance: Instance, moving: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        self.instance = instance
        self.cluster = instance.cluster
        self.moving = moving
        left = [dict(node.allocatable) for node in self.cluster.nodes]
        for gang in instance.gangs:
            for pod in gang.pods:
                if pod.node is not None:
                    asked = _asks(gang.roles[pod.role])
                    for name in left[pod.node]:
                        left[pod.node][name] -= asked.get(name, 0)
        most: Counter[str] = Counter()
        for g, pods in moving.items():
            for r, _ in pods:
                most.update(_asks(instance.gangs[g].roles[r]))
        # A resource that holds everything that could ever come never binds.
        self.limits = tuple(
            tuple(name for name in sorted(room) if room[name] < most[name]) for room in left
        )
        self.room = tuple(
            tuple(left[n][name] for name in names) for n, names in enumerate(self.limits)
        )

    def fits(self, room: Sequence[Room], spread: Spread) -> bool:
        """Whether each node has what the spread asks of it."""
        return all(
            gpus >= asked and holds(amounts, need)
            for (gpus, amounts), asked, need in zip(room, spread.gpus, spread.needs, strict=True)
        )

    def of(self, g: int, gpus: Sequence[int]) -> Iterator[Spread]:
        """Spreads of gang ``g`` where node n has ``gpus[n]`` GPUs left; may repeat one."""
        gang = self.instance.gangs[g]
        batches = list(self._batches(gang, self.moving[g]))
        room: list[Room] = list(zip(gpus, self.room, strict=True))
        for counts in self._place(gang, batches, room, ()):
            pods = [
                (batch.role, index, node)
                for batch, where in zip(batches, counts, strict=True)
                for index, node in zip(batch.indices, where, strict=True)
            ]
            if self._allowed(gang, pods):
                yield self._spread(gang, pods)

    def _batches(self, gang: Gang, pods: Sequence[tuple[int, int]]) -> Iterator[Batch]:
        groups: dict[tuple[int, int], list[int]] = {}
        for r, index in pods:
            size = gang.roles[r].slice_size
            groups.setdefault((r, 0 if size is None else index // size), []).append(index)
        for (r, number), indices in sorted(groups.items()):
            yield Batch(r, tuple(indices), number)

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
        """Whether two batches are slices of one role, of one size, without standing pods."""
        size = gang.roles[first.role].slice_size
        if first.role != second.role or size is None or len(first.indices) != len(second.indices):
            return False
        around = [layer for layer, _ in gang.roles[first.role].outer_slices]
        if any(first.indices[0] // big != second.indices[0] // big for big in around):
            return False
        slices = (first.slice_number, second.slice_number)
        return not any(
            p.node is not None and p.role == first.role and p.index // size in slices
            for p in gang.pods
        )

    def _choose(
        self, role: Role, pods: int, room: list[Room], first: int
    ) -> Iterator[tuple[int, ...]]:
        """Ascending nodes, from ``first`` on, for so many pods of the role."""
        if pods == 0:
            yield ()
            return
        for n in range(first, len(room)):
            if may_stand(self.instance, role, self.cluster.nodes[n]) and self._has(role, room, n):
                for rest in self._choose(role, pods - 1, self._take(role, room, (n,)), n):
                    yield (n, *rest)

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

    def _allowed(self, gang: Gang, new: Sequence[tuple[int, int, int]]) -> bool:
        """Rules 4 and 5 for the gang and for every role and slice that gets a pod."""
        stand = [(p.role, p.index, p.node) for p in gang.pods if p.node is not None]
        pods = [*stand, *new]
        if not self._one(gang.required, [n for _, _, n in pods]):
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
        return True

    def _one(self, level: int | None, nodes: Sequence[int]) -> bool:
        return level is None or domains_used(self.cluster, level, nodes) == 1

    def _one_model(self, role: Role, nodes: Sequence[int]) -> bool:
        models = [self.cluster.nodes[n].model for n in nodes]
        return role.gpus == 0 or role.mix_models or len({m.gpu for m in models if m}) == 1

    def _spread(self, gang: Gang, pods: Sequence[tuple[int, int, int]]) -> Spread:
        gpus = [0] * len(self.cluster.nodes)
        needs = [[0] * len(names) for names in self.limits]
        for r, _, n in pods:
            gpus[n] += gang.roles[r].gpus
            needs[n] = [a + b for a, b in zip(needs[n], self._need(gang.roles[r], n), strict=True)]
        return Spread(tuple(sorted(pods)), tuple(gpus), tuple(tuple(need) for need in needs))


def holds(amounts: Sequence[int], need: Sequence[int]) -> bool:
    """Rule 2 with rule 6: what is asked must be there; what is not asked may be overfilled."""
    return all(b == 0 or a >= b for a, b in zip(amounts, need, strict=True))


def _asks(role: Role) -> dict[str, int]:
    """Amounts one pod takes; every pod takes one of ``pods``."""
    return {**dict(role.requests), "pods": 1}
