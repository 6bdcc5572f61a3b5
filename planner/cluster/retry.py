"""Which requests are sent again, how often and after which pauses: one table for every request.

A write is sent again only if the server says that it did nothing (429, 401, 403). Whether a lost write
was carried out is for its sender to look up.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

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

WAITS_S = (0.5, 1.0, 2.0, 4.0)
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
    forbidden = (4, 4)
    """403, although the account had that right: a server that has just started does not know it yet."""
    failed = (3, 0)
    """5xx or lost: a write may have been carried out."""
    hopeless = (0, 0)
    """The same request fails again."""

    def __init__(self, retries: int, write_retries: int) -> None:
        self.retries = retries
        self.write_retries = write_retries


class LockTime(Protocol):
    """What requests have to know of a lock: how long it is still held, and what time the server has."""

    def left_s(self) -> float: ...

    def note_date(self, date: float | None) -> None: ...


MIN_LEFT_S = 5.0
"""Seconds left on the lock for a write to arrive: the next run may take it two seconds after its end."""

_NOT_SENT = Reply(LOST, why="not sent: the lock has ended, or is about to end")


_HOPELESS = ("getting credentials", "no such host", "x509", "tls:")
"""In the words of kubectl proxy: wrong credentials, names or certificates."""

_BUDGET = "DisruptionBudget"
_REVIEWS = "/apis/authorization.k8s.io/"


_NO_RIGHT = re.compile(r"User \"[^\"]{0,300}\" cannot [a-z]{1,30} (?:resource|path) ")
"""Text of the 403 of authorizers; admission plugins answer 403, too."""

_PATH = re.compile(
    r"/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+)(?:/([a-z]+))?)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}

RightKey = tuple[str, str, str, str, str, str]
"""(verb, group, resource, subresource, namespace, name), "" for none or any."""


def lacks_right(reply: Reply) -> bool:
    """Whether an authorizer refused the request."""
    return reply.status == 403 and _NO_RIGHT.search(reply.message) is not None


class KnownRights:
    """Rights that the account has shown in this process: by a review, or by a request that was served."""

    def __init__(self) -> None:
        self._known: set[RightKey] = set()

    def note(self, method: str, path: str, body: Tree | None, reply: Reply) -> None:
        """Learn from the answer to a request."""
        if not reply.ok:
            return
        self._known.update((*key[:5], "") for key in _keys(method, path)[:1])
        status = reply.body.get("status") if path.startswith(_REVIEWS) else None
        if isinstance(status, dict) and status.get("allowed") is True:
            asked = (body or {}).get("spec", {}).get("resourceAttributes", {})
            fields = ("verb", "group", "resource", "subresource", "namespace", "name")
            verb, group, resource, sub, namespace, name = (asked.get(one, "") for one in fields)
            self._known.add((verb, group, resource, sub, namespace, name))

    def allows(self, method: str, path: str) -> bool:
        """Whether a request needs a right that is known."""
        return not self._known.isdisjoint(_keys(method, path))

    def has(self, key: RightKey) -> bool:
        return key in self._known

    def forget(self, method: str, path: str) -> None:
        """The right is lost."""
        self._known.difference_update(_keys(method, path))


def _keys(method: str, path: str) -> list[RightKey]:
    """Rights of which each allows the request, the exact one first."""
    found = _PATH.fullmatch(path.partition("?")[0])
    if found is None:
        return []
    group, namespace, resource, name, sub = (part or "" for part in found.groups())
    verb = _VERBS.get(method) or ("get" if name else "list")
    return [
        (verb, group, resource, sub, where, what)
        for where in dict.fromkeys((namespace, ""))
        for what in dict.fromkeys((name, ""))
    ]


def failure_of(reply: Reply) -> Failure | None:
    """None for an answer to the request."""
    if lacks_right(reply):
        return Failure.forbidden
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
    comes early. ``known``: rights shown so far, shared by the transports of one account. ``lock``: writes are
    sent only while it is ours, looked at right before each try.
    """

    def __init__(
        self,
        transport: Transport,
        waits: Sequence[float] | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        known: KnownRights | None = None,
        lock: LockTime | None = None,
    ) -> None:
        self._transport = transport
        self._lock = lock
        self._waits = tuple(WAITS_S if waits is None else waits)
        self._sleep = sleep
        self._clock = clock
        self.known = KnownRights() if known is None else known
        self.retries = 0

    def pause(self, seconds: float) -> None:
        """Sleep, or until a signal."""
        self._sleep(seconds)

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """The last reply."""
        begun = self._clock()
        seen: Counter[Failure] = Counter()
        for wait in (*self._waits, None):
            reply = self._tried(method, path, body, content_type)
            failure = self._failure(method, path, body, reply)
            if wait is None or failure is None or not self._allowed(failure, seen, method, path):
                break
            pause = 0.0 if failure is Failure.unauthorized else _pause(wait, reply)
            if self._clock() - begun + pause > LAST_RETRY_S:
                break
            self.retries += 1
            if pause:
                self._sleep(pause)
        if lacks_right(reply):
            self.known.forget(method, path)
        return reply

    def _tried(self, method: str, path: str, body: Tree | None, content_type: str) -> Reply:
        if self._is_late(method, path):
            return _NOT_SENT
        reply = self._transport.send(method, path, body, content_type=content_type)
        if self._lock is not None:
            self._lock.note_date(reply.date)
        return reply

    def _is_late(self, method: str, path: str) -> bool:
        """Whether a write would come when the lock has ended, or is about to end."""
        lock = self._lock
        return lock is not None and may_change(method, path) and lock.left_s() <= MIN_LEFT_S

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """All at once at first; then retries one by one, until one of them is lost for good."""
        if any(self._is_late(one.method, one.path) for one in requests):
            return [_NOT_SENT for _ in requests]
        replies = send_all(self._transport, requests)
        for number, one in enumerate(requests):
            reply = replies[number]
            if self._lock is not None:
                self._lock.note_date(reply.date)
            failure = self._failure(one.method, one.path, one.body, reply)
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

    def _failure(self, method: str, path: str, body: Tree | None, reply: Reply) -> Failure | None:
        """The failure that may pass; a 403 only if the account had the right."""
        self.known.note(method, path, body, reply)
        failure = failure_of(reply)
        if failure is Failure.forbidden and not self.known.allows(method, path):
            return None
        return failure

    @staticmethod
    def _allowed(failure: Failure, seen: Counter[Failure], method: str, path: str) -> bool:
        seen[failure] += 1
        limit = failure.write_retries if may_change(method, path) else failure.retries
        return seen[failure] <= limit


def _pause(wait: float, reply: Reply) -> float:
    return max(wait, min(reply.retry_after_s or 0.0, MAX_RETRY_AFTER_S))
