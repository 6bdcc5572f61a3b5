"""Greedy start, rearranging and growth on random tiny instances: always valid, never worse, no waste."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from threading import Event

from by_steps import better, faults
from effort import examples
from tiny import tiny
from tiny_busy import busy

from benchmarks.generator import busy as large
from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from models.values.tier_values import Evaluation, tiers_of
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.free_space import FreeSpace
from planner.search.improve.growth import grow
from planner.search.improve.rearranging import settle
from planner.search.start.greedy import greedy

SEEDS = examples(300, 60)
REASONED = examples(80, 15)
"""Of these the reasons are found and judged too: each may cost a small proof."""


def drawn(seed: int) -> Instance:
    """Half of them large enough for gangs over several racks, half with everything that runs."""
    r = Random(f"steps/{seed}")
    if r.random() < 0.5:
        return busy(seed)
    more = ["running", "movable", "preemptible", "elastic", "priorities"]
    more += [f for f in ("incomplete", "unknown_gpus", "wide", "slices") if r.random() < 0.25]
    return tiny(seed, more=more)


def test_every_step_gives_a_valid_plan_that_is_no_worse() -> None:
    changed = 0
    for seed in range(SEEDS):
        instance = drawn(seed)
        start = greedy(instance, base_decisions(instance))
        back = settle(instance, start, budget=Budget(SolveLimits()))
        grown = grow(instance, back)
        assert better(instance, back) >= better(instance, start), seed
        assert better(instance, grown) >= better(instance, back), seed
        reasoned = seed < REASONED
        if reasoned:
            grown = with_reasons(instance, grown, Budget(SolveLimits(), Event()))
        found = faults(instance, grown)
        assert [f for f in found if reasoned or not f.startswith("reason ")] == [], seed
        changed += grown != start
    assert changed > SEEDS // 20


def test_growth_worsens_no_tier_before_it() -> None:
    grew = 0
    for seed in range(SEEDS):
        instance = drawn(seed)
        back = greedy(instance, base_decisions(instance))
        grown = grow(instance, back)
        grew += grown != back
        before, after = Evaluation(instance, back), Evaluation(instance, grown)
        for tier in tiers_of(instance):
            if tier.family == "growth":
                break
            sign = 1 if tier.sense == "max" else -1
            assert sign * after.tier(tier) >= sign * before.tier(tier), (seed, tier.name)
    assert grew >= SEEDS // 20


def test_the_steps_are_the_same_every_time() -> None:
    for seed in range(0, SEEDS, 10):
        first, second = (
            grow(i, settle(i, greedy(i, base_decisions(i)), budget=Budget(SolveLimits())))
            for i in (drawn(seed), drawn(seed))
        )
        assert first == second


def test_undoing_leaves_the_ground_as_it_was() -> None:
    for seed in range(0, SEEDS, 5):
        instance = drawn(seed)
        start = greedy(instance, base_decisions(instance))
        space, fresh = FreeSpace(instance, start), FreeSpace(instance, start)
        r, mark = Random(seed), space.mark()
        for _ in range(20):
            gang = r.randrange(len(instance.gangs))
            held = space.pods[gang]
            space.set(gang, r.choice(((), space.original[gang], start[gang].pods, held[:1])))
        space.undo(mark)
        assert space.pods == fresh.pods
        for mine, theirs in zip(space.by_node, fresh.by_node, strict=True):
            assert sorted(mine.tenants.items()) == sorted(theirs.tenants.items())
            assert (mine.raw, mine.mask, mine.left, mine.blind, mine.unknown) == (
                theirs.raw, theirs.mask, theirs.left, theirs.blind, theirs.unknown
            )  # fmt: skip


def test_a_space_that_begins_as_the_last_one_counts_what_changed_since() -> None:
    """Of a placed gang that asks for more, of one that is gone, and of everybody else nothing."""
    instance = large(16, 12, 3)
    decisions = greedy(instance, base_decisions(instance))
    FreeSpace(instance, decisions)
    placed = next(i for i, one in enumerate(decisions) if one.decision == "place")
    gang = instance.gangs[placed]
    roles = tuple(replace(role, requests=(("cpu", 7000),)) for role in gang.roles)
    gone = next(i for i, one in enumerate(decisions) if one.decision == "keep")
    less = replace(instance.gangs[gone], pods=())
    for index, other in ((placed, replace(gang, roles=roles)), (gone, less)):
        changed = instance.with_changed({index: other})
        alone = replace(changed, cluster=replace(changed.cluster))  # of which no space is known
        plan = list(decisions)
        if index == gone:
            plan[gone] = GangDecision("wait")
        own, fresh = FreeSpace(changed, plan), FreeSpace(alone, plan)
        assert own.by_node == fresh.by_node
        assert own.arrays.free.tolist() == fresh.arrays.free.tolist()
        assert {n: a.tolist() for n, a in own.arrays.left.items()} == {
            n: a.tolist() for n, a in fresh.arrays.left.items()
        }
