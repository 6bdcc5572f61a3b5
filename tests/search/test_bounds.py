"""Bounds without a solver.

Held against the best plan of random tiny instances, which is found by trying every plan: none may be beaten.
"""

from __future__ import annotations

from effort import examples
from exhaustive import plan
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_exhaustive_comparison import BUSY, MORE
from tiny import tiny
from tiny_busy import busy

from models.instance.instance import Instance
from models.tiers import Tier
from models.values.implied_bounds import ImpliedBounds
from models.values.tier_values import tiers_of

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
