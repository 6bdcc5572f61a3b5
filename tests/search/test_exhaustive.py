"""The exhaustive planner: what it leaves out changes nothing, and what is drawn is worth planning."""

from __future__ import annotations

import pytest
from effort import first_fast
from exhaustive import plan
from exhaustive_choosing import Choosing
from exhaustive_footing import Footing
from tiny import tiny
from tiny_busy import busy
from tiny_speeds import busy_by_speed

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
