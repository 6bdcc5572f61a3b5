"""A gang with a reservation starts no later than if nobody behind it started, and nodes work no less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from effort import spread
from histories import arrivals, lived

from models.instance import Instance
from models.policy import SolveLimits
from models.program.base_state import base_decisions
from models.solution import GangDecision
from planner.search.budget import Budget
from planner.search.greedy import greedy
from planner.search.holding_nodes import hold_nodes
from planner.search.reservations import with_reservations
from planner.search.solve import solve

HISTORIES = 200


class Backfilling:
    """Plans with reservations; ``stated``: the starts of the large gang that its plans stated.

    ``search``: the whole search makes them, in place of its start alone.
    """

    def __init__(self, *, search: bool = False) -> None:
        self.search = search
        self.stated: list[int] = []
        self.before = 0

    def __call__(self, instance: Instance) -> Sequence[GangDecision]:
        found, waits = self._plan(instance), False
        for one, decision in zip(instance.gangs, found, strict=True):
            if one.name == "large" and decision.decision == "wait":
                assert decision.reserved is not None
                self.stated.append(decision.reserved.start)
                waits = True
        if waits:
            behind = zip(instance.gangs, found, strict=True)
            self.before += sum(d.decision == "place" and g.priority < 100 for g, d in behind)
        return found

    def _plan(self, instance: Instance) -> Sequence[GangDecision]:
        if self.search:
            limits = replace(instance.policy.solve, budget=4)
            return solve(replace(instance, policy=replace(instance.policy, solve=limits))).decisions
        budget = Budget(SolveLimits())
        start = greedy(instance, base_decisions(instance))
        held, plan = hold_nodes(instance, start, budget)
        found, kept = with_reservations(held, plan, budget)
        assert kept
        return found


def in_turn(instance: Instance) -> Sequence[GangDecision]:
    """Plans in which nobody behind the large gang starts while it waits."""
    budget = Budget(SolveLimits())
    base = base_decisions(instance)
    waits = any(one.name == "large" and not one.running for one in instance.gangs)
    if waits:
        alone = [i for i, one in enumerate(instance.gangs) if one.running or one.name == "large"]
        part = replace(instance, gangs=tuple(instance.gangs[i] for i in alone))
        _, first = hold_nodes(part, greedy(part, base_decisions(part)), budget)
        found = list(base)
        for i, decision in zip(alone, first, strict=True):
            found[i] = decision
        if any(
            one.name == "large" and not d.pods for one, d in zip(part.gangs, first, strict=True)
        ):
            return found
        return greedy(instance, found)
    return greedy(instance, base)


@pytest.mark.parametrize(
    ("seed", "search"),
    [
        *((seed, False) for seed in spread(range(HISTORIES), 40)),
        *(pytest.param(seed, True, marks=pytest.mark.slow) for seed in range(3)),
    ],
)
def test_a_large_gang_starts_no_later_than_without_backfill(seed: int, *, search: bool) -> None:
    cluster, policy, came = arrivals(seed)
    planner = Backfilling(search=search)
    with_backfill, without = (
        lived(cluster, policy, came, planner),
        lived(cluster, policy, came, in_turn),
    )
    latest = without.starts["large"]
    assert with_backfill.starts["large"] <= latest
    assert planner.stated == sorted(planner.stated, reverse=True), "no start moves back"
    assert with_backfill.node_seconds(latest) >= without.node_seconds(latest)


def test_gangs_behind_it_start_meanwhile() -> None:
    """Otherwise the histories compare nothing."""
    cluster, policy, came = arrivals(0)
    planner = Backfilling()
    lived(cluster, policy, came, planner)
    assert planner.stated
    assert planner.before
