"""The pipeline of ``capacity``: the cluster and the pods on it, of a plan or of documents, and the counts.

Nothing is solved, and the rules of the plan are not checked: that is ``verify``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from models.documents.base import API_VERSION, suggestion
from models.documents.capacity import CapacityDocument, CapacityQuestion
from models.documents.plan import PlanMetadata
from models.hardware import mask_of
from models.instance.instance import Instance
from models.instance.solution import ADMITTED, PodPlacement
from models.units import epoch_seconds, shortened, shown
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
    plan = plan_files.read_plan(content, path)
    instance = instance_from_document(plan_files.parse(content, path)["instance"])
    nodes = {node.name: n for n, node in enumerate(instance.cluster.nodes)}
    gangs = {gang.key: gang for gang in instance.gangs}
    after: list[Held] = []
    waiting = []
    for decided in plan.spec.gangs:
        gang = gangs.get(decided.key)
        if gang is None:
            raise _damaged(f"gang {'/'.join(decided.key)} is not in its instance", path)
        if decided.decision in ADMITTED:
            roles = {role.name: role for role in gang.roles}
            for pod in decided.pods:
                role, node = roles.get(pod.role), nodes.get(pod.node)
                if role is None or node is None:
                    what = f"node {pod.node}" if role is not None else f"role {pod.role}"
                    raise _damaged(f"{what} of a pod is not in its instance", path)
                gpus = pod.gpus if role.gpus else ()
                there = PodPlacement(0, 0, node, None if gpus is None else mask_of(gpus))
                after.append(Held(role.gpus, there, role.requests, gang.exclusive))
        elif decided.decision == "wait" and (shape := waiting_shape(gang)) is not None:
            waiting.append(shape)
    return Occupied(instance, held_by(instance), after, waiting)


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
