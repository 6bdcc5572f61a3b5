"""Where an earlier plan wanted the pods of the gangs that still exist, and from when.

Of ``--previous PLAN``, or of the promises that the last run noted.
Gangs, pods and nodes that are gone give remarks; a plan of another cluster is an InputError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from models.documents.base import made
from models.instance.gang import Gang, PlannedPod
from models.instance.instance import EarlierPlan
from models.instance.solution import BACKOFF, QUEUE_LIMIT
from models.units import first_of, plural
from planner.errors import Fault, InputError
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.apply.notes import EvictNote, Promises, Seat
    from models.documents.plan import PlanDocument, PlanGang
    from models.instance.instance import Instance

HOLDS = ("Unsupported", "Incomplete", "Gated", QUEUE_LIMIT, BACKOFF)
"""Codes of what holds a gang: it does not wait in turn."""

_SHOWN = 3
"""Names in a remark; the rest are counted."""


def with_previous(
    instance: Instance, previous: PlanDocument, file: str
) -> tuple[Instance, tuple[str, ...]]:
    """The instance with ``planned`` of every gang as the previous plan has it, what it promised, and remarks.

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
        made(Gang, gang, planned=_planned(gang, decided.get(gang.key), nodes, gone))
        for gang in instance.gangs
    )
    remarks = gone.remarks(file)
    if any(one.pods for one in decided.values()) and not any(gang.planned for gang in gangs):
        remarks.append(f"{safe(file)} places none of these gangs: no pod has a previous place")
    earlier = replace(_promised(instance, decided, gone), sound=_sound(previous))
    return replace(instance, gangs=gangs, earlier=earlier), tuple(remarks)


def with_promises(instance: Instance, noted: Promises) -> Instance:
    """The instance with what the last plan promised gangs that still wait, and ``planned`` of these alone."""
    nodes = {node.name: i for i, node in enumerate(instance.cluster.nodes)}
    gone = _Gone()
    promised = {one.gang: one for one in noted.starts}
    starts = {
        gang.key: promised[gang.key].start
        for gang in instance.gangs
        if not gang.running and gang.key in promised
    }
    gangs = tuple(
        replace(gang, planned=_places(gang, promised[gang.key].pods, nodes, gone))
        if gang.key in starts
        else gang
        for gang in instance.gangs
    )
    known = (gang.key for gang in instance.gangs if gang.key in starts or _was_known(gang, noted))
    missing = {key: frozenset(names) for key, names in gone.of.items()}
    return replace(instance, gangs=gangs, earlier=EarlierPlan(frozenset(known), starts, missing))


def _was_known(gang: Gang, noted: Promises) -> bool:
    """Whether the plan knew a gang, by the times of the gang: who was to start and waits has come since."""
    times = [gang.submitted_at]
    if gang.running:
        times += [gang.started_at, gang.runs_since]
    elif gang.key in noted.due:
        return False
    elif gang.evicted_at is not None and gang.evicted_at >= noted.at:
        return True  # by that plan
    return any(time is not None and time <= noted.at for time in times)


def _promised(
    instance: Instance, decided: Mapping[tuple[str, str], PlanGang], gone: _Gone
) -> EarlierPlan:
    """What the plan knew, and when those were to start that still wait.

    Who waits again after it ran, or was to start without such a promise, has come since.
    """
    starts = {
        gang.key: one.reserved.start
        for gang in instance.gangs
        if not gang.running
        if (one := decided.get(gang.key)) is not None and one.reserved is not None
    }
    missing = {key: frozenset(names) for key, names in gone.of.items() if key in starts}
    waits = {gang.key for gang in instance.gangs if not gang.running}
    known = (
        key
        for key, one in decided.items()
        if key not in waits or key in starts or one.decision in ("wait", "preempt")
    )
    waited = (
        key
        for key, one in decided.items()
        if one.decision == "wait" and (one.reason is None or one.reason.code not in HOLDS)
    )
    return EarlierPlan(frozenset(known), starts, missing, frozenset(waited))


def _sound(previous: PlanDocument) -> frozenset[str]:
    """Nodes that took pods on all of their GPUs."""
    return frozenset(
        node.name
        for node in previous.instance.cluster.spec.nodes
        if node.ready and not node.unschedulable
        if not node.unusable_gpus
    )


def evictions_of(previous: PlanDocument) -> list[EvictNote]:
    """Gangs that plans stopped or moved up to this one."""
    from models.apply.notes import EvictNote

    stopped = {
        one.key: one.decision == "move"
        for one in previous.spec.gangs
        if one.decision in ("preempt", "move")
    }
    found = []
    for gang in previous.instance.gangs:
        times, at, began = gang.status.evictions, gang.status.evicted_at, gang.status.started_at
        if at is not None:
            moved = bool(gang.running_pods) and (began is None or began < at)
            found.append(EvictNote(gang.key, at, max(1, times), moved))
        if gang.key in stopped:
            found.append(EvictNote(gang.key, previous.instance.now, times + 1, stopped[gang.key]))
    return found


def _check_cluster(instance: Instance, previous: PlanDocument, file: str) -> None:
    before, now = previous.instance.cluster.metadata.uid, instance.cluster.uid
    if before is not None and now is not None and before != now:
        what = f"a plan of another cluster: its uid is {safe(before)[:60]}, not {now}"
        raise InputError(Fault(what, "give a plan that was made for this cluster", file))


@dataclass(slots=True)
class _Gone:
    """Pods of gangs that still exist, planned for a node or a seat that does not.

    ``of``: the nodes, by gang.
    """

    nodes: Counter[str] = field(default_factory=Counter)
    pods: list[str] = field(default_factory=list)
    of: dict[tuple[str, str], set[str]] = field(default_factory=dict)

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
    held = None if decided is None else decided.reserved
    pods = () if decided is None else decided.pods or (() if held is None else held.pods)
    return _places(gang, [(pod.role, pod.index, pod.node) for pod in pods], nodes, gone)


def _places(
    gang: Gang, pods: Iterable[Seat], nodes: Mapping[str, int], gone: _Gone
) -> tuple[PlannedPod, ...]:
    roles = {role.name: i for i, role in enumerate(gang.roles)}
    places: dict[tuple[int, int], int] = {}
    for name, index, on in pods:
        role, node = roles.get(name), nodes.get(on)
        if role is None or index not in gang.roles[role].indices(gang.roles[role].max):
            gone.pods.append(f"{gang.namespace}/{gang.name} {name} {index}")
        elif node is None:
            gone.nodes[on] += 1
            gone.of.setdefault(gang.key, set()).add(on)
        else:
            places.setdefault((role, index), node)
    return tuple(PlannedPod(role, index, node) for (role, index), node in sorted(places.items()))
