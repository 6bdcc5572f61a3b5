"""The exhaustive planner: what it leaves out changes nothing, and what is drawn is worth planning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from effort import examples, first_fast
from exhaustive import plan
from exhaustive_choosing import Choosing
from exhaustive_footing import Footing
from exhaustive_values import tier_values
from tiny import tiny
from tiny_busy import busy
from tiny_draws import FEATURES
from tiny_speeds import busy_by_speed, tiny_by_speed

from models.instance.instance import Instance


def decisions(instance: Instance) -> dict[str, str]:
    """Decision by gang name."""
    best = plan(instance)
    return {g.name: d.decision for g, d in zip(instance.gangs, best.decisions, strict=True)}


SMALL = ("resources", "own_nics", "mixed", "cpu_nodes")


def unpruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped any more, and no two rooms are the same."""
    monkeypatch.setattr("exhaustive_sameness.Sameness.key", lambda _, state: state)
    monkeypatch.setattr("exhaustive_sameness.Sameness.left", lambda _self, _n, left: left)
    monkeypatch.setattr(Footing, "_last_key", lambda _self, state: state)
    monkeypatch.setattr(Footing, "_leaders", lambda _self, entries, _rest, _known: entries)
    monkeypatch.setattr(Footing, "bound", lambda self: (10**15,) * len(self.scale.names))
    everything = Choosing._sets
    monkeypatch.setattr(
        Choosing,
        "_sets",
        lambda self, n, free, count, own, _: everything(
            self, n, free, count, own, (True, True, True)
        ),
    )


@pytest.mark.parametrize("seed", first_fast([1, 3, 6, 8, 11, 15, 16, 17, 22, 28, 30, 33], 4))
def test_what_is_pruned_changes_no_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tiny(seed, without=SMALL)
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


def test_the_generator_is_deterministic_and_its_features_can_be_switched_off() -> None:
    assert tiny(5) == tiny(5)
    plain = tiny(5, without=FEATURES)
    assert not plain.cluster.levels
    assert not any(g.running for g in plain.gangs)
    with pytest.raises(ValueError, match="no such feature"):
        tiny(5, without=("color",))


def test_most_tiny_instances_are_contended() -> None:
    both, tried = 0, examples(100, 16)
    for seed in range(tried):
        instance = tiny(seed)
        kinds = set(decisions(instance).values())
        both += {"wait", "place"} <= kinds
    assert both >= tried // 2


@pytest.mark.slow
def test_the_generator_of_busy_clusters_draws_every_decision_and_its_features_can_be_switched_off() -> (
    None
):
    assert busy(5) == busy(5)
    found = {d.decision for seed in range(60) for d in plan(busy(seed)).decisions}
    assert found == {"place", "complete", "keep", "move", "resize", "preempt", "wait"}
    plain = [busy(seed, without=("movable", "preemptible", "elastic")) for seed in range(60)]
    found = {d.decision for instance in plain for d in plan(instance).decisions}
    assert found == {"place", "complete", "keep", "wait"}
    with pytest.raises(ValueError, match="no such feature"):
        busy(5, more=("color",))


@pytest.mark.parametrize("seed", first_fast(range(20), 5))
def test_what_is_pruned_where_gangs_run_changes_no_value(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = busy(seed, without=SMALL, more=("movable", "preemptible", "elastic", "stability"))
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


@pytest.mark.parametrize("seed", first_fast(range(20), 5))
def test_what_is_pruned_under_goodput_changes_no_value(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("movable", "preemptible", "elastic", "services", "unknown_gpus")
    instance = busy_by_speed(seed, without=SMALL[:-1], more=more)
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


@pytest.mark.parametrize("draw", [tiny_by_speed, busy_by_speed])
def test_goodput_decides_otherwise_than_the_number_of_gpus_on_many_tiny_instances(
    draw: Any,  # noqa: ANN401
) -> None:
    assert draw(5) == draw(5)
    tried = examples(100, 20)
    assert sum(_worse_by_number(draw(seed)) for seed in range(tried)) >= tried // 20


def _worse_by_number(instance: Instance) -> bool:
    """Whether the best plan under ``admission`` is not the best under ``goodput``."""
    names = [one.name for one in instance.policy.objectives]
    objectives = tuple(
        replace(one, name="admission" if name == "goodput" else name)
        for one, name in zip(instance.policy.objectives, names, strict=True)
    )
    policy = replace(instance.policy, objectives=objectives)
    by_number = plan(replace(instance, policy=policy)).decisions
    return tier_values(instance, by_number) != plan(instance).tiers
