"""The lock: one run at a time, by the Lease ``gangplan`` of a namespace.

It is taken by create, or by replace with the resourceVersion that was read; from another run only
after its end by the server's clock and a margin. So a lock that another run took is never
overwritten, and a run whose lock has ended sends no write. Whatever a Lease contains is untrusted.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from models.apply.notes import MAX_WRITTEN, RunNotes, read_notes
from models.units import time_text
from planner.cluster.retry import RetryingTransport
from planner.cluster.transport import LOST, Reply, Transport, Tree, grouped
from planner.errors import (
    Fault,
    GangplanError,
    LockedError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
)
from planner.read.kube.lookup import mapping, text, texts, time_of
from planner.untrusted_text import one_line

LEASE = "gangplan"
DURATION_S = 60
MARGIN_S = 2
"""Seconds past its end before another run may take a lock that was not released: clocks differ."""

POLL_S = 2.0
"""Seconds between two looks at a lock that another run holds."""

RENEW_S = 5.0
"""Age after which a run that writes renews it."""

HOST = "gangplan.dev/host"
USER = "gangplan.dev/user"
OPERATION = "gangplan.dev/operation"
PLAN = "gangplan.dev/plan"
ACQUIRED = "gangplan.dev/acquired"
LAST_RUN = "gangplan.dev/last-run"
PLANNED = "gangplan.dev/planned"
NOTES = "gangplan.dev/notes"

_OF_A_HOLDER = (HOST, USER, OPERATION, PLAN, ACQUIRED)
_MAX_NAME = 200
_MAX_LAST_RUN = 64 * 2**10

_MANAGER = "fieldManager=gangplan"
_TRIES = 5
_PAUSE_S = 0.2
_TICK_S = 1.0
_RELEASE_S = 10.0
"""Releasing is not retried later than this many seconds after the first attempt."""

_UNLOCKED = "it was unlocked"

Clock = Callable[[], float]
"""Seconds that pass; no time of day."""
Sleep = Callable[[float], object]


def lease_path(namespace: str, name: str | None = None) -> str:
    """URL path of the Leases of a namespace, or of one."""
    return grouped("coordination.k8s.io", "v1", "leases", namespace=namespace, name=name)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, as the Lease says; "" where it says nothing.

    ``since``, ``until``: seconds since the epoch on the server's clock, None if unreadable.
    ``left_s``: seconds until ``until`` when the Lease was read, None if unknown.
    """

    id: str
    user: str = ""
    host: str = ""
    operation: str = ""
    plan: str = ""
    since: int | None = None
    until: int | None = None
    left_s: float | None = None

    @property
    def expired(self) -> bool:
        """Whether another run may take over: not renewed for the whole duration and the margin."""
        return self.left_s is not None and self.left_s <= -MARGIN_S

    def describe(self) -> str:
        """``apply of plan gp-0123 by ana@login1 (lock 4f2a9c01d7, since ..., until ...)``."""
        what = one_line(self.operation) or "unknown operation"
        what += f" of plan {one_line(self.plan)}" if self.plan else ""
        if self.user or self.host:
            what += f" by {one_line(f'{self.user}@{self.host}')}"
        parts = [f"lock {one_line(self.id)}"]
        parts += [f"since {time_text(self.since)}"] if self.since is not None else []
        parts += [f"until {time_text(self.until)}"] if self.until is not None else []
        return f"{what} ({', '.join(parts)})"


def this_run(environ: Mapping[str, str], operation: str, plan: str | None = None) -> Holder:
    """A run of this user on this host as a holder; in a pod the host is the pod's name."""
    try:
        user = environ.get("USER") or environ.get("LOGNAME") or getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    host = socket.gethostname()[:_MAX_NAME]
    return Holder(secrets.token_hex(5), user[:_MAX_NAME], host, operation, plan or "")


def release_command(identity: str, program: str = "gangplan") -> str:
    """The command that frees a lock whose run is dead; quoted for a shell."""
    return shlex.join([*program.split(), "status", "--release", one_line(identity)])


@dataclass(frozen=True, slots=True)
class Lease:
    """``tree``: the Lease as the server sent it, None if there is none. ``now``: the server's clock."""

    namespace: str
    tree: Tree | None = None
    now: float | None = None

    @property
    def holder(self) -> Holder | None:
        spec, notes = mapping(self.tree, "spec"), texts(self.tree, "metadata", "annotations")
        if not (identity := text(spec, "holderIdentity")):
            return None
        duration = spec.get("leaseDurationSeconds")
        if type(duration) is not int or not 0 < duration < 10**9:
            duration = DURATION_S
        acquired, renewed = time_of(spec.get("acquireTime")), time_of(spec.get("renewTime"))
        renewed = acquired if renewed is None else renewed
        until = None if renewed is None else renewed + duration
        since = time_of(notes.get(ACQUIRED))
        left_s = None if until is None or self.now is None else until - self.now
        since = acquired if since is None else since
        user, host, operation, plan = (notes.get(key, "") for key in (USER, HOST, OPERATION, PLAN))
        return Holder(identity, user, host, operation, plan, since, until, left_s)

    @property
    def last_run(self) -> dict[str, Any] | None:
        """The summary that ``Lock.release`` wrote."""
        written = texts(self.tree, "metadata", "annotations").get(LAST_RUN, "")
        try:
            found = json.loads(written) if len(written) <= _MAX_LAST_RUN else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def planned(self) -> int | None:
        """When the last run ended that had made a plan, in seconds since the epoch."""
        return time_of(texts(self.tree, "metadata", "annotations").get(PLANNED))

    @property
    def notes(self) -> RunNotes:
        """What earlier runs left to later ones."""
        return read_notes(texts(self.tree, "metadata", "annotations").get(NOTES, ""))

    def held(
        self, holder: Holder, duration_s: int, renewed: int, notes: RunNotes | None = None
    ) -> Tree:
        """The Lease to write while it is held; ``notes`` None: those that are there stay."""
        acquired = holder.since or 0
        spec: Tree = {
            "holderIdentity": holder.id,
            "leaseDurationSeconds": duration_s,
            "acquireTime": _micro_time(acquired),
            "renewTime": _micro_time(renewed),
        }
        before = mapping(self.tree, "spec")
        if before.get("holderIdentity") != holder.id:
            count = before.get("leaseTransitions")
            count = count if type(count) is int and 0 <= count < 2**31 - 1 else 0
            spec["leaseTransitions"] = count + (self.tree is not None)
        written = (holder.host, holder.user, holder.operation, holder.plan, time_text(acquired))
        annotations = dict(zip(_OF_A_HOLDER, written, strict=True))
        return self._with(
            spec, annotations if notes is None else annotations | {NOTES: notes.text()}
        )

    def released(self, last_run: Mapping[str, Any] | None, now: int) -> Tree:
        """The Lease to write when it is released; ``last_run`` None: the summary stays."""
        annotations = {}
        if last_run is not None:
            annotations[LAST_RUN] = json.dumps(last_run, separators=(",", ":"), sort_keys=True)
            if last_run.get("plan"):
                annotations[PLANNED] = time_text(now)
        return self._with({"holderIdentity": "", "renewTime": _micro_time(now)}, annotations)

    def _with(self, spec: Tree, annotations: dict[str, str]) -> Tree:
        """The Lease to write over this one: what is not ours stays, its resourceVersion too."""
        metadata = {**mapping(self.tree, "metadata"), "name": LEASE, "namespace": self.namespace}
        metadata.pop("managedFields", None)
        kept = texts(metadata, "annotations").items()
        found = {key: one for key, one in kept if key not in {*_OF_A_HOLDER, *annotations}}
        metadata["annotations"] = found | {key: one for key, one in annotations.items() if one}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": mapping(self.tree, "spec") | spec,
        }


def _micro_time(epoch: int) -> str:
    return f"{time_text(epoch).removesuffix('Z')}.000000Z"


def ticking() -> float:
    """Seconds that pass even while the machine sleeps, if the system counts those."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def read_lease(transport: Transport, namespace: str, *, sleep: Sleep = time.sleep) -> Lease:
    """The lock as it is. Raises NotPermittedError, UnavailableError."""
    if not isinstance(transport, RetryingTransport):
        transport = RetryingTransport(transport, sleep=sleep)
    reply = transport.send("GET", lease_path(namespace, LEASE))
    if not reply.ok and reply.status != 404:
        raise _failure("read", namespace, reply)
    return Lease(namespace, reply.body if reply.ok else None, reply.date)


def acquire(
    transport: Transport,
    me: Holder,
    *,
    namespace: str,
    wait_s: float = 0.0,
    clock: Clock = ticking,
    sleep: Sleep = time.sleep,
    duration_s: int = DURATION_S,
    on_wait: Callable[[Holder], object] | None = None,
    program: str = "gangplan",
) -> Lock:
    """Take the lock. ``me``: of ``this_run``; a plan that is not known yet is set later: ``Lock.plan``.

    ``wait_s``: how long to wait for another run to end; ``on_wait`` is called once, when waiting
    begins. ``program``: how people call gangplan.
    Raises LockedError (75), NotPermittedError (77), UnavailableError (69), MissingPathError (66: no such
    namespace).
    """
    until, waiting, tries = clock() + wait_s, False, 0
    while True:
        sent = clock()
        lease = read_lease(transport, namespace, sleep=sleep)
        if lease.now is None:
            raise UnavailableError(Fault("the API server sends no header Date"))
        now, holder = int(lease.now), lease.holder
        if holder is not None and holder.id == me.id:
            # The reply to our write was lost; the write was carried out.
            renewed = now if holder.until is None else holder.until - duration_s
            return Lock(transport, lease, me, duration_s, renewed, clock, sent)
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
        me, verb = replace(me, since=now), "create" if lease.tree is None else "update"
        reply = _write(transport, lease, lease.held(me, duration_s, now))
        if reply.ok:
            taken = replace(lease, tree=reply.body)
            return Lock(transport, taken, me, duration_s, now, clock, sent)
        tries += 1
        gone = reply.status == 404 and lease.tree is not None
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
        if holder is None or (first is not None and holder.id != identity):
            return first  # that lock is gone; another run may have taken it since
        if holder.id != identity:
            what = f"the lock in namespace {namespace} is not {one_line(identity)!r}: {holder.describe()}"
            hint = f"only if that run is dead: {release_command(holder.id, program)}"
            raise LockedError(Fault(what, hint))
        first = first or holder
        reply = _write(transport, lease, lease.released(None, int(lease.now or 0)))
        if reply.ok:
            return first
        if not (_undecided(reply) or reply.status == 404) or left == 1:
            raise _failure("update", namespace, reply)
        if reply.status != 409:  # a renewal by its holder; everything else takes a moment
            sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


class Lock:
    """The lock while it is ours. Thread-safe. ``lost``: why it is no longer ours, else None.

    ``plan``: its id, shown to runs that find the lock taken; written with the next renewal.
    ``notes``: what this and earlier runs leave to later ones.
    """

    def __init__(
        self,
        transport: Transport,
        lease: Lease,
        me: Holder,
        duration_s: int,
        renewed: int,
        clock: Clock,
        sent: float,
    ) -> None:
        """``lease``: with our id, and the Date of a reply whose request was ``sent`` then, by ``clock``."""
        self.lost: str | None = None
        self.plan = me.plan
        self.notes = lease.notes
        self._transport = transport
        self._lease = lease
        self._me = me
        self._duration_s = duration_s
        self._renewed, self._renewed_at = renewed, sent
        self._clock = clock
        self._set_clock(lease.now or 0.0, sent)
        self._turn = threading.RLock()

    @property
    def id(self) -> str:
        """What ``gangplan status --release`` takes."""
        return self._me.id

    @property
    def planned(self) -> int | None:
        """When the last run ended that had made a plan."""
        return self._lease.planned

    def remember(self, notes: RunNotes) -> bool:
        """Write these notes; whether they are there. Otherwise the next renewal writes them, if they fit."""
        if len(notes.text()) > MAX_WRITTEN:
            return False
        with self._turn:
            self.notes = notes
            for tries in range(1, _TRIES + 1):
                if self.lost is not None:
                    break
                self._renew()
                if self._lease.notes == notes:
                    return True
                if tries < _TRIES:
                    time.sleep(_PAUSE_S / 2 * tries)
            return False

    # Date is cut to whole seconds and made between sending and receiving: hence two bounds.

    def _set_clock(self, date: float, sent: float) -> None:
        self._date, self._sent, self._received = date, sent, self._clock()

    def now(self) -> int:
        """The server's clock, in seconds since the epoch; at most a second early."""
        with self._turn:
            return int(self._date + (self._clock() - self._received))

    def _latest(self) -> float:
        return self._date + 1 + (self._clock() - self._sent)

    def note_date(self, date: float | None) -> None:
        """Learn from the Date of another reply; it corrects a clock of ours that stood still."""
        with self._turn:
            if date is not None and date > self._latest():
                self._set_clock(date, self._clock())

    def left_s(self) -> float:
        """Seconds for which it is surely ours without another renewal; 0 if it is lost."""
        with self._turn:
            if self.lost is not None:
                return 0.0
            # A server clock that goes back does not extend it: our clock bounds it too.
            by_ours = self._renewed_at + self._duration_s - self._clock()
            by_server = self._renewed + self._duration_s - self._latest()
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
            due = self.left_s() < self._duration_s - 1 - age_s
            if (due or self.plan != self._me.plan) and self.lost is None:
                self._renew()

    @contextmanager
    def renewing(self, tick_s: float = _TICK_S) -> Iterator[None]:
        """Renew it on a thread, from a third of its duration on, while this thread computes."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(tick_s) and self.lost is None:
                self.renew_if_needed(self._duration_s / 3)

        with ThreadPoolExecutor(1, "lock") as pool:
            renewed = pool.submit(renew)
            try:
                yield
            finally:
                done.set()
        renewed.result()

    def release(self, last_run: Mapping[str, Any] | None = None) -> bool:
        """Release it with the summary of this run; False if it was lost or cannot be released.

        Then it ends by itself after its duration. Never raises for what the server answers.
        """
        until = self._clock() + _RELEASE_S
        with self._turn:
            for tries in range(1, _TRIES + 1):
                if self.lost is not None:
                    return False
                body = self._lease.released(last_run, self.now())
                reply = _write(self._transport, self._lease, body)
                if reply.ok:
                    self.lost = "it was released"
                    return True
                self._look()
                if self.lost == _UNLOCKED:
                    return _undecided(reply)  # by us: the reply was lost
                if self._clock() > until:
                    return False  # after a signal the program must end soon
                if reply.status != 409 and tries < _TRIES:
                    time.sleep(_PAUSE_S / 2 * tries)
            return False

    def _renew(self) -> None:
        for _ in range(2):
            renewed, sent, me = self.now(), self._clock(), replace(self._me, plan=self.plan)
            body = self._lease.held(me, self._duration_s, renewed, self.notes)
            reply = _write(self._transport, self._lease, body)
            if reply.ok:
                self._me, self._lease = me, replace(self._lease, tree=reply.body)
                self._renewed, self._renewed_at = renewed, sent
                if reply.date is not None:
                    self._set_clock(reply.date, sent)
                return
            self._look()
            if self.lost is not None or reply.status != 409:
                return

    def _look(self) -> None:
        """Read the Lease after a write that failed."""
        sent, namespace = self._clock(), self._lease.namespace
        reply = self._transport.send("GET", lease_path(namespace, LEASE))
        if reply.status == 404:
            self.lost = f"the Lease {namespace}/{LEASE} is gone"
        if not reply.ok:
            return
        lease = Lease(namespace, reply.body, reply.date)
        holder = lease.holder
        if holder is None:
            self.lost = _UNLOCKED
        elif holder.id != self.id:
            self.lost = f"it was taken over: {holder.describe()}"
        else:
            self._lease = lease
            if holder.until is not None:
                self._renewed = holder.until - self._duration_s
            if reply.date is not None:
                self._set_clock(reply.date, sent)


def _write(transport: Transport, lease: Lease, body: Tree) -> Reply:
    method, name = ("POST", None) if lease.tree is None else ("PUT", LEASE)
    return transport.send(method, f"{lease_path(lease.namespace, name)}?{_MANAGER}", body)


def _undecided(reply: Reply) -> bool:
    """Whether the Lease has to be read again to know what came of a write."""
    return reply.status in {LOST, 409, 429} or reply.status >= 500


def _failure(verb: str, namespace: str, reply: Reply) -> GangplanError:
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
