"""The lock while it is ours: how long for, renewing it, giving it back.

Promises: ``left_s`` never says more than is left, by the server's clock; every write carries the
resourceVersion, so a lock that another run took is never overwritten. Made by ``planner.cluster.lease``.

A wire that writes only while the lock is ours: the last look at the clock, right before each request.

Promises: a run that slept past the end of its lock, or whose server kept it waiting so long, sends no
write any more; reads go through. Wrapped around the door by the pipelines of ``planner.pipelines``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from models.apply.intents import SealKey
from planner.cluster import api_paths as paths
from planner.cluster.lease_document import LEASE, Terms, freed, held, seal_key_of, seen
from planner.cluster.retry import may_change
from planner.cluster.transport import JSON, LOST, ApiRequest, Reply, Transport, Tree, send_all
from planner.errors import (
    Fault,
    GangplanError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
    UsageError,
)
from planner.untrusted_text import one_line

MANAGER = "fieldManager=gangplan"

CHECK_S = 5.0
"""Seconds after which a run that writes renews it."""

_TRIES = 5
_TICK_S = 1.0
_PAUSE_S = 0.1
_MOST_S = 10.0
"""No further try to give it back is begun so long after the first."""

Clock = Callable[[], float]
"""Seconds that pass; no time of day."""


class ServerClock:
    """What time it is at the server, from the header Date of an answer and the time that passed since.

    Date is cut to whole seconds and made between sending and answering: hence two bounds.
    """

    def __init__(self, clock: Clock, date: float, sent: float) -> None:
        self._clock = clock
        self.set(date, sent)

    def read(self) -> float:
        """The clock of ours that measures what passes."""
        return self._clock()

    def set(self, date: float, sent: float) -> None:
        """``sent``: when the request was sent whose answer had that date."""
        self._date, self._sent, self._got = date, sent, self._clock()

    @property
    def sent(self) -> float:
        """When that request was sent, by the clock of ours."""
        return self._sent

    def earliest(self) -> float:
        return self._date + (self._clock() - self._got)

    def latest(self) -> float:
        return self._date + 1 + (self._clock() - self._sent)


class Lock:
    """The lock while it is ours. Its methods may be called from several threads.

    ``id``: what ``gangplan unlock`` takes. ``lost``: why it is no longer ours, None while it is.
    """

    def __init__(
        self,
        wire: Transport,
        namespace: str,
        terms: Terms,
        tree: Tree,
        renewed: int,
        clock: ServerClock,
    ) -> None:
        self.namespace = namespace
        self.lost: str | None = None
        self._wire = wire
        self._terms = terms
        self._tree = tree
        self._renewed = renewed
        self._clock = clock
        self._at = clock.sent
        self._stale = False
        self._turn = threading.RLock()

    @property
    def id(self) -> str:
        return self._terms.id

    @property
    def seal_key(self) -> SealKey | None:
        """What tells intents of runs from those that somebody else wrote."""
        return seal_key_of(self._tree)

    @property
    def plan(self) -> str | None:
        """The plan's id, told to whoever finds the lock taken; written with the next renewal."""
        return self._terms.plan

    @plan.setter
    def plan(self, plan: str | None) -> None:
        terms = self._terms
        with self._turn:
            self._stale = self._stale or plan != terms.plan
            self._terms = replace(terms, plan=plan)

    def now(self) -> int:
        """The server's clock, in seconds since the epoch; at most a second early."""
        with self._turn:
            return int(self._clock.earliest())

    def heard(self, date: float | None) -> None:
        """Take note of another answer's Date: it corrects a clock of ours that stood still."""
        with self._turn:
            if date is not None and date > self._clock.latest():
                self._clock.set(date, self._clock.read())

    def left_s(self) -> float:
        """Seconds for which it is surely ours if it is not renewed any more; 0 if it is lost."""
        with self._turn:
            if self.lost is not None:
                return 0.0
            # A server whose clock goes back makes it no longer: by ours it is never more than that.
            over = self._at + self._terms.duration_s - self._clock.read()
            return max(
                0.0, min(over, self._renewed + self._terms.duration_s - self._clock.latest())
            )

    def holds(self, margin_s: float = 10.0) -> bool:
        """Renew it if that is due; whether it is then ours for longer than the margin."""
        self.renew_if_needed()
        return self.left_s() > margin_s

    def renew_if_needed(self) -> None:
        """Before and between writes: renew it where the last time is seconds ago.

        So a run whose lock somebody frees notices soon. What cannot be renewed now is tried next time.
        """
        self._renew_after(CHECK_S)

    def _renew_after(self, seconds: float) -> None:
        with self._turn:
            due = self.left_s() < self._terms.duration_s - 1 - seconds
            if (due or self._stale) and self.lost is None:
                self._renew()

    @contextmanager
    def keeping(self, tick_s: float = _TICK_S) -> Iterator[None]:
        """Renews it on a thread of its own from a third of its time on, while this one computes."""
        third = self._terms.duration_s / 3
        done = threading.Event()
        failures: list[BaseException] = []

        def keep() -> None:
            try:
                while not done.wait(tick_s) and self.lost is None:
                    self._renew_after(third)
            except BaseException as error:  # noqa: BLE001  # raised where the block ends
                failures.append(error)

        thread = threading.Thread(target=keep, name="lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]

    def release(self, last_run: Mapping[str, Any] | None = None) -> bool:
        """Give it back with the summary of this run; False if it was lost, or could not be given back.

        Then it is over by itself in at most its duration. Does not raise for what the server says.
        """
        until = self._clock.read() + _MOST_S
        with self._turn:
            for tries in range(_TRIES):
                if self.lost is not None:
                    return False
                body = freed(self._tree, self.namespace, last_run, self.now())
                reply = self._put(body)
                if reply.ok:
                    self.lost = "it was given back"
                    return True
                if self._looked() == "":
                    self.lost = "it was given back"  # by us: the answer was lost
                    return reply.status in {LOST, 409} or reply.status >= 500
                if self._clock.read() > until:
                    return False  # whoever sent the signal does not wait for ever
                if reply.status != 409 and tries + 1 < _TRIES:
                    time.sleep(_PAUSE_S * (tries + 1))
            return False

    def _renew(self) -> None:
        for _ in range(2):
            renewed = int(self._clock.earliest())
            sent = self._clock.read()
            reply = self._put(held(self._tree, self.namespace, self._terms, renewed))
            if reply.ok:
                self._tree, self._renewed, self._stale = reply.body, renewed, False
                self._at = sent
                if reply.date is not None:
                    self._clock.set(reply.date, sent)
                return
            self._looked()
            if self.lost is not None or reply.status != 409:
                return

    def _looked(self) -> str | None:
        """See whose it is after a write that was not answered with yes: the ID there, None if unknown."""
        sent = self._clock.read()
        reply = self._wire.send("GET", path(self.namespace, LEASE))
        if reply.status == 404:
            self.lost = f"the Lease {self.namespace}/{LEASE} is gone"
            return None
        if not reply.ok:
            return None
        holder = seen(reply.body, reply.date).holder
        if holder is None:
            self.lost = "somebody unlocked it"
            return ""
        if holder.id != self.id:
            self.lost = f"it was taken over: {holder.worded()}"
            return holder.id
        self._tree = reply.body
        if holder.until is not None:
            self._renewed = holder.until - self._terms.duration_s
        if reply.date is not None:
            self._clock.set(reply.date, sent)
        return holder.id

    def _put(self, body: Tree) -> Reply:
        return self._wire.send("PUT", f"{path(self.namespace, LEASE)}?{MANAGER}", body)


def failure(verb: str, namespace: str, reply: Reply) -> GangplanError:
    """What an answer to a request for the Lease means for the run."""
    said = one_line(reply.message)
    if reply.status in {401, 403}:
        what = f"not permitted to {verb} the lock, lease {namespace}/{LEASE}: {said}"
        hint = f"it takes get and update of leases {LEASE}, and create, in namespace {namespace}"
        return NotPermittedError(Fault(what, hint))
    if reply.status == 404:
        what = f"there is no namespace {namespace} for the lock: {said}"
        hint = f"kubectl create namespace {namespace}, or name another: --lock-namespace"
        return MissingPathError(Fault(what, hint))
    return UnavailableError(Fault(f"cannot {verb} the lock, lease {namespace}/{LEASE}: {said}"))


def path(namespace: str, name: str | None = None) -> str:
    try:
        return paths.grouped("coordination.k8s.io", "v1", "leases", namespace=namespace, name=name)
    except ValueError:
        hint = "lower case letters, digits and dashes, at most 63"
        what = f"--lock-namespace {one_line(namespace)!r} is no name of a namespace"
        raise UsageError(Fault(what, hint)) from None


LEAST_S = 5.0
"""Seconds that a request gets to arrive: the next run may take the lock two seconds after its end."""

_OVER = Reply(LOST, why="nothing was sent: the lock is over, or about to be")


class Timed(Protocol):
    """The lock of ``planner.cluster.lock``, as far as it matters here."""

    def left_s(self) -> float:
        """Seconds that it is surely ours."""

    def heard(self, date: float | None) -> None:
        """Take note of the server's clock in an answer."""


class Guarded:
    """A Transport around another one."""

    def __init__(self, wire: Transport, lock: Timed) -> None:
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

    def send_all(self, asked: Sequence[ApiRequest]) -> list[Reply]:
        """The same for all of them at once."""
        late = self._lock.left_s() <= LEAST_S
        if late and any(may_change(one.method, one.path) for one in asked):
            return [_OVER for _ in asked]
        replies = send_all(self._wire, asked)
        for reply in replies:
            self._lock.heard(reply.date)
        return replies
