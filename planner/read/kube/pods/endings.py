"""When Kubernetes ends a running pod: at its deadline or that of its Job, and after its grace period.

A word counts only where somebody keeps it.
"""

from __future__ import annotations

from models.units import MAX_SECONDS
from planner.read.kube.lookup import objects, text, whole
from planner.read.kube.records import KubeObject, KubePod, Objects

DEFAULT_GRACE_S = 30
"""``terminationGracePeriodSeconds`` of a pod that states none: too short to count."""

LONGEST_GRACE_S = 3600
"""A pod that may take longer to end gives its room to nobody in time."""

_DEADLINE = ("spec", "activeDeadlineSeconds")
"""Of pods and Jobs."""

_JOB_CONTROLLER = "kubernetes.io/job-controller"
"""Who manages a Job without ``managedBy``; anybody else need not keep its deadline."""

_OVER = frozenset({"Complete", "Failed"})
"""Conditions of a Job that has finished: it ends no pod any more."""


def grace_s(pod: KubePod) -> int:
    """Seconds that a pod may take to end, once it is evicted or its deadline is over."""
    stated = whole(pod.object.tree, "spec", "terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if stated is None else max(0, stated)


def deadline_s(pod: KubePod, api: Objects) -> int | None:
    """Seconds after its start by which a pod has ended; None if nobody ends it.

    The deadline of the pod, or of the Job that controls it, and a grace period above the default.
    """
    owner, stated = pod.object.owner, [whole(pod.object.tree, *_DEADLINE)]
    job = api.owner_of(pod.object) if owner is not None and owner.controls else None
    if job is not None and _ends_pods(job):
        stated.append(whole(job.tree, *_DEADLINE))
    kept = [seconds for seconds in stated if seconds is not None and 0 < seconds <= MAX_SECONDS]
    if not kept:
        return None
    grace = grace_s(pod)
    end = min(kept) + (grace if grace > DEFAULT_GRACE_S else 0)
    return end if end <= MAX_SECONDS else None


def _ends_pods(job: KubeObject) -> bool:
    """Whether its deadline is kept: that of a Job which has not finished and which nobody else manages."""
    if (job.kind, job.group) != ("Job", "batch"):
        return False
    conditions = objects(job.tree, "status", "conditions")
    true = {text(one, "type") for one in conditions if text(one, "status") == "True"}
    manager = text(job.tree, "spec", "managedBy") or _JOB_CONTROLLER
    return manager == _JOB_CONTROLLER and true.isdisjoint(_OVER)
