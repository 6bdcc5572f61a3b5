"""A program of slots whose assignments plans follow, and one solution for all tiers about who runs.

A chain is one solution, decided priority by priority from above. For each priority the ways that its gangs
may have are whole, all else is continuous, and its tiers are one weighted objective. Then it is fixed who of
them runs, and how fast: not in which way, since counts that are not whole yet may leave no room for that one.
At the end all is whole, for the tiers about placements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from math import ceil

import numpy as np

from models.instance.gang import ExistingPod
from models.instance.solution import GangDecision
from models.program.linear_program import Linear, Program
from models.program.options import Effect
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_rooms import Mode
from models.queues.queue_shares import within_guarantee
from models.queues.reservations import due
from models.tiers import Tier
from planner.search.bound.tier_search import NEAR, SHARE, Narrowed
from planner.search.budget import Budget
from planner.search.engines.highs import branch, branch_on
from planner.search.engines.interface import Goal, Kept, kept
from planner.search.engines.portfolio import INTEGRAL, LARGEST_CONFIRMED
from planner.search.engines.relaxation import DualProof, Relaxation, RelaxedAnswer
from planner.search.improve.exchange import justified
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.start.homes import MAX_ORDERS, settle_in

BITS = 8
"""A tier weighs that many times two more than the next one of a weighted objective, at most."""

RESOLUTION = 60
"""Bits of the weight of the first tier: coefficients of the last ones must not become 0."""

NODES = 2000
"""Branch-and-bound nodes for one: where it stops short, the tiers are still solved one by one."""

LARGE = 20_000
"""Of a program with more variables HiGHS finds no least span in a minute if gangs may have all ways."""

Stated = tuple[int, Tier, Linear]
"""Position, tier and expression."""

Doing = tuple[Effect, tuple[int, ...], tuple[ExistingPod, ...]]
"""What a gang does, wherever: the effect, its pods by role, and those that stay."""


class SlotProblem:
    """The slots as a program whose assignments are followed by plans; see ``tier_search.Problem``.

    ``latest``: the last assignment that a plan followed. ``small``: CP-SAT proves
    it; ``large``: see LARGE.
    """

    def __init__(self, model: SlotModel, budget: Budget) -> None:
        self.program: Program = model.program
        self.complete = model.complete
        self.covers_admission = model.covers_admission
        self.large = len(model.program.lower) > LARGE
        self.small = len(model.program.lower) <= LARGEST_CONFIRMED
        self.model = model
        self._budget = budget
        self._expressions: dict[str, Linear | None] = {}
        self.latest: tuple[int, ...] = ()
        self._followed: tuple[object, tuple[GangDecision, ...]] = (None, ())

    def expression(self, tier: Tier) -> Linear | None:
        if tier.name not in self._expressions:
            self._expressions[tier.name] = self.model.expression(tier)
        return self._expressions[tier.name]

    @contextmanager
    def fixed(self, variables: Iterable[int] = (), values: Sequence[int] = ()) -> Iterator[Program]:
        """These are as in a solution, and what else is changed of the ranges of variables is so meanwhile."""
        program, known = self.program, len(self.program.lower)
        ranges = program.lower, program.upper
        program.lower, program.upper = list(ranges[0]), list(ranges[1])
        for variable in variables:
            program.fix(variable, values[variable])
        try:
            yield program
        finally:
            program.lower = [*ranges[0], *program.lower[known:]]
            program.upper = [*ranges[1], *program.upper[known:]]

    def _unchanged(self, mode: Mode) -> bool:
        """Whether a gang that runs stays as it is."""
        demand = mode.option.demand
        pods = self.model.instance.gangs[demand.gang].running_pods
        return bool(pods) and not demand.roles and len(demand.stays) == len(pods)

    def settled(self, values: Sequence[float], proof: DualProof, known: Sequence[int]) -> list[int]:
        """Ways that cost something in an LP, and who stays in it, where a known solution, if any, agrees."""
        relaxed = np.array(values)
        nearest = np.rint(relaxed)
        agreed = np.abs(relaxed - nearest) < INTEGRAL
        if known:
            agreed &= nearest == np.array(known)
        return [
            mode.variable
            for mode in self.model.modes
            if agreed[mode.variable]
            and (
                self._unchanged(mode)
                if nearest[mode.variable]
                else proof.reduced[mode.variable] != 0
            )
        ]

    def other_ways(self, values: Sequence[int], expressions: Sequence[Linear]) -> list[int]:
        """Ways that would change an expression if gangs had them in place of what a solution gives them."""
        none, modes = (0,) * len(expressions), self.model.modes
        worth = [tuple(one.terms.get(m.variable, 0) for one in expressions) for m in modes]
        own = {
            m.option.demand.gang: w for m, w in zip(modes, worth, strict=True) if values[m.variable]
        }
        return [
            m.variable
            for m, w in zip(modes, worth, strict=True)
            if w not in (none, own.get(m.option.demand.gang, none))
        ]

    def doings(self, values: Sequence[int]) -> dict[int, Doing]:
        """What the gangs do in a solution that do not wait and are not stopped."""
        return {m.option.demand.gang: _doing(m) for m in self.model.modes if values[m.variable]}

    def of_others(self, free: Container[int] = ()) -> Iterator[int]:
        """Ways of gangs that are not free to do something else than in the last solution."""
        doings = self.doings(self.latest)
        for mode in self.model.modes:
            gang = mode.option.demand.gang
            if gang not in free and doings.get(gang) != _doing(mode):
                yield mode.variable

    def alike(self, gangs: Iterable[int]) -> set[int]:
        """All gangs with pods of the same sizes that wait as these do, or may stop or move."""
        every = self.model.instance.gangs
        kinds = [
            (g.running, g.movable, g.preemptible, *((role.gpus, role.min) for role in g.roles))
            for g in every
        ]
        known = {kinds[g] for g in gangs}
        return {g for g, kind in enumerate(kinds) if kind in known}

    def others(self, doings: Mapping[int, Doing], free: Container[int]) -> Linear:
        """How many gangs do something else than this, of those that are not free."""
        total = Linear(constant=sum(gang not in free for gang in doings))
        for mode in self.model.modes:
            gang = mode.option.demand.gang
            if gang not in free and (gang not in doings or doings[gang] == _doing(mode)):
                total.add(mode.variable, -1 if gang in doings else 1)
        return total

    def settled_on(self, free: Container[int], known: Narrowed) -> Narrowed:
        """What is known, and that gangs that are not free do what they do in the last solution."""
        upper = list(known.upper)
        for variable in self.of_others(free):
            upper[variable] = 0
        return replace(known, upper=upper, settled=True)

    def tell_apart(self, family: str) -> None:
        """Tell apart what tiers in LAST count, most of all of gangs that run in the last solution."""
        self._expressions.pop(family, None)
        self.program.interrupted = self._budget.exhausted
        self.model.tell_apart(family, self.latest)

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        self.latest = tuple(values)
        asked = self.latest, self._budget.exhausted()
        if self._followed[0] != asked:
            found, homeless = settle_in(
                self.model, values, self._budget, 1 if self.large else MAX_ORDERS
            )
            own = justified(self.model.instance, found, self._budget.exhausted)
            plan = back_in_place(self.model.instance, own, sorted(homeless))
            self._followed = asked, needless_undone(self.model.instance, plan)
        return self._followed[1]


class Chain:
    """The tiers of one program in groups: those of a priority, and those between priorities or after them."""

    def __init__(self, problem: SlotProblem, stated: Sequence[Stated], budget: Budget) -> None:
        self._problem = problem
        self._budget = budget
        parts = groupby(stated, lambda one: one[1].priority if one[1].row.fused else None)
        self.groups = [list(group) for _, group in parts]

    def solution(self) -> tuple[int, ...]:
        """The values of all variables, () if none are found.

        Where no whole counts follow what was decided without them, all is whole from the beginning.
        """
        return self._decide(partly=True) or self._decide(partly=False)

    def _decide(self, *, partly: bool) -> tuple[int, ...]:
        problem, keep, closed = self._problem, list[Kept](), list[int]()
        values: tuple[int, ...] = ()
        last = max((n for n, own in enumerate(self.groups) if own[0][1].row.fused), default=-1)
        for number, tiers in enumerate(self.groups):
            if self._budget.exhausted():
                return ()
            expressions = [one for _, _, one in tiers]
            goal = Goal(_weighted(problem.program, tiers), maximize=True, keep=tuple(keep))
            idle = self._idle(tiers[0][1], values)
            with problem.fixed() as program:
                ways = (mode.variable for mode in problem.model.modes if idle(mode))
                for variable in (*closed, *ways, *problem.model.spares.emptied):
                    program.upper[variable] = 0
                if partly and number < last:
                    values = self._ways(goal, tiers)
                    closed += problem.other_ways(values, expressions) if values else []
                else:
                    values = self._counts(goal, values if number > last else ())
            if not values:
                return ()
            keep += [
                kept(one, one.value(values), maximize=tier.sense == "max") for _, tier, one in tiers
            ]
        return values

    def _ways(self, goal: Goal, tiers: Sequence[Stated]) -> tuple[int, ...]:
        """Values for a goal of which those in its tiers are whole, and the others rounded up.

        If they are whole in the LP, that is the best. Otherwise what costs something in it is left out at
        first; where that is far from the LP, it shows what may be left out without a loss.
        """
        whole = set[int]().union(*(one.terms for _, _, one in tiers))
        relaxed, values = self._relaxed(goal), tuple[int, ...]()
        found = relaxed.values
        if found and all(abs(found[one] - round(found[one])) < INTEGRAL for one in whole):
            return _rounded_up(found)
        for held, nearest in self._settled(relaxed, ()):
            with self._problem.fixed(held, nearest):
                values = self._branched(goal, whole)
            if values:
                break
        if values and found and relaxed.proof is not None and _is_far(tiers, values, found):
            with self._problem.fixed() as program:
                relaxed.proof.tighten(program, goal.objective.value(values))
                values = max(
                    values, self._branched(goal, whole) or values, key=goal.objective.value
                )
        return values

    def _branched(self, goal: Goal, whole: Collection[int]) -> tuple[int, ...]:
        problem, seconds = self._problem, self._budget.seconds_left() * SHARE
        return _rounded_up(
            branch_on(problem.program, goal, self._budget, whole, nodes=NODES, seconds=seconds)
        )

    def _counts(self, goal: Goal, known: tuple[int, ...]) -> tuple[int, ...]:
        """Whole values for a goal, with a solution that is ``known`` at first some near the LP's."""
        asked = self._problem.program, goal, self._budget
        near = self._settled(self._relaxed(goal), known) if known else [((), ())]
        for held, nearest in near:
            with self._problem.fixed(held, nearest):
                seconds = self._budget.seconds_left() * SHARE
                found = branch(*asked, nodes=NODES, seconds=seconds, hint=known)
            if found.values:
                return found.values
        return ()

    def _relaxed(self, goal: Goal) -> RelaxedAnswer:
        seconds = self._budget.seconds_left() * SHARE
        return Relaxation(self._problem.program, self._budget).bound(goal, seconds=seconds)

    def _settled(
        self, relaxed: RelaxedAnswer, known: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """(variables that stay as they are in an LP, its values rounded); in the end none."""
        if relaxed.values is not None and relaxed.proof is not None:
            settled = self._problem.settled(relaxed.values, relaxed.proof, known)
            yield settled, tuple(map(round, relaxed.values))
        if not self._budget.exhausted():
            yield (), ()

    def _idle(self, tier: Tier, solution: Sequence[int]) -> Callable[[Mode], bool]:
        """Whether a gang that waits may go on waiting as far as this tier goes, and those of its group.

        Those of lower priority only take room, unless they have to start, or are within a guarantee, for
        which earlier tiers ask; once it is settled who runs, nobody else needs any.
        """
        instance = self._problem.model.instance
        gangs, promised, starting = instance.gangs, tier.family != "guarantee", due(instance)
        running = self._problem.doings(solution) if solution else range(len(instance.gangs))

        def idle(mode: Mode) -> bool:
            gang = gangs[mode.option.demand.gang]
            if gang.running:
                return False
            if tier.row.fused:
                lower = gang.priority < (tier.priority or 0) and gang.key not in starting
                return lower and not (promised and within_guarantee(instance, gang))
            return mode.option.demand.gang not in running

        return idle


def _doing(mode: Mode) -> Doing:
    demand = mode.option.demand
    return mode.option.effect, demand.counts, demand.stays


def _is_far(tiers: Sequence[Stated], values: Sequence[int], relaxed: Sequence[float]) -> bool:
    """Whether the first tier in which a solution differs from the LP's is more than NEAR from it."""
    for _, _, expression in tiers:
        value = expression.value(values)
        best = sum(relaxed[one] * factor for one, factor in expression.terms.items())
        best += expression.constant
        if abs(best - value) > INTEGRAL * max(1, abs(value)):
            return abs(best - value) * NEAR > abs(value)
    return False


def _rounded_up(values: Iterable[float]) -> tuple[int, ...]:
    return tuple(ceil(one - INTEGRAL) for one in values)


def _weighted(program: Program, tiers: Sequence[Stated]) -> Linear:
    """An objective to maximise in which a tier's range weighs far more than those of the tiers after it."""
    total, bits = Linear(), min(BITS, RESOLUTION // len(tiers))
    for place, (_, tier, expression) in enumerate(tiers):
        extent = program.bound_above(expression) - program.bound_below(expression)
        weight = (1 if tier.sense == "max" else -1) * (1 << RESOLUTION - bits * place)
        for variable, coefficient in expression.terms.items():
            total.add(variable, coefficient * weight // max(1, extent))
    return total
