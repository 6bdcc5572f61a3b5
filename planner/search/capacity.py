"""How many equal gangs could start: exact counts on the free space of the nodes that they may use.

A gang has ``pods`` pods of ``gpus`` GPUs each, all on one GPU model and in one domain of its level. Its
pods are equal, so that a domain holds as many gangs as the pods that fit on its nodes make, and no pod counts
in two domains: the sums are the most gangs that could start together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from models.documents.capacity import (
    CapacityCluster,
    CapacityLargest,
    CapacityLevel,
    CapacityOfPart,
    CapacityShape,
    CapacityStatus,
)
from models.documents.gang import Toleration
from models.gpu_shares import SHARE, amount_of
from models.instance.cluster import Node
from models.instance.eligibility import model_matches, tolerated
from models.instance.gang import Gang, has_parts, is_part
from models.instance.instance import Instance
from models.instance.occupancy import PODS, free_on
from models.instance.reshaping import beside, reshaping, taken_gpus
from models.instance.solution import PodPlacement, standing_of
from models.mig import RESOURCE
from models.rules.shape import spare_nodes
from models.units import plural
from models.values.leftover import gpu_models
from planner.search.free_arrays import UNLIMITED, IntArray, as_array, sums, tree_of

CLUSTER = -1
"""The level whose only domain is the whole cluster."""

MAX_DEFAULTS = 8
"""Shapes of the mix, of gangs that wait, and parts of GPUs that are counted unless others are asked for."""

MAX_DOMAINS = 2000
"""Of a level with more domains, a document has them together alone."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``gpus``: of each pod. ``level``: index of the one that a gang may not leave, CLUSTER for none."""

    pods: int
    gpus: int
    level: int = CLUSTER

    def text(self, instance: Instance) -> str:
        """``4x8@rack``."""
        at = "" if self.level == CLUSTER else f"@{instance.cluster.level_name(self.level)}"
        return f"{self.pods}x{self.gpus}{at}"


class Held(NamedTuple):
    """A pod on its node: its GPUs, what else it takes, and the level at which its gang is exclusive."""

    gpus: int
    pod: PodPlacement
    requests: tuple[tuple[str, int], ...] = ()
    exclusive: int | None = None
    keeps: tuple[tuple[int, int], ...] = ()

    def keeps_on(self, n: int) -> int:
        """Mask of the GPUs of a node that stay shared while it is there."""
        return dict(self.keeps).get(n, 0)


def held_by(instance: Instance) -> list[Held]:
    """The pods that run now."""
    return [
        Held(role.gpus, pod, role.requests, gang.exclusive, role.keeps)
        for gang in instance.gangs
        for pod in standing_of(gang)
        for role in (gang.roles[pod.role],)
    ]


def usable_nodes(
    instance: Instance,
    *,
    model: str | None = None,
    selector: Iterable[tuple[str, str]] = (),
    tolerate: Iterable[str] = (),
) -> list[int]:
    """The nodes with GPUs that new pods may use, ascending.

    Schedulable ones, of the model, with the labels, and without taints but those of GPU resources and
    those with the keys of ``tolerate``.
    """
    keys = (*instance.policy.kubernetes.gpu_resources, *tolerate)
    tolerations = tuple(Toleration(key, "Exists") for key in keys)
    wanted = tuple(selector)
    found = []
    for n, node in enumerate(instance.cluster.nodes):
        if not node.gpus or not instance.schedulable(node):
            continue
        if not tolerated(tolerations, node.taints) or not (
            model is None or model_matches(model, node)
        ):
            continue
        labels = instance.labels_of(node) if wanted else {}
        if all(labels.get(key) == value for key, value in wanted):
            found.append(n)
    return found


class FreeRoom:
    """What new pods could have on some nodes, beside the pods that hold the others.

    A free GPU counts with its share of the node's resources where the policy states ``perGpu``.
    ``resources``: parts of GPUs that are counted.
    """

    def __init__(
        self,
        instance: Instance,
        nodes: Sequence[int],
        held: Sequence[Held],
        resources: Sequence[str] = (),
    ) -> None:
        self._instance = instance
        self._tree = tree_of(instance.cluster)
        every, pods = range(len(instance.cluster.nodes)), [(one, one.pod) for one in held]
        usable = np.zeros(len(every), dtype=np.bool_)
        usable[list(nodes)] = True
        usable &= ~self._closed(held)
        whole = free_on(instance, pods, every)
        free = as_array(whole.values())
        shares = dict(instance.policy.per_gpu)
        left = self._left(held, {PODS, *shares})
        for name, share in shares.items():
            if share:
                free = np.minimum(free, left[name] // share)
        self._gpus: IntArray = np.where(usable, free, 0)
        self._slots = left[PODS]
        spared = self._spares(held)
        self._gpus[spared] = 0
        self._parts: dict[str, IntArray] = {}
        if resources:
            open_to = sorted({*nodes}.difference(spared))
            idle = Counter(whole) + Counter(taken_gpus(instance, pods, open_to))
            self._parts = self._room_for(resources, open_to, held, idle)

    @property
    def gpus(self) -> int:
        """GPUs that new pods could have, all together."""
        return int(self._gpus.sum())

    def gangs(self, shape: Shape, level: int) -> IntArray:
        """The most gangs of a shape that could start in each domain of a level, none leaving it."""
        pods, domains = self._pods(shape.gpus, max(shape.level, level), level)
        return sums(domains, pods // shape.pods, self._size(level))

    def largest(self, gpus: int, level: int) -> tuple[int, int]:
        """The most pods of this size that one gang could have in a domain of a level, and the domain."""
        pods, domains = self._pods(gpus, level, level)
        if not len(pods):
            return 0, 0  # a cluster without nodes
        best = int(pods.argmax())
        return int(pods[best]), int(domains[best])

    def parts(self, resource: str, level: int) -> tuple[int, int]:
        """The most pods with this part in a domain of a level, and the domain."""
        found = sums(self._domains(level), self._parts[resource], self._size(level))
        if not len(found):
            return 0, 0
        best = int(found.argmax())
        return int(found[best]), best

    def _room_for(
        self,
        resources: Sequence[str],
        nodes: Iterable[int],
        held: Sequence[Held],
        idle: Mapping[int, int],
    ) -> dict[str, IntArray]:
        """Pods with each of these parts on every node; ``idle``: GPUs that no pod has whole."""
        used: dict[int, Counter[str]] = {n: Counter() for n in nodes}
        kept = Counter[int]()
        for one in held:
            if one.pod.node in used:
                used[one.pod.node].update(dict(one.requests))
                kept[one.pod.node] |= one.keeps_on(one.pod.node)
        known, every = reshaping(self._instance), self._instance.cluster.nodes
        found = {name: np.zeros(len(every), dtype=np.int64) for name in resources}
        for n, own in used.items():
            left = {name: most - own[name] for name, most in every[n].allocatable}
            if n in known:
                one_way = beside(known[n], every[n], kept[n])
                left.update(one_way.left(idle[n], own)[1])
            for name in resources:
                found[name][n] = max(0, left.get(name, 0)) // amount_of(name)
        return {name: np.minimum(rooms, self._slots) for name, rooms in found.items()}

    def _pods(self, gpus: int, inner: int, level: int) -> tuple[IntArray, IntArray]:
        """Pods that fit in each domain of ``inner`` on each GPU model it has, and its domain of ``level``.

        ``level``: as wide or wider.
        """
        fits = np.minimum(self._gpus // gpus, self._slots)
        first, group = self._instance.once(_Groups).of(inner)
        return sums(group, fits, len(first)), self._domains(level)[first]

    def _domains(self, level: int) -> IntArray:
        """The domain of every node."""
        return self._tree.domain_of[level] if level != CLUSTER else np.zeros_like(self._tree.every)

    def _size(self, level: int) -> int:
        return 1 if level == CLUSTER else self._tree.sizes[level]

    def _left(self, held: Sequence[Held], names: Iterable[str]) -> dict[str, IntArray]:
        """Free amount of these resources on every node; 0 where more than there is is held."""
        nodes = self._instance.cluster.nodes
        found = {}
        for name in names:
            left = [dict(node.allocatable).get(name, UNLIMITED) for node in nodes]
            for one in held:
                left[one.pod.node] -= 1 if name == PODS else dict(one.requests).get(name, 0)
            found[name] = as_array(max(0, amount) for amount in left)
        return found

    def _spares(self, held: Sequence[Held]) -> list[int]:
        """The nodes that stay free for failures: of those in order and idle, the ones with the least room."""
        rules = spare_nodes(self._instance)
        busy = (
            {one.pod.node for one in held if one.gpus or has_parts(one.requests)}
            if rules
            else set()
        )
        spared: set[int] = set()
        for rule in sorted(rules, key=lambda rule: len(rule.nodes)):
            idle = [n for n in rule.nodes if n not in busy and n not in spared]
            lacking = rule.least - sum(n in spared for n in rule.nodes)
            idle.sort(key=lambda n: (int(self._gpus[n]), -n))
            spared.update(idle[: max(0, lacking)])
        return sorted(spared)

    def _closed(self, held: Sequence[Held]) -> np.ndarray:
        """Mask of the nodes in domains that a gang has for itself."""
        taken: dict[int, list[int]] = {}
        for one in held:
            if one.exclusive is not None and one.gpus:
                taken.setdefault(one.exclusive, []).append(one.pod.node)
        closed = np.zeros(len(self._instance.cluster.nodes), dtype=np.bool_)
        for level, nodes in taken.items():
            of = self._tree.domain_of[level]
            closed |= np.isin(of, of[nodes])
        return closed


def capacity(
    instance: Instance,
    shapes: Sequence[Shape],
    nodes: Sequence[int],
    before: Sequence[Held],
    after: Sequence[Held] | None = None,
) -> tuple[CapacityCluster, CapacityStatus]:
    """The counts on these nodes, beside the pods that run now and those after a plan, None without one."""
    parts = _parts(instance)
    now = FreeRoom(instance, nodes, before, parts)
    later = None if after is None else FreeRoom(instance, nodes, after, parts)
    cluster = CapacityCluster(
        name=instance.cluster.name,
        nodes=len(nodes),
        gpus=sum(instance.cluster.nodes[n].gpus for n in nodes),
        before=now.gpus,
        after=None if later is None else later.gpus,
    )
    rows = _Rows(instance, now, later)
    levels = range(CLUSTER, instance.cluster.node_level + 1)
    sizes = _pod_sizes(instance, nodes, shapes)
    status = CapacityStatus(
        shapes=tuple(map(rows.shape, shapes)),
        largest=tuple(rows.largest(gpus, level) for gpus in sizes for level in levels),
        parts=tuple(rows.part(resource, level) for resource in parts for level in levels),
        notes=tuple(_notes(instance, nodes)),
    )
    return cluster, status


def _parts(instance: Instance) -> tuple[str, ...]:
    """Instances and parts of GPUs that most pods request, then those that nodes offer; a few."""
    offered = {name for node in instance.cluster.nodes for name, _ in node.allocatable}
    asked: Counter[str] = Counter(dict.fromkeys(offered, 0))
    for gang in instance.gangs:
        for role in gang.roles:
            asked.update({name: role.max for name, _ in role.requests})
    found = list(filter(is_part, asked))
    return tuple(sorted(sorted(found, key=lambda name: (-asked[name], name))[:MAX_DEFAULTS]))


def default_shapes(
    instance: Instance, nodes: Sequence[int], waiting: Iterable[Shape]
) -> tuple[Shape, ...]:
    """The likeliest requests of the policy's mix, and the commonest shapes that wait; smallest first.

    A request of the mix that no node has room for becomes pods of the size of the largest node.
    """
    largest = max((instance.cluster.nodes[n].gpus for n in nodes), default=0)
    if not largest:
        return ()
    likely = sorted(instance.policy.mix, key=lambda one: (-one[1], one[0]))[:MAX_DEFAULTS]
    mix = [Shape(-(-size // largest), min(size, largest)) for size, _ in likely]
    counts = Counter(waiting)
    common = sorted(counts, key=lambda shape: (-counts[shape], _order(shape)))[:MAX_DEFAULTS]
    return tuple(sorted({*mix, *common}, key=_order))


def _order(shape: Shape) -> tuple[int, int, int]:
    return shape.pods * shape.gpus, shape.gpus, shape.level


def _pod_sizes(instance: Instance, nodes: Sequence[int], shapes: Sequence[Shape]) -> list[int]:
    """The pod sizes of the shapes, the powers of two and the sizes of whole nodes."""
    whole = {instance.cluster.nodes[n].gpus for n in nodes}
    powers = {1 << k for k in range(max(whole, default=0).bit_length())}
    return sorted({*powers, *whole, *(shape.gpus for shape in shapes)})


def waiting_shape(gang: Gang) -> Shape | None:
    """The shape of a gang that waits, at its least size; None if pods of several sizes have GPUs."""
    roles = [role for role in gang.roles if role.gpus]
    if len(roles) != 1:
        return None
    levels = [level for level in (gang.required, roles[0].required) if level is not None]
    return Shape(roles[0].min, roles[0].gpus, max(levels, default=CLUSTER))


class _Rows:
    """The rows of a Capacity document. ``later``: the room after a plan, None without one."""

    def __init__(self, instance: Instance, now: FreeRoom, later: FreeRoom | None) -> None:
        self._instance = instance
        self._now = now
        self._later = later

    def shape(self, shape: Shape) -> CapacityShape:
        """All levels together first, then domain by domain; nodes one by one are too many to list."""
        cluster = self._instance.cluster
        together, each = [], []
        for level in range(cluster.node_level + 1):
            name = cluster.level_name(level)
            now = self._now.gangs(shape, level).tolist()
            later = None if self._later is None else self._later.gangs(shape, level).tolist()
            total = None if later is None else sum(later)
            together.append(CapacityLevel(level=name, domain=None, before=sum(now), after=total))
            if level == cluster.node_level or len(now) > MAX_DOMAINS:
                continue
            afters = [None] * len(now) if later is None else later
            each += [
                CapacityLevel(level=name, domain=self._path(level, d), before=before, after=after)
                for d, (before, after) in enumerate(zip(now, afters, strict=True))
                if before or after
            ]
        later = None if self._later is None else self._later.gangs(shape, CLUSTER)
        return CapacityShape(
            shape=shape.text(self._instance),
            pods=shape.pods,
            gpus=shape.gpus,
            level=self._level(shape.level),
            before=int(self._now.gangs(shape, CLUSTER)[0]),
            after=None if later is None else int(later[0]),
            levels=(*together, *each),
        )

    def largest(self, gpus: int, level: int) -> CapacityLargest:
        return CapacityLargest(
            gpus=gpus, **self._most(lambda room: room.largest(gpus, level), level)
        )

    def part(self, resource: str, level: int) -> CapacityOfPart:
        return CapacityOfPart(
            part=resource.removeprefix(RESOURCE).removeprefix(SHARE),
            **self._most(lambda room: room.parts(resource, level), level),
        )

    def _most(self, count: Callable[[FreeRoom], tuple[int, int]], level: int) -> dict[str, Any]:
        """The most pods in a domain of a level, now and after a plan, and the domain."""
        before, domain = count(self._now)
        last, after = before, None
        if self._later is not None:
            after, domain = count(self._later)
            last = after
        where = self._path(level, domain) if last and level != CLUSTER else None
        return {"level": self._level(level), "before": before, "after": after, "domain": where}

    def _level(self, level: int) -> str | None:
        return None if level == CLUSTER else self._instance.cluster.level_name(level)

    def _path(self, level: int, domain: int) -> str:
        cluster = self._instance.cluster
        if level == cluster.node_level:  # where domains have the numbers of their nodes
            return cluster.nodes[domain].name
        return "/".join(cluster.domains[level][domain].path)


def _notes(instance: Instance, nodes: Sequence[int]) -> Iterable[str]:
    """What the counts leave out."""
    cluster, policy = instance.cluster, instance.policy
    counted = set(nodes)
    others = [node for n, node in enumerate(cluster.nodes) if node.gpus and n not in counted]
    if others:
        gpus = sum(node.gpus for node in others)
        causes = Counter(_closed(node) for node in others)
        why = ", ".join(f"{number:,} {cause}" for cause, number in causes.most_common())
        yield f"{plural(len(others), 'node')} with {plural(gpus, 'GPU')} not counted: {why}"
    if not any(policy.per_gpu):
        yield "cpu and memory are not counted: set perGpu in the Policy to what each GPU needs"
    if policy.spares:
        yield "nodes that `spares` keeps free are not counted; if others were kept free, more might fit"
    if instance.queues:
        yield "limits and guarantees of queues are ignored"


def _closed(node: Node) -> str:
    """Why the node is not counted, in a word."""
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    return "tainted or not selected"


class _Groups:
    """The nodes by domain and GPU model."""

    def __init__(self, instance: Instance) -> None:
        self._tree = tree_of(instance.cluster)
        self._model = np.zeros(len(instance.cluster.nodes), dtype=np.int64)
        for position, nodes in enumerate(gpu_models(instance).values()):
            self._model[list(nodes)] = position
        self._known: dict[int, tuple[IntArray, IntArray]] = {}

    def of(self, level: int) -> tuple[IntArray, IntArray]:
        """The first node of each pair of a domain and a GPU model, and the number of every node's pair."""
        if level not in self._known:
            domains = self._tree.domain_of[level] if level != CLUSTER else 0
            keys = domains * (int(self._model.max(initial=0)) + 1) + self._model
            _, first, group = np.unique(keys, return_index=True, return_inverse=True)
            self._known[level] = (first, group)
        return self._known[level]
