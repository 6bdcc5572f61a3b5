"""What every engine takes and gives: a goal over a Program in, an answer out.

Promises: no solver types; bounds are integers, rounded to the safe side by the engine that states them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from models.program.linear_program import Linear
from planner.search.budget import Budget

GRACE_S = 5.0
"""Seconds an engine that was told to stop may take before it is left behind."""

T = TypeVar("T")


class Status(Enum):
    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """``values``: one integer a variable, empty without a solution. ``bound``: of the objective.

    ``exact``: the status and bound rest on integer arithmetic, not on a floating-point engine's word.
    """

    status: Status
    values: tuple[int, ...]
    bound: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Goal:
    """What to optimise, and what earlier tiers require: (expression, at least, at most)."""

    objective: Linear
    maximize: bool
    keep: tuple[tuple[Linear, int, int], ...] = ()


def run_interruptible(
    budget: Budget, call: Callable[[], T], on_stop: Callable[[], None] | None = None
) -> T | None:
    """Run a native call in a thread of its own, so that signals are heard meanwhile.

    Told to stop, ``on_stop`` asks the engine to end; without it, or past the grace, the call is left
    behind and None comes back.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            failures.append(error)

    worker = threading.Thread(target=work, daemon=True)
    with quiet_stdout():
        worker.start()
        while worker.is_alive():
            worker.join(0.02)
            if budget.stop.is_set() and worker.is_alive():
                if on_stop is not None:
                    on_stop()
                    worker.join(GRACE_S)
                break
    if failures:
        raise failures[0]
    return results[0] if results else None


class _Hush:
    """File descriptor 1 points nowhere while any native call is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._kept = -1

    def enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                if sys.stdout is not None:  # closed by the caller: `>&-`
                    sys.stdout.flush()
                self._kept = os.dup(1)
                with Path(os.devnull).open("wb") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
            self._depth += 1

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                os.dup2(self._kept, 1)
                os.close(self._kept)


_HUSH = _Hush()


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Native engines print stray lines on file descriptor 1, where only a user's data belongs."""
    _HUSH.enter()
    try:
        yield
    finally:
        _HUSH.leave()
