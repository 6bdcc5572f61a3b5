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

Answered = tuple[Answer, Budget]
"""An answer, and the budget that says what it took."""


class OpenGoals:
    """Goals of one program, asked in threads, of which there is one less than ``workers``."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._others = budget.limits.workers - 1
        self._pool = ThreadPoolExecutor(max(1, self._others), thread_name_prefix="open goal")
        self._asked: list[tuple[Callable[[], Answered], Future[Answered]]] = []
        self._accept: list[tuple[Callable[[Answer], bool], float]] = []

    def close(self) -> None:
        """Wait for the threads; what they have not begun is not answered."""
        self._pool.shutdown(cancel_futures=True)

    def add(self, program: Program, question: Question, accept: Callable[[Answer], bool]) -> None:
        """Ask about the program as it is now. ``accept``: whether the plan stays as it is then."""
        now = copy.copy(program)
        now.lower, now.upper = list(program.lower), list(program.upper)
        ask = partial(_ask, now, question, replace(self._budget, calls=0))
        self._asked.append((ask, self._pool.submit(ask) if self._others else Future()))
        self._accept.append((accept, self._budget.effort))

    def conclude(self) -> bool:
        """Take over the answers in their order until the plan changes; returns whether it stayed as it was.

        What no thread has begun yet is asked here.
        """
        answers = [
            partial(_same, ask()) if own.cancel() else own.result for ask, own in self._asked
        ]
        for answer, (accept, before) in zip(answers, self._accept, strict=True):
            found, spent = answer()
            self._budget.spend(spent.effort - before, spent.calls)
            self._budget.clocked |= spent.clocked
            if not accept(found):
                return False
        return True


def _ask(program: Program, question: Question, budget: Budget) -> Answered:
    return question(program, budget), budget


def _same(answered: Answered) -> Answered:
    return answered
