"""What a plan states of expected starts: who may have one, and what there is for it by then.

Time goes from one expected end or reserved start to the next, so that each expected start is one of these.
Where the gangs would be then is not in the plan; only counts are made of the room that has become free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.room import Room, Work
from models.verify.rules.reservations import NAME, end_of
from models.verify.stated.reason_rooms import Rooms
from models.verify.violation import Violation

NEVER = "Never"

WORK = 1_000_000
"""Visits of nodes for counting what is free at expected starts."""


def check(outcome: Outcome) -> Iterator[Violation]:
    starts = _Starts(outcome)
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        expected = stated.document.expected_start
        if expected is not None:
            for what in starts.faults(change, stated, expected):
                yield change.violation(NAME, what)


class _Starts:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.rooms = Rooms(outcome, Work(WORK))
        self._by_time: dict[int, Room] = {}

    def faults(self, change: Change, stated: StatedGang, expected: int) -> Iterator[str]:
        facts, reason = self.outcome.facts, stated.document.reason
        if facts.policy.reservations is None:
            yield "the policy has no reservations: it has no expectedStart"
        elif change.gang.hold is not None or (reason is not None and reason.code == NEVER):
            yield "is held or can never start: it has no expectedStart"
        elif expected not in self._times:
            yield "nothing is expected to end or start at its expectedStart"
        elif not self._has_room(change.gang, expected):
            yield "at its expectedStart, what is expected to have ended leaves too little room"

    @cached_property
    def _ends(self) -> Mapping[int, int]:
        """By position, when gangs with pods are expected to end."""
        found = ((i, end_of(self.outcome.facts, c)) for i, c in enumerate(self.outcome.changes))
        return {i: end for i, end in found if end is not None and self.outcome.changes[i].pods}

    @cached_property
    def _times(self) -> set[int]:
        """When something ends, or starts as reserved, or ends that starts as stated."""
        found = set(self._ends.values())
        for change, stated in zip(self.outcome.changes, self.outcome.case.gangs, strict=True):
            if change.kind != "wait":
                continue
            reserved, duration = stated.document.reserved, change.gang.duration
            begun = stated.document.expected_start
            if reserved is not None:
                begun = reserved.start
                found.add(begun)
            if begun is not None and duration is not None:
                found.add(begun + duration)
        return found

    def _has_room(self, gang: Gang, at: int) -> bool:
        """Whether no count denies that it fits beside what still runs then."""
        if self.rooms.work.left <= 0:
            return True
        if at not in self._by_time:
            gone = {
                i
                for i, change in enumerate(self.outcome.changes)
                if change.pods and (change.gang.preemptible or self._ends.get(i, at + 1) <= at)
            }
            self._by_time[at] = self.rooms.without(gone)
        return self.rooms.holds(self._by_time[at], gang)
