"""Since when a gang runs, until when its work is saved, and how long its size is to stay.

Promises: a time that cannot be read is a remark; what a tenant writes never moves the time that the
ages of others are counted to. Called by ``reading`` and ``assembling``.

Priority, queue, time of submission, and what a gang may be put through.

Promises: no single pod raises its gang: the lowest priority counts, marks must be on the controller,
the group or every pod. Called by ``reading``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from models.policy import LOST_RUNTIME, Policy
from models.units import InvalidValueError, epoch_seconds
from planner.read.findings import Remarks
from planner.read.kube.gangs.membership import Bunch
from planner.read.kube.lookup import text
from planner.read.kube.records import KubeGang, KubeObject, KubePod

CHECKPOINT = "gangplan.dev/last-checkpoint"
RESIZE_AFTER = "gangplan.dev/resize-after"

LATER = (
    f"annotation {CHECKPOINT} is later than all the cluster says; it counts as the latest of that"
)
LATER_HINT = "say what time it is: --now, or `now` in a Policy"


def started_at(pods: Iterable[KubePod]) -> int | None:
    """When the last of its running pods started, or was made where it does not say."""
    times = [_start(pod) for pod in pods if pod.node is not None and pod.finished is None]
    return max((time for time in times if time is not None), default=None)


def _start(pod: KubePod) -> int | None:
    written = text(pod.object.tree, "status", "startTime")
    if written is not None:
        try:
            return epoch_seconds(written)
        except InvalidValueError:
            pass  # the time of its making, which is told of where it is odd, is no later
    return pod.object.created


def latest(
    speakers: Sequence[KubeObject], pods: Sequence[KubePod], key: str, remarks: Remarks
) -> int | None:
    """The latest time in an annotation of its controllers, its group and its pods."""
    times = []
    for one in (*speakers, *(pod.object for pod in pods)):
        written = one.annotations.get(key)
        if written is None:
            continue
        try:
            times.append(epoch_seconds(written))
        except InvalidValueError:
            remarks.add(one.subject, f"annotation {key} is no time; it is ignored")
    return max(times, default=None)


def believed(gangs: Sequence[KubeGang], policy: Policy, remarks: Remarks) -> list[KubeGang]:
    """The gangs with no checkpoint later than now: the Policy's, else the latest time of the cluster."""
    stated = (time for gang in gangs for time in (gang.submitted_at, gang.started_at))
    latest_stated = max((time for time in stated if time is not None), default=0)
    now = latest_stated if policy.now is None else policy.now
    early = [gang.last_checkpoint is None or gang.last_checkpoint <= now for gang in gangs]
    if policy.disruption.weight == LOST_RUNTIME:
        for gang, sound in zip(gangs, early, strict=True):
            if not sound:
                remarks.add(gang.subject, LATER, LATER_HINT)
    return [
        gang if sound else replace(gang, last_checkpoint=now)
        for gang, sound in zip(gangs, early, strict=True)
    ]


if TYPE_CHECKING:
    from models.policy import KubernetesPolicy

SUBMITTED = "gangplan.dev/submitted-at"
PREEMPTIBLE = "gangplan.dev/preemptible"
MOVABLE = "gangplan.dev/movable"

_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
_KAI_QUEUE = "kai.scheduler/queue"
_VOLCANO_QUEUES = ("volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
_KAI_PREEMPTIBLE = ("kai.scheduler/preemptibility", "preemptible")
_VOLCANO_PREEMPTIBLE = ("volcano.sh/preemptable", "true")

PRIORITIES = "its pods have different priorities; the lowest counts"
NO_TIME = f"annotation {SUBMITTED} is no time; it is ignored"


def speakers(bunch: Bunch) -> list[KubeObject]:
    """The controllers and group objects of a gang, those that speak for it."""
    made = [bunch.makers[key].object for key in sorted(bunch.makers)]
    groups = [group.object for group in (*bunch.groups.values(), *bunch.loose.values())]
    return [one for one in (*made, *groups) if one is not None]


def priority(pods: Sequence[KubePod], subject: str, remarks: Remarks) -> int:
    stated = {pod.priority for pod in pods}
    if len(stated) > 1:
        remarks.add(subject, PRIORITIES)
    return min(stated, default=0)


def queue(bunch: Bunch) -> str | None:
    """The group's own queue, else what labels and annotations name."""
    stated = [group.queue for group in bunch.groups.values()]
    stated += [bunch.makers[key].queue for key in sorted(bunch.makers)]
    found = next((name for name in stated if name), None)
    if found is not None:
        return found
    notes = [part for one in speakers(bunch) for part in (one.labels, one.annotations)]
    notes += [part for pod in bunch.pods for part in (pod.labels, pod.annotations)]
    for key in (_KUEUE_QUEUE, *_VOLCANO_QUEUES, _KAI_QUEUE):
        for note in notes:
            if note.get(key):
                return note[key]
    return None


def submitted_at(
    bunch: Bunch, pods: Sequence[KubePod], policy: KubernetesPolicy, remarks: Remarks
) -> int | None:
    """When the controller was made, else the earliest pod; the annotation if the Policy trusts it."""
    spoken = speakers(bunch)
    if policy.trust_submitted_at:
        trusted = [_time(one, remarks) for one in spoken]
        stated = next((time for time in trusted if time is not None), None)
        if stated is None:
            stated = _earliest(_time(pod.object, remarks) for pod in pods)
        if stated is not None:
            return stated
    made = [bunch.makers[key].object for key in sorted(bunch.makers)]
    created = [one.created for one in made if one is not None and one.created is not None]
    return min(created) if created else _earliest(pod.object.created for pod in pods)


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _time(found: KubeObject, remarks: Remarks) -> int | None:
    written = found.annotations.get(SUBMITTED)
    if written is None:
        return None
    try:
        return epoch_seconds(written)
    except InvalidValueError:
        remarks.add(found.subject, NO_TIME)
        return None


def preemptible(bunch: Bunch) -> bool:
    ways = ((PREEMPTIBLE, "true"), _KAI_PREEMPTIBLE, _VOLCANO_PREEMPTIBLE)
    if any(group.preemptible for group in bunch.groups.values()):
        return True
    return any(_marked(bunch, key, value) for key, value in ways)


def movable(bunch: Bunch) -> bool:
    return _marked(bunch, MOVABLE, "true")


def _marked(bunch: Bunch, key: str, value: str) -> bool:
    """Whether the gang is marked: by what speaks for it, or by every pod."""

    def says(one: KubeObject) -> bool:
        return value in (one.annotations.get(key), one.labels.get(key))

    return any(says(one) for one in speakers(bunch)) or all(says(pod.object) for pod in bunch.pods)
