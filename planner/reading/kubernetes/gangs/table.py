"""The dialects: how schedulers name groups of pods, and how controllers name what they make.

Promises: one row a dialect, in the order they are asked. Called by ``sorting``. A new dialect is a
file of ``groups`` or ``makers`` and a row here.
"""

from __future__ import annotations

from planner.reading.kubernetes.gangs.forms import GroupDialect, MakerDialect
from planner.reading.kubernetes.gangs.groups import (
    kai,
    koordinator,
    kueue,
    native,
    scheduler_plugins,
    volcano,
    workload,
)
from planner.reading.kubernetes.gangs.makers import (
    grove,
    job,
    jobset,
    kubeflow,
    leaderworkerset,
    ray,
)
from planner.reading.kubernetes.gangs.makers import volcano as vcjob

GROUPS: tuple[GroupDialect, ...] = (
    native.DIALECT,
    workload.DIALECT,
    volcano.DIALECT,
    scheduler_plugins.DIALECT,
    kai.DIALECT,
    koordinator.DIALECT,
    kueue.DIALECT,
)
"""Which group object a pod belongs to. Of several, the first whose object exists counts."""

MAKERS: tuple[MakerDialect, ...] = (
    grove.DIALECT,
    leaderworkerset.DIALECT,
    jobset.DIALECT,
    kubeflow.DIALECT,
    vcjob.DIALECT,
    ray.DIALECT,
    job.DIALECT,
)
"""Which controller made a pod. Widest first: a JobSet before the Jobs it makes."""
