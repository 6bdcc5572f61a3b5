"""Volcano's Job: its tasks are roles, their partitions slices.

Promises: sizes from spec.tasks. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubePod, Objects, SliceAsk
from planner.reading.kubernetes.gangs import tiers
from planner.reading.kubernetes.gangs.counting import counted
from planner.reading.kubernetes.gangs.forms import Maker, MakerDialect, MakerKey, RolePlan, Seat
from planner.reading.kubernetes.looking import Tree, mapping, number, objects, text, whole

GROUP = "batch.volcano.sh"
KIND = "VCJob"
_KEY = "volcano.sh/"
NAME = f"{_KEY}job-name"
TASK = f"{_KEY}task-spec"
INDEX = f"{_KEY}task-index"


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    owner = pod.object.owner
    name = pod.labels.get(NAME) or pod.annotations.get(NAME)
    if not name and owner is not None and owner.kind == "Job" and owner.group == GROUP:
        name = owner.name
    return MakerKey(KIND, pod.object.namespace, name) if name else None


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named(GROUP, "Job", key.namespace, key.name)
    if made is None:
        seen = sorted({_task(pod) for pod in pods})
        return Maker(key, KIND, key.name, None, tuple(RolePlan(task, None) for task in seen))
    plans: dict[str, RolePlan] = {}
    for number_, task in enumerate(objects(made.tree, "spec", "tasks")):
        name = text(task, "name") or f"default{number_}"
        size = counted(task, "replicas", absent=1)
        plans.setdefault(
            name, RolePlan(name, size, later=bool(task.get("dependsOn")), slices=_parts(task))
        )
    required, preferred, _ = tiers.asked(made.tree, "spec", "networkTopology")
    return Maker(
        key,
        KIND,
        key.name,
        made,
        tuple(plans.values()),
        required=required,
        preferred=preferred,
        queue=text(made.tree, "spec", "queue"),
    )


def _parts(task: Tree) -> tuple[SliceAsk, ...]:
    """Partitions of a task that each need one domain; what they only prefer is not modelled."""
    policy = mapping(task, "partitionPolicy")
    size = whole(policy, "partitionSize")
    required, _, _ = tiers.asked(policy, "networkTopology")
    return (SliceAsk(size, required),) if size is not None and size > 0 and required else ()


def _task(pod: KubePod) -> str:
    return pod.labels.get(TASK) or pod.annotations.get(TASK) or "worker"


def seat(pod: KubePod, maker: Maker) -> Seat:
    del maker
    return Seat(_task(pod), number(pod.labels.get(INDEX) or pod.annotations.get(INDEX)))


DIALECT = MakerDialect(KIND, claim, describe, seat)
