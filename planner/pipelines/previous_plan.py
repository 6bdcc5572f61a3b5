"""``--previous PLAN``: where an earlier plan wanted the pods of the gangs that still exist.

Gangs, pods and nodes that are gone give remarks; a plan of another cluster is an InputError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from models.gang import PlannedPod
from models.units import first_of, plural
from planner.errors import Fault, InputError
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument, PlanGang
    from models.gang import Gang
    from models.instance import Instance

_SHOWN = 3
"""Names in a remark; the rest are counted."""


def with_previous(
    instance: Instance, previous: PlanDocument, file: str
) -> tuple[Instance, tuple[str, ...]]:
    """The instance with ``planned`` of every gang as the previous plan has it, and remarks.

    Gangs are matched by namespace and name, pods by role and index. Raises InputError where both the
    plan and the instance name their cluster and these differ.
    """
    _check_cluster(instance, previous, file)
    nodes = {node.name: i for i, node in enumerate(instance.cluster.nodes)}
    decided: dict[tuple[str, str], PlanGang] = {}
    for one in previous.spec.gangs:
        decided.setdefault(one.key, one)
    gone = _Gone()
    gangs = tuple(
        replace(gang, planned=_planned(gang, decided.get(gang.key), nodes, gone))
        for gang in instance.gangs
    )
    remarks = gone.remarks(file)
    if any(one.pods for one in decided.values()) and not any(gang.planned for gang in gangs):
        remarks.append(f"{safe(file)} places none of these gangs: no pod has a previous place")
    return replace(instance, gangs=gangs), tuple(remarks)


def _check_cluster(instance: Instance, previous: PlanDocument, file: str) -> None:
    before, now = previous.instance.cluster.metadata.uid, instance.cluster.uid
    if before is not None and now is not None and before != now:
        what = f"a plan of another cluster: its uid is {safe(before)[:60]}, not {now}"
        raise InputError(Fault(what, "give a plan that was made for this cluster", file))


@dataclass(slots=True)
class _Gone:
    """Pods of gangs that still exist, planned for a node or a seat that does not."""

    nodes: Counter[str] = field(default_factory=Counter)
    pods: list[str] = field(default_factory=list)

    def remarks(self, file: str) -> list[str]:
        found = []
        if self.nodes:
            pods = plural(self.nodes.total(), "pod")
            found.append(
                f"{safe(file)} places {pods} on nodes that do not exist: {_some(self.nodes)}"
            )
        if self.pods:
            pods = plural(len(self.pods), "pod")
            found.append(
                f"{safe(file)} places {pods} that their gangs do not have: {_some(self.pods)}"
            )
        return found


def _some(names: Iterable[str]) -> str:
    return first_of([safe(name)[:80] for name in sorted(set(names))], _SHOWN)


def _planned(
    gang: Gang, decided: PlanGang | None, nodes: Mapping[str, int], gone: _Gone
) -> tuple[PlannedPod, ...]:
    """Previous places, reserved ones too, of the pods that the gang may still have, on nodes that exist."""
    roles = {role.name: i for i, role in enumerate(gang.roles)}
    places: dict[tuple[int, int], int] = {}
    held = None if decided is None else decided.reserved
    pods = () if decided is None else decided.pods or (() if held is None else held.pods)
    for pod in pods:
        role, node = roles.get(pod.role), nodes.get(pod.node)
        if role is None or pod.index not in gang.roles[role].indices(gang.roles[role].max):
            gone.pods.append(f"{gang.namespace}/{gang.name} {pod.role} {pod.index}")
        elif node is None:
            gone.nodes[pod.node] += 1
        else:
            places.setdefault((role, pod.index), node)
    return tuple(PlannedPod(role, index, node) for (role, index), node in sorted(places.items()))
