"""The interface of all engines: a goal over a program in, an answer out. Bounds are integers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from models.program.linear_program import UNBOUNDED, Linear, Program, Row, Rows, integers, rows_of
from planner.search.budget import Budget

GRACE_S = 0.8
"""Seconds an engine may take to stop before its thread is abandoned."""

OVERRUN_S = 0.8
"""Seconds by which an engine may overrun its own limit before it is stopped."""

WATCH_S = 0.05
"""Seconds between two looks at the stop signal and the clock; the end of a call is noticed at once."""

T = TypeVar("T")


class Status(Enum):
    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """``values``: one integer per variable, empty without a solution. ``bound``: of the objective.

    ``exact``: status and bound rest on integer arithmetic.
    """

    status: Status
    values: tuple[int, ...]
    bound: int
    exact: bool


Kept = tuple[Linear, int, int]
"""Expression, at least, at most."""


def kept(expression: Linear, value: int, *, maximize: bool) -> Kept:
    """The row that keeps an objective as good as this."""
    limits = (value, UNBOUNDED) if maximize else (-UNBOUNDED, value)
    return expression, *limits


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective, and the rows that earlier tiers require."""

    objective: Linear
    maximize: bool
    keep: tuple[Kept, ...] = ()

    def better_than(self, value: int) -> Goal:
        """The goal with a row that requires a better objective value."""
        least = value + 1 if self.maximize else value - 1
        row = kept(self.objective, least, maximize=self.maximize)
        return replace(self, keep=(*self.keep, row))

    def trivial_bound(self, program: Program) -> int:
        """The bound of the objective that the ranges of the variables imply."""
        limit = program.bound_above if self.maximize else program.bound_below
        return limit(self.objective)

    def kept_rows(self) -> list[Row]:
        """The rows of the goal, with constants moved to the bounds."""
        rows = []
        for expression, low, high in self.keep:
            terms = [(v, c) for v, c in expression.terms.items() if c]
            rows.append(
                Row(
                    [v for v, _ in terms],
                    [c for _, c in terms],
                    low if low <= -UNBOUNDED else low - expression.constant,
                    high if high >= UNBOUNDED else high - expression.constant,
                )
            )
        return rows

    def rows(self, program: Program) -> Rows:
        """The rows of the program, then those of the goal."""
        rows = program.row_arrays()
        return rows.followed_by(rows_of(self.kept_rows())) if self.keep else rows

    def satisfied(self, program: Program, values: Sequence[int]) -> bool:
        """Whether an assignment satisfies every bound and row exactly."""
        assigned = integers(values)
        lower, upper = integers(program.lower), integers(program.upper)
        within = bool(((lower <= assigned) & (assigned <= upper)).all())
        return within and self.rows(program).hold(assigned)


def interruptible(
    budget: Budget,
    call: Callable[[], T],
    on_stop: Callable[[], None] | None = None,
    *,
    seconds: float = math.inf,
) -> T | None:
    """The result of a native call in its own thread, so that Python handles signals meanwhile.

    On a stop request, and when the engine overran its limit of ``seconds``, ``on_stop`` asks it to
    end. Without it, or after the grace period, the call is abandoned and the result is None.
    """
    budget.calls += 1
    results: list[T] = []
    failures: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            failures.append(error)
        finally:
            ended.set()

    deadline = time.monotonic() + seconds + OVERRUN_S
    threading.Thread(target=work, daemon=True).start()
    while not ended.wait(WATCH_S):
        if budget.stop.is_set() or time.monotonic() > deadline:
            if on_stop is not None:
                on_stop()
                ended.wait(GRACE_S)
            break
    if failures:
        raise failures[0]
    return results[0] if results else None
