"""What a gang is started under, and the words on its pods, which are for people and programs.

gangplan believes none of these: the record of the start counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terms:
    """``until``: its expected end in seconds since the epoch, None for none. ``queue``: in the plan.

    ``since``: when it started first, on pods that complete a gang that runs; None on those of its start,
    which say themselves when they started.
    """

    priority: int
    preemptible: bool = False
    movable: bool = False
    until: int | None = None
    queue: str | None = None
    since: int | None = None


def strictest(each: Iterable[Terms]) -> Terms | None:
    """What binds a gang whose pods were started under several terms: the worst of each for it.

    The queue is that of the first.
    """
    known = list(each)
    if not known:
        return None
    return Terms(
        min(one.priority for one in known),
        any(one.preemptible for one in known),
        any(one.movable for one in known),
        min((one.until for one in known if one.until is not None), default=None),
        known[0].queue,
        min((one.since for one in known if one.since is not None), default=None),
    )


PLAN = "gangplan.dev/plan"
"""Plan id: a label, so that ``kubectl get pods -l`` finds the pods."""

NODE = "gangplan.dev/node"
GPUS = "gangplan.dev/gpus"
RANK = "gangplan.dev/rank"
"""Rank of the pod's first GPU among those of its role, where the plan deals ranks."""

GANG = "gangplan.dev/gang"
"""The gang of a pod, where its owner names it: a label."""

KEYS = (NODE, GPUS, RANK)
"""Annotations of a pod that is started."""

MANAGER = "gangplan"
"""Field manager of all our writes."""
