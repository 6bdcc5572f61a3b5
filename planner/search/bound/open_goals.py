"""What LPs leave open, answered by branch and bound beside the LPs of later tiers.

A goal is stated as soon as its LP is there, with the ranges that are known by then, and answers are taken
over in order: what comes out does not depend on which of two cores is faster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from models.program.linear_program import Program
from planner.search.budget import Budget
from planner.search.engines.interface import Answer

Question = Callable[[Program, Budget], Answer]
"""Asks an engine about a program, within a budget."""

Accept = Callable[[Answer], bool]
"""Takes over an answer; returns whether the plan stays as it is."""


class OpenGoals:
    """Goals of one program, asked in threads, of which there is one less than ``workers``."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._others = budget.limits.workers - 1
        self._pool = ThreadPoolExecutor(max(1, self._others), thread_name_prefix="open goal")
        self._asked: list[tuple[Callable[[], Answer], Future[Answer], Accept, Budget, float]] = []

    def close(self) -> None:
        """Wait for the threads; what they have not begun is not answered."""
        self._pool.shutdown(cancel_futures=True)

    def add(self, program: Program, question: Question, accept: Accept) -> None:
        """Ask about the program as it is now."""
        now = copy.copy(program)
        now.lower, now.upper = list(program.lower), list(program.upper)
        spent = replace(self._budget, calls=0)
        ask = partial(question, now, spent)
        own = self._pool.submit(ask) if self._others else Future[Answer]()
        self._asked.append((ask, own, accept, spent, spent.effort))

    def conclude(self) -> bool:
        """Take over the answers in their order until the plan changes; returns whether it stayed as it was.

        What no thread has begun yet is asked here, as long as the budget lasts.
        """
        budget = self._budget
        here = [
            ask() if own.cancel() and not budget.exhausted() else None
            for ask, own, *_ in self._asked
        ]
        for (_, own, accept, spent, before), answered in zip(self._asked, here, strict=True):
            if answered is None and own.cancelled():
                break
            found = answered or own.result()
            budget.spend(spent.effort - before, spent.calls)
            budget.clocked |= spent.clocked
            if not accept(found):
                return False
        return True
