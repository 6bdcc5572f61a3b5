"""Exact proofs that a gang cannot start alone, on the most space there could be for it.

They find what no count shows: GPUs that are free, but not together. Their number and time are limited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import Reason
from models.program.formulation import formulate
from models.program.interruption import Interrupted
from models.program.linear_program import Linear
from models.rules.demands import Demand
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.free_space import MaximalSpace

ALONE_EFFORT = 1.0
"""Effort for the proof that a kind of gang cannot start even alone."""

ALONE_SECONDS = 5
"""Most seconds for that proof."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried."""


class AloneProofs:
    """Made once for each kind of gang. ``interrupted``: whether no proof may go on."""

    def __init__(
        self, maximal: MaximalSpace, budget: Budget, interrupted: Callable[[], bool]
    ) -> None:
        self._maximal = maximal
        self._budget = budget
        self._interrupted = interrupted
        self._known: dict[object, Reason | None] = {}

    def reason(self, demand: Demand, kind: object) -> Reason | None:
        """Why the gang cannot start, whoever gives way; None if that is not proven."""
        if kind not in self._known:
            if len(self._known) >= ALONE_PROOFS:
                return None
            self._known[kind] = self._proof(demand)
        return self._known[kind]

    def _proof(self, demand: Demand) -> Reason | None:
        """Place this gang alone, then without minBandwidthShare."""
        instance = self._maximal.alone()
        gang = instance.gangs[demand.gang]
        share = instance.min_share(gang)
        if not self._impossible(demand, instance):
            return None
        without = {"without": len(self._maximal.removed)}
        if share and not self._impossible(demand, _without_min_share(instance, demand.gang)):
            return Reason.of("Bandwidth", share=float(share), **without)
        needs = {"gpus": demand.gpus, "apart": True, **without}
        level = gang.required
        if level is not None or any(r.required is not None or r.slice_size for r in gang.roles):
            name = None if level is None else instance.cluster.level_name(level)
            return Reason.of("RequiredTopology", level=name, **needs)
        return Reason.of("NoRoom", **needs)

    def _impossible(self, demand: Demand, instance: Instance) -> bool:
        """Whether CP-SAT proves that the gang cannot be admitted alone, in the time there is."""
        only = frozenset({demand.gang})
        try:
            alone = formulate(instance, only=only, interrupted=self._interrupted)
        except Interrupted:
            return False
        admits = Linear().add_all(g.admit for g in alone.variables.gangs)
        admits.add_all(a for group in alone.variables.groups for a in group.admits)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        seconds = min(ALONE_SECONDS, max(1, int(self._budget.seconds_left())))
        budget = Budget(SolveLimits(time_limit_s=seconds), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return alone.complete and answer.status is Status.INFEASIBLE


def _without_min_share(instance: Instance, index: int) -> Instance:
    """The instance without the gang's minBandwidthShare."""
    gang = replace(instance.gangs[index], min_bandwidth_share=Fraction(0))
    return replace(instance, gangs=(*instance.gangs[:index], gang, *instance.gangs[index + 1 :]))
