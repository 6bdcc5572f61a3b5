"""Jobs of the batch group: one role, ``worker``; Indexed Jobs say which pod is which.

Promises: asked last, for what is made of Jobs has its own dialect. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubePod, Objects
from planner.reading.kubernetes.gangs.counting import counted
from planner.reading.kubernetes.gangs.forms import Maker, MakerDialect, MakerKey, RolePlan, Seat
from planner.reading.kubernetes.looking import Tree, mapping, number, whole

ROLE = "worker"
INDEX = "batch.kubernetes.io/job-completion-index"
_NAMES = ("batch.kubernetes.io/job-name", "job-name")


def pods_at_once(spec: Tree) -> int | None:
    """Pods of a Job that run together; 1 where nothing is said, None where nonsense is."""
    wanted = counted(spec, "parallelism", absent=1)
    completions = counted(spec, "completions", absent=None)
    return wanted if wanted is None or completions is None else min(wanted, completions)


def completion_index(pod: KubePod) -> int | None:
    return number(pod.labels.get(INDEX) or pod.annotations.get(INDEX))


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    owner = pod.object.owner
    if owner is not None:
        if owner.kind != "Job" or owner.group != "batch":
            return None
        return MakerKey("Job", pod.object.namespace, owner.name)
    name = next((pod.labels[key] for key in _NAMES if pod.labels.get(key)), None)
    return MakerKey("Job", pod.object.namespace, name) if name else None


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named("batch", "Job", key.namespace, key.name)
    if made is None:
        return Maker(key, "Job", key.name, None, (RolePlan(ROLE, None),))
    size = pods_at_once(mapping(made.tree, "spec"))
    completions = counted(made.tree, "spec", "completions", absent=None)
    over_time = completions is not None and size is not None and completions > size
    if completions is not None and size is not None and completions > size:
        # Towards the end fewer pods run at once: those that succeeded are not made again.
        left = completions - (whole(made.tree, "status", "succeeded") or 0)
        standing = sum(pod.finished is None for pod in pods)
        size = max(min(size, left), standing)
    plan = RolePlan(ROLE, size, queue_like=over_time)
    return Maker(key, "Job", key.name, made, (plan,))


def seat(pod: KubePod, maker: Maker) -> Seat:
    del maker
    return Seat(ROLE, completion_index(pod))


DIALECT = MakerDialect("Job", claim, describe, seat)
