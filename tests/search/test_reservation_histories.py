"""A gang with a reservation starts no later than if nobody behind it started, and nodes work no less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from effort import spread
from histories import arrivals, lived

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from planner.search.budget import Budget
from planner.search.promises.holding_nodes import hold_nodes
from planner.search.promises.reservations import with_reservations
from planner.search.solve import solve
from planner.search.start.greedy import greedy

HISTORIES = 200


def planned(instance: Instance, *, search: bool) -> Sequence[GangDecision]:
    """A plan with reservations: of the whole search, or of its start alone."""
    if search:
        limits = replace(instance.policy.solve, budget=4)
        return solve(replace(instance, policy=replace(instance.policy, solve=limits))).decisions
    budget = Budget(SolveLimits())
    held, plan = hold_nodes(instance, base_decisions(instance), budget)
    found, kept = with_reservations(held, greedy(held, plan), budget)
    assert kept
    return found


class Backfilling:
    """``stated``: starts of the large gang that its plans stated. ``before``: gangs that start meanwhile."""

    def __init__(self, *, search: bool) -> None:
        self.search = search
        self.stated: list[int] = []
        self.before = 0

    def __call__(self, instance: Instance) -> Sequence[GangDecision]:
        found = planned(instance, search=self.search)
        behind = 0
        for one, decision in zip(instance.gangs, found, strict=True):
            behind += decision.decision == "place" and one.priority < 100
            if one.name == "large" and decision.decision == "wait":
                assert decision.reserved is not None
                self.stated.append(decision.reserved.start)
                self.before += behind
                behind = 0
        return found


class InTurn:
    """Plans in which nobody behind the large gang starts while it waits."""

    def __init__(self, *, search: bool) -> None:
        self.search = search

    def __call__(self, instance: Instance) -> Sequence[GangDecision]:
        if all(one.name != "large" or one.running for one in instance.gangs):
            return planned(instance, search=self.search)
        kept = [i for i, one in enumerate(instance.gangs) if one.running or one.name == "large"]
        part = replace(instance, gangs=tuple(instance.gangs[i] for i in kept))
        found = list(base_decisions(instance))
        for i, decision in zip(kept, planned(part, search=self.search), strict=True):
            found[i] = decision
        started = [i for i in kept if instance.gangs[i].name == "large" and found[i].pods]
        return greedy(instance, found) if started else found


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
    with_backfill = lived(cluster, policy, came, planner)
    without = lived(cluster, policy, came, InTurn(search=search))
    latest = without.starts["large"]
    assert with_backfill.starts["large"] <= latest
    assert planner.stated == sorted(planner.stated, reverse=True), "no start moves back"
    assert with_backfill.node_seconds(latest) >= without.node_seconds(latest)


def test_gangs_behind_it_start_meanwhile() -> None:
    """Otherwise the histories compare nothing."""
    cluster, policy, came = arrivals(0)
    planner = Backfilling(search=False)
    lived(cluster, policy, came, planner)
    assert planner.stated
    assert planner.before
