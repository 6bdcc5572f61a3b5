"""The pipeline of ``run --watch``: one run after the other, when something changes or time has passed.

Every run is a process of its own, just as cron starts it, and the watch only says when: nothing that a run
or a watch meets is carried into the next, and no failure of one ends the loop.
"""

from __future__ import annotations

import contextlib
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType

from models.units import time_text
from planner.atomic_files import check_target
from planner.cluster.bell import ACCEPT, Bell, Watches
from planner.cluster.kubectl import Kubectl
from planner.cluster.retry import KnownRights
from planner.errors import (
    Fault,
    GangplanError,
    NotPermittedError,
    StaleError,
    UnavailableError,
    UsageError,
)
from planner.pipelines.apply_steps import run_paths, settings_to_run
from planner.pipelines.run import RunRequest
from planner.show.console import Console
from planner.show.text import lasting
from planner.signals import Interrupted, handled
from planner.untrusted_text import safe

_START = "import sys; from planner.__main__ import main; sys.argv = sys.argv[1:]; main()"
"""-P beside it: no file of the folder we are in is a module of ours."""

SETTLE_S = 2.0
"""From the first change to the run: the pods of a gang come one after the other."""

REOPEN_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Pauses before the watch is opened anew; the last one for ever."""

PARTLY = (StaleError.exit_code, 7)
"""Exit codes of runs that did what they could: what changes is answered as soon as after success."""

_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """``run``: what each round does; ``arguments``: its command line.

    ``min_s``: at least so long from the end of a round to the next; ``max_s``: at most, unless rounds fail.
    """

    run: RunRequest
    arguments: Sequence[str]
    min_s: float
    max_s: float


def watch(
    request: WatchRequest,
    console: Console,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> int:
    """Run until a signal: its exit code.

    Raises what no later round could mend: UsageError, InputError, MissingPathError, CannotWriteError at the
    start, UnavailableError without kubectl, and NotPermittedError as long as it has watched nothing.
    """
    _check(request.run)
    bell = Bell(clock)
    ear = _Ear(request.run, bell, console, clock)
    why, failures = "started", 0
    with contextlib.closing(ear):
        try:
            ear.listen()
            while True:
                said = f"{time_text(int(wall()))}: {why}"
                console.say(said)
                console.event("round", time=said.partition(": ")[0], why=why)
                bell.forget()
                code = _round(request.arguments, console)
                ended = clock()
                if code == UsageError.exit_code:
                    return code
                failures = failures + 1 if code else 0
                if code == NotPermittedError.exit_code:
                    ear.close()  # opened anew, it says whether runs may do what they need
                why = _wait(request, ear, ended, code, failures)
        except Interrupted as error:
            console.say(f"ended by {error} (exit {error.exit_code})")
            console.event("summary", verb="run", status="interrupted", exit_code=error.exit_code)
            return error.exit_code


def _check(run: RunRequest) -> None:
    """Raises what is wrong with the command itself."""
    settings = settings_to_run(run.planning.paths, run.planning.policy)
    run_paths(run.options, settings)
    for file in (run.planning.out, run.metrics):
        if file is not None:
            check_target(file)
    target = run.target
    Kubectl.find(target.environ, context=target.context, kubeconfig=target.kubeconfig)


def _wait(request: WatchRequest, ear: _Ear, ended: float, code: int, failures: int) -> str:
    """Until the next round is due; why it is."""
    bell, least_s, most_s = ear.bell, request.min_s, request.max_s
    if failures:
        most_s = min(most_s, least_s * 2 ** min(failures - 1, 20))
        least_s = least_s if code in PARTLY else most_s
    while True:
        bell.event.clear()
        ear.listen()
        due = ended + most_s
        if (rung_at := bell.rung_at) is not None:
            due = min(due, max(ended + least_s, rung_at + SETTLE_S))
        left_s = due - ear.clock()
        if left_s <= 0:
            break
        bell.event.wait(min(left_s, ear.left_s))
    if rung_at is not None:
        return f"{_named(bell.changed)} changed"
    return f"again after exit {code}" if failures else f"{lasting(int(most_s))} passed"


def _named(kinds: Sequence[str]) -> str:
    """``nodes``, ``nodes and pods``, ``nodes, pods, jobs and 2 more kinds``."""
    shown = list(kinds[:_MAX_NAMED])
    if rest := len(kinds) - len(shown):
        shown.append(f"{rest} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


@dataclass(slots=True)
class _Ear:
    """Keeps a watch open, or tries to. ``left_s``: until the next try."""

    run: RunRequest
    bell: Bell
    console: Console
    clock: Callable[[], float]
    _stack: ExitStack = field(default_factory=ExitStack)
    _watches: Watches | None = None
    _known: KnownRights = field(default_factory=KnownRights)
    _heard: bool = False
    _failures: int = 0
    _next: float = 0.0

    @property
    def left_s(self) -> float:
        return math.inf if self._watches is not None else self._next - self.clock()

    def listen(self) -> None:
        """Open the watch if it is not, and its time has come. Raises NotPermittedError."""
        if self._watches is not None:
            if self._watches.trouble is None:
                return
            self._failed(self._watches.trouble)
        if self._next > self.clock():
            return
        try:
            self._begin()
        except GangplanError as error:
            if isinstance(error, NotPermittedError) and not self._heard:
                raise  # later on, a server that has just started may know no rights
            self._failed(str(error))

    def close(self) -> None:
        """End the watch; the next ``listen`` opens it."""
        self._watches = None
        self._stack.close()

    def _begin(self) -> None:
        with ExitStack() as stack:
            wire = stack.enter_context(self.run.target.connect(ACCEPT))
            watches = Watches(wire, self.bell, skip=self.run.skip, known=self._known)
            stack.callback(watches.close)
            kinds = watches.permitted(self.run.options.lock_namespace)
            watches.begin(kinds)
            self._stack = stack.pop_all()
        self._watches, self._heard = watches, True
        if self._failures:
            self.console.say("watching again")
            self.console.event("watch", open=True, why=None)
        self._failures = 0

    def _failed(self, why: str) -> None:
        self.close()
        pause_s = REOPEN_S[min(self._failures, len(REOPEN_S) - 1)]
        self._failures += 1
        self._next = self.clock() + pause_s
        self.console.warn(f"not watching: {why}; next try in {pause_s:g} s")
        self.console.event("watch", open=False, why=safe(why))


@dataclass(slots=True)
class _Child:
    """A round. ``number``: of the first signal that we received meanwhile, which it gets, too."""

    process: subprocess.Popen[bytes] | None = None
    number: int | None = None

    def signalled(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        self.pass_on()

    def pass_on(self) -> None:
        """As SIGTERM: Ctrl-C would show a traceback of a Python that is still starting."""
        if self.process is not None and self.number is not None:
            self.process.send_signal(signal.SIGTERM)


def _round(arguments: Sequence[str], console: Console) -> int:
    """One run; its exit code. Raises Interrupted once it has ended, if a signal came."""
    words = [sys.executable, "-P", "-c", _START, console.program.replace(" ", "-"), *arguments]
    child = _Child()
    with handled(child.signalled):
        try:
            child.process = subprocess.Popen(  # noqa: S603  # our own argv, no shell
                words,
                stdin=subprocess.DEVNULL,
                env=dict(console.environ),
                start_new_session=True,  # signals of a terminal come from us alone
            )
        except OSError as error:
            console.error(Fault(f"cannot start a run: {error.strerror or error}"))
            return UnavailableError.exit_code
        child.pass_on()  # of before it was there
        code = child.process.wait()
    if child.number is not None:
        raise Interrupted(child.number)
    if code < 0:
        console.error(Fault(f"the run was ended by {signal.Signals(-code).name}"))
    return code if code >= 0 else 128 - code
