"""Fractions of GPUs: which GPUs are shared, by whom, and what is said of it (contract 2.2, 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparing import misstated, wrong
from effort import examples, first_fast
from tiny_geometries import best
from tiny_shares import sharing, ways

from models.instance.instance import Instance
from planner.search.solve import AGGREGATED_FROM, WHOLE_BELOW, solve

MINIMISED = ("disruption", "span", "stranded", "stability")


def differences(instance: Instance | None, *, runs: bool) -> list[object]:
    """What sets the search apart from the best plan, and what the judge says against it.

    Where pods run the plans that are tried have them where they are: some plan may be better.
    """
    if instance is None or not any(node.reshapable for node in instance.cluster.nodes):
        return []
    known = best(instance, ways)
    if known is None:
        return []
    solution = solve(instance)
    found = tuple((tier.name, tier.value) for tier in solution.tiers)
    worth, least = (
        tuple(-value if name in MINIMISED else value for name, value in tiers)
        for tiers in (found, known)
    )
    faults: list[object] = [*misstated("search", instance, solution)]
    if (worth < least) if runs else (worth != least):
        faults.append((found, known))
    if solution.stopped_by != "proof":
        faults.append(solution.stopped_by)
    return faults


@pytest.mark.parametrize("first", first_fast(range(0, 300, 20), 2))
def test_the_search_equals_trying_every_way_to_share(first: int) -> None:
    seeds = range(first, first + 20)
    assert wrong(seeds, lambda seed: differences(sharing(seed), runs=False)) == {}


def test_where_most_things_run_plans_are_as_good_as_without_touching_them() -> None:
    seeds = range(examples(100, 20))
    assert wrong(seeds, lambda seed: differences(sharing(seed, runs=True), runs=True)) == {}


@pytest.mark.parametrize("size", [AGGREGATED_FROM, WHOLE_BELOW])
def test_ways_of_planning_large_instances_keep_every_rule(size: int) -> None:
    def faults(seed: int) -> list[object]:
        instance = sharing(seed, runs=seed % 2 == 0)
        if instance is None:
            return []
        limits = replace(instance.policy.solve, budget=3)
        instance = replace(instance, policy=replace(instance.policy, solve=limits))
        return [*misstated("search", instance, solve(instance, size=size))]

    assert wrong(range(examples(100, 20)), faults) == {}
