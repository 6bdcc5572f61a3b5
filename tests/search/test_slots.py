"""Bounds from counting slots: no plan is better, and on like servers none could be tighter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest
from comparing import wrong
from effort import examples
from exhaustive import plan
from tiny import tiny
from tiny_busy import busy
from tiny_geometries import best, dynamic
from tiny_shares import sharing
from tiny_shares import ways as ways_of_sharing
from tiny_speeds import busy_by_speed, tiny_by_speed

from benchmarks import generator
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from models.program.linear_program import UNBOUNDED
from models.program.packing import mesh_sets
from models.program.slots import slot_parts
from models.program.slots.slot_program import SlotModel
from models.values.tier_values import tiers_of
from planner.search.bound.slot_bounds import SlotProblem, SlotSearch
from planner.search.bound.tier_search import TierSearch
from planner.search.budget import Budget, NullProgress
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal, Status
from planner.search.engines.relaxation import Relaxation
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.search.start.greedy import greedy

SEEDS = examples(400, 40)
DRAWS = {"tiny": tiny, "busy": busy, "tiny by speed": tiny_by_speed, "busy by speed": busy_by_speed}


def beaten(
    instance: Instance,
    known: Iterable[tuple[str, int]] | None = None,
    *,
    apart: bool = False,
    alone: bool = False,
) -> list[str]:
    """Tiers whose bound is beaten by the best plan of all, each bound beside that plan's earlier values.

    ``known``: its tiers.
    """
    model = SlotModel(instance)
    if not model.complete:
        return []
    if apart:
        model.tell_apart(range(len(instance.gangs)) if alone else ())
    best = dict(plan(instance).tiers if known is None else known)
    budget = Budget(replace(instance.policy.solve, budget=10_000))
    relaxation, kept, found = Relaxation(model.program, budget), [], []
    for tier in tiers_of(instance):
        expression = model.expression(tier)
        if tier.tolerance:
            break  # later tiers may give up some of it
        if tier.name not in best:
            continue
        if expression is None:
            continue
        value, upward = best[tier.name], tier.sense == "max"
        if expression.terms:
            goal = Goal(expression, upward, tuple(kept))
            bound = relaxation.bound(goal, seconds=10).bound
            whole = branch(model.program, goal, budget, nodes=1000, seconds=10)
            if whole.status is Status.INFEASIBLE:
                found.append(f"{tier.name}: no assignment")
            bound = min(bound, whole.bound) if upward else max(bound, whole.bound)
            kept.append((expression, *((value, UNBOUNDED) if upward else (-UNBOUNDED, value))))
        else:
            bound = expression.constant
        if (bound < value) if upward else (bound > value):
            found.append(f"{tier.name}: bound {bound}, the best plan has {value}")
    return found


@pytest.mark.parametrize("kind", DRAWS)
def test_no_plan_of_a_random_instance_beats_a_bound(kind: str) -> None:
    def found(seed: int) -> list[str]:
        r = Random(f"slots/{seed}")
        names = ("priorities", "preemptible", "movable", "elastic", "slices", "required", "queues")
        rules = ("spares", "selectors", "min_share", "levels")
        instance = DRAWS[kind](
            7000 + seed, more=[name for name in (*names, *rules) if r.random() < 0.3]
        )
        if seed % 3 == 0:
            instance = even(instance, r)
        apart, alone = seed % 2 == 0, seed % 4 == 0
        return beaten(instance, apart=apart, alone=alone)

    assert wrong(range(SEEDS), found) == {}


@pytest.mark.parametrize("kind", DRAWS)
def test_no_plan_beats_a_bound_where_not_only_the_number_of_gpus_counts(kind: str) -> None:
    def found(seed: int) -> list[str]:
        r = Random(f"meshes/{seed}")
        names = ("preemptible", "movable", "elastic", "min_share", "levels", "nics")
        instance = DRAWS[kind](9000 + seed, more=[name for name in names if r.random() < 0.4])
        servers = (mesh_sets(node) for node in instance.cluster.nodes)
        return beaten(instance) if any(servers) else []

    assert wrong(range(SEEDS), found) == {}


def test_no_plan_beats_a_bound_where_a_gang_that_waits_has_an_equal_that_runs_slowly() -> None:
    """Who runs counts at most the speed that it has; the other one has the whole of its own."""
    instance = generator.busy(16, 14, 1, servers={"DGX-1 V100": 1})
    limits = replace(instance.policy.solve, budget=2)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    assert beaten(instance, [(tier.name, tier.value) for tier in solve(instance).tiers]) == []


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("ways", ["listed", "counted"])
def test_no_plan_beats_a_bound_where_gpus_are_partitioned_or_shared(
    runs: bool, ways: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ways``: the sets of parts that a GPU can have are listed; or memory, cores and pods are counted."""
    if ways == "counted":
        monkeypatch.setattr(slot_parts.Sharing, "fillings", lambda _, room: None)

    def found(seed: int) -> list[str]:
        partitioned = dynamic(seed, runs=runs, beside=seed % 2 == 0)
        shared = sharing(seed, runs=runs, several=seed % 5 == 0)
        plans = [(partitioned, best(partitioned))]
        plans += [] if shared is None else [(shared, best(shared, ways_of_sharing))]
        return [
            one
            for instance, known in plans
            if known is not None
            for one in beaten(instance, known, apart=seed % 3 > 0)
        ]

    assert wrong(range(examples(200, 15)), found) == {}


@pytest.mark.parametrize("kind", DRAWS)
def test_no_plan_beats_a_bound_that_a_search_of_the_slots_ends_with(kind: str) -> None:
    # each pass starts with what the passes before it narrowed
    def found(seed: int) -> list[str]:
        r = Random(f"search of slots/{seed}")
        names = ("priorities", "preemptible", "movable", "elastic", "slices", "required")
        instance = DRAWS[kind](9000 + seed, more=[name for name in names if r.random() < 0.3])
        if any(tier.tolerance for tier in tiers_of(instance)):
            return []
        return beyond(instance, dict(plan(instance).tiers))

    assert wrong(range(SEEDS // 4), found) == {}


@pytest.mark.parametrize("runs", [False, True])
def test_no_plan_in_parts_beats_a_bound_that_a_search_of_the_slots_ends_with(runs: bool) -> None:
    def found(seed: int) -> list[str]:
        partitioned = dynamic(20_000 + seed, runs=runs, beside=seed % 2 == 0)
        shared = sharing(20_000 + seed, runs=runs)
        ways = [(partitioned, best(partitioned))]
        ways += [] if shared is None else [(shared, best(shared, ways_of_sharing))]
        return [
            one
            for instance, known in ways
            if known is not None
            for one in beyond(instance, dict(known))
        ]

    assert wrong(range(examples(100, 10)), found) == {}


def beyond(instance: Instance, best: Mapping[str, int]) -> list[str]:
    """Tiers whose bound after a search of the slots is beaten by the best plan."""
    budget = Budget(replace(instance.policy.solve, budget=10_000))
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    slots = SlotSearch(ledger, budget, frozenset(), tuple)
    slots.build()
    slots.aim()
    slots.run()
    found = []
    for tier, one in zip(ledger.tiers, ledger.results(), strict=True):
        if tier.name not in best:
            continue
        value = best[tier.name]
        if (one.bound < value) if tier.sense == "max" else (one.bound > value):
            found.append(tier.name)
        if one.value != value:
            break  # later bounds are those of plans that keep less
    return found


def even(instance: Instance, r: Random) -> Instance:
    """The instance with waiting gangs of single GPUs, most of them spread evenly over some domains."""
    return replace(instance, gangs=tuple(_even(one, instance, r) for one in instance.gangs))


def _even(one: Gang, instance: Instance, r: Random) -> Gang:
    innermost = instance.cluster.node_level - 1
    if one.running or one.pods or innermost < 0:
        return one
    own = (_single(spec, r.choice((2, 4, 5))) if spec.gpus else spec for spec in one.roles)
    level = innermost if r.random() < 0.7 else r.randrange(innermost + 1)
    return replace(one, roles=tuple(own), balance=level if r.random() < 0.8 else None)


def _single(spec: Role, pods: int) -> Role:
    """The role with so many pods of one GPU each, and without slices."""
    one = replace(spec, min=pods, max=pods, gpus=1, elastic=False, step=1)
    return replace(one, slice_size=None, slice_level=None, outer_slices=())


def test_what_a_tier_narrows_does_not_hold_for_tiers_before_it() -> None:
    # the tiers are solved twice, and bounded once more: each time with the ranges of every plan
    for seed in range(20):
        instance = busy_by_speed(7000 + seed, more=["priorities", "preemptible", "movable"])
        model = SlotModel(instance)
        ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
        problem = SlotProblem(model, Budget(instance.policy.solve))
        count = len(model.program.lower)
        before = list(model.program.lower), list(model.program.upper)
        last = len(ledger.tiers)
        TierSearch(problem, ledger, Budget(instance.policy.solve), NullProgress(), last).run()
        assert (model.program.lower[:count], model.program.upper[:count]) == before, seed


def bounds(instance: Instance) -> dict[str, tuple[int, int]]:
    """(value, bound) of every tier after the greedy start."""
    budget = Budget(instance.policy.solve)
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    slots = SlotSearch(ledger, budget, frozenset(), tuple)
    slots.build()
    slots.renew()
    return {result.name: (result.value, result.bound) for result in ledger.results()}


def most(instance: Instance, name: str) -> int:
    """The value of the first tier of that name in the best assignment."""
    model = SlotModel(instance)
    tier = next(tier for tier in tiers_of(instance) if tier.name == name)
    expression = model.expression(tier)
    assert expression is not None, name
    if not expression.terms:
        return expression.constant
    goal = Goal(expression, tier.sense == "max")
    budget = Budget(instance.policy.solve)
    found = branch(model.program, goal, budget, nodes=1000, seconds=10)
    assert found.status is Status.OPTIMAL, name
    return expression.value(found.values)
