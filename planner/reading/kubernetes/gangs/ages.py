"""Since when a gang runs, until when its work is saved, and how long its size is to stay.

Promises: a time that cannot be read is a remark; what a tenant writes never moves the time that the
ages of others are counted to. Called by ``reading`` and ``assembling``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.policy import LOST_RUNTIME, Policy
from models.quantities import Refused, epoch_seconds
from planner.reading.kubernetes.forms import KubeGang, KubeObject, KubePod
from planner.reading.kubernetes.looking import text
from planner.reading.remarks import Remarks

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
        except Refused:
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
        except Refused:
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
