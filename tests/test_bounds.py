"""Bounds without a solver, of the aggregated model's LP, and of variables that reduced costs narrow.

Held against the best plan of random tiny instances, which is found by trying every plan: none may be beaten.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from building import build, gang
from effort import examples
from exhaustive import plan
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_exhaustive_comparison import BUSY, MORE
from tiny import tiny
from tiny_busy import busy

from models.implied_bounds import ImpliedBounds
from models.instance import Instance
from models.policy import SolveLimits
from models.program.aggregated.bounds import PLACEMENTS
from models.program.aggregated.model import AggregatedModel
from models.program.aggregated.pools import smallest_piece
from models.program.linear_program import UNBOUNDED
from models.tier_values import tiers_of
from models.tiers import Tier
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.engines.relaxation import Relaxation
from planner.search.tier_search import RUNNING_SUBJECTS

some = settings(max_examples=examples(100, 40))
kinds = st.sampled_from([*MORE.values(), *BUSY.values()])


def drawn(seed: int, more: tuple[str, ...]) -> Instance:
    return busy(seed, more=more) if more in BUSY.values() else tiny(seed, more=more)


def best_values(instance: Instance) -> list[tuple[Tier, int]]:
    """Every tier with its best value."""
    found = plan(instance).tiers
    tiers = tiers_of(instance)
    assert [tier.name for tier in tiers] == [name for name, _ in found]
    return [(tier, value) for tier, (_, value) in zip(tiers, found, strict=True)]


def beaten(tier: Tier, bound: int, value: int) -> bool:
    return value > bound if tier.sense == "max" else value < bound


@some
@given(st.integers(0, 10**6), kinds)
@example(2091, BUSY["sizes"])  # more GPUs of a node are held than it has
def test_no_plan_beats_an_implied_bound(seed: int, more: tuple[str, ...]) -> None:
    hold_implied_bounds(drawn(seed, more))


def hold_implied_bounds(instance: Instance) -> None:
    implied = ImpliedBounds(instance)
    kept: dict[Tier, int] = {}
    for tier, value in best_values(instance):
        for bounds in ({}, kept):
            bound = implied.bound(tier, kept, bounds)
            assert not beaten(tier, bound, value), (tier.name, bound, value)
        kept[tier] = value


@some
@given(st.integers(0, 10**6), kinds, st.booleans())
@example(699, BUSY["stops"], True)  # a held gang lacks a pod that an earlier plan had
@example(7411, ("slices", "role_topology", "required", "gaps", "preferred"), False)  # overfull
@example(673517, ("incomplete", "elastic", "preemptible", "held"), False)  # stopped for a launcher
def test_no_plan_beats_the_bounds_of_the_pooled_program(
    seed: int, more: tuple[str, ...], shaped: bool
) -> None:
    hold_pooled_bounds(drawn(seed, more), shaped=shaped)


def hold_pooled_bounds(instance: Instance, *, shaped: bool) -> None:
    # After every tier, variables are narrowed to what keeps it: the best plan must not be cut off.
    model = AggregatedModel(instance, shaped=PLACEMENTS if shaped else ())
    budget = Budget(SolveLimits(workers=1))
    relaxation = Relaxation(model.program, budget)
    rows = []
    subjects = set()
    for tier, value in best_values(instance):
        subjects.add(tier.row.subject)
        if not (model.complete or (model.covers_admission and subjects <= RUNNING_SUBJECTS)):
            break
        goal = Goal(model.expression(tier), tier.sense == "max", tuple(rows))
        found = relaxation.bound(goal, seconds=60)
        assert not beaten(tier, found.bound, value), (tier.name, found.bound, value)
        whole = solve_exactly(model.program, goal, budget, 1.0)
        assert whole.status is not Status.INFEASIBLE, tier.name
        assert not beaten(tier, whole.bound, value), (tier.name, whole.bound, value)
        if found.proof is not None:
            found.proof.tighten(model.program, value)
        limits = (value, UNBOUNDED) if tier.sense == "max" else (-UNBOUNDED, value)
        if goal.objective.terms:
            rows.append((goal.objective, *limits))


@pytest.mark.parametrize(
    ("racks", "pods", "span"),
    [
        # Three servers of one rack: 24 GPUs x (3 - 1) nodes.
        (3, 3, 48),
        # Four pods, three servers a rack: two racks of one block (24 + 8 GPUs) x (4 x 1 + 3 nodes).
        (2, 4, 32 * (4 + 3)),
    ],
)
def test_the_pooled_program_knows_how_many_domains_a_gang_needs(
    racks: int, pods: int, span: int
) -> None:
    instance = build(racks=racks, nodes_per_rack=3, gangs=[gang("a", pods, 8)])
    model = AggregatedModel(instance, shaped=PLACEMENTS)
    rows = []
    for tier, value in best_values(instance):
        goal = Goal(model.expression(tier), tier.sense == "max", tuple(rows))
        if tier.family == "span":
            found = solve_exactly(model.program, goal, Budget(SolveLimits(workers=1)), 1.0)
            assert found.bound == value == span
        limits = (value, UNBOUNDED) if tier.sense == "max" else (-UNBOUNDED, value)
        if goal.objective.terms:
            rows.append((goal.objective, *limits))


def partitions(pods: int, most: int, largest: int) -> Iterator[tuple[int, ...]]:
    if not pods:
        yield ()
    for piece in range(min(pods, most, largest), 0, -1):
        for rest in partitions(pods - piece, most, piece):
            yield (piece, *rest)


@pytest.mark.parametrize("most", [2, 4, 5, 8, 16])
@pytest.mark.parametrize("pods", range(2, 17))
def test_the_smallest_of_several_pieces_is_as_large_as_it_can_be(pods: int, most: int) -> None:
    split = [cut for cut in partitions(pods, most, pods) if len(cut) > 1]
    for limit in range(1, pods):
        able = [min(cut) for cut in split if min(cut) <= limit]
        assert not able or smallest_piece(pods, most, limit) == max(able), limit
    for cut in split:
        for piece in (1, 2, 4, 8):
            if min(cut) >= piece:  # as many sets as a shape with such pieces takes
                sets = -(-pods // min(2 * piece - 1, most))
                assert sum(p // piece for p in cut) >= min(sets, pods // piece)
