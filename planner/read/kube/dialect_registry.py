"""The dialects: one row per scheduler or controller. A new dialect is a file here and a row."""

from __future__ import annotations

from planner.read.kube.dialects import (
    ack,
    apps,
    gangplan,
    grove,
    hami,
    hived,
    job,
    jobset,
    kai,
    kubeflow,
    kubernetes,
    kueue,
    leaderworkerset,
    ray,
    scheduler_plugins,
    volcano,
)
from planner.read.kube.dialects.base import (
    ControllerReader,
    Dialect,
    GroupReader,
    HoldingReader,
)
from planner.read.kube.dialects.quotas import QuotaReader

DIALECTS: tuple[Dialect, ...] = (
    grove.DIALECT,
    leaderworkerset.DIALECT,
    jobset.DIALECT,
    kubeflow.DIALECT,
    kubernetes.DIALECT,
    volcano.DIALECT,
    scheduler_plugins.DIALECT,
    ray.DIALECT,
    kai.DIALECT,
    ack.DIALECT,
    hived.DIALECT,
    hami.DIALECT,
    kueue.DIALECT,
    gangplan.DIALECT,
    job.DIALECT,
    apps.DIALECT,
)
"""In order of precedence. A controller comes before those of the objects it makes: JobSet before Job.
A pod that names several groups belongs to the first whose object exists."""


def group_readers() -> tuple[GroupReader, ...]:
    return tuple(reader for dialect in DIALECTS for reader in dialect.groups)


def controller_readers() -> tuple[ControllerReader, ...]:
    return tuple(one.controller for one in DIALECTS if one.controller is not None)


def controller_reader(kind: str) -> ControllerReader:
    """The reader of keys of this kind."""
    return next(reader for reader in controller_readers() if reader.kind == kind)


def holding_readers() -> tuple[HoldingReader, ...]:
    return tuple(reader for dialect in DIALECTS for reader in dialect.holdings)


def quota_readers() -> dict[str, QuotaReader]:
    """By the name of the dialect; those that tenants may write come last, so that they take no name."""
    order = (kueue, kai, volcano, scheduler_plugins)
    found = [one.DIALECT for one in order]
    return {one.name: one.quotas for one in found if one.quotas is not None}
