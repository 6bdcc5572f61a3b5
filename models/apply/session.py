"""The state of one apply run: the last known cluster, verdicts so far, and requests with retries.

No answer is taken for granted: after a conflict or a lost answer the pod is read and compared before the
next of a bounded number of tries. At most LANES gangs are begun and unfinished at any request, so a crash
leaves no more of them half-way; the order of the requests depends on the gangs and the answers alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from models.apply.enforcer import Enforcer, PodBatch, Write
from models.apply.gate_and_pin import GateAndPin
from models.apply.live_state import ClusterView, LivePod, PodClassifier, PodState, pod_of
from models.apply.notes import RunNotes
from models.apply.on_request import OnRequest, request_for
from models.apply.plan_actions import Key, PodStart, PodStop
from models.apply.records import RecordKey
from models.apply.requests import (
    ApplyLimits,
    BlockedByBudget,
    CheckLock,
    ClusterRead,
    Conflict,
    Denied,
    Done,
    Event,
    EventGroup,
    GangVerdict,
    Gone,
    Halt,
    LockHeld,
    NoAnswer,
    ReadCluster,
    ReadPod,
    ReadRecord,
    Rejected,
    Remember,
    Request,
    RequestGroup,
    Single,
    Steps,
    message_of,
)

_UNCHANGED = (Conflict, Gone, Rejected, BlockedByBudget)
"""Answers after which everything is as it was."""

TRIES = 5
"""Maximum attempts of a write that conflicts or gets no answer."""

READ_TRIES = 3
"""Maximum attempts to read the cluster before the server counts as unavailable."""

LOCK_CHECK_EVERY = 16
"""Writes between two checks of the lock and of signals."""

REREAD_AFTER = 1000
"""Writes after which the cluster is read again before the next gang starts."""


class Halted(Exception):  # noqa: N818  # it ends the machine; it is no failure
    """The run ends here: the lock, a signal, or a server that does not answer."""

    def __init__(self, halt: Halt) -> None:
        super().__init__(halt.why)
        self.halt = halt


class Failure(Exception):  # noqa: N818  # of a step, which concerns one gang
    """A step failed. ``transient``: a later try may succeed. ``lasting``: it will not on these nodes."""

    def __init__(self, why: str, *, transient: bool = False, lasting: bool = False) -> None:
        super().__init__(why)
        self.why, self.transient, self.lasting = why, transient, lasting


@dataclass(slots=True)
class ApplySession:
    """``view``: last known state; every answer updates its pods. ``verdicts``: by (plan, gang).

    ``leaving``: pods evicted, perhaps, since the last reading, which its budgets do not know of.
    ``started``: batches started in this run. ``writes``: requests that changed something or may have;
    ``sent``: those that were to.
    ``resized``: gangs whose scale was set. ``others_went``: gangs that shrank by other pods than planned, and
    what became of them. ``owners``: evicted pod to the uid of its controller.
    ``barred``: gangs and nodes on which they did not start, which would be the same next time.
    ``in_vain``: pods that are to come were waited for, and did not. ``stopping``: after a signal, when only
    gangs that have begun go on.
    """

    view: ClusterView
    limits: ApplyLimits
    verdicts: dict[tuple[str, Key], GangVerdict] = field(default_factory=dict)
    leaving: set[Key] = field(default_factory=set)
    resized: set[Key] = field(default_factory=set)
    others_went: dict[Key, str] = field(default_factory=dict)
    owners: dict[Key, str | None] = field(default_factory=dict)
    started: list[PodBatch] = field(default_factory=list)
    barred: set[tuple[Key, str]] = field(default_factory=set)
    writes: int = 0
    sent: int = 0
    evicted: int = 0
    in_vain: bool = False
    stopping: bool = False
    _reread: bool = False
    _sent_at_reading: int = 0
    _sent_at_check: int = 0

    def __post_init__(self) -> None:
        self.view = self.view.indexed()

    @property
    def classifier(self) -> PodClassifier:
        return PodClassifier(self.limits.gate)

    def enforcer_of(self, pods: Sequence[PodStart]) -> Enforcer:
        """The way to start their gang."""
        if pods and request_for(self.view, pods[0]) is not None:
            return OnRequest()
        return GateAndPin(self.limits.gate, self.limits.backend)

    def pod(self, order: PodStart | PodStop) -> LivePod | None:
        """The pod of an order; None if it is missing or another pod has its name."""
        return pod_of(self.view, order)

    def state(self, order: PodStart) -> PodState:
        return self.enforcer_of((order,)).state(self.view, order)

    def record(self, verdict: GangVerdict) -> GangVerdict:
        self.verdicts[verdict.plan, verdict.gang] = verdict
        return verdict

    def send(self, request: Request) -> Steps[Event]:
        """Send one request. Raises Halted if the answer is Halt."""
        reads = isinstance(request, CheckLock | ReadPod | ReadRecord | ReadCluster | Remember)
        self.sent += not reads
        event = yield request
        self.writes += not reads and not isinstance(event, _UNCHANGED)
        if isinstance(event, Halt):
            raise Halted(event)
        return event

    def check_lock(self, *, begun: bool = False) -> Steps[None]:
        """Raises Halted if the run must stop. ``begun``: see CheckLock."""
        self._sent_at_check = self.sent
        try:
            event = yield from self.send(CheckLock(begun))
        except Halted as halted:
            self.stopping = not halted.halt.lock
            raise
        self._reread = isinstance(event, LockHeld) and event.reread

    def check_lock_sometimes(self, *, begun: bool = False) -> Steps[None]:
        """Check the lock every LOCK_CHECK_EVERY writes."""
        if self.stopping or self.sent - self._sent_at_check >= LOCK_CHECK_EVERY:
            yield from self.check_lock(begun=begun)

    def read_pod(self, order: PodStart | PodStop) -> Steps[LivePod | None]:
        """Read the pod of an order; None if it is gone. Raises Halted if not even all pods can be read."""
        match (yield from self.send(ReadPod(order.namespace, order.name))):
            case Done(pod) if pod is not None:
                self.view.pods[pod.key] = pod
            case Gone():
                self.view.pods.pop(order.key, None)
            case Denied():  # as far as is known; what needs the right fails for its gang alone
                pass
            case _:
                yield from self.read_cluster()
        return self.pod(order)

    def read_record(self, key: RecordKey) -> Steps[None]:
        """Read the record of a start, as ``read_pod`` does."""
        match (yield from self.send(ReadRecord(key))):
            case Done(record=record):
                self.view.enter(key, record)
            case Gone():
                self.view.enter(key, None)
            case Denied():
                pass
            case _:
                yield from self.read_cluster()

    def read_cluster(self, after_s: float = 0.0) -> Steps[None]:
        """Read everything again. Raises Halted without an answer."""
        event: Event = NoAnswer("")
        for _ in range(READ_TRIES):
            event = yield from self.send(ReadCluster(after_s))
            if isinstance(event, ClusterRead):
                self.view = event.view.indexed()
                self.leaving.clear()
                self._sent_at_reading, self._reread = self.sent, False
                return
            if isinstance(event, Denied):
                raise Halted(Halt(event.message))
        why = message_of(event) or "no answer"
        raise Halted(Halt(f"the API server does not answer: {why}"))

    def remember(self, notes: RunNotes) -> Steps[str]:
        """Leave notes to later runs; why that failed, else "". A dry run leaves none."""
        if self.limits.dry or notes == self.view.notes:
            return ""
        event = yield from self.send(Remember(notes))
        if not isinstance(event, Done):
            return message_of(event) or "no answer"
        self.view = replace(self.view, notes=notes)
        return ""

    def refresh(self) -> Steps[bool]:
        """Read everything again if the last read is old or many writes ago; returns whether it did."""
        if not self._reread and self.sent - self._sent_at_reading < REREAD_AFTER:
            return False
        yield from self.read_cluster()
        return True

    def carry_out(self, write: Write) -> Steps[None]:
        """Send a write until it is done, comparing after every doubt. Raises Failure."""
        last = ""
        for _ in range(TRIES):
            if write.done(self.view):
                return
            if (why := write.obstacle(self.view)) is not None:
                raise Failure(f"{write.what} {why}")
            event = yield from self.send(write.request(self.view))
            if isinstance(event, Done):
                write.learn(self.view, event)
                if event.pod is None:
                    return
                last = "another client reverts it"
                continue
            last = message_of(event) or "no answer"
            yield from self._look(write.about)
            if isinstance(event, Rejected) and not write.done(self.view):
                denied = isinstance(event, Denied)
                raise Failure(f"{write.what} {last}", transient=denied, lasting=not denied)
        if not write.done(self.view):
            if (why := write.obstacle(self.view)) is not None:
                raise Failure(f"{write.what} {why}")
            why = f"{write.what} was not updated in {TRIES} tries: {last}"
            raise Failure(why, transient=True)

    def _look(self, about: PodStart | RecordKey | None) -> Steps[object]:
        """Read what a write was about again, after a conflict or without an answer."""
        if about is None:
            return self.read_cluster()
        return self.read_pod(about) if isinstance(about, PodStart) else self.read_record(about)


LANES = 8
"""Gangs under way at once, at most."""


@dataclass(slots=True, eq=False)
class _Lane:
    """One gang under way. ``waiting``: what it sends with the next group; None until it has begun."""

    pods: tuple[PodStart, ...]
    steps: Steps[Any]
    waiting: Single | None = None


@dataclass(slots=True)
class Lanes:
    """``halted``: why no other gang may begin."""

    session: ApplySession
    halted: Halted | None = None
    _lanes: list[_Lane] = field(default_factory=list)
    _sent: int = 0

    @property
    def empty(self) -> bool:
        return not self._lanes

    @property
    def pods(self) -> Iterable[PodStart]:
        """All pods of the gangs under way: their room is taken, started or not."""
        return (pod for lane in self._lanes for pod in lane.pods)

    def free_one(self) -> Steps[None]:
        """Wait until another gang may begin. Raises Halted if none may."""
        while len(self._lanes) >= LANES:
            yield from self._send_next()
        if self.halted is not None:
            yield from self.finish()

    def add(self, pods: tuple[PodStart, ...], steps: Steps[Any]) -> Steps[None]:
        """Begin a gang, after ``free_one``."""
        lane = _Lane(pods, steps)
        self._lanes.append(lane)
        yield from self._go_on(lane, None)

    def finish(self) -> Steps[None]:
        """Wait until no gang is under way. Raises Halted if one was."""
        while self._lanes:
            yield from self._send_next()
        if self.halted is not None:
            raise self.halted

    def end(self, halted: Halted) -> Steps[None]:
        """Halt: after a signal the gangs that have begun are finished, else all stop here."""
        self._halt(halted)
        yield from self.finish()

    def _send_next(self) -> Steps[None]:
        """Send what all wait for; then let each go on with its answer."""
        going = list(self._lanes)
        yield from self._check_lock(len(going))
        if not self._lanes:
            return
        requests = tuple(one.waiting for one in going if one.waiting is not None)
        answer = yield requests[0] if len(requests) == 1 else RequestGroup(requests)
        same = (answer,) * len(requests)
        answers = answer.events if isinstance(answer, EventGroup) else same
        for lane, answer in zip(going, answers, strict=True):
            if lane in self._lanes:
                yield from self._go_on(lane, answer)

    def _check_lock(self, ahead: int) -> Steps[None]:
        """Check the lock every LOCK_CHECK_EVERY requests; a gang alone does that itself."""
        self._sent += ahead
        if self._sent <= LOCK_CHECK_EVERY or self.session.stopping or len(self._lanes) < 2:
            return
        self._sent = ahead
        try:
            yield from self.session.check_lock()
        except Halted as halted:
            self._halt(halted)

    def _go_on(self, lane: _Lane, event: Event | None) -> Steps[None]:
        """Let a gang go on until its next request that may go with those of others."""
        try:
            request = next(lane.steps) if event is None else lane.steps.send(event)
            while not isinstance(request, Single):
                request = lane.steps.send((yield request))
        except StopIteration:
            self._lanes.remove(lane)
        except Halted as halted:
            self._lanes.remove(lane)
            self._halt(halted)
        else:
            lane.waiting = request

    def _halt(self, halted: Halted) -> None:
        self.halted = self.halted or halted
        if self.session.stopping:
            return  # each of the others sees at its next step whether it may go on
        for lane in self._lanes:
            with contextlib.suppress(Halted):
                lane.steps.throw(halted)  # it records how far it is
        self._lanes = []
