"""The lock: one run at a time, by the Lease ``gangplan`` of a namespace.

Promises: taken by create, or by replace with resourceVersion; from another only once it is over by the
server's clock and a margin; who holds it is told to everybody else. Called by the verbs that write.

Freeing the lock of a run that is dead, on a person's word.

Promises: only the lock with that ID; with the resourceVersion that was read, so never one that was taken
meanwhile; what the last run left in it stays. Called by ``planner.cli.unlock``.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.cluster.lease_document import (
    DURATION_S,
    LEASE,
    Holder,
    LeaseSeen,
    Terms,
    Who,
    freed,
    held,
    here,
    seen,
    unlock_command,
)
from planner.cluster.lock import MANAGER, Clock, Lock, ServerClock, failure, path
from planner.cluster.retry import RetryingTransport
from planner.cluster.transport import LOST, Reply, Transport, Tree
from planner.errors import Fault, LockedError, UnavailableError
from planner.untrusted_text import one_line

__all__ = [
    "Holder",
    "LeaseSeen",
    "Lock",
    "Who",
    "accepted",
    "acquire",
    "here",
    "read_lease",
    "read_lock",
]

POLL_S = 2.0
"""Seconds between two looks at a lock that another run holds."""

_TRIES = 5

Sleep = Callable[[float], object]


def ticking() -> float:
    """Seconds that pass even while the machine sleeps, where the system can tell; no time of day."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def accepted(namespace: str) -> tuple[str, ...]:
    """Paths of the lock, for ``proxy.opened``. Raises UsageError."""
    return (f"{re.escape(path(namespace))}(/{LEASE})?",)


def read_lock(wire: Transport, namespace: str) -> Holder | None:
    """Who holds the lock; None if nobody does. Raises as ``read_lease``."""
    return read_lease(wire, namespace).holder


def read_lease(wire: Transport, namespace: str, *, sleep: Sleep = time.sleep) -> LeaseSeen:
    """The lock as it is, with what the last run left in it.

    Raises NotPermittedError, UnavailableError, UsageError.
    """
    reply = _patient(wire, sleep).send("GET", path(namespace, LEASE))
    if reply.status == 404:
        return seen(None, reply.date)
    if not reply.ok:
        raise failure("read", namespace, reply)
    return seen(reply.body, reply.date)


def acquire(
    wire: Transport,
    *,
    namespace: str,
    operation: str,
    plan: str | None,
    who: Who,
    wait_s: float = 0.0,
    clock: Clock = ticking,
    sleep: Sleep = time.sleep,
    duration_s: int = DURATION_S,
    tell: Callable[[Holder], object] | None = None,
    unlock: Sequence[str] = ("gangplan", "unlock"),
) -> Lock:
    """The lock, once it is ours; ``plan`` None: not known yet, set ``Lock.plan`` later.

    ``wait_s``: how long to wait for another run to end; ``tell`` is called once, with its holder, when
    the waiting begins. ``unlock``: the command that is told to people.
    Raises LockedError (75), NotPermittedError (77), UnavailableError (69), MissingPathError (66: there is
    no such namespace), UsageError (64: it can be no name of one).
    """
    taking = _Taking(wire, namespace, operation, plan, who, clock, sleep, duration_s)
    until = clock() + wait_s
    waiting = False
    while (lock := taking.tried()) is None:
        holder = taking.holder
        if holder is None:
            continue
        left = until - clock()
        if left <= 0:
            raise _locked(holder, namespace, unlock)
        if not waiting and tell is not None:
            tell(holder)
        waiting = True
        sleep(min(POLL_S, left))
    return lock


class _Taking:
    """Tries to take the lock. ``holder``: who held it at the last try, None if nobody did."""

    def __init__(
        self,
        wire: Transport,
        namespace: str,
        operation: str,
        plan: str | None,
        who: Who,
        clock: Clock,
        sleep: Sleep,
        duration_s: int,
    ) -> None:
        self._wire = wire
        self._namespace = namespace
        self._terms = Terms(secrets.token_hex(5), who, operation, plan, 0, duration_s)
        self._clock = clock
        self._sleep = sleep
        self._left = _TRIES
        self.holder: Holder | None = None

    def tried(self) -> Lock | None:
        """The lock; None if somebody holds it, or if it has to be tried again."""
        sent = self._clock()
        lease = read_lease(self._wire, self._namespace, sleep=self._sleep)
        if lease.now is None:
            raise UnavailableError(Fault("the API server does not tell the time: no header Date"))
        holder = self.holder = lease.holder
        terms = self._terms
        if holder is not None and holder.id == terms.id and lease.tree is not None:
            # The answer to our write was lost; it had been done.
            renewed = int(lease.now) if holder.until is None else holder.until - terms.duration_s
            return self._taken(lease.tree, renewed, sent, lease.now)
        if holder is not None and not holder.expired:
            return None
        self.holder = None
        now = int(lease.now)
        self._terms = terms = replace(terms, acquired=now)
        body = held(lease.tree, self._namespace, terms, now)
        if lease.tree is None:
            reply = self._wire.send("POST", f"{path(self._namespace)}?{MANAGER}", body)
        else:
            reply = self._wire.send("PUT", f"{path(self._namespace, LEASE)}?{MANAGER}", body)
        if reply.ok:
            return self._taken(reply.body, now, sent, lease.now)
        self._again(reply, "create" if lease.tree is None else "update")
        return None

    def _taken(self, tree: Tree, renewed: int, sent: float, now: float) -> Lock:
        clock = ServerClock(self._clock, now, sent)
        return Lock(self._wire, self._namespace, self._terms, tree, renewed, clock)

    def _again(self, reply: Reply, verb: str) -> None:
        """Raises what ends it; otherwise the next look at the Lease decides."""
        gone = reply.status == 404 and verb == "update"
        transient = reply.status in {LOST, 409, 429} or reply.status >= 500 or gone
        self._left -= 1
        if not transient or self._left <= 0:
            raise failure(verb, self._namespace, reply)
        if reply.status != 409:
            self._sleep(0.2 * (_TRIES - self._left))


def _locked(holder: Holder, namespace: str, unlock: Sequence[str]) -> LockedError:
    what = f"locked in namespace {namespace} by {holder.worded()}"
    hint = (
        f"wait with --lock-timeout; only if that run is dead: {unlock_command(holder.id, unlock)}"
    )
    return LockedError(Fault(what, hint))


def _patient(wire: Transport, sleep: Sleep) -> Transport:
    return wire if isinstance(wire, RetryingTransport) else RetryingTransport(wire, sleep=sleep)


_TRIES_UNLOCKING = 5
_PAUSE_S = 0.2


def unlocked(
    wire: Transport,
    *,
    namespace: str,
    identity: str,
    command: Sequence[str] = ("gangplan", "unlock"),
    sleep: Callable[[float], object] = time.sleep,
) -> Holder | None:
    """Who held the lock; None if nobody did. Raises LockedError where it has another ID; as read_lease."""
    first: Holder | None = None
    for left in range(_TRIES_UNLOCKING, 0, -1):
        lease = read_lease(wire, namespace, sleep=sleep)
        holder = lease.holder
        if holder is None or lease.tree is None:
            return first
        if holder.id != identity:
            if first is not None:
                return (
                    first  # the one it was asked for is gone; that another came is not our business
                )
            raise _other(holder, namespace, identity, command)
        first = first or holder
        reply = _freed(wire, namespace, lease)
        if reply.ok:
            return first
        if not _again(reply) or left == 1:
            raise failure("update", namespace, reply)
        if reply.status != 409:  # a renewal of its holder's; everything else takes a moment
            sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


def _freed(wire: Transport, namespace: str, lease: LeaseSeen) -> Reply:
    assert lease.tree is not None
    body = freed(lease.tree, namespace, None, int(lease.now or 0))
    return wire.send("PUT", f"{path(namespace, LEASE)}?{MANAGER}", body)


def _again(reply: Reply) -> bool:
    return reply.status in {LOST, 404, 409, 429} or reply.status >= 500


def _other(holder: Holder, namespace: str, identity: str, command: Sequence[str]) -> LockedError:
    what = f"the lock in namespace {namespace} is not {one_line(identity)!r}: {holder.worded()}"
    hint = f"only if that run is dead: {unlock_command(holder.id, command)}"
    return LockedError(Fault(what, hint))
