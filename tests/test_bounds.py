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

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.program.aggregated.bounds import PLACEMENTS
from models.program.aggregated.model import AggregatedModel
from models.program.base_state import base_decisions
from models.program.linear_program import UNBOUNDED
from models.tiers import Tier
from models.values.implied_bounds import ImpliedBounds
from models.values.tier_values import tiers_of
from planner.search.bound.tier_search import RUNNING_SUBJECTS
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.engines.relaxation import Relaxation
from planner.search.ledger import Ledger

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
    kept: list[tuple[Tier, int]] = []
    for tier, value in best_values(instance):
        bound = implied.bound(tier, kept)
        assert not beaten(tier, bound, value), (tier.name, bound, value)
        kept.append((tier, value))


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


@pytest.mark.parametrize("shaped", [(), ("preference", "bandwidth"), PLACEMENTS])
@pytest.mark.parametrize(
    ("blocks", "same", "starting"), [(1, None, 1), (2, None, 3), (2, "block", 2)]
)
def test_gangs_in_slices_are_pooled_and_keep_their_slices(
    blocks: int, same: str | None, starting: int, shaped: tuple[str, ...]
) -> None:
    # A rack of three servers holds one slice of two pods, a block of three racks three slices: one gang
    # of two slices. Two blocks hold six slices and three gangs, or two where a gang may not leave its
    # block. Pods without slices would fill two more servers a block.
    gangs = [gang(name, 4, 8, slices=(2, "rack"), same=same) for name in ("a", "b", "c", "d")]
    instance = build(blocks=blocks, racks=3, nodes_per_rack=3, gangs=gangs)
    model = AggregatedModel(instance, shaped=shaped)
    assert not model.variables.gangs
    tier = next(tier for tier in tiers_of(instance) if tier.row.fused)
    goal = Goal(model.expression(tier), maximize=True)
    found = solve_exactly(model.program, goal, Budget(SolveLimits(workers=1)), 1.0)
    decisions = model.decode(found.values)
    assert [one.decision for one in decisions].count("place") == starting
    assert found.bound == found.bound // starting * starting
    assert Ledger(instance, base_decisions(instance)).evaluate(decisions).tier(tier) == found.bound
    of = instance.cluster.domain_of[instance.cluster.node_level - 1]
    for one in decisions:
        racks = [of[pod.node] for pod in one.pods]
        assert racks[::2] == racks[1::2]  # pods 0 and 1, 2 and 3


def partitions(pods: int, most: int, largest: int) -> Iterator[tuple[int, ...]]:
    if not pods:
        yield ()
    for piece in range(min(pods, most, largest), 0, -1):
        for rest in partitions(pods - piece, most, piece):
            yield (piece, *rest)
