"""The pipeline of ``capacity``: the cluster and the pods on it, of a plan or of documents, and the counts.

A plan of a large cluster is read in part: its cluster and policy as every input, of its gangs only which pods
are where. Nothing is solved, and the rules of the plan are not checked: that is ``verify``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pydantic import ConfigDict, Field, ValidationError

from models.documents.base import API_VERSION, Document, suggestion
from models.documents.capacity import CapacityDocument, CapacityQuestion
from models.documents.plan import PlanMetadata
from models.documents.server import GpuIndex
from models.hardware import mask_of
from models.instance import Instance
from models.solution import ADMITTED, PodPlacement
from models.units import InvalidValueError, epoch_seconds, quantity, requested, shown
from planner import __version__
from planner.errors import Fault, InputError, UsageError
from planner.read import plan_files
from planner.read.inputs import instance_from_document, load
from planner.search.capacity import (
    CLUSTER,
    Held,
    Shape,
    capacity,
    default_shapes,
    held_by,
    usable_nodes,
    waiting_shape,
)

MAX_PODS = 1_000_000
"""Most pods, and GPUs of a pod, of a shape."""

_SHAPE = re.compile(r"([0-9]{1,7})x([0-9]{1,7})(?:@(.+))?", re.DOTALL)
_HEAD = 4096
_PLAN = re.compile(rb'"kind"\s*:\s*"Plan"')


@dataclass(frozen=True, slots=True)
class Occupied:
    """A cluster and its pods. ``after``: those after a plan, None without one. ``waiting``: then, or now."""

    instance: Instance
    before: Sequence[Held]
    after: Sequence[Held] | None
    waiting: Sequence[Shape]


def read_occupied(
    paths: Sequence[str],
    *,
    policy: str | None = None,
    queue: tuple[str, ...] | None = None,
    stdin: BinaryIO | None = None,
) -> Occupied:
    """The input in the paths, or the plan in the only path.

    Raises InputError, MissingPathError; UsageError for options that a plan does not take.
    """
    buffered = None if stdin is None else io.BufferedReader(cast("io.RawIOBase", stdin))
    if len(paths) == 1 and _PLAN.search(_beginning(paths[0], buffered)):
        if policy is not None or queue is not None:
            option = "--policy" if policy is not None else "--queue"
            raise UsageError(Fault(f"{option} with a plan", "a plan has its own: leave it out"))
        return occupied_by_plan(plan_files.read_bytes(paths[0], buffered), paths[0])
    instance = load(paths, policy=policy, queue=queue, stdin=buffered).instance
    waiting = [waiting_shape(gang) for gang in instance.gangs if not gang.running]
    return Occupied(instance, held_by(instance), None, [one for one in waiting if one is not None])


def _beginning(path: str, stdin: io.BufferedReader[io.RawIOBase] | None) -> bytes:
    """What a file starts with, where the kind of a plan is; nothing of a folder or a pipe with a name."""
    if path == "-":
        return b"" if stdin is None else stdin.peek(_HEAD)[:_HEAD]
    if not Path(path).is_file():
        return b""
    with Path(path).open("rb") as stream:
        return stream.read(_HEAD)


class _Part(Document):
    """A part of a plan of which the other fields are not looked at."""

    model_config = ConfigDict(extra="ignore")


class _Pod(_Part):
    role: str
    node: str | None = None
    gpus: list[GpuIndex] | None = None


class _Topology(_Part):
    required: str | None = None
    exclusive: str | None = None


class _Role(_Part):
    name: str
    gpus: int
    replicas: int | dict[str, Any]
    requests: dict[str, Any] = Field(default={})
    topology: _Topology = _Topology.model_construct()


class _Metadata(_Part):
    name: str
    namespace: str = "default"


class _Spec(_Part):
    roles: list[_Role]
    topology: _Topology = _Topology.model_construct()


class _Status(_Part):
    pods: list[_Pod] = Field(default=[])


class _Gang(_Part):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status.model_construct()


class _Instance(_Part):
    cluster: dict[str, Any]
    gangs: list[_Gang]
    policy: dict[str, Any]
    queues: list[Any] = Field(default=[])


class _Decided(_Part):
    namespace: str
    name: str
    decision: str
    pods: list[_Pod]


class _Decisions(_Part):
    gangs: list[_Decided]


class _Plan(_Part):
    """What capacity needs of a plan."""

    apiVersion: str  # noqa: N815  # as in the file
    kind: str
    instance: _Instance
    spec: _Decisions


def occupied_by_plan(content: bytes, path: str) -> Occupied:
    """The cluster of a plan and its pods, now and after the plan. Raises InputError."""
    try:
        plan = _Plan.model_validate_json(content)
    except ValidationError:
        plan_files.read_plan(content, path)  # says what is wrong, and where
        raise InputError(
            Fault("not a plan", "a plan is what `plan --out FILE` writes", path)
        ) from None
    if plan.apiVersion != API_VERSION or plan.kind != "Plan":
        plan_files.parse(content, path)  # raises
    stated = {"cluster": plan.instance.cluster, "gangs": [], "policy": plan.instance.policy}
    try:
        instance = instance_from_document(stated)
    except InputError:
        plan_files.read_plan(content, path)
        raise
    return _Occupation(instance, plan, path).found()


class _Occupation:
    """The pods of a plan on the nodes of its cluster. ``instance``: without gangs."""

    def __init__(self, instance: Instance, plan: _Plan, path: str) -> None:
        cluster = instance.cluster
        self._instance = instance
        self._plan = plan
        self._path = path
        self._nodes = {node.name: n for n, node in enumerate(cluster.nodes)}
        self._levels = {cluster.level_name(n): n for n in range(cluster.node_level + 1)}
        self._resources = tuple(name for name, _ in instance.policy.per_gpu)

    def found(self) -> Occupied:
        before: list[Held] = []
        roles: dict[tuple[str, str], dict[str, Held]] = {}
        gangs = {}
        for gang in self._plan.instance.gangs:
            key = (gang.metadata.namespace, gang.metadata.name)
            gangs[key], roles[key] = gang, self._roles(gang)
            before += self._held(roles[key], gang.status.pods)
        after: list[Held] = []
        waiting = []
        for decided in self._plan.spec.gangs:
            key = (decided.namespace, decided.name)
            if key not in gangs:
                raise self._damaged(f"gang {'/'.join(key)} is not in its instance")
            if decided.decision in ADMITTED:
                after += self._held(roles[key], decided.pods)
            elif decided.decision == "wait" and (shape := self._shape(gangs[key])) is not None:
                waiting.append(shape)
        return Occupied(self._instance, before, after, waiting)

    def _roles(self, gang: _Gang) -> dict[str, Held]:
        """A pod of each role, on the node 0."""
        level = gang.spec.topology.exclusive
        exclusive = None if level is None else self._level(level)
        nowhere = PodPlacement(0, 0, 0, None)
        return {
            role.name: Held(role.gpus, nowhere, self._requests(role), exclusive)
            for role in gang.spec.roles
        }

    def _requests(self, role: _Role) -> tuple[tuple[str, int], ...]:
        """What a pod takes of the resources that free GPUs need."""
        found = []
        for name in self._resources:
            if name in role.requests:
                try:
                    amount = requested(name, quantity(str(role.requests[name])))
                except InvalidValueError as error:
                    raise self._damaged(error.what) from None
                found.append((name, amount))
        return tuple(found)

    def _held(self, roles: Mapping[str, Held], pods: Sequence[_Pod]) -> Iterator[Held]:
        """The pods that are on a node."""
        for pod in pods:
            if pod.node is None:
                continue
            of = roles.get(pod.role)
            node = self._nodes.get(pod.node)
            if of is None or node is None:
                what = f"node {pod.node}" if of is not None else f"role {pod.role}"
                raise self._damaged(f"{what} of a pod is not in its instance")
            mask = 0 if not of.gpus else None if pod.gpus is None else mask_of(pod.gpus)
            place = PodPlacement(0, 0, node, mask)
            yield Held(of.gpus, place, of.requests, of.exclusive)

    def _shape(self, gang: _Gang) -> Shape | None:
        """As ``waiting_shape``."""
        roles = [role for role in gang.spec.roles if role.gpus > 0]
        if len(roles) != 1:
            return None
        own = roles[0]
        least = own.replicas if isinstance(own.replicas, int) else own.replicas.get("min", 0)
        levels = [gang.spec.topology.required, own.topology.required]
        found = [self._level(level) for level in levels if level is not None]
        if not isinstance(least, int) or least < 1:
            raise self._damaged("a role without replicas")
        return Shape(least, own.gpus, max(found, default=CLUSTER))

    def _level(self, name: str) -> int:
        if name not in self._levels:
            raise self._damaged(f"level {name} of a gang is not in its instance")
        return self._levels[name]

    def _damaged(self, what: str) -> InputError:
        hint = "`gangplan verify` lists everything that is wrong with a plan"
        return InputError(Fault(f"a damaged plan: {shown(what)[1:-1]}", hint, self._path))


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
        what = f"--model {shown(question.model)}: no node that can be used has it"
        raise UsageError(Fault(what, suggestion(question.model, models, "GPU models")))
    asked = shapes_of(shapes, instance) or default_shapes(instance, nodes, occupied.waiting)
    cluster, status = capacity(instance, asked, nodes, occupied.before, occupied.after)
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
