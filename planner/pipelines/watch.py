"""The pipeline of ``run --watch``: one run after the other, when something changes or time has passed.

Every run is a process of its own, just as cron starts it. Between two a few small requests say whether pods
came to wait, ended or went, or nodes came or went: nothing else is carried into the next, and no failure of
one ends the loop.
"""

from __future__ import annotations

import contextlib
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
from planner.cluster.kubectl import Kubectl
from planner.cluster.pages import get, list_objects
from planner.cluster.rights import VIEW
from planner.cluster.transport import Transport, accepted, core
from planner.errors import (
    Fault,
    GangplanError,
    NotPermittedError,
    StaleError,
    UnavailableError,
    UsageError,
)
from planner.pipelines.apply import run_paths, settings_to_run
from planner.pipelines.run import RunRequest
from planner.read.kube.lookup import items, objects, text, whole
from planner.show.console import Console
from planner.show.text import lasting
from planner.signals import Interrupted, handled
from planner.untrusted_text import safe

_START = "import sys; from planner.__main__ import main; sys.argv = sys.argv[1:]; main()"
"""-P beside it: no file of the folder we are in is a module of ours."""

LOOK_S = 10.0
"""Between two looks at the cluster; less if a shorter interval between rounds is asked for."""

SETTLE_S = 2.0
"""From a look that finds a change to the run: the pods of a gang come one after the other."""

_STARTED = "started"

PARTLY = (StaleError.exit_code, 7)
"""Exit codes of runs that did what they could: what changes is answered as soon as after success."""

_ENDED = ("Succeeded", "Failed")


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
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Run until a signal: its exit code; that of the first round if the account lacks a right.

    Raises what no later round could mend: UsageError, InputError, MissingPathError, CannotWriteError at the
    start, and UnavailableError without kubectl.
    """
    looks = _Looks(request.run, _checked(request.run), console, clock)
    why, failures = _STARTED, 0
    with contextlib.closing(looks):
        try:
            while True:
                looks.look()
                console.say(f"{(now := time_text(int(wall())))}: {why}")
                console.event("round", time=now, why=why)
                looks.forget()
                code = _round(request.arguments, console)
                ended = clock()
                first = why == _STARTED
                if code == UsageError.exit_code or (first and code == NotPermittedError.exit_code):
                    return code
                failures = failures + 1 if code else 0
                why = _wait(request, looks, ended, code, failures, sleep)
        except Interrupted as error:
            console.say(f"ended by {error} (exit {error.exit_code})")
            console.event("summary", verb="run", status="interrupted", exit_code=error.exit_code)
            return error.exit_code


def _checked(run: RunRequest) -> str:
    """The gate at which pods wait. Raises what is wrong with the command itself."""
    settings = settings_to_run(run.planning.paths, run.planning.policy)
    run_paths(run.options, settings)
    for file in (run.planning.out, run.metrics):
        if file is not None:
            check_target(file)
    target = run.target
    Kubectl.find(target.environ, context=target.context, kubeconfig=target.kubeconfig)
    return settings.scheduling_gate


def _wait(
    request: WatchRequest,
    looks: _Looks,
    ended: float,
    code: int,
    failures: int,
    sleep: Callable[[float], object],
) -> str:
    """Until the next round is due; why it is."""
    least_s, most_s = request.min_s, request.max_s
    if failures:
        most_s = min(most_s, least_s * 2 ** min(failures - 1, 20))
        least_s = least_s if code in PARTLY else most_s
    while True:
        due = ended + most_s
        if looks.changed:
            due = min(due, max(ended + least_s, looks.at + SETTLE_S))
        left_s = due - looks.clock()
        if left_s <= 0:
            break
        sleep(min(left_s, LOOK_S, request.min_s))
        looks.look()
    if looks.changed:
        return f"{' and '.join(looks.changed)} changed"
    return f"again after exit {code}" if failures else f"{lasting(int(most_s))} passed"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found. ``waiting``: uid and gates of pods at our gate; ``ended``: uids of pods.

    ``pods``, ``nodes``: how many there are, as far as the server says.
    """

    waiting: frozenset[tuple[str, ...]]
    ended: frozenset[str]
    pods: int
    nodes: int

    def changed_since(self, before: Seen) -> tuple[str, ...]:
        """Kinds of which something happened that may let a gang start."""
        went = before.pods - self.pods > len(before.ended - self.ended)
        pods = went or self.waiting - before.waiting or self.ended - before.ended
        return ("nodes",) * (self.nodes != before.nodes) + ("pods",) * bool(pods)


def see(wire: Transport, gate: str) -> Seen:
    """Look once. Raises UnavailableError, NotPermittedError."""
    pods = list_objects(wire, f"{core('pods')}?fieldSelector=status.phase!=Running")
    waiting, ended = set[tuple[str, ...]](), set[str]()
    for pod in pods:
        uid = text(pod, "metadata", "uid") or ""
        gates = [text(one, "name") or "" for one in objects(pod, "spec", "schedulingGates")]
        if gate in gates:
            waiting.add((uid, *gates))
        elif text(pod, "status", "phase") in _ENDED:
            ended.add(uid)
    every, nodes = (_count(wire, core(plural)) for plural in ("pods", "nodes"))
    return Seen(frozenset(waiting), frozenset(ended), every, nodes)


def _count(wire: Transport, path: str) -> int:
    body = get(wire, f"{path}?limit=1").body
    return len(items(body, "items")) + (whole(body, "metadata", "remainingItemCount") or 0)


@dataclass(slots=True)
class _Looks:
    """Looks between rounds. ``changed``: since ``forget``; ``at``: when that was first seen."""

    request: RunRequest
    gate: str
    console: Console
    clock: Callable[[], float]
    changed: tuple[str, ...] = ()
    at: float = 0.0
    _stack: ExitStack = field(default_factory=ExitStack)
    _wire: Transport | None = None
    _last: Seen | None = None
    _troubled: bool = False

    def look(self) -> None:
        """Look again. What cannot be read is a warning, once."""
        try:
            if self._wire is None:
                self._wire = self._stack.enter_context(self.request.target.connect(accepted(VIEW)))
            now = see(self._wire, self.gate)
        except GangplanError as error:
            self.close()
            if not self._troubled:
                self.console.warn(f"cannot watch the cluster: {error}")
                self.console.event("watch", open=False, why=safe(str(error)))
            self._troubled = True
            return
        if self._troubled:
            self.console.say("watching again")
            self.console.event("watch", open=True, why=None)
        found = () if self._last is None else now.changed_since(self._last)
        self._troubled, self._last = False, now
        if found and not self.changed:
            self.at = self.clock()
        self.changed = tuple(sorted({*self.changed, *found}))

    def forget(self) -> None:
        """What happened so far is answered."""
        self.changed = ()

    def close(self) -> None:
        self._wire = None
        self._stack.close()


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
