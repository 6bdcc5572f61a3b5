"""The pipeline of ``apply``: verify, reach the cluster, ask, lock, read again, carry out, release.

Promises: solves nothing; writes nothing before every check has passed; the lock is given back however it
ends. The clock, signals and the network enter here. Called by ``planner.cli.apply``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from planner.errors import GangplanError
from planner.pipelines.apply_steps import (
    Ready,
    Way,
    accepted,
    carry,
    check_age,
    check_cluster,
    check_rights,
    check_view,
    exit_code,
    read_ready,
)
from planner.pipelines.plan import Phases
from planner.show.apply import counts
from planner.signals import Interrupted, Stop, stop_on_signal

if TYPE_CHECKING:
    from models.apply.intents import SealKey
    from models.apply.live_state import ClusterView
    from models.apply.outcomes import Verdict
    from planner.cluster.lock import Lock
    from planner.cluster.proxy import ProxyTransport
    from planner.cluster.sending import Tell
    from planner.show.console import Console

OPERATION = "apply"


@dataclass(frozen=True, slots=True)
class ApplyWish:
    """What ``apply`` was asked for. ``path``: the plan file, - for stdin. ``timeout_s``: of a request.

    ``max_age_s``: None for any age. ``dry``: ask the server, write nothing. ``sure``: do not ask.
    """

    path: str
    way: Way = field(default_factory=Way)
    context: str | None = None
    kubeconfig: str | None = None
    timeout_s: float = 30.0
    max_age_s: int | None = None
    dry: bool = False
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Hearing:
    """Who is told, and asked. ``announce``: what will happen; ``agree``: whether it shall.

    The last of what ``agree`` gets is the kubectl context; None: of the pod we run in.
    """

    announce: Callable[[Ready, ClusterView], None]
    agree: Callable[[Ready, ClusterView, str | None], bool]
    tell: Tell


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of it. ``verdict`` None: the user said no. ``seconds``: of each phase."""

    plan: Ready
    verdict: Verdict | None
    exit_code: int
    context: str | None
    seconds: dict[str, float]


def apply(
    wish: ApplyWish,
    console: Console,
    hearing: Hearing,
    *,
    stdin: BinaryIO | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> Applied:
    """Apply the plan of a file. Raises what the steps of ``apply_steps`` raise, and LockedError."""
    from planner.cluster.lease import read_lease
    from planner.cluster.lease_document import seal_key_of
    from planner.cluster.live_view import ClusterReader
    from planner.cluster.proxy import connect
    from planner.cluster.retry import RetryingTransport

    phases = Phases(clock)
    with phases.phase("verify"):
        plan = read_ready(wish.path, stdin)
    console.event("verify_done", violations=0)
    with connect(
        console.environ,
        context=wish.context,
        kubeconfig=wish.kubeconfig,
        timeout_s=wish.timeout_s,
        accept=accepted(plan, wish.way),
    ) as wire:
        patient = RetryingTransport(wire)
        with phases.phase("check"):
            reader = ClusterReader(patient, plan.settings)
            check_cluster(plan, reader.identity())
            check_age(plan, wish.max_age_s, wall() if reader.date is None else reader.date)
            check_rights(plan, wish.way, patient)
            if not wish.sure or wish.dry:
                lease = read_lease(patient, wish.way.lock_namespace)
                reader.seal_key = seal_key_of(lease.tree)
        asked = not (wish.sure or wish.dry)
        if asked:
            with phases.phase("read"):
                view = reader.read_view()
            check_view(plan, wish.way, view)
            hearing.announce(plan, view)
            if not hearing.agree(plan, view, wire.context):
                return Applied(plan, None, 130, wire.context, phases.seconds)
        with stop_on_signal() as stop:
            carrying = _Carrying(wish, plan, console, stop, wall)
            seen = _nothing if asked else hearing.announce
            with phases.phase("lock"):
                lock = None if wish.dry else carrying.locked(wire)
            with phases.phase("apply"):
                seal_key = reader.seal_key if lock is None else lock.seal_key
                verdict = carrying.carried(wire, lock, seal_key, seen, hearing.tell)
        code = exit_code(verdict, stop.exit_code)
        return Applied(plan, verdict, code, wire.context, phases.seconds)


def _nothing(plan: Ready, view: ClusterView) -> None:
    """The user has seen it."""


@dataclass(frozen=True, slots=True)
class _Carrying:
    """One apply, under its signal handlers."""

    wish: ApplyWish
    plan: Ready
    console: Console
    stop: Stop
    wall: Callable[[], float]

    def locked(self, wire: ProxyTransport) -> Lock:
        """The lock. Raises LockedError, and Interrupted where a signal comes while it is waited for."""
        from planner.cluster.lease import acquire
        from planner.cluster.lease_document import here

        return acquire(
            wire,
            namespace=self.wish.way.lock_namespace,
            operation=OPERATION,
            plan=self.plan.orders.plan,
            who=here(self.console.environ),
            wait_s=self.wish.way.lock_wait_s,
            sleep=self._pause,
            tell=lambda holder: self.console.say(f"waiting: {holder.worded()}"),
            unlock=(*self.console.program.split(), "unlock"),
        )

    def carried(
        self,
        wire: ProxyTransport,
        lock: Lock | None,
        seal_key: SealKey | None,
        seen: Callable[[Ready, ClusterView], None],
        tell: Tell,
    ) -> Verdict:
        """Under the lock; what came of it is left in the lock."""
        from planner.cluster.lock import Guarded
        from planner.cluster.retry import RetryingTransport
        from planner.cluster.sending import RequestSender

        event = self.stop.event
        sender = RequestSender(
            wire=RetryingTransport(wire if lock is None else Guarded(wire, lock), sleep=event.wait),
            settings=self.plan.settings,
            backend=self.plan.backend,
            lock=lock,
            stop=event,
            clock=time.monotonic,
            sleep=event.wait,
            dry=self.wish.dry,
        )
        sender.reader.seal_key = seal_key
        with self._released(lock) as note:
            verdict = carry(
                self.plan, self.wish.way, sender, tell, lambda view: seen(self.plan, view)
            )
            code = exit_code(verdict, self.stop.exit_code)
            status = (
                "stopped" if verdict.stop is not None else "applied" if not code else "part-way"
            )
            note |= {"status": status, "exit_code": code}
            note["counts"] = {**counts(verdict), "evicted": verdict.evicted}
        return verdict

    @contextmanager
    def _released(self, lock: Lock | None) -> Iterator[dict[str, Any]]:
        """Give the lock back at the end, with a note of what came of it."""
        note: dict[str, Any] = {"status": "failed", "exit_code": 1, "plan": self.plan.orders.plan}
        try:
            yield note
        except (GangplanError, Interrupted) as error:
            note["exit_code"] = error.exit_code
            raise
        finally:
            if lock is not None:
                self._release(lock, note)

    def _release(self, lock: Lock, note: Mapping[str, Any]) -> None:
        from models.units import time_text

        if not lock.release({**note, "finished": time_text(int(self.wall()))}):
            self.console.warn("the lock was not given back; it ends by itself within a minute")

    def _pause(self, seconds: float) -> None:
        """Wait for the lock, but not after a signal."""
        self.stop.event.wait(seconds)
        if self.stop.exit_code is not None:
            raise Interrupted(self.stop.exit_code - 128)
