"""The comparison itself: a search that is wrong in one way is caught in that way, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import comparing
import pytest
from building import build, gang
from exhaustive import plan
from exhaustive_values import tier_values

from models.instance.instance import Instance
from models.instance.solution import GangDecision, Reason, Solution

INSTANCE = build(nodes_per_rack=2, gangs=[gang("a", pods=2, gpus_per_pod=4), gang("b")])
"""Best: 8 + 1 GPUs admitted, a on one server."""


def found(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Solution], Solution]) -> list[str]:
    """What the comparison says of the best solution made wrong."""
    solution = wrong(plan(INSTANCE).solution())
    monkeypatch.setattr(comparing, "solve", lambda _: solution)
    return comparing.differences(INSTANCE)


def valued(instance: Instance, decisions: tuple[GangDecision, ...]) -> Solution:
    """A solution of these decisions that states their true values."""
    best = plan(instance).solution()
    tiers = tuple(
        replace(tier, value=value, best=value, bound=value)
        for tier, (_, value) in zip(best.tiers, tier_values(instance, decisions), strict=True)
    )
    return replace(best, decisions=decisions, tiers=tiers)


def test_the_best_plan_differs_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, lambda s: s) == []


def test_a_worse_plan_is_caught_by_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = GangDecision("wait", (), Reason.of("NoRoom", text="by hand"))

    def worse(s: Solution) -> Solution:
        return valued(INSTANCE, (s.decisions[0], waits))

    # 8 instead of 9 GPUs admitted
    assert any("admission/0: 8 != 9" in line for line in found(monkeypatch, worse))


def test_an_open_bound_and_a_weak_proof_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_bound(s: Solution) -> Solution:
        return replace(s, tiers=(replace(s.tiers[0], bound=10, proof="numerical"), *s.tiers[1:]))

    lines = found(monkeypatch, open_bound)
    assert "admission/0: value 9, best 9, bound 10" in lines
    assert "admission/0: proof numerical" in lines


def test_a_gpu_given_twice_is_caught_by_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(s: Solution) -> Solution:
        (pod,) = s.decisions[1].pods
        other = s.decisions[0].pods[0]
        clash = replace(pod, node=other.node, gpus=(other.gpus or 0) & -(other.gpus or 0))
        return valued(INSTANCE, (s.decisions[0], replace(s.decisions[1], pods=(clash,))))

    assert any(line.startswith("search: ") for line in found(monkeypatch, twice))
