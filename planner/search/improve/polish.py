"""Single steps that better a plan, until none is found: the last word of a search without a proof.

A changed gang goes back to where it runs; a waiting gang starts beside the others; a gang that starts goes
elsewhere. A step is kept if the whole plan is better. ``gangplan verify`` tries steps too, with code of its
own.
"""

from __future__ import annotations

from models.instance.solution import STARTS
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.improve.growth import grow
from planner.search.improve.rearranging import perfect, starting_demand, ways
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy

STEP_EFFORT = 1e-7
"""Effort of one step, for each node and gang."""


def polish(ledger: Ledger, budget: Budget) -> None:
    """Better the incumbent, step by step, until nothing more is found or the budget ends."""
    while True:
        before = ledger.incumbent
        for steps in (_undone, _filled, _elsewhere):
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
    """What fits beside the plan starts, and elastic gangs grow."""
    instance, decisions = ledger.instance, ledger.incumbent.decisions
    started = greedy(instance, decisions, ended=budget.exhausted)
    ledger.offer(started)
    ledger.offer(grow(instance, ledger.incumbent.decisions, budget=budget))


def _elsewhere(ledger: Ledger, budget: Budget) -> None:
    """Gangs that start slowly, spread or away from what they prefer."""
    instance, lines = ledger.instance, ledger.evaluate(ledger.incumbent.decisions).lines
    space = FreeSpace(instance, ledger.incumbent.decisions)
    for index, line in enumerate(lines):
        if line.value is None or line.decision.decision not in STARTS or perfect(line):
            continue
        budget.spend(STEP_EFFORT * (len(space.by_node) + len(space.pods)))
        if budget.exhausted():
            return
        plan, held, mark = ledger.incumbent.decisions, space.original[index], space.mark()
        demand = starting_demand(space, plan, index)
        space.set(index, held)
        for pods in list(ways(space, demand)):
            space.set(index, (*held, *pods))
            if ledger.offer((*plan[:index], space.decision(index), *plan[index + 1 :])):
                space = FreeSpace(instance, ledger.incumbent.decisions)
                break
        else:
            space.undo(mark)
