"""``--previous PLAN``: where an earlier plan wanted the pods of the gangs that are still there.

Promises: takes nothing else from that plan; gangs, pods and nodes that are gone are no error, a file
that is no plan or one of another cluster is. Called by ``planner.pipelines.plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from pydantic import Field, ValidationError

from models.gang import PlannedPod
from planner.errors import Fault, InputError
from planner.show import plan_file as planfile
from planner.show.plan_view import Count, View
from planner.show.text import plural
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.gang import Gang
    from models.instance import Instance

_SHOWN = 3
"""Names told in a remark; the rest are counted."""


class _Pod(View):
    role: str
    index: Count
    node: str


class _Gang(View):
    namespace: str
    name: str
    pods: list[_Pod]


class _Spec(View):
    gangs: list[_Gang]


class _Metadata(View):
    uid: str | None = None


class _Cluster(View):
    metadata: _Metadata


class _Instance(View):
    cluster: _Cluster


class EarlierPlan(View):
    """What is taken from a plan: its cluster's identity and the places of its pods."""

    file: str = Field(exclude=True)
    instance: _Instance
    spec: _Spec


def read_earlier(path: str, stdin: IO[bytes] | None = None) -> EarlierPlan:
    """The plan in a file, ``-`` for stdin.

    Raises MissingPathError, and InputError with the first fault of a file that is no plan.
    """
    document = planfile.parse(planfile.read_bytes(path, stdin), path)
    try:
        return EarlierPlan.model_validate({**document, "file": path})
    except ValidationError as error:
        raise InputError(planfile.faults_of(error, path)[0]) from None


def remembering(instance: Instance, earlier: EarlierPlan) -> tuple[Instance, tuple[str, ...]]:
    """The instance with every gang's ``planned`` as that plan has it, and what people should know.

    Gangs are matched by namespace and name, pods by role and index. Raises InputError for a plan of
    another cluster, where both say which they are of.
    """
    _same_cluster(instance, earlier)
    positions = {node.name: i for i, node in enumerate(instance.cluster.nodes)}
    before: dict[tuple[str, str], _Gang] = {}
    for gang in earlier.spec.gangs:
        before.setdefault((gang.namespace, gang.name), gang)
    lost = _Lost()
    gangs = []
    for now in instance.gangs:
        then = before.get(now.key)
        pods = () if then is None else _planned(now, then.pods, positions, lost)
        gangs.append(replace(now, planned=pods))
    said = lost.remarks(earlier.file)
    if any(gang.pods for gang in before.values()) and not any(gang.planned for gang in gangs):
        said.append(
            f"{safe(earlier.file)} places none of these gangs: nothing is to stay where it was"
        )
    return replace(instance, gangs=tuple(gangs)), tuple(said)


def _same_cluster(instance: Instance, earlier: EarlierPlan) -> None:
    was, is_ = earlier.instance.cluster.metadata.uid, instance.cluster.uid
    if was is not None and is_ is not None and was != is_:
        what = f"a plan of another cluster: its uid is {safe(was)[:60]}, not {is_}"
        raise InputError(Fault(what, "give a plan that was made for this cluster", earlier.file))


class _Lost:
    """Pods of gangs that are still there, planned where nothing is any more."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.pods: list[str] = []

    def remarks(self, file: str) -> list[str]:
        said = []
        if self.nodes:
            pods = plural(sum(self.nodes.values()), "pod")
            said.append(
                f"{safe(file)} places {pods} on nodes that are not there: {_some(self.nodes)}"
            )
        if self.pods:
            pods = plural(len(self.pods), "pod")
            said.append(
                f"{safe(file)} places {pods} that their gangs do not have: {_some(self.pods)}"
            )
        return said


def _some(names: Sequence[str] | dict[str, int]) -> str:
    distinct = sorted(set(names))
    more = len(distinct) - _SHOWN
    told = ", ".join(safe(name)[:80] for name in distinct[:_SHOWN])
    return f"{told} and {more:,} more" if more > 0 else told


def _planned(
    gang: Gang, pods: Sequence[_Pod], positions: dict[str, int], lost: _Lost
) -> tuple[PlannedPod, ...]:
    """Places of the pods that the gang may still have, on nodes that are there; of two the first."""
    roles = {role.name: i for i, role in enumerate(gang.roles)}
    found: dict[tuple[int, int], int] = {}
    for pod in pods:
        role, node = roles.get(pod.role), positions.get(pod.node)
        if role is None or pod.index not in gang.roles[role].indices(gang.roles[role].max):
            lost.pods.append(f"{gang.namespace}/{gang.name} {pod.role} {pod.index}")
        elif node is None:
            lost.nodes[pod.node] = lost.nodes.get(pod.node, 0) + 1
        else:
            found.setdefault((role, pod.index), node)
    return tuple(PlannedPod(role, index, node) for (role, index), node in sorted(found.items()))
