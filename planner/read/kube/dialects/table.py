"""The dialects: how schedulers name groups of pods, and how controllers name what they make.

Promises: one row a dialect, in the order they are asked. Called by ``sorting``. A new dialect is a
file of ``groups`` or ``makers`` and a row here.

Which GPUs a running pod holds: one file a dialect, and the table of them.

Promises: dialects tell, ``settling`` believes or not; what is told stays a claim of the tenant's
until it fits the node and every other pod. Called by ``pods``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.read.kube.dialects import (
    gangplan,
    grove,
    hami,
    hived,
    jobset,
    kai,
    koordinator,
    kubeflow,
    kubernetes,
    kueue,
    leaderworkerset,
    ray,
    scheduler_plugins,
    volcano,
)
from planner.read.kube.dialects.base import GroupDialect, MakerDialect, Told
from planner.read.kube.records import KubeNode

GROUPS: tuple[GroupDialect, ...] = (
    kubernetes.DIALECT,
    kubernetes.DIALECT_WORKLOAD,
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
    volcano.DIALECT_VOLCANO,
    ray.DIALECT,
    kubernetes.DIALECT_JOB,
)
"""Which controller made a pod. Widest first: a JobSet before the Jobs it makes."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """``name``: how messages call it. ``keys``: annotations without which it tells nothing.

    ``read``: from a pod's annotations and its node; None where it tells nothing after all.
    """

    name: str
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, str], KubeNode], Told | None]


DIALECTS = (
    Dialect(
        "annotation topology.kubernetes.io/gpu-visible",
        (koordinator.VISIBLE, koordinator.GROUP_ACK),
        koordinator.visible,
    ),
    Dialect(
        "annotation scheduling.koordinator.sh/device-allocated",
        (koordinator.ALLOCATED,),
        koordinator.allocated,
    ),
    Dialect("HiveD annotation of leaf cells", (*hived.ISOLATION, hived.BIND_INFO), hived.isolation),
    Dialect("HAMi annotation of devices", hami.PODS, hami.devices),
    Dialect(
        "annotation of the GPU share", (koordinator.SHARE, koordinator.OLD_SHARE), koordinator.share
    ),
    Dialect("annotation run.ai/reserve_for_gpu_index", (kai.RESERVED,), kai.reserved),
    Dialect("annotation gangplan.dev/gpus", (gangplan.GPUS,), gangplan.given),
)
"""Every dialect, in the order in which they are asked; DRA comes before all of them."""

KEYS = frozenset(key for dialect in DIALECTS for key in dialect.keys)
"""Annotations that any dialect reads."""

__all__ = ["DIALECTS", "KEYS", "Dialect", "Told"]
