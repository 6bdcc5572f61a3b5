"""What the last plan of a run promised, as it is noted in the Lease: starts, places, and whom else it starts.

So the next run keeps it, on whatever host: the job of ``deploy/`` has no disk of its own. Bounded, for an
object carries 256 KiB of annotations at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    def tree(self) -> dict[str, Any]:
        """As JSON."""
        starts = [
            {"gang": list(one.gang), "start": one.start, "pods": [list(pod) for pod in one.pods]}
            for one in self.starts
        ]
        return {"at": self.at, "starts": starts, "due": [list(gang) for gang in self.due]}


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


def read_promises(found: object) -> Promises | None:
    """The promises in a note; None if it is not in the form that we write."""
    if not isinstance(found, dict) or type(found.get("at")) is not int:
        return None
    starts, due = found.get("starts"), found.get("due")
    if not isinstance(starts, list) or not isinstance(due, list):
        return None
    known = {one.gang: one for one in _starts(starts)}
    gangs = (_key(one) for one in due)
    return Promises(
        found["at"], tuple(known.values()), tuple(gang for gang in gangs if gang is not None)
    )


def _starts(found: list[Any]) -> Iterator[Promise]:
    for one in found:
        gang = _key(one.get("gang")) if isinstance(one, dict) else None
        if gang is None or type(one.get("start")) is not int:
            continue
        pods = one.get("pods")
        seats = pods if isinstance(pods, list) and all(map(_is_seat, pods)) else []
        yield Promise(gang, one["start"], tuple((pod[0], pod[1], pod[2]) for pod in seats))


def _key(found: object) -> Key | None:
    if isinstance(found, list) and len(found) == 2 and all(isinstance(p, str) for p in found):
        return (found[0], found[1])
    return None


def _is_seat(found: object) -> bool:
    return isinstance(found, list) and [type(part) for part in found] == [str, int, str]
