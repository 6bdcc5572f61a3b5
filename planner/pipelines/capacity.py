"""The pipeline of ``capacity``: the cluster and the pods on it, of a plan or of documents, and the counts.

A plan of a large cluster is read in part: its cluster and policy as every input, of its gangs only which pods
are where, unless some have parts of GPUs. Nothing is solved, and the rules of the plan are not checked: that
is ``verify``.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pydantic_core import from_json

from models.documents.base import API_VERSION, suggestion
from models.documents.capacity import CapacityDocument, CapacityQuestion
from models.documents.plan import PlanMetadata
from models.documents.server import MAX_GPUS
from models.hardware import mask_of
from models.instance.gang import has_parts, is_part
from models.instance.instance import Instance
from models.instance.solution import ADMITTED, PodPlacement
from models.units import epoch_seconds, quantity, requested, shortened, shown
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


def occupied_by_plan(content: bytes, path: str) -> Occupied:
    """The cluster of a plan and its pods, now and after the plan. Raises InputError."""
    try:
        return _Occupation(from_json(content.removeprefix(codecs.BOM_UTF8))).found()
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as broken:
        plan_files.read_plan(content, path)  # says what is wrong with its form, and where
        hint = "`gangplan verify` lists everything that is wrong with a plan"
        what = str(broken) if isinstance(broken, _DamagedError) else "its parts do not fit together"
        raise InputError(Fault(f"a damaged plan: {shortened(what, 300)}", hint, path)) from None


class _DamagedError(ValueError):
    """A plan that speaks of something that it does not have."""


class _Occupation:
    """The pods of a plan on the nodes of its cluster; ``tree``: its JSON document.

    Only what is used is looked at. Anything of a wrong form raises KeyError, TypeError or ValueError.
    """

    def __init__(self, tree: Any) -> None:  # noqa: ANN401  # whatever a file holds
        if tree["apiVersion"] != API_VERSION or tree["kind"] != "Plan":
            raise _DamagedError("not a plan of this version")
        self._tree = tree
        stated = tree["instance"]
        asked = (role["requests"] for gang in stated["gangs"] for role in gang["spec"]["roles"])
        gangs = stated["gangs"] if any(has_parts(one.items()) for one in asked) else []
        parts = {"cluster": stated["cluster"], "gangs": gangs, "policy": stated["policy"]}
        self._instance = instance_from_document(parts)
        cluster = self._instance.cluster
        self._nodes = {node.name: n for n, node in enumerate(cluster.nodes)}
        self._levels = {cluster.level_name(n): n for n in range(cluster.node_level + 1)}
        self._resources = tuple(name for name, _ in self._instance.policy.per_gpu)

    def found(self) -> Occupied:
        before: list[Held] = []
        gangs = {}
        for gang in self._tree["instance"]["gangs"]:
            key = (gang["metadata"]["namespace"], gang["metadata"]["name"])
            roles = self._roles(gang["spec"])
            gangs[key] = (gang["spec"], roles)
            before += self._held(roles, gang["status"]["pods"])
        after: list[Held] = []
        waiting = []
        for decided in self._tree["spec"]["gangs"]:
            key = (decided["namespace"], decided["name"])
            if key not in gangs:
                raise _DamagedError(f"gang {key[0]}/{key[1]} is not in its instance")
            spec, roles = gangs[key]
            if decided["decision"] in ADMITTED:
                after += self._held(roles, decided["pods"])
            elif decided["decision"] == "wait" and (shape := self._shape(spec)) is not None:
                waiting.append(shape)
        return Occupied(self._instance, before, after, waiting)

    def _roles(self, spec: Any) -> dict[str, Held]:  # noqa: ANN401
        """A pod of each role, on the node 0."""
        level = spec["topology"].get("exclusive")
        exclusive = None if level is None else self._level(level)
        nowhere = PodPlacement(0, 0, 0, None)
        return {
            role["name"]: Held(
                _whole(role["gpus"]), nowhere, self._requests(role["requests"]), exclusive
            )
            for role in spec["roles"]
        }

    def _requests(self, amounts: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
        """What a pod takes of the resources that free GPUs need, and its part of a GPU."""
        return tuple(
            (name, requested(name, quantity(str(amount))))
            for name, amount in amounts.items()
            if name in self._resources or is_part(name)
        )

    def _held(self, roles: Mapping[str, Held], pods: Iterable[Any]) -> Iterator[Held]:
        """The pods that are on a node."""
        for pod in pods:
            name = pod.get("node")  # none while it waits
            if name is None:
                continue
            of = roles.get(pod["role"])
            node = self._nodes.get(name)
            if of is None or node is None:
                what = f"node {name}" if of is not None else f"role {pod['role']}"
                raise _DamagedError(f"{what} of a pod is not in its instance")
            gpus = pod.get("gpus") if of.gpus else ()
            mask = None if gpus is None else mask_of(_whole(gpu, MAX_GPUS - 1) for gpu in gpus)
            yield Held(of.gpus, PodPlacement(0, 0, node, mask), of.requests, of.exclusive)

    def _shape(self, spec: Any) -> Shape | None:  # noqa: ANN401
        """As ``waiting_shape``."""
        roles = [role for role in spec["roles"] if role["gpus"]]
        if len(roles) != 1:
            return None
        replicas = roles[0]["replicas"]
        least = _whole(replicas["min"] if isinstance(replicas, dict) else replicas)
        stated = (spec["topology"].get("required"), roles[0]["topology"].get("required"))
        levels = [self._level(level) for level in stated if level is not None]
        return Shape(max(1, least), roles[0]["gpus"], max(levels, default=CLUSTER))

    def _level(self, name: str) -> int:
        if name not in self._levels:
            raise _DamagedError(f"level {name} of a gang is not in its instance")
        return self._levels[name]


def _whole(value: object, most: int = MAX_PODS) -> int:
    """The value, if it is an integer in range."""
    if type(value) is not int or not 0 <= value <= most:
        raise TypeError(value)
    return value


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
