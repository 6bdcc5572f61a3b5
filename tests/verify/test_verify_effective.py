"""Effective GPUs that a plan states: a wrong number is found, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    gang,
    made,
    mesh,
    moves,
    node,
    policy,
    role,
    rules_broken,
    sealed,
    standing,
)

from models.verify.check import check


def goodput(**more: object) -> Doc:
    names = ("goodput", "waiting", "bandwidth")
    return policy(objectives=[{"name": name, "tolerance": 0} for name in names], **more)


def on_two_meshes(rules: Doc, before: list[int], after: list[int], *, priority: int = 0) -> Doc:
    """Two DGX-1 V100: a (2 GPUs) moves from m1 to m2, b (1 GPU) starts, c lacks a pod, d waits.

    ``priority``: of b.

    GPUs 0 and 3 have the full speed, 0 and 1 share 500 and speed 800, 0 and 5 share 200 and speed 500.
    """
    gangs = [
        gang("a", role("worker", 1, 2), movable=True, pods=(standing("a", "m1", before),)),
        gang("b", role("worker", 1, 1), priority=priority),
        gang("c", role("worker", 2, 1), pods=(standing("c", "m1", [6]),)),
        gang("d", role("worker", 1, 8)),
    ]
    decisions = [
        decided("a", "move", ("m2", after)),
        decided("b", "place", ("m1", [7])),
        decided("c", "keep", ("m1", [6]), why="Incomplete"),
        decided("d", "wait", why="NoRoom"),
    ]
    nodes = [node(name, "DGX-1 V100") for name in ("m1", "m2")]
    return made(cluster([mesh()], nodes), gangs, decisions, rules)


def stating(plan: Doc, **effective: Any) -> Doc:  # noqa: ANN401  # any JSON
    plan["status"]["effectiveGpus"] = effective
    return plan


@pytest.mark.parametrize("rules", [policy(), goodput()], ids=["admission", "goodput"])
@pytest.mark.parametrize(
    ("gpus", "before", "after"),
    [
        (([0, 3], [0, 3]), 2, 3),
        (([0, 3], [0, 1]), 2, 2.6),  # a slows down: 2 x 800 + 1000
        (([0, 5], [0, 3]), 1, 2),  # nobody is faster by a move: 2 x 500 + 1000
    ],
)
def test_effective_gpus_are_those_before_and_after_the_plan(
    rules: Doc, gpus: tuple[list[int], list[int]], before: float, after: float
) -> None:
    plan = stating(on_two_meshes(rules, *gpus), before=before, after=after, oneAtATime=1.36)
    assert check(plan) == []
    for wrong in ({"before": before + 0.02}, {"after": after - 0.02}, {"after": after + 1}):
        changed = stating(plan, **{"before": before, "after": after, **wrong})
        (violation,) = check(changed)
        assert (violation.rule, violation.gang) == ("effective-gpus", None)
        assert f"status.effectiveGpus.{next(iter(wrong))}: says" in violation.message


def by_priority(*rows: tuple[int, float, float]) -> list[Doc]:
    """(priority, after, one after another)."""
    return [{"priority": p, "after": after, "oneAtATime": alone} for p, after, alone in rows]


@pytest.mark.parametrize(
    ("rows", "possible"),
    [
        (by_priority((5, 1, 0), (0, 2, 4)), True),
        (by_priority((5, 1, 1), (0, 2, 3)), True),
        (by_priority((5, 1, 0.5), (0, 2, 3.5)), True),
        (by_priority((5, 2, 0), (0, 1, 4)), False),  # b alone is of priority 5
        (by_priority((5, 1, 1.5), (0, 2, 2.5)), False),  # b asks for 1 GPU
        (by_priority((5, 1, 0), (0, 2, 3)), False),  # 3 are not 4
        (by_priority((0, 2, 4)), False),
        (by_priority((0, 2, 4), (5, 1, 0)), False),
        (by_priority((5, 1, 0), (5, 1, 0), (0, 2, 4)), False),
        (by_priority((5, 1, 0), (3, 0, 0), (0, 2, 4)), False),
        (by_priority((5, 1, 0), (0, 2, 3), (-1, 0, 1)), False),  # nobody is
    ],
)
def test_of_fewer_than_one_gang_after_another_each_priority_is_stated(
    rows: list[Doc], *, possible: bool
) -> None:
    plan = on_two_meshes(goodput(), [0, 3], [0, 3], priority=5)
    stated = stating(plan, before=2, after=3, oneAtATime=4, byPriority=rows)
    assert rules_broken(stated) == (set() if possible else {"effective-gpus"})


@pytest.mark.parametrize(
    ("start", "possible"),
    [(0, True), (13, True), (2.613, True), (13.001, False), (2.6135, False), (1e300, False)],
)
def test_one_at_a_time_is_not_more_than_all_gangs_at_full_speed(
    start: float, *, possible: bool
) -> None:
    # 2 + 1 + 2 + 8 GPUs are asked for
    plan = on_two_meshes(goodput(), [0, 3], [0, 3])
    rows = by_priority((0, 3, start)) if start > 3 else []
    stating(plan, before=2, after=3, oneAtATime=start, byPriority=rows)
    assert rules_broken(plan) == (set() if possible else {"effective-gpus"})


@pytest.mark.parametrize(
    "effective",
    [{"before": 2}, {"before": -1, "after": 3}, {"before": "2", "after": 3}, {"before": None}, 3],
)
def test_a_broken_form_is_found(effective: object) -> None:
    plan = on_two_meshes(goodput(), [0, 3], [0, 3])
    plan["status"]["effectiveGpus"] = effective
    assert rules_broken(plan) == {"form"}


def test_a_plan_may_state_none() -> None:
    plan = on_two_meshes(policy(), [0, 3], [0, 3])
    assert "effectiveGpus" not in plan["status"]
    assert check(plan) == []


def test_a_gang_of_unknown_gpus_ran_as_slowly_as_the_worst_that_it_may_hold() -> None:
    # x holds GPUs 1 and 2, joined by two links: speed 1000. Of the other six, a may hold two without a
    # link: share 200, speed 500, which counts after its move to 0 and 3 too. 2 x 0.5 + 2 x 1.
    gangs = [
        gang("a", role("worker", 1, 2), movable=True, pods=(standing("a", "m", None),)),
        gang("x", role("worker", 1, 2), pods=(standing("x", "m", [1, 2]),)),
    ]
    decisions = [decided("a", "move", ("m", [0, 3])), decided("x", "keep", ("m", [1, 2]))]
    mesh_node = cluster([mesh()], [node("m", "DGX-1 V100")])
    plan = made(mesh_node, gangs, decisions, goodput())
    assert rules_broken(stating(plan, before=3, after=3)) == set()
    assert rules_broken(stating(plan, before=4, after=3)) == {"effective-gpus"}
    assert rules_broken(stating(plan, before=3, after=4)) == {"effective-gpus"}


# what moves bought


def bought(effective: float | None, gain: float, rules: Doc | None = None) -> Doc:
    """a moves from m1 to m2 and is as fast there; b (1 GPU) is bought with it."""
    plan = on_two_meshes(rules or goodput(), [0, 3], [0, 3])
    stated = moves(["default/a"], 2, gangs=["default/b"], gpus=1, gain=gain)
    if effective is not None:
        stated["bought"]["effectiveGpus"] = effective
    plan["status"]["moves"] = [stated]
    return sealed(plan)


@pytest.mark.parametrize(
    ("effective", "gain", "possible"),
    [
        (1, 0.5, True),
        (0.4, 0.2, True),  # others may have become slower
        (0.4, 0.5, False),  # the gain of the GPUs, not of the effective ones
        (3, 1.5, True),
        (3.02, 1.51, False),  # the plan has 3
        (-10, -5.0, True),
        (-10.02, -5.01, False),  # of 13 in all, 10 are not effective
        (0.4005, 0.2, False),
    ],
)
def test_under_goodput_moves_buy_effective_gpus(
    effective: float, gain: float, *, possible: bool
) -> None:
    assert rules_broken(bought(effective, gain)) == (set() if possible else {"bought"})
