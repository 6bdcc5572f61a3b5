"""Engine calls end at their limits: the clock, the stop signal, and the solver's own process."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from models.documents.policy import SolveLimits
from models.program.linear_program import Linear, Program
from planner.search.budget import Budget
from planner.search.engines import highs
from planner.search.engines.highs import HighsProcess, branch, call
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


def test_highs_finds_and_proves_the_best_of_a_ring() -> None:
    program = Program()
    ring = [program.boolean() for _ in range(21)]
    for item, following in zip(ring, [*ring[1:], ring[0]], strict=True):
        program.at_most(Linear().add(item).add(following), 1)
    goal = Goal(Linear().add_all(ring), maximize=True)
    answer = branch(program, goal, plenty(), nodes=100, seconds=60, hint=[0] * len(ring))
    # No two neighbours of 21 in a ring: 10.
    assert (answer.status, answer.bound, sum(answer.values)) == (Status.OPTIMAL, 10, 10)


def test_a_hint_is_not_proven_best_where_presolve_finds_something_better() -> None:
    program = Program()
    first, second = [program.boolean() for _ in range(4)], [program.integer(0, 2) for _ in range(3)]
    free = program.integer(0, 901)
    program.equal(Linear().add_all(first), 2)
    program.equal(Linear().add_all(first, 2).add_all(second), 6)
    for item, other in zip(first, second, strict=False):
        program.at_most(Linear().add(item, 2).add(other), 2)
    goal = Goal(Linear().add(free, 300), maximize=True)
    hint = [0, 1, 1, 0, 2, 0, 0, 0]
    answer = branch(program, goal, plenty(), nodes=100, seconds=60, hint=hint)
    assert (answer.status, answer.bound, answer.values[free]) == (Status.OPTIMAL, 270_300, 901)


@pytest.mark.parametrize(("hint", "given"), [([0, 0], 2), ([1, 1], 0), ([0, 2], 0)])
def test_highs_gets_no_hint_that_breaks_a_row_or_range(
    monkeypatch: pytest.MonkeyPatch, hint: list[int], given: int
) -> None:
    hints = []

    def watched(*args: Any, **options: Any) -> Any:  # noqa: ANN401  # as it is called
        hints.append(len(options["hint"]))
        return call(*args, **options)

    monkeypatch.setattr(highs, "call", watched)
    program = Program()
    both = [program.boolean(), program.boolean()]
    program.at_most(Linear().add_all(both), 1)
    goal = Goal(Linear().add_all(both), maximize=True)
    answer = branch(program, goal, plenty(), nodes=100, seconds=60, hint=hint)
    assert (answer.bound, hints) == (1, [given])


def random_goals(program: Program, draw: random.Random) -> Iterator[Goal]:
    """Goals one after the other, as of tiers: some keep those before, ranges change and the program grows."""
    kept: list[tuple[Linear, int, int]] = []
    for step in range(12):
        count = len(program.lower)
        terms = {
            v: draw.choice((-(10**9), -3, 1, 2, 10**6)) for v in range(count) if draw.random() < 0.6
        }
        goal = Goal(Linear(terms, draw.randrange(5)), bool(step % 2), tuple(kept))
        yield goal
        if step % 3 == 2:
            program.upper[draw.randrange(count)] = 1
        if step % 4 == 3:
            items = [program.integer(0, 3) for _ in range(3)]
            program.at_most(Linear().add_all([*items, draw.randrange(count)]), 4)
            kept = kept[: draw.randrange(len(kept) + 1)]
        if draw.random() < 0.5:
            expression = Linear({v: draw.randrange(1, 4) for v in range(0, count, 2)})
            kept.append((expression, 0, program.bound_above(expression) * 3 // 4))


@pytest.mark.parametrize("seed", range(6))
def test_an_lp_from_the_last_basis_has_the_bound_of_one_from_nothing(seed: int) -> None:
    draw = random.Random(seed)
    program = Program()
    items = [program.integer(0, 4) for _ in range(30)]
    for _ in range(25):
        program.at_most(Linear().add_all(draw.sample(items, 5)), 7)
    warm = Relaxation(program, plenty())
    for goal in random_goals(program, draw):
        found = warm.bound(goal, seconds=60)
        copy = Program()
        copy.lower, copy.upper = list(program.lower), list(program.upper)
        copy.rows = list(program.rows)
        assert Relaxation(copy, plenty()).bound(goal, seconds=60).bound == found.bound
        assert found.values is not None
        best = goal.objective.constant + sum(
            c * found.values[v] for v, c in goal.objective.terms.items()
        )
        # The bound is proven in integers from rounded duals: within rounding of the optimum.
        assert (1 if goal.maximize else -1) * (found.bound - best) > -1e-3 * max(1, abs(best))
        assert abs(found.bound - best) <= max(1, 1e-6 * abs(best))


def test_a_stop_kills_the_process_of_a_call() -> None:
    HighsProcess.dismiss()
    budget = plenty()
    threading.Timer(1.0, budget.stop.set).start()
    begun = time.monotonic()
    program, goal = packing(2000)
    answer = branch(program, goal, budget, nodes=10**6, seconds=600)
    assert answer.status is Status.UNKNOWN
    assert answer.bound == 2000
    assert time.monotonic() - begun < 30
    assert not budget.clocked


def test_a_call_that_the_clock_ends_is_recorded() -> None:
    budget = plenty()
    program, goal = packing(2000)
    answer = branch(program, goal, budget, nodes=10**6, seconds=1)
    assert answer.status is not Status.OPTIMAL
    assert budget.clocked


def test_a_solver_that_dies_costs_its_call_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    HighsProcess.dismiss()
    begin = HighsProcess.__init__

    def doomed(self: HighsProcess) -> None:
        begin(self)
        os.kill(self._process.pid, signal.SIGSTOP)
        threading.Timer(0.2, die, [self._process.pid]).start()

    def die(pid: int) -> None:
        os.kill(pid, signal.SIGSEGV)
        os.kill(pid, signal.SIGCONT)

    program, goal = packing(40)
    relaxation = Relaxation(program, plenty())
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(HighsProcess, "__init__", doomed)
        died = relaxation.bound(goal, seconds=60)
    assert (died.bound, died.values) == (40, None)
    assert [record.getMessage() for record in caplog.records] == [
        "a solver process died of SIGSEGV: no answer"
    ]
    # Each item is in five rows on average, and two of five fit.
    again = relaxation.bound(goal, seconds=60)
    assert again.bound < 40
    assert again.values is not None
