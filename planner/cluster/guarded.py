"""A wire that writes only while the lock is ours: the last look at the clock, right before each request.

Promises: a run that slept past the end of its lock, or whose server kept it waiting so long, sends no
write any more; reads go through. Wrapped around the door by the pipelines of ``planner.live``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from planner.cluster.patient import may_change
from planner.cluster.wire import JSON, LOST, Asked, Reply, Tree, Wire, send_all

LEAST_S = 5.0
"""Seconds that a request gets to arrive: the next run may take the lock two seconds after its end."""

_OVER = Reply(LOST, why="nothing was sent: the lock is over, or about to be")


class Timed(Protocol):
    """The lock of ``planner.cluster.locking``, as far as it matters here."""

    def left_s(self) -> float:
        """Seconds that it is surely ours."""

    def heard(self, date: float | None) -> None:
        """Take note of the server's clock in an answer."""


class Guarded:
    """A Wire around another one."""

    def __init__(self, wire: Wire, lock: Timed) -> None:
        self._wire = wire
        self._lock = lock

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """The answer; LOST for a write that came too late to be sent."""
        if may_change(method, path) and self._lock.left_s() <= LEAST_S:
            return _OVER
        reply = self._wire.send(method, path, body, content_type=content_type)
        self._lock.heard(reply.date)
        return reply

    def send_all(self, asked: Sequence[Asked]) -> list[Reply]:
        """The same for all of them at once."""
        late = self._lock.left_s() <= LEAST_S
        if late and any(may_change(one.method, one.path) for one in asked):
            return [_OVER for _ in asked]
        replies = send_all(self._wire, asked)
        for reply in replies:
            self._lock.heard(reply.date)
        return replies
