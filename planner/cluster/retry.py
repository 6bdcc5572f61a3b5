"""Which requests are sent again, how often and after which pauses: one table for every request.

A write is sent again only if the server says that it did nothing (429, 401). Whether a lost write
was carried out is for its sender to look up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

from planner.cluster.transport import (
    JSON,
    LOST,
    TOO_LONG,
    ApiRequest,
    Reply,
    Transport,
    Tree,
    send_all,
)

WAITS_S = (0.5, 1.0, 2.0)
"""Pauses before each retry."""

MAX_RETRY_AFTER_S = 10.0
"""Limit of the pause that a server asks for."""

LAST_RETRY_S = 90.0
"""No retry starts later than this many seconds after the first attempt."""


class Failure(Enum):
    """``retries``: how often a read is sent again; ``write_retries``: the same for a write."""

    busy = (3, 3)
    """429: the server did nothing."""
    unauthorized = (1, 1)
    """401: kubectl gets new credentials once these are refused."""
    failed = (3, 0)
    """5xx or lost: a write may have been carried out."""
    hopeless = (0, 0)
    """The same request fails again."""

    def __init__(self, retries: int, write_retries: int) -> None:
        self.retries = retries
        self.write_retries = write_retries


_HOPELESS = ("getting credentials", "no such host", "x509", "tls:")
"""In the words of kubectl proxy: wrong credentials, names or certificates."""

_BUDGET = "DisruptionBudget"
_REVIEWS = "/apis/authorization.k8s.io/"


def failure_of(reply: Reply) -> Failure | None:
    """None for an answer to the request."""
    if reply.status == 429:
        return Failure.hopeless if refused_by_budget(reply) else Failure.busy
    if reply.status == 401:
        return Failure.unauthorized
    if reply.status == LOST:
        hopeless = reply.reason == TOO_LONG or any(word in reply.why for word in _HOPELESS)
        return Failure.hopeless if hopeless else Failure.failed
    return Failure.failed if reply.status >= 500 else None


def refused_by_budget(reply: Reply) -> bool:
    """Whether a 429 comes from a PodDisruptionBudget, not from a busy server."""
    details = reply.body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return False
    return any(isinstance(cause, dict) and cause.get("reason") == _BUDGET for cause in causes)


def may_change(method: str, path: str) -> bool:
    """Whether the request may change something: a dry run and an access review do not."""
    target, _, query = path.partition("?")
    return not (method == "GET" or "dryRun=All" in query.split("&") or target.startswith(_REVIEWS))


class RetryingTransport:
    """Sends requests through another transport, again as ``Failure`` allows.

    ``retries``: requests sent again so far. ``sleep`` may return early (a signal): then the next try
    comes early.
    """

    def __init__(
        self,
        transport: Transport,
        waits: Sequence[float] | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._waits = tuple(WAITS_S if waits is None else waits)
        self._sleep = sleep
        self._clock = clock
        self.retries = 0

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """The last reply."""
        begun = self._clock()
        seen: Counter[Failure] = Counter()
        for wait in (*self._waits, None):
            reply = self._transport.send(method, path, body, content_type=content_type)
            failure = failure_of(reply)
            if wait is None or failure is None or not self._allowed(failure, seen, method, path):
                break
            pause = 0.0 if failure is Failure.unauthorized else _pause(wait, reply)
            if self._clock() - begun + pause > LAST_RETRY_S:
                break
            self.retries += 1
            if pause:
                self._sleep(pause)
        return reply

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """Pipelined at first; then retries one by one, until one of them is lost for good."""
        replies = send_all(self._transport, requests)
        for number, one in enumerate(requests):
            reply, failure = replies[number], failure_of(replies[number])
            if not self._waits or failure is None:
                continue
            if self._allowed(failure, Counter(), one.method, one.path):
                self.retries += 1
                self._sleep(_pause(self._waits[0], reply))
                replies[number] = self.send(
                    one.method, one.path, one.body, content_type=one.content_type
                )
                if replies[number].status == LOST:
                    break
        return replies

    @staticmethod
    def _allowed(failure: Failure, seen: Counter[Failure], method: str, path: str) -> bool:
        seen[failure] += 1
        limit = failure.write_retries if may_change(method, path) else failure.retries
        return seen[failure] <= limit


def _pause(wait: float, reply: Reply) -> float:
    return max(wait, min(reply.retry_after_s or 0.0, MAX_RETRY_AFTER_S))
