"""What each phase of a plan costs: CPU seconds and calls of Python functions.

Promises: phases follow one another on one instance, each on what the one before has found; nothing is saved.
``python -m benchmarks.phases [CASE ...]`` prints a table for each case. Calls do not depend on the machine.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks.busy import busy
from benchmarks.shared import shared
from models.documents.canonical import canonical_instance
from models.instance.instance import Instance
from models.instance.solution import GangDecision, Solution
from models.program.aggregated.bounds import PLACEMENTS
from models.program.aggregated.model import AggregatedModel
from models.program.base_state import base_decisions
from models.program.interruption import TooLarge
from models.program.linear_program import Linear
from models.results.plan import compose, dumps
from models.verify.check import check
from planner.cli.app import COLLECTS
from planner.read.inputs import instance_from_document
from planner.search.budget import Budget
from planner.search.engines.interface import Goal
from planner.search.engines.mathopt_process import SolverProcess
from planner.search.engines.portfolio import solve_goal
from planner.search.engines.relaxation import Relaxation, RelaxedAnswer
from planner.search.explain.reasons import with_reasons
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy

SHAPES = {"pooled": (), "shaped": ("preference", "bandwidth"), "whole": PLACEMENTS}
"""The aggregated programs, by what they are called here."""

SOLVING_S = 100
"""Limit of the solve of one tier, of which each engine has its share."""

CASES: dict[str, Callable[[], Instance]] = {
    f"{kind}-{nodes}": partial(build, nodes, waiting)
    for nodes, waiting in ((1024, 500), (12500, 2000))
    for kind, build in (
        ("off", lambda nodes, waiting: busy(nodes, waiting, 1)),
        ("on", lambda nodes, waiting: shared(busy(nodes, waiting, 1))),
    )
}
"""With everything of a shared cluster switched off and on."""


@dataclass(frozen=True)
class Cost:
    """``seconds``: of CPU, of this process and those it has waited for; ``calls``: of Python functions."""

    phase: str
    seconds: float
    calls: int


class Phases:
    """The phases of a plan of one instance, in order. ``solving``: with those that call a solver."""

    def __init__(self, instance: Instance, folder: Path, *, solving: bool = True) -> None:
        self._input = folder / "in.json"
        self._input.write_text(json.dumps(canonical_instance(instance)), encoding="utf-8")
        self._solving = solving
        self.instance = instance
        self.decisions: tuple[GangDecision, ...] = ()
        self.models: dict[str, AggregatedModel] = {}
        self._relaxed: RelaxedAnswer | None = None
        self._values: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield "reading", self._read
        yield "first plan", self._start
        yield "bounds without a solver", self._bounds
        yield "checking", self._check
        for name in SHAPES:
            yield f"building, {name}", partial(self._build, name)
            if name in self.models:
                yield f"expressions, {name}", partial(self._express, name)
        if self._solving and "pooled" in self.models:
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

    def _build(self, name: str) -> None:
        with suppress(TooLarge):  # then the search goes without it
            self.models[name] = AggregatedModel(self.instance, shaped=SHAPES[name])

    def _express(self, name: str) -> None:
        for tier in self._ledger.tiers:
            self.models[name].expression(tier)

    def _goal(self) -> Goal:
        """The first tier that has anything to decide."""
        model = self.models["pooled"]
        found = ((tier, model.expression(tier)) for tier in self._ledger.tiers)
        tier, objective = next((t, e) for t, e in found if e.terms)
        return Goal(Linear(dict(objective.terms), objective.constant), tier.sense == "max")

    def _relax(self) -> None:
        model, budget = self.models["pooled"], Budget(self.instance.policy.solve)
        self._relaxed = Relaxation(model.program, budget).bound(self._goal(), seconds=600)

    def _solve(self) -> None:
        assert self._relaxed is not None
        model, goal = self.models["pooled"], self._goal()
        budget = Budget(replace(self.instance.policy.solve, budget=1000, time_limit_s=SOLVING_S))
        worst = -(1 << 60) if goal.maximize else 1 << 60
        self._values = solve_goal(
            model.program,
            goal,
            budget,
            1.0,
            incumbent=worst,
            relaxed_to=self._relaxed,
            second=False,
        ).values

    def _decode(self) -> None:
        if self._values:
            self.models["pooled"].decode(self._values)

    def _explain(self) -> None:
        budget = Budget(replace(self.instance.policy.solve, time_limit_s=600))
        self.decisions = with_reasons(self.instance, self.decisions, budget)

    def _write(self) -> None:
        dumps(self._document())


def costs(instance: Instance, *, solving: bool = True) -> list[Cost]:
    """Every phase, measured twice: profiled calls cost time."""
    with tempfile.TemporaryDirectory() as folder:
        timed = []
        for phase, run in Phases(instance, Path(folder), solving=solving):
            before = os.times()
            run()
            SolverProcess.dismiss()  # what a process used counts once it has ended
            timed.append((phase, sum(os.times()[:4]) - sum(before[:4])))
        counted = []
        for _, run in Phases(instance, Path(folder), solving=solving):
            with counting() as calls:
                run()
            counted.append(calls[0])
    return [Cost(*one, calls) for one, calls in zip(timed, counted, strict=True)]


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


def main() -> None:
    """Print a table for each case named, or for all."""
    gc.set_threshold(*COLLECTS)
    for case in sys.argv[1:] or CASES:
        print(f"\n| `{case}` | CPU s | calls |\n|---|---|---|")
        for cost in costs(CASES[case]()):
            print(f"| {cost.phase} | {cost.seconds:.2f} | {cost.calls:,} |")


if __name__ == "__main__":
    main()
