"""The comparison itself: a search that is wrong in one way is caught in that way, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import comparing
import pytest
from building import build, gang
from exhaustive import plan
from exhaustive_moves import moves_of
from exhaustive_values import tier_values

from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement, Reason, Solution

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


def test_a_gang_split_without_need_is_caught_by_bandwidth_and_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart = GangDecision("place", (PodPlacement(0, 0, 0, 15), PodPlacement(0, 1, 1, 15)))

    def worse(s: Solution) -> Solution:
        one = GangDecision("place", (PodPlacement(0, 0, 0, 16),))
        return valued(INSTANCE, (apart, one))

    # 134 permille (50,000 of 370,800) instead of 1000, and one server more for w = 8
    better = "says that 1072 is proven best, but being placed elsewhere gives 8000"
    assert found(monkeypatch, worse) == [
        "values bandwidth: 1072 != 8000, span: 8 != 0",
        f"search: NotMaximal default/a: bandwidth: {better}",
    ]


def test_a_value_that_the_plan_does_not_have_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def boast(s: Solution) -> Solution:
        first = replace(s.tiers[0], value=10, best=10, bound=10)
        return replace(s, tiers=(first, *s.tiers[1:]))

    lines = found(monkeypatch, boast)
    assert "stated against worth admission/0: 10 != 9" in lines
    assert any(line.startswith("search: ") for line in lines)  # the checker sees it too


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


def test_what_moves_are_said_to_have_bought_is_compared_with_the_best_plan_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = gang("old", stands=[(0, 0, 1, 1)], movable=True)
    fixed = gang("fixed", gpus_per_pod=4, stands=[(0, 0, 0, 15)])
    # ``old`` makes way for ``new`` (8 GPUs); with ``small`` instead there is nothing to make way for.
    needed = build(nodes_per_rack=2, gangs=[fixed, gang("new", gpus_per_pod=8), old])
    best = plan(needed)
    (true,) = moves_of(needed, best)
    for bought, lines in ((true, []), (replace(true, gpus=9), ["bought 8 GPUs, said to be 9"])):
        solution = best.solution((bought,))
        monkeypatch.setattr(comparing, "solve", lambda _, solution=solution: solution)
        found = [line for line in comparing.differences(needed) if line.startswith("moves of")]
        assert found == [f"moves of (2,): {line}" for line in lines]
    needless = build(nodes_per_rack=2, gangs=[fixed, gang("small"), old], objectives=("admission",))
    best = plan(needless)
    moved = GangDecision("move", (PodPlacement(0, 0, 0, 16),))
    wrong = replace(
        best.solution((replace(true, gangs=(1,), gpus=0, bandwidth=0, gain=0, admitted=()),)),
        decisions=(best.decisions[0], moved, best.decisions[2]),
    )
    monkeypatch.setattr(comparing, "solve", lambda _: wrong)
    assert "moves of (1,): a plan without them is as good" in comparing.differences(needless)
