"""The lock: one run at a time, by the Lease ``gangplan`` of a namespace.

It is taken by create, or by replace with the resourceVersion that was read; from another run only
after its end by the server's clock and a margin. So a lock that another run took is never
overwritten, and a run whose lock has ended sends no write.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from models.apply.intents import SealKey
from models.apply.notes import RunNotes
from planner.cluster.lease import (
    DURATION_S,
    LEASE,
    Holder,
    LeaseState,
    LeaseTerms,
    UserAtHost,
    held_lease,
    lease_path,
    lease_state,
    notes_of,
    release_command,
    released_lease,
    seal_key_of,
    with_notes,
)
from planner.cluster.retry import RetryingTransport
from planner.cluster.transport import LOST, Reply, Transport, Tree
from planner.errors import (
    Fault,
    GangplanError,
    LockedError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
)
from planner.untrusted_text import one_line

POLL_S = 2.0
"""Seconds between two looks at a lock that another run holds."""

RENEW_S = 5.0
"""Age after which a run that writes renews it."""

_MANAGER = "fieldManager=gangplan"
_TRIES = 5
_PAUSE_S = 0.2
_TICK_S = 1.0
_RELEASE_S = 10.0
"""Releasing is not retried later than this many seconds after the first attempt."""

Clock = Callable[[], float]
"""Seconds that pass; no time of day."""
Sleep = Callable[[float], object]


def ticking() -> float:
    """Seconds that pass even while the machine sleeps, if the system counts those."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def read_lease(transport: Transport, namespace: str, *, sleep: Sleep = time.sleep) -> LeaseState:
    """The lock as it is, with the summary of the last run.

    Raises NotPermittedError, UnavailableError, UsageError.
    """
    if not isinstance(transport, RetryingTransport):
        transport = RetryingTransport(transport, sleep=sleep)
    reply = transport.send("GET", lease_path(namespace, LEASE))
    if reply.status == 404:
        return lease_state(None, reply.date)
    if not reply.ok:
        raise _failure("read", namespace, reply)
    return lease_state(reply.body, reply.date)


def acquire(  # noqa: C901  # a case each way a Lease can stand
    transport: Transport,
    *,
    namespace: str,
    operation: str,
    plan: str | None,
    user: UserAtHost,
    wait_s: float = 0.0,
    clock: Clock = ticking,
    sleep: Sleep = time.sleep,
    duration_s: int = DURATION_S,
    on_wait: Callable[[Holder], object] | None = None,
    program: str = "gangplan",
) -> Lock:
    """Take the lock. ``plan`` None: not known yet, set ``Lock.plan`` later.

    ``wait_s``: how long to wait for another run to end; ``on_wait`` is called once, when waiting
    begins. ``program``: how people call gangplan.
    Raises LockedError (75), NotPermittedError (77), UnavailableError (69), MissingPathError (66: no such
    namespace), UsageError (64: not the name of one).
    """
    terms = LeaseTerms(secrets.token_hex(5), user, operation, plan, 0, duration_s)
    until, waiting, tries = clock() + wait_s, False, 0
    while True:
        sent = clock()
        lease = read_lease(transport, namespace, sleep=sleep)
        if lease.now is None:
            raise UnavailableError(Fault("the API server sends no header Date"))
        now, holder = int(lease.now), lease.holder
        if holder is not None and holder.id == terms.id and lease.tree is not None:
            # The reply to our write was lost; the write was carried out.
            renewed = now if holder.until is None else holder.until - duration_s
            server = ServerClock(clock, lease.now, sent)
            return Lock(transport, namespace, terms, lease.tree, renewed, server)
        if holder is not None and not holder.expired:
            left = until - clock()
            if left <= 0:
                free = release_command(holder.id, program)
                hint = f"wait with --lock-timeout; only if that run is dead: {free}"
                what = f"locked in namespace {namespace} by {holder.describe()}"
                raise LockedError(Fault(what, hint))
            if not waiting and on_wait is not None:
                on_wait(holder)
            waiting = True
            sleep(min(POLL_S, left))
            continue
        terms = replace(terms, acquired=now)
        body = held_lease(lease.tree, namespace, terms, now)
        if lease.tree is None:
            path = f"{lease_path(namespace)}?{_MANAGER}"
            verb, reply = "create", transport.send("POST", path, body)
        else:
            verb, reply = "update", _put(transport, namespace, body)
        if reply.ok:
            server = ServerClock(clock, lease.now, sent)
            return Lock(transport, namespace, terms, reply.body, now, server)
        tries += 1
        gone = reply.status == 404 and verb == "update"
        if not (_undecided(reply) or gone) or tries >= _TRIES:
            raise _failure(verb, namespace, reply)
        if reply.status != 409:  # the next look at the Lease decides
            sleep(_PAUSE_S * tries)


def unlock(
    transport: Transport,
    *,
    namespace: str,
    identity: str,
    program: str = "gangplan",
    sleep: Sleep = time.sleep,
) -> Holder | None:
    """Free the lock of a dead run; who held it, None if it was free. The summary in it stays.

    Raises LockedError if the lock has another ID, and what ``read_lease`` raises.
    """
    first: Holder | None = None
    for left in range(_TRIES, 0, -1):
        lease = read_lease(transport, namespace, sleep=sleep)
        holder = lease.holder
        if holder is None or lease.tree is None:
            return first
        if holder.id != identity:
            if first is not None:
                return first  # that lock is gone; another run has taken it since
            what = f"the lock in namespace {namespace} is not {one_line(identity)!r}: {holder.describe()}"
            hint = f"only if that run is dead: {release_command(holder.id, program)}"
            raise LockedError(Fault(what, hint))
        first = first or holder
        body = released_lease(lease.tree, namespace, None, int(lease.now or 0))
        reply = _put(transport, namespace, body)
        if reply.ok:
            return first
        if not (_undecided(reply) or reply.status == 404) or left == 1:
            raise _failure("update", namespace, reply)
        if reply.status != 409:  # a renewal by its holder; everything else takes a moment
            sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


class ServerClock:
    """The time at the server, from the header Date of a reply and the time passed since then.

    Date is cut to whole seconds and made between sending and receiving: hence two bounds.
    ``sent``: when the request of that reply was sent, by ``read``.
    """

    def __init__(self, clock: Clock, date: float, sent: float) -> None:
        self.read = clock
        self.set(date, sent)

    def set(self, date: float, sent: float) -> None:
        self._date, self.sent, self._received = date, sent, self.read()

    def earliest(self) -> float:
        return self._date + (self.read() - self._received)

    def latest(self) -> float:
        return self._date + 1 + (self.read() - self.sent)


class Lock:
    """The lock while it is ours. Thread-safe. ``lost``: why it is no longer ours, else None."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        terms: LeaseTerms,
        tree: Tree,
        renewed: int,
        clock: ServerClock,
    ) -> None:
        self.namespace = namespace
        self.lost: str | None = None
        self._transport = transport
        self._terms = terms
        self._tree = tree
        self._renewed = renewed
        self._clock = clock
        self._renewed_at = clock.sent
        self._plan_changed = False
        self._notes = notes_of(tree)
        self._turn = threading.RLock()

    @property
    def id(self) -> str:
        """What ``gangplan status --release`` takes."""
        return self._terms.id

    @property
    def seal_key(self) -> SealKey | None:
        """Tells intents of runs from those that others wrote."""
        return seal_key_of(self._tree)

    @property
    def notes(self) -> RunNotes:
        """What this and earlier runs leave to later ones."""
        return self._notes

    def remember(self, notes: RunNotes) -> bool:
        """Write these notes; whether they are there. Otherwise the next renewal writes them."""
        with self._turn:
            self._notes = notes
            for tries in range(1, _TRIES + 1):
                if self.lost is not None:
                    break
                self._renew()
                if notes_of(self._tree) == notes:
                    return True
                if tries < _TRIES:
                    time.sleep(_PAUSE_S / 2 * tries)
            return False

    @property
    def plan(self) -> str | None:
        """The plan's id, shown to runs that find the lock taken; written with the next renewal."""
        return self._terms.plan

    @plan.setter
    def plan(self, plan: str | None) -> None:
        with self._turn:
            self._plan_changed = self._plan_changed or plan != self._terms.plan
            self._terms = replace(self._terms, plan=plan)

    def now(self) -> int:
        """The server's clock, in seconds since the epoch; at most a second early."""
        with self._turn:
            return int(self._clock.earliest())

    def note_date(self, date: float | None) -> None:
        """Learn from the Date of another reply; it corrects a clock of ours that stood still."""
        with self._turn:
            if date is not None and date > self._clock.latest():
                self._clock.set(date, self._clock.read())

    def left_s(self) -> float:
        """Seconds for which it is surely ours without another renewal; 0 if it is lost."""
        with self._turn:
            if self.lost is not None:
                return 0.0
            # A server clock that goes back does not extend it: our clock bounds it too.
            by_ours = self._renewed_at + self._terms.duration_s - self._clock.read()
            by_server = self._renewed + self._terms.duration_s - self._clock.latest()
            return max(0.0, min(by_ours, by_server))

    def holds(self, margin_s: float = 10.0) -> bool:
        """Renew it if that is due; whether it is then ours for longer than the margin."""
        self.renew_if_needed()
        return self.left_s() > margin_s

    def renew_if_needed(self, age_s: float = RENEW_S) -> None:
        """Renew it if the last renewal is older; call it before and between writes.

        So a run whose lock is freed notices soon. A renewal that fails is tried again next time.
        """
        with self._turn:
            due = self.left_s() < self._terms.duration_s - 1 - age_s
            if (due or self._plan_changed) and self.lost is None:
                self._renew()

    @contextmanager
    def renewing(self, tick_s: float = _TICK_S) -> Iterator[None]:
        """Renew it on a thread, from a third of its duration on, while this thread computes."""
        done = threading.Event()
        failures: list[BaseException] = []

        def renew() -> None:
            try:
                while not done.wait(tick_s) and self.lost is None:
                    self.renew_if_needed(self._terms.duration_s / 3)
            except BaseException as error:  # noqa: BLE001  # raised where the block ends
                failures.append(error)

        thread = threading.Thread(target=renew, name="lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]

    def release(self, last_run: Mapping[str, Any] | None = None) -> bool:
        """Release it with the summary of this run; False if it was lost or cannot be released.

        Then it ends by itself after its duration. Never raises for what the server answers.
        """
        until = self._clock.read() + _RELEASE_S
        with self._turn:
            for tries in range(1, _TRIES + 1):
                if self.lost is not None:
                    return False
                body = released_lease(self._tree, self.namespace, last_run, self.now())
                reply = _put(self._transport, self.namespace, body)
                if reply.ok:
                    self.lost = "it was released"
                    return True
                if self._look() == "":
                    self.lost = "it was released"  # by us: the reply was lost
                    return reply.status in {LOST, 409} or reply.status >= 500
                if self._clock.read() > until:
                    return False  # after a signal the program must end soon
                if reply.status != 409 and tries < _TRIES:
                    time.sleep(_PAUSE_S / 2 * tries)
            return False

    def _renew(self) -> None:
        for _ in range(2):
            renewed, sent = int(self._clock.earliest()), self._clock.read()
            tree = with_notes(self._tree, self._notes)
            body = held_lease(tree, self.namespace, self._terms, renewed)
            reply = _put(self._transport, self.namespace, body)
            if reply.ok:
                self._tree, self._renewed, self._renewed_at = reply.body, renewed, sent
                self._plan_changed = False
                if reply.date is not None:
                    self._clock.set(reply.date, sent)
                return
            self._look()
            if self.lost is not None or reply.status != 409:
                return

    def _look(self) -> str | None:
        """Read the Lease after a write that failed: its holder's ID, None if unknown."""
        sent = self._clock.read()
        reply = self._transport.send("GET", lease_path(self.namespace, LEASE))
        if reply.status == 404:
            self.lost = f"the Lease {self.namespace}/{LEASE} is gone"
            return None
        if not reply.ok:
            return None
        holder = lease_state(reply.body, reply.date).holder
        if holder is None:
            self.lost = "it was unlocked"
            return ""
        if holder.id != self.id:
            self.lost = f"it was taken over: {holder.describe()}"
            return holder.id
        self._tree = reply.body
        if holder.until is not None:
            self._renewed = holder.until - self._terms.duration_s
        if reply.date is not None:
            self._clock.set(reply.date, sent)
        return holder.id


def _put(transport: Transport, namespace: str, body: Tree) -> Reply:
    return transport.send("PUT", f"{lease_path(namespace, LEASE)}?{_MANAGER}", body)


def _undecided(reply: Reply) -> bool:
    """Whether the Lease has to be read again to know what came of a write."""
    return reply.status in {LOST, 409, 429} or reply.status >= 500


def _failure(verb: str, namespace: str, reply: Reply) -> GangplanError:
    """The error for a refused or lost request for the Lease."""
    message = one_line(reply.message)
    if reply.status in {401, 403}:
        what = f"not permitted to {verb} the lock, lease {namespace}/{LEASE}: {message}"
        hint = f"grant get and update of leases {LEASE}, and create, in namespace {namespace}"
        return NotPermittedError(Fault(what, hint))
    if reply.status == 404:
        what = f"there is no namespace {namespace} for the lock: {message}"
        hint = f"kubectl create namespace {namespace}, or name another: --lock-namespace"
        return MissingPathError(Fault(what, hint))
    return UnavailableError(Fault(f"cannot {verb} the lock, lease {namespace}/{LEASE}: {message}"))
