"""Which GPUs a running pod holds: one file a dialect, and the table of them.

Promises: dialects tell, ``settling`` believes or not; what is told stays a claim of the tenant's
until it fits the node and every other pod. Called by ``pods``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.reading.kubernetes.forms import KubeNode
from planner.reading.kubernetes.pods.holdings import ack, hami, hived, kai, koordinator, own
from planner.reading.kubernetes.pods.holdings.telling import Told


@dataclass(frozen=True, slots=True)
class Dialect:
    """``name``: how messages call it. ``keys``: annotations without which it tells nothing.

    ``read``: from a pod's annotations and its node; None where it tells nothing after all.
    """

    name: str
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, str], KubeNode], Told | None]


DIALECTS = (
    Dialect("annotation topology.kubernetes.io/gpu-visible", (ack.VISIBLE, ack.GROUP), ack.visible),
    Dialect(
        "annotation scheduling.koordinator.sh/device-allocated",
        (koordinator.ALLOCATED,),
        koordinator.allocated,
    ),
    Dialect("HiveD annotation of leaf cells", (*hived.ISOLATION, hived.BIND_INFO), hived.isolation),
    Dialect("HAMi annotation of devices", hami.PODS, hami.devices),
    Dialect("annotation of the GPU share", (ack.SHARE, ack.OLD_SHARE), ack.share),
    Dialect("annotation run.ai/reserve_for_gpu_index", (kai.RESERVED,), kai.reserved),
    Dialect("annotation gangplan.dev/gpus", (own.GPUS,), own.given),
)
"""Every dialect, in the order in which they are asked; DRA comes before all of them."""

KEYS = frozenset(key for dialect in DIALECTS for key in dialect.keys)
"""Annotations that any dialect reads."""

__all__ = ["DIALECTS", "KEYS", "Dialect", "Told"]
