"""The plan of the steps before any search: greedy start and growth; and what the checker says.

Promises: reasons and tier values are those the planner would state; a plan with moves states them without
what they bought, so that only that complaint of the checker is left out. Called by tests of these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision, Solution, TierResult
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.values.tier_values import Evaluation, tiers_of
from models.verify.check import Judge
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.improve.growth import grow
from planner.search.solve import solve
from planner.search.start.greedy import greedy
from planner.show.reason_words import words

NOW = "2026-11-21T00:00:00Z"


@dataclass(frozen=True)
class Steps:
    """One instance and its plan. Gangs are asked for by name."""

    instance: Instance
    decisions: tuple[GangDecision, ...]

    def of(self, name: str) -> GangDecision:
        (index,) = (i for i, gang in enumerate(self.instance.gangs) if gang.name == name)
        return self.decisions[index]

    def all(self) -> dict[str, str]:
        return {gang.name: self.of(gang.name).decision for gang in self.instance.gangs}

    def nodes(self, name: str) -> list[str]:
        """Node of every pod, by role and index."""
        return [self.instance.cluster.nodes[pod.node].name for pod in self.of(name).pods]

    def reason(self, name: str) -> tuple[str, str]:
        """Code and message."""
        reason = self.of(name).reason
        assert reason is not None
        return reason.code, words(reason)

    def value(self, tier: str) -> int:
        return values(self.instance, self.decisions)[tier]


def by_steps(instance: Instance) -> Steps:
    """The plan of all steps with its reasons, found fault-free by the checker."""
    start = greedy(instance, base_decisions(instance))
    decisions = grow(instance, start)
    decisions = with_reasons(instance, decisions, Budget(SolveLimits(), Event()))
    assert faults(instance, decisions) == []
    return Steps(instance, decisions)


def by_search(instance: Instance) -> Steps:
    """The plan of the whole search: for what only it does, such as stopping gangs."""
    decisions = solve(instance).decisions
    assert faults(instance, decisions) == []
    return Steps(instance, decisions)


def values(instance: Instance, decisions: Sequence[GangDecision]) -> dict[str, int]:
    """Value of every tier, by name."""
    vector = Evaluation(instance, decisions).vector()
    return {tier.name: value for tier, value in zip(tiers_of(instance), vector, strict=True)}


def better(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """Values of all tiers in order, larger is better."""
    found = values(instance, decisions)
    return tuple(
        found[tier.name] * (1 if tier.sense == "max" else -1) for tier in tiers_of(instance)
    )


def faults(instance: Instance, decisions: tuple[GangDecision, ...]) -> list[str]:
    """What the checker says of the plan, but for what its moves bought and whether it is the best."""
    tiers = tuple(
        TierResult(tier.name, tier.sense, value, value, value, "exact")
        for tier, value in zip(
            tiers_of(instance), Evaluation(instance, decisions).vector(), strict=True
        )
    )
    solution = Solution(decisions, tiers, "proof", "by steps")
    document = compose(instance, solution, name="steps", created_at=NOW, generator="test")
    return [
        f"{found.rule} {found.gang}: {found.message}"
        for found in Judge().check(document, refute=False).violations
        if found.rule != "bought"
    ]
