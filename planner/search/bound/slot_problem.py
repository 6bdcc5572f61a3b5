"""The slots as a program whose assignments are followed by plans; what of it is held for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.linear_program import Linear, Program
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_rooms import Mode
from models.program.tier_expressions import FREE_SPACE
from models.tiers import Tier
from planner.search.budget import Budget
from planner.search.engines.portfolio import INTEGRAL
from planner.search.engines.relaxation import DualProof
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.start.homes import settle_in

LAST = {"span", *FREE_SPACE}
"""Tiers for which more is told apart, once those before them are solved."""


class SlotProblem:
    """The slots as a program whose assignments are followed by plans; see ``tier_search.Problem``.

    ``latest``: the last assignment that a plan followed.
    """

    def __init__(self, model: SlotModel, budget: Budget) -> None:
        self.program: Program = model.program
        self.complete = model.complete
        self.covers_admission = model.covers_admission
        self._model = model
        self._budget = budget
        self._expressions: dict[str, Linear | None] = {}
        self.latest: tuple[int, ...] = ()

    @property
    def instance(self) -> Instance:
        return self._model.instance

    @property
    def in_parts(self) -> bool:
        """Whether GPUs may be partitioned or shared."""
        return bool(self._model.parts)

    def expression(self, tier: Tier) -> Linear | None:
        if tier.name not in self._expressions:
            self._expressions[tier.name] = self._model.expression(tier)
        return self._expressions[tier.name]

    @contextmanager
    def without(self, closed: Callable[[Mode], bool]) -> Iterator[None]:
        """No gang has a mode of which this is so, or stops for an idle node."""
        ranges = self.program.lower, self.program.upper
        self.program.lower, self.program.upper = list(ranges[0]), list(ranges[1])
        for mode in self._model.modes:
            if closed(mode):
                self.program.upper[mode.variable] = 0
        for variable in self._model.spares.emptied:
            self.program.upper[variable] = 0
        try:
            yield
        finally:
            self.program.lower, self.program.upper = ranges

    def _unchanged(self, mode: Mode) -> bool:
        """Whether a gang that runs stays as it is."""
        demand = mode.option.demand
        pods = self._model.instance.gangs[demand.gang].running_pods
        return bool(pods) and not demand.roles and len(demand.stays) == len(pods)

    @contextmanager
    def fixed(self, variables: Iterable[int], values: Sequence[int]) -> Iterator[None]:
        """These variables are as in a solution."""
        ranges = self.program.lower, self.program.upper
        self.program.lower, self.program.upper = list(ranges[0]), list(ranges[1])
        for variable in variables:
            self.program.fix(variable, values[variable])
        try:
            yield
        finally:
            self.program.lower, self.program.upper = ranges

    def settled(self, values: Sequence[float], proof: DualProof, known: Sequence[int]) -> list[int]:
        """Ways that cost something in an LP, and who stays in it, where a known solution, if any, agrees."""
        relaxed = np.array(values)
        nearest = np.rint(relaxed)
        agreed = np.abs(relaxed - nearest) < INTEGRAL
        if known:
            agreed &= nearest == np.array(known)
        return [
            mode.variable
            for mode in self._model.modes
            if agreed[mode.variable]
            and (
                self._unchanged(mode)
                if nearest[mode.variable]
                else proof.reduced[mode.variable] != 0
            )
        ]

    def other_ways(self, values: Sequence[int], expressions: Sequence[Linear]) -> list[int]:
        """Ways that would change an expression if gangs had them in place of what a solution gives them."""
        worth: dict[int, tuple[int, ...]] = {}
        chosen: dict[int, tuple[int, ...]] = {}
        none = (0,) * len(expressions)
        for mode in self._model.modes:
            variable = mode.variable
            own = worth[variable] = tuple(one.terms.get(variable, 0) for one in expressions)
            if own != none and values[variable]:
                chosen[mode.option.demand.gang] = own
        return [
            mode.variable
            for mode in self._model.modes
            if (own := worth[mode.variable]) != none
            and own != chosen.get(mode.option.demand.gang, none)
        ]

    def running(self, values: Sequence[int]) -> set[int]:
        """The gangs that run in a solution."""
        return {m.option.demand.gang for m in self._model.modes if values[m.variable]}

    def tell_apart(self) -> None:
        """Tell apart what the tiers in LAST count, for a search to come."""
        self._expressions = {n: own for n, own in self._expressions.items() if n not in LAST}
        self.program.interrupted = self._budget.exhausted
        self._model.tell_apart(self.running(self.latest) if self.latest else ())

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        self.latest = tuple(values)
        found, homeless = settle_in(self._model, values, self._budget)
        plan = back_in_place(self._model.instance, found, sorted(homeless))
        return needless_undone(self._model.instance, plan)
