"""The pipeline of ``capacity``: the cluster and the pods on it, of a plan or of documents, and the counts.

Nothing is solved, and the rules of the plan are not checked: that is ``verify``. The counts are exact, on the
free space of the nodes that gangs may use. A gang has equal pods, all on one GPU model and in one domain of
its level, so that a domain holds as many gangs as the pods that fit on its nodes make, and no pod counts in
two domains: the sums are the most gangs that could start together.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from models.documents.answers import (
    CapacityCluster,
    CapacityDocument,
    CapacityLargest,
    CapacityLevel,
    CapacityOfPart,
    CapacityQuestion,
    CapacityShape,
    CapacityStatus,
)
from models.documents.base import API_VERSION, suggestion
from models.documents.gang import Toleration
from models.documents.plan import PlanMetadata
from models.gpu_shares import SHARE, amount_of
from models.instance.cluster import Node
from models.instance.eligibility import model_matches, tolerated
from models.instance.gang import Gang, is_part
from models.instance.instance import Instance
from models.instance.occupancy import PODS
from models.instance.solution import GangDecision
from models.mig import RESOURCE
from models.program.base_state import base_decisions
from models.results.explanation import decisions_of
from models.rules.shape import held_nodes, spare_nodes
from models.units import epoch_seconds, plural, shortened, shown
from models.values.leftover import gpu_models
from planner import __version__
from planner.errors import Fault, InputError, UsageError
from planner.read import plan_files
from planner.read.inputs import instance_from_document, load
from planner.search.free_arrays import Capacity, IntArray, sums
from planner.search.free_space import FreeSpace

MAX_DEFAULTS = 8
"""Shapes of the mix, of gangs that wait, and parts of GPUs that are counted unless others are asked for."""

MAX_DOMAINS = 2000
"""Of a level with more domains, a document has them together alone."""

MAX_PODS = 1_000_000
"""Most pods, and GPUs of a pod, of a shape."""

_SHAPE = re.compile(r"([0-9]{1,7})x([0-9]{1,7})(?:@(.+))?", re.DOTALL)
_HEAD = 4096
_PLAN = re.compile(rb'"kind"\s*:\s*"Plan"')


@dataclass(frozen=True, slots=True)
class Occupied:
    """A cluster and its pods. ``after``: what a plan decides, None without one. ``waiting``: then, or now."""

    instance: Instance
    after: Sequence[GangDecision] | None
    waiting: Sequence[Shape]


def read_occupied(
    paths: Sequence[str],
    *,
    policy: str | None = None,
    schedulers: tuple[str, ...] | None = None,
    stdin: BinaryIO | None = None,
) -> Occupied:
    """The input in the paths, or the plan in the only path.

    Raises InputError, MissingPathError; UsageError for options that a plan does not take.
    """
    buffered = None if stdin is None else io.BufferedReader(cast("io.RawIOBase", stdin))
    if len(paths) == 1 and _PLAN.search(_beginning(paths[0], buffered)):
        if policy is not None or schedulers is not None:
            option = "--policy" if policy is not None else "--scheduler"
            raise UsageError(Fault(f"{option} with a plan", "a plan has its own: leave it out"))
        return occupied_by_plan(plan_files.read_bytes(paths[0], buffered), paths[0])
    instance = load(paths, policy=policy, schedulers=schedulers, stdin=buffered).instance
    waiting = [_waiting_shape(gang) for gang in instance.gangs if not gang.running]
    return Occupied(instance, None, [one for one in waiting if one is not None])


def _beginning(path: str, stdin: io.BufferedReader[io.RawIOBase] | None) -> bytes:
    """What a file starts with, where the kind of a plan is; nothing of a folder or a pipe with a name."""
    if path == "-":
        return b"" if stdin is None else stdin.peek(_HEAD)[:_HEAD]
    if not Path(path).is_file():
        return b""
    with Path(path).open("rb") as stream:
        return stream.read(_HEAD)


def occupied_by_plan(content: bytes, path: str) -> Occupied:
    """The cluster of a plan and its pods, now and after the plan. Raises InputError."""
    plan = plan_files.read_plan(content, path)
    instance = instance_from_document(plan_files.parse(content, path)["instance"])
    nodes = {node.name for node in instance.cluster.nodes}
    gangs = {gang.key: gang for gang in instance.gangs}
    waiting = []
    for decided in plan.spec.gangs:
        gang = gangs.get(decided.key)
        if gang is None:
            raise _damaged(f"gang {'/'.join(decided.key)} is not in its instance", path)
        roles = {role.name for role in gang.roles}
        for pod in decided.pods:
            if pod.role not in roles or pod.node not in nodes:
                what = f"node {pod.node}" if pod.role in roles else f"role {pod.role}"
                raise _damaged(f"{what} of a pod is not in its instance", path)
        if decided.decision == "wait":
            waiting.append(_waiting_shape(gang))
    found = [one for one in waiting if one is not None]
    return Occupied(instance, decisions_of(plan, instance), found)


def _waiting_shape(gang: Gang) -> Shape | None:
    """The shape of a gang that waits, at its least size; None if pods of several sizes have GPUs."""
    roles = [role for role in gang.roles if role.gpus]
    if len(roles) != 1:
        return None
    levels = [level for level in (gang.required, roles[0].required) if level is not None]
    return Shape(roles[0].min, roles[0].gpus, max(levels, default=CLUSTER))


def _damaged(what: str, path: str) -> InputError:
    """A plan that speaks of something that it does not have."""
    hint = "`gangplan verify` lists everything that is wrong with a plan"
    return InputError(Fault(f"a damaged plan: {shortened(what, 300)}", hint, path))


def shapes_of(texts: Sequence[str], instance: Instance) -> tuple[Shape, ...]:
    """The shapes of ``--shape``. Raises UsageError."""
    return tuple(dict.fromkeys(_shape(text, instance) for text in texts))


def _shape(text: str, instance: Instance) -> Shape:
    found = _SHAPE.fullmatch(text)
    if found is None:
        hint = "write PODSxGPUS or PODSxGPUS@LEVEL, such as 4x8@rack"
        raise UsageError(Fault(f"--shape {shown(text)} is not a shape", hint))
    pods, gpus, level = int(found[1]), int(found[2]), CLUSTER
    if not 1 <= pods <= MAX_PODS or not 1 <= gpus <= MAX_PODS:
        hint = f"from 1 to {MAX_PODS:,} pods, of at least one GPU each"
        raise UsageError(Fault(f"--shape {shown(text)} is out of range", hint))
    if found[3] is not None:
        cluster = instance.cluster
        names = [cluster.level_name(n) for n in range(cluster.node_level + 1)]
        if found[3] not in names:
            what = f"--shape {shown(text)}: no level {shown(found[3])}"
            raise UsageError(Fault(what, suggestion(found[3], names, "levels")))
        level = names.index(found[3])
    return Shape(pods, gpus, level)


def capacity_document(
    occupied: Occupied, question: CapacityQuestion, shapes: Sequence[str], created_at: str
) -> CapacityDocument:
    """The counts. ``shapes``: as ``--shape`` takes them; none: the usual ones. Raises UsageError."""
    instance = occupied.instance
    nodes = usable_nodes(
        instance,
        model=question.model,
        selector=question.node_selector.items(),
        tolerate=question.tolerate,
    )
    if question.model is not None and not nodes:
        models = {node.model.gpu for node in instance.cluster.nodes if node.model is not None}
        what = f"--model {shown(question.model)}: no usable node has it"
        raise UsageError(Fault(what, suggestion(question.model, models, "GPU models")))
    asked = shapes_of(shapes, instance) or _default_shapes(instance, nodes, occupied.waiting)
    cluster, status = counted(instance, asked, nodes, occupied.after)
    return CapacityDocument.model_construct(
        api_version=API_VERSION,
        kind="Capacity",
        metadata=PlanMetadata.model_construct(
            name=f"{instance.cluster.name}-capacity",
            created_at=epoch_seconds(created_at),
            generator=f"gangplan {__version__}",
        ),
        spec=question,
        cluster=cluster,
        status=status,
    )


def capacity_of_plan(content: bytes, path: str, created_at: str) -> CapacityDocument:
    """The usual counts before and after a plan. ``created_at``: RFC 3339. Raises InputError."""
    return capacity_document(occupied_by_plan(content, path), CapacityQuestion(), (), created_at)


def counted(
    instance: Instance,
    shapes: Sequence[Shape],
    nodes: Sequence[int],
    after: Sequence[GangDecision] | None = None,
) -> tuple[CapacityCluster, CapacityStatus]:
    """The counts on these nodes, beside the pods that run now and those after a plan, None without one."""
    now = FreeRoom(instance, nodes, base_decisions(instance))
    later = None if after is None else FreeRoom(instance, nodes, after)
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
        parts=tuple(rows.part(name, level) for name in _parts(instance) for level in levels),
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


def _default_shapes(
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
            shape=self._text(shape),
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

    def _text(self, shape: Shape) -> str:
        """``4x8@rack``."""
        level = self._level(shape.level)
        return f"{shape.pods}x{shape.gpus}" + ("" if level is None else f"@{level}")

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


CLUSTER = -1
"""The level whose only domain is the whole cluster."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``gpus``: of each pod. ``level``: index of the one that a gang may not leave, CLUSTER for none."""

    pods: int
    gpus: int
    level: int = CLUSTER


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
    wanted = dict(selector).items()
    return [
        n
        for n, node in enumerate(instance.cluster.nodes)
        if node.gpus
        and instance.schedulable(node)
        and tolerated(tolerations, node.taints)
        and (model is None or model_matches(model, node))
        and (not wanted or wanted <= instance.labels_of(node).items())
    ]


class FreeRoom:
    """What new pods could have on some nodes, beside the pods of a plan.

    A free GPU counts with its share of the node's resources where the policy states ``perGpu``.
    """

    def __init__(
        self, instance: Instance, nodes: Iterable[int], decisions: Sequence[GangDecision]
    ) -> None:
        self._space = FreeSpace(instance, decisions)
        self._shares = tuple((name, share) for name, share in instance.policy.per_gpu if share)
        self._models = tuple(gpu_models(instance))
        self._nodes = frozenset(nodes) - self._closed()
        spared = self._spared()
        self._nodes -= spared
        self._for_parts = frozenset(nodes) - spared

    @property
    def gpus(self) -> int:
        """GPUs that new pods could have, all together."""
        return self._space.arrays.capacity((1, self._shares, self._nodes, None)).total

    def gangs(self, shape: Shape, level: int) -> IntArray:
        """The most gangs of a shape that could start in each domain of a level, none leaving it."""
        tree, inner = self._space.arrays.tree, max(shape.level, level)
        size = 1 if level == CLUSTER else tree.sizes[level]
        found: IntArray = np.zeros(size, dtype=np.int64)
        for table in self._tables(shape.gpus):
            gangs = table.at(inner) // shape.pods
            found += gangs if inner == level else sums(tree.parents(inner, level), gangs, size)
        return found

    def largest(self, gpus: int, level: int) -> tuple[int, int]:
        """The most pods of this size that one gang could have in a domain of a level, and the domain."""
        found = [_most(table, level) for table in self._tables(gpus)]
        return max(found, key=lambda one: (one[0], -one[1]), default=(0, 0))

    def parts(self, resource: str, level: int) -> tuple[int, int]:
        """The most pods with this part in a domain of a level, and the domain."""
        by_node = self._space.by_node
        offering = frozenset(n for n in self._for_parts if resource in by_node[n].left)
        requests = ((PODS, 1), (resource, amount_of(resource)))
        return _most(self._space.arrays.capacity((0, requests, offering, None)), level)

    def _tables(self, gpus: int) -> list[Capacity]:
        """Pods of so many GPUs that fit where, for each GPU model."""
        requests = ((PODS, 1), *((name, share * gpus) for name, share in self._shares))
        kinds = ((gpus, requests, self._nodes, model) for model in self._models)
        return [self._space.arrays.capacity(kind) for kind in kinds]

    def _spared(self) -> frozenset[int]:
        """The nodes that stay free for failures: of those in order and idle, the ones with the least room."""
        instance, spared = self._space.instance, set[int]()
        rules = sorted(spare_nodes(instance), key=lambda rule: len(rule.nodes))
        busy = held_nodes(instance, self._space.pods) if rules else set()
        room = self._space.arrays.capacity((1, self._shares, self._nodes, None)).pods
        for rule in rules:
            idle = [n for n in rule.nodes if n not in busy and n not in spared]
            idle.sort(key=lambda n: (int(room[n]), -n))
            spared.update(idle[: max(0, rule.least - sum(n in spared for n in rule.nodes))])
        return frozenset(spared)

    def _closed(self) -> frozenset[int]:
        """The nodes in domains that a gang has for itself."""
        cluster, found = self._space.instance.cluster, set[int]()
        for gang, pods in zip(self._space.instance.gangs, self._space.pods, strict=True):
            for pod in pods if gang.exclusive is not None else ():
                if gang.exclusive is not None and gang.roles[pod.role].gpus:
                    domain = cluster.domain_of[gang.exclusive][pod.node]
                    found.update(cluster.domains[gang.exclusive][domain].nodes)
        return frozenset(found)


def _most(table: Capacity, level: int) -> tuple[int, int]:
    """The most pods in a domain of a level, and the first that has room for so many."""
    pods = table.at(level)
    if not len(pods):
        return 0, 0  # a cluster without nodes
    best = int(pods.argmax())
    return int(pods[best]), best
