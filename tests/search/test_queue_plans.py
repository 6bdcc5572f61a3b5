"""Limits, guarantees and reclaiming: by hand, and against every plan of random tiny instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from building import build, gang
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_plans import Facts, best, places_of, tiny_queues
from test_bounds import beaten

from models.documents.policy import SolveLimits
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount, Queue
from models.instance.solution import Reason, Solution
from models.program.formulation import formulate
from models.program.linear_program import UNBOUNDED
from models.program.slots.slot_program import SlotModel
from models.queues.queue_shares import within_guarantee
from models.tiers import larger_is_better, sign
from models.values.implied_bounds import ImpliedBounds
from models.values.tier_values import tiers_of
from planner.search.budget import Budget
from planner.search.engines.interface import Goal
from planner.search.engines.relaxation import Relaxation
from planner.search.solve import solve

MOST_PLANS = 20_000
"""Plans of an instance that are tried."""


def cluster(queues: Sequence[Queue], gangs: Sequence[Gang], nodes: int = 2) -> Instance:
    """Servers of 8 GPUs."""
    names = sorted(queue.name for queue in queues)
    ordered = tuple(sorted(queues, key=lambda queue: queue.name))
    assert names == [queue.name for queue in ordered]
    instance = build(nodes_per_rack=nodes, gangs=gangs, objectives=("admission", "waiting"))
    return replace(instance, queues=ordered)


def asks(name: str, queue: str | None, gpus: int, *, firm: bool = True, priority: int = 0) -> Gang:
    found = gang(name, 1, gpus, preemptible=not firm, priority=priority)
    return replace(found, queue=queue)


def runs(name: str, queue: str | None, n: int, *, priority: int = 0) -> Gang:
    """A preemptible gang on all GPUs of a node."""
    found = gang(name, 1, 8, stands=[(0, 0, n, 255)], preemptible=True, priority=priority)
    return replace(found, queue=queue)


def decided(solution: Solution) -> list[str]:
    return [one.decision for one in solution.decisions]


def promised(name: str, gpus: int, **more: object) -> Queue:
    return replace(Queue(name, guarantee=Amount(gpus)), **more)  # type: ignore[arg-type]  # its fields


def test_a_queue_and_those_below_it_hold_at_most_its_limit() -> None:
    queues = [Queue("all", limit=Amount(8)), Queue("team", parent=0)]
    solution = solve(
        cluster(queues, [asks("a", "all", 4), asks("b", "team", 8), asks("c", None, 8)])
    )
    # b fills the limit and is worth more than a; c is in no queue
    assert decided(solution) == ["wait", "place", "place"]
    reason = solution.decisions[0].reason
    assert reason is not None
    assert reason == Reason.of("Quota", gpus=4, queue="all", held=8, limit=8)


def test_a_gang_that_is_larger_than_its_limit_can_never_start_whatever_room_there_is() -> None:
    queues = [Queue("all", limit=Amount(6)), Queue("team", parent=0)]
    others = [runs("a", None, 0), runs("b", None, 1)]
    solution = solve(cluster(queues, [*others, asks("c", "team", 8)]))
    assert decided(solution) == ["keep", "keep", "wait"]
    reason = solution.decisions[2].reason
    assert reason is not None
    assert reason == Reason.of("Never", gpus=8, queue="all", limit=6)


def test_only_gangs_that_can_be_stopped_borrow_what_is_promised() -> None:
    queues = [promised("owner", 8), Queue("team")]
    solution = solve(cluster(queues, [asks("a", "team", 8), asks("b", "team", 8)]))
    assert sorted(decided(solution)) == ["place", "wait"]
    reason = next(one.reason for one in solution.decisions if one.reason)
    assert reason == Reason.of("Quota", gpus=8, queue="owner", limit=8)
    borrower = asks("b", "team", 8, firm=False)
    assert decided(solve(cluster(queues, [asks("a", "team", 8), borrower]))) == ["place", "place"]


def test_a_limit_that_lower_gangs_fill_is_no_reason_where_a_promise_is_one() -> None:
    # "all" may hold 16, and 16 GPUs are there: 6 of pa and 4 of pb run. With high pa would hold 10, which
    # with the 8 of pb are more than 16. Low, within the promise to pb, starts and fills "all" up to 14.
    held = [
        gang("r", 1, 6, stands=[(0, 0, 0, 63)], priority=9),
        gang("s", 1, 4, stands=[(0, 0, 1, 15)]),
    ]
    queues = [
        Queue("all", limit=Amount(16)),
        promised("pa", 8, parent=0),
        promised("pb", 8, parent=0),
    ]
    asking = [asks("high", "pa", 4, priority=9), asks("low", "pb", 4)]
    gangs = [replace(held[0], queue="pa"), replace(held[1], queue="pb"), *asking]
    found = solve(cluster(queues, gangs))  # high, low, r, s
    assert decided(found) == ["wait", "place", "keep", "keep"]
    assert found.decisions[0].reason == Reason.of("Quota", gpus=4, queue="pb", limit=8)


@pytest.mark.parametrize(
    ("victim", "comer", "stopped"),
    [
        (runs("v", None, 0, priority=9), asks("c", "owner", 8), True),
        (runs("v", "borrower", 0, priority=9), asks("c", "owner", 8), True),
        (runs("v", "entitled", 0, priority=9), asks("c", "owner", 8), False),
        (runs("v", "owner", 0, priority=9), asks("c", "owner", 8), False),
        (runs("v", None, 0, priority=9), asks("c", "patient", 8), False),
        (runs("v", None, 0), asks("c", None, 8), False),
        (runs("v", None, 0), asks("c", "small", 8), False),  # beyond its guarantee
    ],
)
def test_an_owner_reclaims_within_its_guarantee_what_others_borrow(
    victim: Gang, comer: Gang, stopped: bool
) -> None:
    queues = [
        *(Queue("borrower"), promised("entitled", 8), promised("owner", 8)),
        *(promised("patient", 8, reclaim=False), promised("small", 4)),
    ]
    own = [queue for queue in queues if queue.name in (victim.queue, comer.queue)]
    instance = cluster(own, [comer, victim], nodes=1)
    assert decided(solve(instance)) == (["place", "preempt"] if stopped else ["wait", "keep"])


def test_a_queue_reclaims_from_its_parent_but_not_from_a_sister_within_hers() -> None:
    queues = [promised("all", 16), promised("mine", 8, parent=0), promised("sister", 8, parent=0)]
    gangs = [asks("c", "mine", 8), runs("p", "all", 0), runs("s", "sister", 1)]
    assert decided(solve(cluster(queues, gangs))) == ["place", "preempt", "keep"]


def test_a_guarantee_goes_before_a_higher_priority_that_has_none() -> None:
    queues = [promised("owner", 8)]
    gangs = [asks("high", None, 8, firm=False, priority=9), asks("mine", "owner", 8, firm=False)]
    solution = solve(cluster(queues, gangs, nodes=1))
    assert decided(solution) == ["wait", "place"]
    assert [tier.name for tier in solution.tiers][:2] == ["guarantee/0", "admission/9"]
    assert all(tier.bound == tier.value for tier in solution.tiers)


def test_gangs_are_within_a_guarantee_in_turn() -> None:
    queues = [
        *(promised("a", 6), promised("b", 3), promised("c", 8), promised("d", 4, parent=2)),
        Queue("e", guarantee=Amount(2, (("a100", 4), ("h100", 4)))),
    ]
    gangs = [
        runs("beyond", "a", 0, priority=9),  # 8 of 6
        asks("first", "a", 4, priority=5),
        replace(asks("held", "a", 2, priority=7), hold="no"),
        asks("late", "a", 3),  # 2 are left
        asks("nobody", None, 1, priority=9),
        asks("small", "a", 2),
        asks("beside", "b", 3),  # stays holds them all
        replace(runs("stays", "b", 1), preemptible=False),  # 8 of 3
        asks("model", "e", 4, priority=1),  # 4 of 2, but 4 of 4 H100; there is no A100
        asks("rest", "e", 1),
        asks("big", "c", 6, priority=9),  # of the 4 that a child leaves
        asks("inner", "d", 4),
        asks("none", "d", 0),
    ]
    instance = cluster(queues, gangs, nodes=3)  # with two, more is promised than there is
    within = [gang.name for gang in instance.gangs if within_guarantee(instance, gang)]
    assert within == ["first", "inner", "model", "small"]


def test_fair_shares_follow_weights() -> None:
    # of 16 GPUs 12 are due to a, which weighs three times as much
    queues = [Queue("a", weight=3), Queue("b")]
    gangs = [asks(f"{q}{i}", q, 4) for q in "ab" for i in range(4)]
    instance = cluster(queues, gangs)
    listed = replace(instance.policy.objectives[0], name="fair")
    objectives = (listed, *instance.policy.objectives)
    solution = solve(replace(instance, policy=replace(instance.policy, objectives=objectives)))
    assert decided(solution).count("place") == 4
    assert decided(solution)[4:].count("place") == 1
    # a quarter of the GPUs is a third of what is due to a, rounded down, and all that is due to b
    assert [(t.name, t.value) for t in solution.tiers][:2] == [
        ("fair/1", 3 * 333_333),
        ("fair/2", 3 * 333_333 + 10**6),
    ]


def few(seed: int) -> Facts | None:
    facts = Facts.of(tiny_queues(seed))
    return facts if facts.size <= MOST_PLANS else None


@settings(max_examples=examples(400, 40))
@given(st.integers(0, 10**6))
def test_the_search_equals_trying_every_plan(seed: int) -> None:
    facts = few(seed)
    if facts is None:
        return
    instance = facts.instance
    solution, tiers = solve(instance), tiers_of(instance)
    plan = places_of(solution.decisions)
    assert facts.obeys(plan)
    values = larger_is_better(tiers, [tier.value for tier in solution.tiers])
    assert values == facts.values(plan, [tier.name for tier in tiers])
    assert values == best(facts, [tier.name for tier in tiers])


@settings(max_examples=examples(200, 30))
@given(st.integers(0, 10**6))
def test_no_plan_beats_a_bound(seed: int) -> None:
    facts = few(seed)
    if facts is None:
        return
    instance, tiers = facts.instance, tiers_of(facts.instance)
    values = best(facts, [tier.name for tier in tiers])
    implied, models = ImpliedBounds(instance), (formulate(instance), SlotModel(instance))
    for model in models:
        relaxation, kept = Relaxation(model.program, Budget(SolveLimits())), []
        for tier, worth in zip(tiers, values, strict=True):
            value, expression = worth * sign(tier.sense), model.expression(tier)
            if tier.row.subject == "admission" and tier.family in ("guarantee", "fair"):
                assert implied.bound(tier) >= value
            if expression is None or not model.complete:
                break
            goal = Goal(expression, tier.sense == "max", tuple(kept))
            assert not beaten(tier, relaxation.bound(goal, seconds=10).bound, value)
            if expression.terms:
                limits = (value, UNBOUNDED) if tier.sense == "max" else (-UNBOUNDED, value)
                kept.append((expression, *limits))


def test_gangs_that_may_not_be_stopped_have_a_limit_of_their_own() -> None:
    queues = [
        Queue("all", non_preemptible_limit=Amount(8)),
        Queue("team", parent=0),
    ]
    asking = [
        asks("a", "team", 8, priority=1),
        asks("b", "all", 4),
        asks("c", "team", 8, firm=False),
    ]
    found = solve(cluster(queues, asking))
    # c may be stopped; a uses the limit up
    assert decided(found) == ["place", "wait", "place"]
    assert found.decisions[1].reason == Reason.of("Quota", gpus=4, queue="all", held=8, limit=8)
    large = solve(cluster([Queue("q", non_preemptible_limit=Amount(4))], [asks("a", "q", 8)]))
    assert large.decisions[0].reason == Reason.of("Never", gpus=8, queue="q", limit=4)
