"""Jobs of the batch API: one role, ``worker``. Indexed Jobs number their pods."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from planner.read.kube.dialects import base
from planner.read.kube.lookup import mapping, number, text, whole
from planner.read.kube.records import KubeObject, KubePod, Objects

ROLE = "worker"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
"""With how few pods Kueue may start the Job."""

_NAMES = (base.JOB_NAME, "job-name")


def name_on(pod: KubeObject, api: Objects) -> str | None:
    """The labels of a pod that something else owns name another thing's Job."""
    del api
    owner = pod.owner
    if owner is not None:
        return owner.name if owner.kind == "Job" and owner.group == "batch" else None
    return next((pod.labels[key] for key in _NAMES if pod.labels.get(key)), None)


def describe(of: base.Controlled) -> base.Controller:
    key, job, pods, _ = of
    if job is None:
        return base.Controller(key, "Job", key.name, None, {ROLE: base.RoleSpec(ROLE, None)})
    size = base.parallel_pods(mapping(job.tree, "spec"))
    completions = base.count(job.tree, "spec", "completions", absent=None)
    queue_like = completions is not None and size is not None and completions > size
    if completions is not None and size is not None and queue_like:
        # Towards the end fewer pods run at once: those that succeeded are not created again.
        left = completions - (whole(job.tree, "status", "succeeded") or 0)
        size = max(min(size, left), sum(pod.finished is None for pod in pods))
    least = number(job.annotations.get(MIN_PARALLELISM))
    role = base.RoleSpec(
        ROLE,
        size,
        queue_like=queue_like,
        range=base.allowed_range(least, size),
        succeeded=0 if queue_like else whole(job.tree, "status", "succeeded") or 0,
    )
    return base.Controller(key, "Job", key.name, job, {ROLE: role})


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    del controller
    return base.RoleIndex(ROLE, base.completion_index(pod))


def job_pods(job: KubeObject, done: frozenset[int] = frozenset()) -> Iterator[base.PodSet]:
    """``done``: completion indexes of the pods that succeeded."""
    spec = mapping(job.tree, "spec")
    wanted, completions = base.parallel_pods(spec), base.count(spec, "completions", absent=None)
    if wanted is not None and completions is not None:
        wanted = max(0, min(wanted, completions - (whole(job.tree, "status", "succeeded") or 0)))
    indexed, owner = text(spec, "completionMode") == "Indexed", base.owned_by(job)
    left_before = [index - place for place, index in enumerate(sorted(done))]

    def made(number: int) -> base.MadePod:
        number += bisect_right(left_before, number)  # the indexes that are left, in order
        labels = {base.JOB_NAME: job.name, "job-name": job.name}
        labels |= {base.COMPLETION_INDEX: str(number)} if indexed else {}
        return base.MadePod(f"{job.name}-{number}", labels, owner)

    yield base.PodSet(base.RoleSpec(ROLE, wanted), mapping(spec, "template"), made)


DIALECT = base.Dialect(
    "Job",
    precedence=150,
    controller=base.ControllerReader(
        "Job", describe, role_index, labels=_NAMES, owners=(("batch", "Job"),), find=name_on
    ),
    annotations="batch.kubernetes.io/",
    makes={("batch", "Job"): base.Makes(job_pods, left=job_pods)},
)
