"""A wire with patience: what can be asked again without harm is, as often and as long as is useful.

Promises: a write is never sent twice by this, unless the server said that it did nothing (429, 401);
whether a lost write was done is for its sender to look up. Bounded. Called by the verbs that write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from planner.cluster.proxy import TOO_LONG
from planner.cluster.transport import JSON, LOST, Asked, Reply, Tree, Wire, send_all

WAITS_S = (0.5, 1.0, 2.0)
"""Pauses before each further try."""

MAX_RETRY_AFTER_S = 10.0
"""A server that asks for a longer pause gets this one."""

MOST_S = 90.0
"""No further try is begun so long after the first one."""

_BUDGET = "DisruptionBudget"
_ASKS_ONLY = "/apis/authorization.k8s.io/"


class Patient:
    """A Wire around another one. ``retries``: requests sent again so far.

    ``sleep`` may return early (a signal): then the next try comes early.
    """

    def __init__(
        self,
        wire: Wire,
        waits: Sequence[float] = WAITS_S,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire = wire
        self._waits = tuple(waits)
        self._sleep = sleep
        self._clock = clock
        self.retries = 0

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """The last reply, where none before it was worth keeping."""
        begun = self._clock()
        changes = may_change(method, path)
        refused = False
        for wait in (*self._waits, None):
            reply = self._wire.send(method, path, body, content_type=content_type)
            if wait is None or not _worth(reply, changes=changes) or (refused and _login(reply)):
                break
            pause = max(wait, min(reply.retry_after_s or 0.0, MAX_RETRY_AFTER_S))
            if _login(reply):
                refused, pause = (
                    True,
                    0.0,
                )  # kubectl asks for new credentials once these are refused
            if self._clock() - begun + pause > MOST_S:
                break
            self.retries += 1
            if pause:
                self._sleep(pause)
        return reply

    def send_all(self, asked: Sequence[Asked]) -> list[Reply]:
        """Together at first; what is worth another try gets it by itself, while there are answers."""
        replies = send_all(self._wire, asked)
        for number, one in enumerate(asked):
            reply = replies[number]
            if self._waits and _worth(reply, changes=may_change(one.method, one.path)):
                self.retries += 1
                self._sleep(max(self._waits[0], min(reply.retry_after_s or 0.0, MAX_RETRY_AFTER_S)))
                reply = self.send(one.method, one.path, one.body, content_type=one.content_type)
                replies[number] = reply
                if reply.status == LOST:
                    break
        return replies


def _worth(reply: Reply, *, changes: bool) -> bool:
    """Whether the same request may do better a moment later, and can do no harm."""
    if reply.reason == TOO_LONG:
        return False
    if reply.status == 429:
        return not of_a_budget(reply)
    if _login(reply):
        return True
    return not changes and (reply.status == LOST or reply.status >= 500)


def of_a_budget(reply: Reply) -> bool:
    """Whether a 429 is the word of a PodDisruptionBudget, not of a busy server."""
    details = reply.body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return False
    return any(isinstance(cause, dict) and cause.get("reason") == _BUDGET for cause in causes)


def _login(reply: Reply) -> bool:
    return reply.status == 401


def may_change(method: str, path: str) -> bool:
    """Whether the request may change something: a dry run and a question about rights do not."""
    target, _, query = path.partition("?")
    return not (
        method == "GET" or "dryRun=All" in query.split("&") or target.startswith(_ASKS_ONLY)
    )
