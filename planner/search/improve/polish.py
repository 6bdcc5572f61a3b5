"""Single steps that better a plan, until none is found: the last word of a search without a proof.

A changed gang goes back to where it runs; a waiting gang starts beside the others, or in the room of one
that starts or may be stopped; a gang that starts goes elsewhere. A step is kept if the whole plan is
better. ``gangplan verify`` tries such steps too, with code of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from models.instance.disruption_budgets import may_stop
from models.instance.solution import STARTS
from models.instance.speed import FULL_SPEED
from models.program.demand_builder import identity, remaining_demand
from models.queues.queue_shares import shares
from models.rules.demands import Demand
from models.rules.giving_way import claim, takes
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace, counts_of
from planner.search.improve.growth import grow
from planner.search.improve.rearranging import ways
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy, missing_demand

STEP_EFFORT = 1e-7
"""Effort of one step, for each node and gang."""


def polish(ledger: Ledger, budget: Budget) -> None:
    """Better the incumbent, step by step, until nothing more is found or the budget ends."""
    while True:
        before = ledger.incumbent
        for steps in (_undone, _filled, _elsewhere, _exchanged):
            steps(ledger, budget)
            if budget.exhausted():
                return
        if ledger.incumbent is before:
            return


class _Steps:
    """The free space of the incumbent, and steps from there."""

    def __init__(self, ledger: Ledger, budget: Budget) -> None:
        self.instance = ledger.instance
        self.ledger = ledger
        self.space = FreeSpace(ledger.instance, ledger.incumbent.decisions)
        self._budget = budget
        self._effort = STEP_EFFORT * (len(self.space.by_node) + len(self.space.pods))

    def ended(self) -> bool:
        """Whether the budget is used up; asked once for each step."""
        self._budget.spend(self._effort)
        return self._budget.exhausted()

    def offer(self, gangs: Iterable[int]) -> bool:
        """Whether the plan is better with these gangs as they are in the space; then it is adopted."""
        plan = list(self.ledger.incumbent.decisions)
        for gang in gangs:
            plan[gang] = self.space.decision(gang)
        if not self.ledger.offer(plan):
            return False
        if self.ledger.incumbent.decisions != tuple(plan):  # the ledger has repaired it
            self.space = FreeSpace(self.instance, self.ledger.incumbent.decisions)
        return True

    def placed(self, demand: Demand) -> Iterator[None]:
        """Each of some placements in turn, beside the pods that the gang has; undone before the next."""
        held, mark = self.space.pods[demand.gang], self.space.mark()
        for pods in list(ways(self.space, demand)):
            self.space.set(demand.gang, (*held, *pods))
            yield
            self.space.undo(mark)


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
    steps, lines = _Steps(ledger, budget), ledger.evaluate(ledger.incumbent.decisions).lines
    for index, line in enumerate(lines):
        value = line.value
        if value is None or line.decision.decision not in STARTS or steps.ended():
            continue
        fast = line.speed == FULL_SPEED and value.share in (None, FULL_SPEED)
        if fast and max(value.domains) == 1:
            continue
        space, mark = steps.space, steps.space.mark()
        counts = counts_of(line.gang, space.pods[index])
        space.set(index, space.original[index])
        demand = remaining_demand(steps.instance, index, counts, space.pods[index])
        if not any(steps.offer([index]) for _ in steps.placed(demand)):
            space.undo(mark)


def _exchanged(ledger: Ledger, budget: Budget) -> None:
    """Waiting gangs, one of each kind, in the room of others that come after them or give way.

    Where queues are guaranteed something, a gang may come after one of lower priority.
    """
    steps = _Steps(ledger, budget)
    gangs, others = steps.instance.gangs, _giving_way(ledger)
    by_priority = shares(steps.instance) is None
    for demand in _waiting(steps):
        priority = gangs[demand.gang].priority
        for other, starts in others:
            if steps.ended():
                return
            allowed = not by_priority or gangs[other].priority <= priority
            if not starts:
                allowed = takes(steps.instance, claim(steps.instance, demand.gang), other)
            if allowed and _in_the_room_of(steps, demand, other, again=starts):
                others = _giving_way(ledger)
                break


def _giving_way(ledger: Ledger) -> list[tuple[int, bool]]:
    """Gangs that may leave their room, and whether because they only start; the others may be stopped."""
    pairs = enumerate(zip(ledger.instance.gangs, ledger.incumbent.decisions, strict=True))
    return [
        (index, decision.decision == "place")
        for index, (gang, decision) in pairs
        if decision.decision == "place"
        or (decision.pods and gang.running and may_stop(ledger.instance, index))
    ]


def _in_the_room_of(steps: _Steps, demand: Demand, other: int, *, again: bool) -> bool:
    """Whether the plan is better if a gang takes the room of another. ``again``: which may go elsewhere."""
    space, mark = steps.space, steps.space.mark()
    before = space.pods[other]
    freed = sum(space.instance.gangs[other].roles[pod.role].gpus for pod in before)
    if demand.gpus > space.arrays.idle_gpus + freed:
        return False
    space.set(other, ())
    for _ in steps.placed(demand):
        if steps.offer([demand.gang, other]):
            return True
        if not again:
            continue
        counts = counts_of(space.instance.gangs[other], before)
        back = remaining_demand(space.instance, other, counts, ())
        for _ in steps.placed(back):
            if steps.offer([demand.gang, other]):
                return True
            break
    space.undo(mark)
    return False


def _waiting(steps: _Steps) -> list[Demand]:
    """The oldest waiting gang of each kind, the highest priority and the largest first."""
    gangs = steps.instance.gangs
    found: dict[object, Demand] = {}
    for index in sorted(range(len(gangs)), key=lambda i: (-steps.instance.age(gangs[i]), i)):
        gang = gangs[index]
        if gang.hold is not None or gang.running or steps.space.pods[index]:
            continue
        demand = missing_demand(steps.space, index)
        if demand.possible:
            found.setdefault((gang.priority, identity(steps.instance, demand)), demand)
    return sorted(found.values(), key=lambda d: (-gangs[d.gang].priority, -d.gpus, d.gang))
