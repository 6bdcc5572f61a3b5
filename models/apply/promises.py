"""What the last plan of a run promised, as it is noted in the Lease: starts, places, and whom else it starts.

So the next run keeps it, on whatever host: the job of ``deploy/`` has no disk of its own. Bounded, for an
object carries 256 KiB of annotations at most.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.apply.plan_actions import Key

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument

MAX_STARTS = 100
"""Gangs of which a stated start is noted."""

MAX_PLACES = 32_768
"""Characters of all their places; the start of a gang beyond that is noted without its place."""

MAX_DUE = 100
"""Gangs that were to start now."""

Seat = tuple[str, int, str]
"""Role and index of a pod, and its node."""


@dataclass(frozen=True, slots=True)
class Promise:
    """``start``: at the latest, in seconds since the epoch. ``pods``: where; empty if that is not noted."""

    gang: Key
    start: int
    pods: tuple[Seat, ...] = ()


@dataclass(frozen=True, slots=True)
class Promises:
    """``at``: the time of the plan, in seconds since the epoch. ``due``: gangs that it starts itself."""

    at: int
    starts: tuple[Promise, ...]
    due: tuple[Key, ...] = ()


def promised_by(plan: PlanDocument) -> Promises | None:
    """What the plan promises gangs that wait; None if it promises nothing.

    Beyond the bounds the gangs of the highest priority, and then the earliest starts, are noted.
    """
    ranks = {gang.key: -gang.spec.priority for gang in plan.instance.gangs}
    waiting = [
        (one, one.reserved)
        for one in plan.spec.gangs
        if one.decision == "wait" and one.reserved is not None
    ]
    if not waiting:
        return None
    waiting.sort(key=lambda pair: (ranks.get(pair[0].key, 0), pair[1].start, pair[0].key))
    starts, left = [], MAX_PLACES
    for one, reserved in waiting[:MAX_STARTS]:
        pods = tuple((pod.role, pod.index, pod.node) for pod in reserved.pods)
        length = len(json.dumps(pods))
        pods, left = (pods, left - length) if length <= left else ((), left)
        starts.append(Promise(one.key, reserved.start, pods))
    due = [one.key for one in plan.spec.gangs if one.decision in ("place", "complete", "move")]
    return Promises(plan.instance.now, tuple(starts), tuple(sorted(due)[:MAX_DUE]))
