"""The interface of all engines: a goal over a program in, an answer out. Bounds are integers."""

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
"""Seconds an engine may take to stop before its thread is abandoned."""

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


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective, and the rows that earlier tiers require: (expression, at least, at most)."""

    objective: Linear
    maximize: bool
    keep: tuple[tuple[Linear, int, int], ...] = ()


def run_interruptible(
    budget: Budget, call: Callable[[], T], on_stop: Callable[[], None] | None = None
) -> T | None:
    """Run a native call in its own thread, so that Python handles signals meanwhile.

    On a stop request ``on_stop`` asks the engine to end. Without it, or after the grace period, the
    call is abandoned and the result is None.
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


class _StdoutSilencer:
    """Redirects file descriptor 1 to /dev/null while any native call runs."""

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


_SILENCER = _StdoutSilencer()


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Keep output of native engines off stdout, which carries only the user's data."""
    _SILENCER.enter()
    try:
        yield
    finally:
        _SILENCER.leave()
