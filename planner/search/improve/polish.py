"""Single steps that better a plan, until none is found: the last word of a search without a proof.

A changed gang goes back to where it runs; a waiting gang starts beside the others; a gang that starts goes
elsewhere. A step is kept if the whole plan is better. ``gangplan verify`` tries steps too, with code of its
own.
"""

from __future__ import annotations

from planner.search.budget import Budget
from planner.search.improve.growth import grow
from planner.search.improve.rearranging import settle
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy


def polish(ledger: Ledger, budget: Budget) -> None:
    """Better the incumbent, step by step, until nothing more is found or the budget ends."""
    while True:
        before = ledger.incumbent
        for steps in (_undone, _filled):
            steps(ledger, budget)
            if budget.exhausted():
                return
        if ledger.incumbent is before:
            return


def _undone(ledger: Ledger, budget: Budget) -> None:
    """Gangs that run and change stay as they are: all to whose place nobody came, then one at a time."""
    ledger.offer(needless_undone(ledger.instance, ledger.incumbent.decisions))
    for index, gang in enumerate(ledger.instance.gangs):
        decision = ledger.incumbent.decisions[index].decision
        if gang.running and decision in ("preempt", "move", "resize"):
            if budget.exhausted():
                return
            ledger.offer(back_in_place(ledger.instance, ledger.incumbent.decisions, [index]))


def _filled(ledger: Ledger, budget: Budget) -> None:
    """What fits beside the plan starts, elastic gangs grow, and who starts goes to the best place left."""
    instance = ledger.instance
    ledger.offer(greedy(instance, ledger.incumbent.decisions, ended=budget.exhausted))
    ledger.offer(grow(instance, ledger.incumbent.decisions, budget=budget))
    ledger.offer(settle(instance, ledger.incumbent.decisions, budget=budget))
