"""HiGHS: LPs, and branch and bound over them, whose bounds are numerical.

Branch and bound is limited by nodes (repeatable) and the clock (a guard). Solutions are rounded and checked
against every row in integers. 10 to 100 times faster than CP-SAT on programs of 64 nodes or more
(benchmarks/README.md).

It runs in a process that keeps the last program and its basis. Two copies of HiGHS, that of OR-Tools and that
of ``highspy``, do not load in one process. A process can also be killed, and may die, without harm to others:
HiGHS takes no interrupter, and its presolve overruns a limit by a minute on a large program.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from models.program.linear_program import UNBOUNDED, Program, Rows, rows_of
from planner.search.budget import Budget
from planner.search.engines.interface import Answer, Goal, Status, interruptible

BOUND_SLACK = 1e-9
"""Relative slack added to a floating-point bound before it is rounded to the safe side."""

SHORTEST_S = 0.05
"""No solver is started for a shorter time."""

LARGEST = 1 << 20
"""Largest coefficient of an objective, or of a row of a goal, that HiGHS is given.

Sums of GPUs x speed x seconds exceed what its tolerances tell apart.
"""

LARGE = 1e9
"""A row of an earlier tier with larger limits is loosened for branch and bound."""

LOOSENED = 1e-10
"""Relative; its unit is 10^-7 of its limit and more, so that hardly any solution is lost by it."""

LATE = 1.5
"""HiGHS may take that many times its limit while there is time: once killed, it says and knows nothing."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """``status``: ``optimal``, ``infeasible``, ``late`` or ``limit``.

    ``values``: one per variable; ``duals``: one per row, those of the goal last; empty if there are none.
    ``bound``: of the objective. ``effort``: simplex iterations of an LP, nodes of branch and bound.
    """

    status: str
    values: Floats
    duals: Floats
    bound: float
    effort: int


class HighsProcess:
    """A process that has one program, or none.

    ``turn``: of the call that has it, so that who gives up a call that is over stops no other. It serves
    the thread that called it last, as long as that lives: another one would take its basis away.
    """

    _idle: ClassVar[list[HighsProcess]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def take(cls, program: Program) -> HighsProcess:
        """A process for one call: the one that has the program, if it is idle, before others."""
        with cls._lock:
            for one in [one for one in cls._idle if not one.alive]:
                cls._idle.remove(one)
                one.reap()
            me = threading.get_ident()
            others = {one.ident for one in threading.enumerate()} - {me}
            free = [one for one in cls._idle if one._owner not in others]  # noqa: SLF001  # its own
            if not free:
                return cls()
            process = max(free, key=lambda one: one.has(program))
            cls._idle.remove(process)
            process._owner = me  # noqa: SLF001
            return process

    @classmethod
    def dismiss(cls) -> None:
        """End the processes that wait for a call; to start one takes 0.2 s."""
        with cls._lock:
            gone = list(cls._idle)
            cls._idle.clear()
        for one in gone:
            one.kill()
            one.reap()

    def __init__(self) -> None:
        self._killed = False
        self._owner = threading.get_ident()
        self.turn = 0
        self._program: Callable[[], Program | None] = lambda: None
        self._known = 0
        self._process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
            # -P: the files next to this one are no top-level modules. A session of its own: Ctrl-C
            # goes to the planner, which then decides.
            [
                sys.executable,
                "-P",
                str(Path(__file__).with_name("highs_worker.py")),
                str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def kill(self, turn: int | None = None) -> None:
        """End it; with a turn only if the call is not over."""
        with self._lock:
            if turn in (None, self.turn):
                self._killed = True
                self._process.kill()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def has(self, program: Program) -> bool:
        """Whether it keeps this program, and its basis."""
        return self._program() is program

    def reap(self) -> None:
        """Forget a process that ends once no request can come, or has ended."""
        # One that was killed has closed its end already.
        with suppress(BrokenPipeError), self._process as process:
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()

    def new_rows(self, program: Program) -> dict[str, Any]:
        """The rows of the program that the process does not have."""
        anew = not self.has(program)
        rows = program.row_arrays()
        first = 0 if anew else self._known
        self._program, self._known = ref(program), len(rows.low)
        return {"anew": anew, "rows": _by_row(rows, first)}

    def solve(self, request: dict[str, Any]) -> Result | None:
        """The result, or None if the process was killed, or died, without one."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it is a pipe"
        assert stdout is not None, "it is a pipe"
        result: Result | None = None
        with suppress(BrokenPipeError):
            block = pickle.dumps(request, protocol=5)
            stdin.write(len(block).to_bytes(8, "little") + block)
            stdin.flush()
            size = int.from_bytes(stdout.read(8), "little")
            answer = stdout.read(size)
            if size and len(answer) == size:
                result = Result(**pickle.loads(answer))  # noqa: S301  # of our own process
        with self._lock:
            self.turn += 1
            again = result is not None and not self._killed
            if again:
                self._idle.append(self)
        if again:
            return result
        self.reap()
        code = self._process.returncode
        if code < 0 and not self._killed:
            died = signal.Signals(-code).name
            logging.getLogger(__name__).warning("a solver process died of %s: no answer", died)
        if code > 0 and not self._killed:
            raise RuntimeError("the solver's process failed; its message is on stderr")
        return result


atexit.register(HighsProcess.dismiss)


def _by_row(rows: Rows, first: int = 0) -> tuple[Floats, Floats, Any, Any, Floats]:
    """The rows from the first one on, as the worker reads them."""
    low, high = rows.low[first:].astype(np.float64), rows.high[first:].astype(np.float64)
    low[rows.low[first:] <= -UNBOUNDED] = -math.inf
    high[rows.high[first:] >= UNBOUNDED] = math.inf
    at = int(np.searchsorted(rows.numbers, first))
    starts = np.searchsorted(rows.numbers[at:], np.arange(first, len(rows.low) + 1))
    columns = rows.columns[at:].astype(np.int32)
    return low, high, starts.astype(np.int32), columns, rows.coefficients[at:].astype(np.float64)


def call(
    program: Program,
    goal: Goal,
    budget: Budget,
    seconds: float,
    *,
    nodes: int | None = None,
    **options: Any,  # of branch and bound
) -> Result | None:
    """The result in the units of the goal; None if it had to be given up, or the process died.

    ``nodes``: of branch and bound, None for the LP relaxation.
    A call that the clock ended is recorded in the budget.
    """
    seconds = max(SHORTEST_S, min(seconds, budget.seconds_left()))
    process = HighsProcess.take(program)
    cost = np.zeros(len(program.lower))
    cost[list(goal.objective.terms)] = list(goal.objective.terms.values())
    factor = _scale(cost) * (-1 if goal.maximize else 1)
    low, high, starts, columns, coefficients = _by_row(rows_of(goal.kept_rows()))
    scales = np.array([_scale(coefficients[a:b]) for a, b in zip(starts, starts[1:], strict=False)])
    if nodes is not None:
        for limits, sign in ((low, -1), (high, 1)):
            large = np.isfinite(limits) & (np.abs(limits) > LARGE)
            limits[large] += sign * np.abs(limits[large]) * LOOSENED
    request = {
        **process.new_rows(program),
        "lower": np.array(program.lower, dtype=np.float64),
        "upper": np.array(program.upper, dtype=np.float64),
        "cost": cost / factor,
        "kept": (
            low / scales,
            high / scales,
            starts,
            columns,
            coefficients / np.repeat(scales, np.diff(starts)),
        ),
        "seconds": seconds,
        "nodes": nodes,
        **options,
    }
    if "mip_abs_gap" in request:
        request["mip_abs_gap"] /= abs(factor)
    kill = partial(process.kill, process.turn)
    late = min(LATE * seconds, budget.seconds_left())
    result = interruptible(budget, lambda: process.solve(request), kill, seconds=late)
    timed_out = result is None or result.status == "late"
    budget.clocked |= timed_out and not budget.stop.is_set()
    if result is None:
        return None
    duals = result.duals * factor
    if len(scales) and len(duals):
        duals[-len(scales) :] /= scales
    bound = result.bound * factor + goal.objective.constant
    return Result(result.status, result.values, duals, bound, result.effort)


def _scale(coefficients: Floats) -> float:
    """The power of two by which they are divided so that none exceeds LARGEST."""
    largest = float(np.abs(coefficients).max(initial=0.0))
    return 2.0 ** max(0, math.frexp(largest / LARGEST)[1])


def branch(
    program: Program,
    goal: Goal,
    budget: Budget,
    *,
    nodes: int,
    seconds: float,
    hint: Sequence[int] = (),
    heuristics: bool = True,
    gap: float = 0.0,
) -> Answer:
    """What HiGHS finds within a number of branch-and-bound nodes and seconds.

    ``heuristics``: whether it looks for solutions, which the hint, if it is the best one, does not need.
    ``gap``: relative, with which it is content.
    """
    whole = len(hint) == len(program.lower)
    # HiGHS may give up at once on one that breaks a row
    known = hint if whole and goal.satisfied(program, hint) else ()
    options = {"hint": np.array(known, dtype=np.float64), "heuristics": heuristics or not known}
    result = _called(program, goal, budget, nodes, seconds, gap, **options)
    if result is None:
        return Answer(Status.UNKNOWN, (), goal.trivial_bound(program), exact=False)
    return _answer(program, goal, result, exact=not gap)


def branch_on(
    program: Program,
    goal: Goal,
    budget: Budget,
    whole: Iterable[int],
    *,
    nodes: int,
    seconds: float,
) -> tuple[float, ...]:
    """The best that HiGHS finds where only the variables in ``whole`` are integral; () for nothing."""
    integral = np.fromiter(whole, dtype=np.int64)
    result = _called(program, goal, budget, nodes, seconds, whole=integral)
    return () if result is None else tuple(result.values.tolist())


def _called(
    program: Program,
    goal: Goal,
    budget: Budget,
    nodes: int,
    seconds: float,
    gap: float = 0.0,
    **options: Any,  # of the worker
) -> Result | None:
    limits = {"mip_max_nodes": nodes, "mip_rel_gap": gap or 1e-9, "mip_abs_gap": 0.5}
    seed = budget.limits.seed % (1 << 31)
    result = call(
        program, goal, budget, seconds, nodes=nodes, random_seed=seed, **limits, **options
    )
    if result is not None:
        size = len(program.row_arrays().columns) + len(program.lower)
        budget.spend((max(1, result.effort) + 10) * size / 5e6)  # in units of about one second
    return result


def _answer(program: Program, goal: Goal, result: Result, *, exact: bool) -> Answer:
    trivial = goal.trivial_bound(program)
    if result.status == "infeasible":
        return Answer(Status.INFEASIBLE, (), trivial, exact=False)
    bound = safe_bound(result.bound, trivial, maximize=goal.maximize)
    values = tuple(np.rint(result.values).astype(np.int64).tolist())
    if not values or not goal.satisfied(program, values):
        return Answer(Status.UNKNOWN, (), bound, exact=False)
    value = goal.objective.value(values)
    if result.status == "optimal" and exact:
        bound = value  # proven within solver tolerance only
    return Answer(Status.OPTIMAL if value == bound else Status.FEASIBLE, values, bound, exact=False)


def safe_bound(bound: float, trivial: int, *, maximize: bool) -> int:
    """An integer bound that a floating-point bound implies within the slack."""
    if not math.isfinite(bound):
        return trivial
    slack = BOUND_SLACK * abs(bound) + 1e-6
    if maximize:
        return min(trivial, math.floor(bound + slack))
    return max(trivial, math.ceil(bound - slack))
