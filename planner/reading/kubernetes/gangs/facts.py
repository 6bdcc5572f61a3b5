"""Priority, queue, time of submission, and what a gang may be put through.

Promises: no single pod raises its gang: the lowest priority counts, marks must be on the controller,
the group or every pod. Called by ``reading``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from models.quantities import Refused, epoch_seconds
from planner.reading.kubernetes.forms import KubeObject, KubePod
from planner.reading.kubernetes.gangs.sorting import Bunch
from planner.reading.remarks import Remarks

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
    except Refused:
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
