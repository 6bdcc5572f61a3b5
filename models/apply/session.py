"""The machine's desk: what it knows of the cluster now, and asking until something is settled.

Promises: no answer is taken for granted: after a conflict or a lost answer the pod is read again and
compared before another try; tries are bounded. Called by the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from models.apply.intents import Intent
from models.apply.live_state import ClusterView, LivePod, PodIndex
from models.apply.orders import Key, PodOrder
from models.apply.outcomes import ApplyLimits, GangVerdict
from models.apply.pod_state import PodClassifier, PodState, intent_for
from models.apply.requests import (
    CheckLock,
    ClusterRead,
    Done,
    DryRunBind,
    Event,
    EventGroup,
    Gone,
    Halt,
    LockHeld,
    NoAnswer,
    ReadCluster,
    ReadPod,
    Rejected,
    Request,
    RequestGroup,
    WriteIntent,
)

TRIES = 5
"""So often a write is tried when something changes under it, or its answer is lost."""

LOOKS = 3
"""So often a reading is tried before the server counts as gone."""

HOLD_EVERY = 16
"""Writes between two looks at the lock and at signals."""

STALE_AFTER = 1000
"""Writes after which the whole cluster is read again before another gang is begun."""


class Halted(Exception):  # noqa: N818  # it unwinds the machine; it is no failure
    """The lock, a signal or a server that is silent ends the run here."""

    def __init__(self, stop: Halt) -> None:
        super().__init__(stop.why)
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Failure:
    """What was asked did not come about. ``transient``: a later try may well succeed."""

    why: str
    transient: bool = False


@dataclass(frozen=True, slots=True)
class PodBatch:
    """Pods of one gang that start together. ``gang``: (namespace, name). ``plan``: whose intents.

    ``size``: how many were to start together, if fewer are left in ``pods``.
    """

    gang: Key
    plan: str
    size: int
    pods: tuple[PodOrder, ...]

    def intent(self, order: PodOrder) -> Intent:
        return intent_for(order, plan=self.plan, gang=self.gang[1], size=self.size)

    @property
    def called(self) -> str:
        return f"gang {self.gang[0]}/{self.gang[1]}"


@dataclass(slots=True)
class ApplySession:
    """``view``: what is known now; its pods are kept up to date with every answer.

    ``verdicts``: by (plan, gang). ``batches``: started in this run.
    ``writes``: requests that changed something, or may have.
    """

    view: ClusterView
    limits: ApplyLimits
    verdicts: dict[tuple[str, Key], GangVerdict] = field(default_factory=dict)
    batches: list[PodBatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    writes: int = 0
    evicted: int = 0
    _due: bool = False
    _fresh_at: int = 0
    _held_at: int = 0

    def __post_init__(self) -> None:
        self.view = replace(self.view, pods=PodIndex(self.view.pods))

    @property
    def classifier(self) -> PodClassifier:
        return PodClassifier(self.limits.gate, self.limits.scheduler)

    def pod(self, order: PodOrder) -> LivePod | None:
        """The pod of an order as last seen; None if it is not there, or another stands there."""
        seen = self.view.pods.get(order.key)
        return seen if seen is not None and seen.uid == order.uid else None

    def state(self, order: PodOrder) -> PodState:
        return self.classifier.state(self.pod(order), order.uid, order.node)

    def record(self, verdict: GangVerdict) -> GangVerdict:
        self.verdicts[verdict.plan, verdict.gang] = verdict
        return verdict

    def ask(self, request: Request) -> Generator[Request, Event, Event]:
        """One request, one answer. Raises Halted where the answer is to stop."""
        if not isinstance(request, CheckLock | ReadPod | ReadCluster | DryRunBind):
            self.writes += 1
        event = yield request
        if isinstance(event, Halt):
            raise Halted(event)
        return event

    def hold(self, what: str, *, begun: bool = False) -> Generator[Request, Event, None]:
        """Whether we may go on. Raises Halted if not."""
        self._held_at = self.writes
        event = yield from self.ask(CheckLock(what, begun))
        self._due = isinstance(event, LockHeld) and event.due

    def pace(self, what: str, *, begun: bool, ahead: int = 1) -> Generator[Request, Event, None]:
        """The same every few writes only. ``ahead``: writes until it is asked again."""
        if self.writes - self._held_at + ahead > HOLD_EVERY:
            yield from self.hold(what, begun=begun)

    def together(
        self, what: str, requests: Sequence[WriteIntent | DryRunBind], *, begun: bool
    ) -> Generator[Request, Event, dict[Key, Event]]:
        """Requests that start nothing, on their way together; what came of each, by pod.

        What was neither done nor refused is asked for again, one by one, by whoever settles it; a pod
        of which nobody knows is read again here. One request alone is left to that, too.
        """
        came: dict[Key, Event] = {}
        for first in range(0, len(requests), HOLD_EVERY):
            some = requests[first : first + HOLD_EVERY]
            if len(some) > 1:
                yield from self.pace(what, begun=begun, ahead=len(some))
                came |= yield from self._together(some)
        return came

    def _together(
        self, requests: Sequence[WriteIntent | DryRunBind]
    ) -> Generator[Request, Event, dict[Key, Event]]:
        self.writes += sum(isinstance(one, WriteIntent) for one in requests)
        answer = yield RequestGroup(tuple(requests))
        events = answer.events if isinstance(answer, EventGroup) else (answer,) * len(requests)
        came = {one.pod.key: event for one, event in zip(requests, events, strict=True)}
        for key, event in came.items():
            if isinstance(event, Done) and event.pod is not None:
                self.view.pods[key] = event.pod
        for one in requests:
            event = came[one.pod.key]
            if isinstance(event, Halt):
                raise Halted(event)
            if isinstance(event, NoAnswer | Rejected) and isinstance(one, WriteIntent):
                yield from self.look(one.pod)
        return came

    def look(self, order: PodOrder) -> Generator[Request, Event, LivePod | None]:
        """Read the pod of an order again; None if it is gone. Raises Halted if nobody answers."""
        event: Event = NoAnswer("")
        for _ in range(LOOKS):
            event = yield from self.ask(ReadPod(order.namespace, order.name))
            match event:
                case Done(pod) if pod is not None:
                    self.view.pods[pod.key] = pod
                    return pod if pod.uid == order.uid else None
                case Gone():
                    self.view.pods.pop(order.key, None)
                    return None
                case _:
                    continue
        raise Halted(Halt(f"the API server does not answer: {_said(event)}"))

    def read_cluster(self, after_s: float = 0.0) -> Generator[Request, Event, None]:
        """Read everything again. Raises Halted if nobody answers."""
        event: Event = NoAnswer("")
        for _ in range(LOOKS):
            event = yield from self.ask(ReadCluster(after_s))
            if isinstance(event, ClusterRead):
                self.view = replace(event.view, pods=PodIndex(event.view.pods))
                self._fresh_at, self._due = self.writes, False
                return
        raise Halted(Halt(f"the API server does not answer: {_said(event)}"))

    def refresh(self) -> Generator[Request, Event, bool]:
        """Read everything again if that was long ago, or much was written since; whether it was read.

        Between it and the start of a gang others may come to its nodes.
        """
        if not self._due and self.writes - self._fresh_at < STALE_AFTER:
            return False
        yield from self.read_cluster()
        return True

    def settle(  # noqa: PLR0911  # one return a way to end
        self,
        order: PodOrder,
        request: Callable[[LivePod], Request],
        *,
        done: Callable[[LivePod], bool],
        hindrance: Callable[[LivePod], str | None],
        then: Callable[[LivePod], LivePod],
    ) -> Generator[Request, Event, LivePod | Failure]:
        """Ask until it is ``done``, comparing after every doubt; the pod as it is then.

        ``hindrance``: why it must not be tried (again). ``then``: the pod after a Done that shows none.
        """
        seen = self.pod(order)
        last = ""
        for _ in range(TRIES):
            if seen is None:
                return Failure("is gone")
            if done(seen):
                return seen
            why = hindrance(seen)
            if why is not None:
                return Failure(why)
            event = yield from self.ask(request(seen))
            if isinstance(event, Done):
                if event.pod is None:
                    seen = then(seen)
                    self.view.pods[seen.key] = seen
                    return seen
                seen = event.pod
                self.view.pods[seen.key] = seen
                last = "something else changes it at once"
                continue
            last = _said(event)
            seen = yield from self.look(order)
            if not _again(event):
                return seen if seen is not None and done(seen) else Failure(last)
        if seen is None:
            return Failure("is gone")
        if done(seen):
            return seen
        return Failure(f"was not done in {TRIES} tries: {last}", transient=True)


def _again(event: Event) -> bool:
    """Whether another try may end otherwise. A 404 for a pod that is still there may, too."""
    return not isinstance(event, Rejected)


def _said(event: Event) -> str:
    return str(getattr(event, "message", "")) or "no answer"
