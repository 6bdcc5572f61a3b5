"""The phases of a plan, one after another, and how many Python functions they call.

Promises: each phase goes on with what the one before has found; nothing is saved. Calls do not depend on the
machine. ``tests/search/test_call_counts.py`` counts them at two sizes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from models.documents.canonical import canonical_instance
from models.instance.instance import Instance
from models.instance.solution import GangDecision, Solution
from models.program.base_state import base_decisions
from models.program.linear_program import Linear
from models.program.slots.slot_program import SlotModel
from models.results.plan import compose, dumps
from models.verify.check import check
from planner.read.inputs import instance_from_document
from planner.search.bound.slot_chain import SlotProblem
from planner.search.budget import Budget
from planner.search.engines.interface import Goal
from planner.search.engines.portfolio import solve_goal
from planner.search.engines.relaxation import Relaxation
from planner.search.explain.reasons import with_reasons
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy

SOLVING_S = 100
"""Limit of the solve of one tier, of which each engine has its share."""


class Phases:
    """The phases of a plan of one instance, in order. ``solving``: with those that call a solver."""

    def __init__(self, instance: Instance, folder: Path, *, solving: bool = True) -> None:
        self._input = folder / "in.json"
        self._input.write_text(json.dumps(canonical_instance(instance)), encoding="utf-8")
        self._solving = solving
        self.instance = instance
        self.decisions: tuple[GangDecision, ...] = ()
        self._relaxed: int | None = None
        self._values: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield "reading", self._read
        yield "first plan", self._start
        yield "bounds without a solver", self._bounds
        yield "checking", self._check
        yield "building", self._build
        yield "telling apart", self._tell_apart
        yield "expressions", self._express
        if self._solving:
            yield "LP", self._relax
            yield "solving", self._solve
            yield "decoding", self._decode
        yield "reasons", self._explain
        yield "output", self._write

    def _read(self) -> None:
        form = json.loads(self._input.read_text(encoding="utf-8"))
        self.instance = instance_from_document(form)

    def _start(self) -> None:
        self.decisions = greedy(self.instance, base_decisions(self.instance))
        self._ledger = Ledger(self.instance, self.decisions)

    def _bounds(self) -> None:
        self._ledger.results()

    def _solution(self) -> Solution:
        return Solution(self.decisions, self._ledger.results(), "budget", "none")

    def _check(self) -> None:
        check(self._document())

    def _document(self) -> dict[str, object]:
        stated = {"name": "phases", "created_at": "2026-01-01T00:00:00Z", "generator": "benchmarks"}
        return compose(self.instance, self._solution(), **stated)

    def _build(self) -> None:
        self._budget = Budget(
            replace(self.instance.policy.solve, budget=1000, time_limit_s=SOLVING_S)
        )
        self._problem = SlotProblem(SlotModel(self.instance), self._budget)

    def _tell_apart(self) -> None:
        self._problem.tell_apart("span")
        self._problem.tell_apart("stranded")

    def _express(self) -> None:
        for tier in self._ledger.tiers:
            self._problem.expression(tier)

    def _goal(self) -> Goal:
        """The first tier that has anything to decide."""
        found = ((tier, self._problem.expression(tier)) for tier in self._ledger.tiers)
        tier, objective = next((t, e) for t, e in found if e is not None and e.terms)
        return Goal(Linear(dict(objective.terms), objective.constant), tier.sense == "max")

    def _relax(self) -> None:
        relaxation = Relaxation(self._problem.program, Budget(self.instance.policy.solve))
        self._relaxed = relaxation.bound(self._goal(), seconds=600).bound

    def _solve(self) -> None:
        assert self._relaxed is not None
        goal = self._goal()
        worst = -(1 << 60) if goal.maximize else 1 << 60
        self._values = solve_goal(
            self._problem.program,
            self._budget,
            goal=goal,
            effort=1.0,
            incumbent=worst,
            relaxed=self._relaxed,
            exact=False,
        ).values

    def _decode(self) -> None:
        if self._values:
            self._problem.decode(self._values)

    def _explain(self) -> None:
        budget = Budget(replace(self.instance.policy.solve, time_limit_s=600))
        self.decisions = with_reasons(self.instance, self.decisions, budget)

    def _write(self) -> None:
        dumps(self._document())


@contextmanager
def counting() -> Iterator[list[int]]:
    """Counts the calls of Python functions and generators in this thread."""
    calls = [0]

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls[0] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
