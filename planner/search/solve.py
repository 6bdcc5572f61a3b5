"""``solve``: an Instance in, a Solution out, within the budget.

After the start there is always a valid plan; ``stop`` ends the search early with the best one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from importlib.metadata import version

from models.instance.instance import Instance
from models.instance.solution import ByPriority, GangDecision, Solution
from models.instance.speed import FULL_SPEED
from models.program.base_state import base_decisions
from models.program.formulation import formulate, pairs
from models.program.linear_program import Interrupted, TooLarge
from models.program.tier_expressions import FREE_SPACE
from models.results.notes import notes_of, passed, unsearched
from models.tiers import MAINS
from models.values.effective_gpus import effective_after, effective_by_priority
from models.values.tier_values import Evaluation
from planner.search.bound.slot_bounds import SlotSearch
from planner.search.bound.tier_search import TierSearch
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.engines.highs import HighsProcess
from planner.search.explain.reasons import with_reasons
from planner.search.explain.world import TURNS_A_SEARCH, Replan, affordable
from planner.search.free_space import Decisions
from planner.search.improve.growth import grow
from planner.search.improve.moves import keep_worthwhile, with_moves_as_one
from planner.search.improve.rearranging import beside, polish, settle, start_alone
from planner.search.improve.repair import back_in_place
from planner.search.ledger import Incumbent, Ledger
from planner.search.promises.forecast import with_expected_starts
from planner.search.promises.holding_nodes import (
    hold_nodes,
    in_due_time,
    plan_in_turn,
    with_proofs_of,
)
from planner.search.promises.reservations import with_reservations
from planner.search.start.greedy import greedy, late
from planner.search.start.warm_start import resume

WHOLE_BELOW = 4000
"""With fewer (option, server) pairs the full program is built and solved, too."""

AIM_SHARE = 0.25
"""Share of the budget for a plan that is good in all tiers, if the full program follows."""

WHOLE_SHARE = 0.5
"""Share of the budget that is kept for the full program while slots are counted."""

POLISHING_SHARE = 0.07
"""Share of the budget that is kept for bounds of the last plan, and single steps, at the end."""

EXPLAIN_S = 2.0
"""Most seconds for the reasons of a plan that is asked for while the search goes on."""

MAX_REPLANS = 40
"""New plans that the reasons of a plan are tried with at most."""

EASY_EFFORT = 0.1
"""Effort of a search after which new plans are made for its reasons."""

REPLAN_EFFORT = 0.3
"""Effort after which no more of them is begun."""

REPLAN_S = 2
"""Seconds that one of them may take."""

MORE_SEARCHES = 2
"""Searches for plans in which fewer gangs move, once gangs move."""


class Search:
    """A search for the best plan. ``run`` it in any thread; ``best`` is what it has at any moment.

    ``started``: whether there is a first plan for others. They share the interpreter with the search, so
    they get it once the slots are built, and engines work. ``phase``: what it does now, a key of
    ``planner.show.progress.PHASES`` or ``solving``. ``size`` replaces the number of (option, server) pairs
    that selects the method (tests only). ``frequent``: one of very many plans: what is left over is not
    searched, and who waits gets no reason.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
        size: int | None = None,
        frequent: bool = False,
    ) -> None:
        self.instance = instance
        self._frequent = frequent
        self._progress = progress or NullProgress()
        self._size = size
        self._budget = Budget(instance.policy.solve, stop or threading.Event())
        self._ledger: Ledger | None = None
        self._searches = 0
        self._counted: tuple[Incumbent, float] | None = None
        self._held: dict[int, frozenset[int]] = {}
        self._one_at_a_time: ByPriority | None = None
        self._settled_last: tuple[object, Decisions] = (None, ())
        self.started = False
        self.phase = "first plan"

    @property
    def effort_left(self) -> float:
        return max(0.0, self._budget.limits.budget - self._budget.effort)

    @property
    def effective_gpus(self) -> float | None:
        """Effective GPUs of the best plan so far; None before the first plan."""
        if self._ledger is None:
            return None
        known = self._ledger.published
        if self._counted is None or self._counted[0] is not known.incumbent:
            permille = effective_after(known.evaluate(known.incumbent.decisions))
            self._counted = known.incumbent, permille / (FULL_SPEED * self.instance.gpu_unit)
        return self._counted[1]

    def _enter(self, phase: str) -> None:
        """Another phase begins; searches for plans in which fewer gangs move are one phase."""
        self.phase = "moves" if self._searches else phase

    def run(self) -> Solution:
        """The best plan found within the policy's budget, with a bound for every tier."""
        try:
            base = base_decisions(self.instance)
            self.instance, turns = hold_nodes(self.instance, base, self._budget)
            resumed = in_due_time(self.instance, resume(self.instance, base, self._budget))
            filled = partial(greedy, self.instance, ended=late(self._budget))
            start = plan_in_turn(self.instance, turns, base, filled)
            self._one_at_a_time = effective_by_priority(Evaluation(self.instance, start))
            ledger = Ledger(self.instance, start)
            if resumed is not None:
                ledger.offer(resumed)
            self._enter_main(ledger)
            first = self._search(ledger, self._budget, self._progress, frozenset())
            if self._budget.exhausted() and first.stopped_by != "proof":
                self.phase = "stopping"
                return self.best()
            plan = None
            if self.instance.restarts_free:  # then no move has to be worth its price
                still = (self._ledger or ledger).unmoved.decisions
                plan = with_moves_as_one(self.instance, first, still)
            if plan is None:
                plan = keep_worthwhile(self.instance, first, self._search_again)
            if self._frequent:
                return plan
            self.phase = "explaining"
            return self._explained(self.instance, plan, self._budget, self._replan())
        finally:
            if not self._frequent and self._size is None and self._pairs >= WHOLE_BELOW:
                HighsProcess.dismiss()  # that of a large program would keep the memory

    def _enter_main(self, ledger: Ledger) -> None:
        """The search goes on with this ledger, whose plan ``best`` gives."""
        is_open, counted = _open(ledger, self._last(ledger)), self._pairs >= WHOLE_BELOW
        self._ledger, self.started = ledger, not (is_open and counted)
        if is_open and not counted:
            ledger.offer(settle(self.instance, ledger.incumbent.decisions, budget=self._budget))

    @cached_property
    def _pairs(self) -> int:
        return pairs(self.instance, WHOLE_BELOW) if self._size is None else self._size

    def finish_by(self, seconds: float) -> None:
        """End so many seconds after the start."""
        self._budget.seconds = seconds

    def best(self) -> Solution:
        """The best plan so far; before the first one, the plan that changes nothing.

        Its moves are one set, which is compared with the best plan in which nothing moves.
        """
        ledger = self._ledger or Ledger(self.instance, base_decisions(self.instance))
        known = ledger.published
        budget = replace(self._budget)  # the search may still go on, and account for itself
        if budget.stop.is_set() or known.gap() is not None:
            budget.record_limit()
        elapsed = time.monotonic() - budget.started
        budget.seconds = elapsed + min(EXPLAIN_S, budget.seconds_left())
        plan = self._solution(known, budget, frozenset())
        worthwhile = with_moves_as_one(known.instance, plan, known.unmoved.decisions)
        if worthwhile is None:
            known = Ledger(known.instance, known.unmoved.decisions)
            worthwhile = self._solution(known, budget, frozenset())
        return self._explained(known.instance, worthwhile, budget, Replan(turns=0))

    def _search_again(self, immovable: frozenset[int]) -> Solution:
        """The best plan in which these gangs do not move: the best one without their moves, improved.

        Two times with a search that takes half of what is left; after that without.
        """
        assert self._ledger is not None
        budget, instance = self._budget, self.instance
        plan = back_in_place(instance, self._ledger.incumbent.decisions, sorted(immovable))
        start = in_due_time(instance, _filled(instance, plan)) or self._ledger.unmoved.decisions
        self._searches += 1
        self._enter("moves")
        if self._searches > MORE_SEARCHES or budget.exhausted():
            return self._solution(Ledger(instance, start), budget, immovable)
        limits = replace(budget.limits, budget=max(1, int(budget.effort_left() / 2)))
        own = Budget(limits, budget.stop, seconds=budget.seconds_left() / 2)
        found = self._search(Ledger(instance, start), own, NullProgress(), immovable)
        budget.spend(own.effort, own.calls)
        return found

    def _solution(
        self, ledger: Ledger, budget: Budget, immovable: frozenset[int], *, exact: bool = True
    ) -> Solution:
        """The incumbent with its bounds and notes; its gangs that wait have no reason yet."""
        decisions = ledger.incumbent.decisions
        self._held[id(decisions)] = immovable
        return Solution(
            decisions,
            ledger.results(),
            budget.stopped_by,
            _solvers(),
            budget.effort,
            notes_of(ledger.instance, decisions, exact=exact),
            one_at_a_time=self._one_at_a_time,
            solver_calls=budget.calls,
        )

    def _replan(self) -> Replan:
        """New plans without gangs that are named as those that others wait for, where plans cost little."""
        easy, plans = self._budget.effort <= EASY_EFFORT, affordable(self.instance)
        self._replanned = 0.0
        return Replan(
            self._new_plan,
            min(MAX_REPLANS, int(plans)) if easy else 0,
            min(MAX_REPLANS, int(TURNS_A_SEARCH * plans)),
        )

    def _new_plan(self, instance: Instance) -> Decisions | None:
        """Of another instance, by one worker; None if too little time is left, or all together cost much."""
        seconds = min(REPLAN_S, int(self._budget.seconds_left()))
        if seconds < 1 or self._budget.stop.is_set() or self._replanned > REPLAN_EFFORT:
            return None
        decisions, effort = new_plan(instance, self._budget.stop, seconds)
        self._replanned += effort
        return decisions

    def _explained(
        self, instance: Instance, plan: Solution, budget: Budget, replan: Replan
    ) -> Solution:
        """The plan with reasons and starts of gangs that wait, and the tiers that were not searched."""
        immovable = self._held.get(id(plan.decisions), frozenset())
        decisions, kept = with_reservations(instance, plan.decisions, budget)
        if not kept:
            plan = with_proofs_of(instance, plan)
            stated = (one.reserved for one in decisions if one.decision == "wait")
            instance = instance.with_reserved(tuple(one for one in stated if one is not None))
        proven = [
            int(tier.name.partition("/")[2])
            for tier in plan.tiers
            if tier.name.partition("/")[0] in MAINS and tier.bound == tier.value
        ]
        decisions = with_reasons(instance, decisions, budget, () if immovable else proven, replan)
        decisions = with_expected_starts(instance, decisions, budget)
        searched = set() if self._ledger is None else self._ledger.searched
        note = unsearched(plan.tiers, searched)
        below = passed(instance, decisions)
        stopped_by = plan.stopped_by
        if stopped_by == "proof" and any(tier.bound != tier.best for tier in plan.tiers):
            stopped_by = "budget"  # of searches for plans in which fewer gangs move
        return replace(
            plan, decisions=decisions, stopped_by=stopped_by, notes=(*note, *plan.notes, *below)
        )

    def _search(
        self, ledger: Ledger, budget: Budget, progress: Progress, immovable: frozenset[int]
    ) -> Solution:
        last = self._last(ledger)
        exact = True
        if _open(ledger, last):
            settled = partial(self._settled, budget)
            slots = SlotSearch(ledger, budget, immovable, settled, progress)
            self._aim(slots)
            if self._ledger is ledger and (held := self._held_anew(ledger, budget)) is not None:
                self._ledger = ledger = held
                slots = SlotSearch(held, budget, immovable, settled, progress)
                slots.build()
            exact = self._improve(slots, last)
        elif last < len(ledger.tiers):  # the queue alone proves the others
            polish(ledger, budget)
        ledger.close_all()
        return self._solution(ledger, budget, immovable, exact=exact)

    def _aim(self, slots: SlotSearch) -> None:
        """Build the slots, and offer the plan of their chain; tolerances are granted as tiers close."""
        budget, large = slots.budget, self._pairs >= WHOLE_BELOW
        if not large and _tolerant(slots.ledger):
            return
        with suppress(Interrupted):
            with budget.holding_back(POLISHING_SHARE if large else 1 - AIM_SHARE):
                self._enter("building")
                slots.build()
                self._enter("solving")
                self.started = True
                slots.aim()
            budget.stopped_by = "proof"  # an aim that was cut short leaves nothing open

    def _held_anew(self, ledger: Ledger, budget: Budget) -> Ledger | None:
        """A ledger with what can be held beside its plan, if some of it is not: others went first."""
        known = ledger.incumbent.decisions
        if not any(one.nodes for one in self.instance.reserved) or budget.exhausted():
            return None
        decisions, kept = with_reservations(self.instance, known, budget)
        stated = tuple(one.reserved for one in decisions if one.reserved is not None)
        instance = self.instance.with_reserved(stated)
        moved = [index for index, one in enumerate(known) if one.decision == "move"]
        unmoved = None if kept else _filled(instance, back_in_place(instance, known, moved))
        if unmoved is None or in_due_time(instance, unmoved) is None:
            return None
        self.instance, held = instance, Ledger(instance, unmoved)
        held.offer(known)
        return held

    def _improve(self, slots: SlotSearch, last: int) -> bool:
        """Search the tiers before ``last``; returns whether the program was exact."""
        ledger, budget = slots.ledger, slots.budget
        exact, large = True, self._pairs >= WHOLE_BELOW
        tolerant = _tolerant(ledger)
        with suppress(Interrupted):
            if large or not tolerant:
                with budget.holding_back(POLISHING_SHARE + (0 if large else WHOLE_SHARE)):
                    self._search_slots(slots, tolerant=tolerant)
            if not large and _open(ledger, last):
                with budget.holding_back(POLISHING_SHARE):
                    exact = self._search_whole(slots, last)
        improving = _open(ledger, last) and not tolerant
        if improving:
            budget.record_limit()
            ledger.reopen()
        if not tolerant:
            with suppress(Interrupted):
                slots.renew()
        if improving or last < len(ledger.tiers):
            self._enter("improving")
            polish(ledger, budget)
        return exact

    def _search_slots(self, slots: SlotSearch, *, tolerant: bool) -> None:
        """Solve one tier after the other by counting slots."""
        ledger, budget = slots.ledger, slots.budget
        (slots.run_once if tolerant else slots.run)()
        ledger.offer(start_alone(self.instance, ledger.incumbent.decisions, budget))
        ledger.offer(beside(self.instance, ledger.incumbent.decisions, budget=budget))

    def _search_whole(self, slots: SlotSearch, last: int) -> bool:
        """Solve the full program; returns whether it is exact."""
        self._enter("building")
        ledger, budget, held = slots.ledger, slots.budget, slots.immovable
        try:
            whole = formulate(self.instance, immovable=held, interrupted=budget.exhausted)
        except TooLarge:  # a gang of very many roles
            return True
        ledger.reopen()
        self._enter("solving")
        TierSearch(whole, ledger, budget, slots.progress, last).run()
        return whole.exact

    def _last(self, ledger: Ledger) -> int:
        """Number of tiers, from the first, that are searched: all, unless this is one of very many plans."""
        count = len(ledger.tiers)
        while self._frequent and count and ledger.tiers[count - 1].family in FREE_SPACE:
            count -= 1
        return count

    def _settled(self, budget: Budget, decisions: Sequence[GangDecision]) -> Sequence[GangDecision]:
        """The plan with what fits beside it, each gang that starts in the best place left for it."""
        asked = decisions, budget.exhausted()  # the same one for many tiers in a row
        if self._settled_last[0] != asked:
            plan = settle(self.instance, _filled(self.instance, decisions), budget=budget)
            self._settled_last = asked, plan
        return self._settled_last[1]


@cache
def _solvers() -> str:
    """The solvers with their versions, which take milliseconds to look up."""
    return f"OR-Tools {version('ortools')} (CP-SAT), HiGHS {version('highspy')}"


def _tolerant(ledger: Ledger) -> bool:
    return any(tier.tolerance for tier in ledger.tiers)


def _open(ledger: Ledger, last: int) -> bool:
    """Whether one of the tiers before ``last`` has a gap."""
    gap = ledger.gap()
    return gap is not None and gap < last


def new_plan(instance: Instance, stop: threading.Event, seconds: int) -> tuple[Decisions, float]:
    """What one worker decides in so many seconds, without reasons; and the effort that it took, at most 1."""
    limits = replace(instance.policy.solve, workers=1, budget=1, time_limit_s=seconds)
    changed = replace(instance, policy=replace(instance.policy, solve=limits))
    search = Search(changed, stop=stop, frequent=True)
    return search.run().decisions, 1 - search.effort_left


def solve(
    instance: Instance,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    size: int | None = None,
    frequent: bool = False,
) -> Solution:
    """The best plan found within the policy's budget, with a bound for every tier."""
    return Search(instance, progress=progress, stop=stop, size=size, frequent=frequent).run()


def _filled(instance: Instance, decisions: Sequence[GangDecision]) -> Decisions:
    """The plan with what fits beside it: waiting gangs start, elastic gangs grow."""
    return grow(instance, greedy(instance, decisions))
