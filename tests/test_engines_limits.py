"""Engine calls end at their limits: the clock, the stop signal, and the solver's own process."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from models.documents.policy import SolveLimits
from models.program.linear_program import Linear, Program
from planner.search.budget import Budget
from planner.search.engines import highs, mathopt, mathopt_process
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal, Status, interruptible
from planner.search.engines.relaxation import Relaxation


def plenty() -> Budget:
    return Budget(replace(SolveLimits(), budget=10**6, time_limit_s=10**6))


def packing(count: int) -> tuple[Program, Goal]:
    """As many of ``count`` items as fit, two of any five: no engine closes 2,000 within a minute."""
    draw = random.Random(1)
    program = Program()
    items = [program.boolean() for _ in range(count)]
    for _ in range(count):
        program.at_most(Linear().add_all(draw.sample(items, 5)), 2)
    return program, Goal(Linear().add_all(items), maximize=True)


def test_a_call_that_overruns_its_limit_is_abandoned() -> None:
    release = threading.Event()
    started = time.monotonic()
    assert interruptible(plenty(), release.wait, seconds=0.1) is None
    assert time.monotonic() - started < 3
    release.set()


@pytest.mark.parametrize("largest", [0, 10**9])
def test_highs_answers_the_same_in_a_process_and_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(mathopt, "LARGEST_IN_THREAD", largest)
    program = Program()
    ring = [program.boolean() for _ in range(21)]
    for item, following in zip(ring, [*ring[1:], ring[0]], strict=True):
        program.at_most(Linear().add(item).add(following), 1)
    goal = Goal(Linear().add_all(ring), maximize=True)
    answer = branch(program, goal, plenty(), nodes=100, seconds=60, hint=[0] * len(ring))
    # No two neighbours of 21 in a ring: 10.
    assert (answer.status, answer.bound, sum(answer.values)) == (Status.OPTIMAL, 10, 10)


@pytest.mark.parametrize(("hint", "given"), [([0, 0], 1), ([1, 1], 0), ([0, 2], 0)])
def test_highs_gets_no_hint_that_breaks_a_row_or_range(
    monkeypatch: pytest.MonkeyPatch, hint: list[int], given: int
) -> None:
    hints = []

    def watched(*args: Any, **options: Any) -> Any:  # noqa: ANN401  # as it is called
        hints.append(len(options["start"].solution_hints))
        return mathopt.call_solver(*args, **options)

    monkeypatch.setattr(highs, "call_solver", watched)
    program = Program()
    both = [program.boolean(), program.boolean()]
    program.at_most(Linear().add_all(both), 1)
    goal = Goal(Linear().add_all(both), maximize=True)
    answer = branch(program, goal, plenty(), nodes=100, seconds=60, hint=hint)
    assert (answer.bound, hints) == (1, [given])


def test_a_stop_kills_the_process_of_a_large_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathopt, "LARGEST_IN_THREAD", 0)
    started: list[subprocess.Popen[bytes]] = []

    class Watched(mathopt_process.SolverProcess):
        _ready: ClassVar[list[mathopt_process.SolverProcess]] = []

        def __init__(self) -> None:
            super().__init__()
            started.append(self._process)

    monkeypatch.setattr(mathopt, "SolverProcess", Watched)
    budget = plenty()
    threading.Timer(1.0, budget.stop.set).start()
    begun = time.monotonic()
    program, goal = packing(2000)
    answer = branch(program, goal, budget, nodes=10**6, seconds=600)
    assert answer.status is Status.UNKNOWN
    assert answer.bound == 2000
    assert time.monotonic() - begun < 10
    assert not budget.clocked
    (first,) = started
    assert first.wait(5) != 0
    assert Watched._ready == []


def test_a_process_answers_one_small_program_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mathopt, "LARGEST_IN_THREAD", 0)
    mathopt_process.SolverProcess.dismiss()
    program, goal = packing(40)
    relaxation = Relaxation(program, plenty())
    first = relaxation.bound(goal, seconds=60)
    (process,) = mathopt_process.SolverProcess._ready
    again = Relaxation(program, plenty()).bound(goal, seconds=60)
    assert (again.bound, again.values) == (first.bound, first.values)
    assert mathopt_process.SolverProcess._ready == [process]
    monkeypatch.setattr(mathopt_process, "REUSED_BYTES", 0)
    Relaxation(program, plenty()).bound(goal, seconds=60)
    (ready,) = mathopt_process.SolverProcess._ready
    assert ready is not process, "after a large one the next has been started"
    assert process._process.returncode == 0
    mathopt_process.SolverProcess.dismiss()
    assert ready._process.returncode not in (None, 0)


class Dying(mathopt_process.SolverProcess):
    """The first process dies of a segmentation fault once its call has come."""

    _ready: ClassVar[list[mathopt_process.SolverProcess]] = []
    doomed = 1

    def __init__(self) -> None:
        super().__init__()
        if Dying.doomed:
            Dying.doomed -= 1
            os.kill(self._process.pid, signal.SIGSTOP)
            threading.Timer(0.2, self._die).start()

    def _die(self) -> None:
        os.kill(self._process.pid, signal.SIGSEGV)
        os.kill(self._process.pid, signal.SIGCONT)


def test_a_solver_that_dies_costs_its_call_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mathopt, "LARGEST_IN_THREAD", 0)
    monkeypatch.setattr(mathopt, "SolverProcess", Dying)
    monkeypatch.setattr(Dying, "doomed", 1)
    program, goal = packing(40)
    relaxation = Relaxation(program, plenty())
    with caplog.at_level(logging.WARNING):
        died = relaxation.bound(goal, seconds=60)
    assert (died.bound, died.values) == (40, None)
    assert [record.getMessage() for record in caplog.records] == [
        "a solver process died of SIGSEGV: no answer"
    ]
    # Each item is in five rows on average, and two of five fit.
    again = relaxation.bound(goal, seconds=60)
    assert again.bound < 40
    assert again.values is not None
    Dying.dismiss()
