"""Which requests are sent again, how often and after which pauses: one table for every request.

A write is sent again only if the server says that it did nothing (429, 401, 403). Whether a lost write
was carried out is for its sender to look up.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Protocol

from planner.cluster.transport import (
    JSON,
    LOST,
    TOO_LONG,
    ApiRequest,
    Reply,
    Right,
    Transport,
    Tree,
    send_all,
    send_one,
)
from planner.read.kube.lookup import at, mapping, objects

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
"""Cause of a 429 that comes from a PodDisruptionBudget, not from a busy server."""
_REVIEWS = "/apis/authorization.k8s.io/"


_NO_RIGHT = re.compile(r"User \"[^\"]{0,300}\" cannot [a-z]{1,30} (?:resource|path) ")
"""Text of the 403 of authorizers; admission plugins answer 403, too."""

_PATH = re.compile(
    r"/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+)(?:/([a-z]+))?)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def lacks_right(reply: Reply) -> bool:
    """Whether an authorizer refused the request."""
    return reply.status == 403 and _NO_RIGHT.search(reply.message) is not None


class KnownRights:
    """Rights that the account has shown in this process: by a review, or by a request that was served."""

    def __init__(self) -> None:
        self._known: set[Right] = set()

    def note(self, one: ApiRequest, reply: Reply) -> None:
        """Learn from the answer to a request."""
        if not reply.ok:
            return
        self._known.update(replace(right, name="") for right in _rights(one)[:1])
        if one.path.startswith(_REVIEWS) and at(reply.body, "status", "allowed") is True:
            self._known.add(
                Right(**{"group": "", **mapping(one.body, "spec", "resourceAttributes")})
            )

    def allows(self, one: ApiRequest) -> bool:
        """Whether a request needs a right that is known."""
        return not self._known.isdisjoint(_rights(one))

    def has(self, right: Right) -> bool:
        return right in self._known

    def forget(self, one: ApiRequest) -> None:
        """The right is lost."""
        self._known.difference_update(_rights(one))


def _rights(one: ApiRequest) -> list[Right]:
    """Rights of which each allows the request, the exact one first."""
    found = _PATH.fullmatch(one.path.partition("?")[0])
    if found is None:
        return []
    group, namespace, resource, name, sub = found.groups()
    verb = _VERBS.get(one.method) or ("get" if name else "list")
    return [
        Right(verb, group or "", resource, sub or "", where, what)
        for where in dict.fromkeys((namespace, None))
        for what in dict.fromkeys((name or "", ""))
    ]


def failure_of(reply: Reply) -> Failure | None:
    """None for an answer to the request."""
    if lacks_right(reply):
        return Failure.forbidden
    if reply.status == 429:
        refused = any(cause.get("reason") == _BUDGET for cause in causes(reply))
        return Failure.hopeless if refused else Failure.busy
    if reply.status == 401:
        return Failure.unauthorized
    if reply.status == LOST:
        hopeless = reply.reason == TOO_LONG or any(word in reply.why for word in _HOPELESS)
        return Failure.hopeless if hopeless else Failure.failed
    return Failure.failed if reply.status >= 500 else None


def causes(reply: Reply) -> list[Tree]:
    """What a refusal is about."""
    return objects(reply.body, "details", "causes")


def _may_change(one: ApiRequest) -> bool:
    """Whether the request may change something: a dry run and an access review do not."""
    target, _, query = one.path.partition("?")
    dry = "dryRun=All" in query.split("&")
    return not (one.method == "GET" or dry or target.startswith(_REVIEWS))


class RetryingTransport:
    """Sends requests through another transport, again as ``Failure`` allows.

    ``retries``: requests sent again so far. ``sleep`` may return early (a signal): then the next try
    comes early. ``known``: rights shown so far over this connection. ``lock``: writes are sent only while it
    is ours, looked at right before each try.
    """

    def __init__(
        self,
        transport: Transport,
        waits: Sequence[float] | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        lock: LockTime | None = None,
    ) -> None:
        self._transport = transport
        self._lock = lock
        self._waits = tuple(WAITS_S if waits is None else waits)
        self._sleep = sleep
        self._clock = clock
        self.known: KnownRights = getattr(transport, "known", None) or KnownRights()
        self.retries = 0

    def pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """The last reply."""
        one = ApiRequest(method, path, body, content_type)
        begun = self._clock()
        seen: Counter[Failure] = Counter()
        for wait in (*self._waits, None):
            reply = _NOT_SENT if self._is_late(one) else send_one(self._transport, one)
            failure = self._failure(one, reply)
            if wait is None or failure is None or not _allowed(failure, seen, one):
                break
            pause = 0.0 if failure is Failure.unauthorized else _pause(wait, reply)
            if self._clock() - begun + pause > LAST_RETRY_S:
                break
            self.retries += 1
            if pause:
                self._sleep(pause)
        if lacks_right(reply):
            self.known.forget(one)
        return reply

    def _is_late(self, one: ApiRequest) -> bool:
        lock = self._lock
        return lock is not None and _may_change(one) and lock.left_s() <= MIN_LEFT_S

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """All at once at first; then retries one by one, until one of them is lost for good."""
        if any(self._is_late(one) for one in requests):
            return [_NOT_SENT for _ in requests]
        replies = send_all(self._transport, requests)
        for number, one in enumerate(requests):
            reply = replies[number]
            failure = self._failure(one, reply)
            if self._waits and failure is not None and _allowed(failure, Counter(), one):
                self.retries += 1
                self._sleep(_pause(self._waits[0], reply))
                replies[number] = send_one(self, one)
                if replies[number].status == LOST:
                    break
        return replies

    def _failure(self, one: ApiRequest, reply: Reply) -> Failure | None:
        """The failure that may pass; a 403 only if the account had the right."""
        if self._lock is not None and reply.date is not None:
            self._lock.note_date(reply.date)
        self.known.note(one, reply)
        failure = failure_of(reply)
        if failure is Failure.forbidden and not self.known.allows(one):
            return None
        return failure


def _allowed(failure: Failure, seen: Counter[Failure], one: ApiRequest) -> bool:
    seen[failure] += 1
    return seen[failure] <= (failure.write_retries if _may_change(one) else failure.retries)


def _pause(wait: float, reply: Reply) -> float:
    return max(wait, min(reply.retry_after_s or 0.0, MAX_RETRY_AFTER_S))
