"""Good plans with one change: what the judge says of indices, slices, holds, NVLink, budgets and queues."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from outcomes import document_of
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    made,
    node,
    restated,
    role,
    sealed,
    standing,
    stopped,
    wanted,
)
from plan_documents import gang as gang_document
from plan_queues import queue as queue_document
from plan_queues import queues_plan
from stated_cases import Case, instance_of

from models.verify.check import check

PLANS: dict[str, Case] = {
    "two pods": {"nodes": 1, "gangs": {"a": "2x2"}},
    "from index 1": {"nodes": 1, "gangs": {"a": "2x1 first=1"}},
    "layers": {
        "nodes": {"tree": {"b0": {"r0": "2", "r1": "2"}, "b1": {"r0": "2", "r1": "2"}}},
        "gangs": {"a": {"pods": 4, "slices": [1, "node"], "outer": [[2, "rack"], [4, "block"]]}},
    },
    "trays": {
        "nodes": {f"n{i}": {"gpus": "tray", "rack": f"r{i // 2}"} for i in range(4)},
        "policy": {"nvlink": "rack"},
        "gangs": {"a": "2x4 joined=false", "b": "2x4"},
    },
}


@cache
def _plan(name: str) -> Doc:
    found = document_of(instance_of(PLANS[name]))
    assert check(found) == []
    return found


def changed(name: str, change: Callable[[Doc], object]) -> Doc:
    plan = copy.deepcopy(_plan(name))
    change(plan)
    return plan


def rules(plan: Doc) -> set[str]:
    return {violation.rule for violation in check(plan)}


EXPRESSION = {"key": "a", "operator": "Gt"}
BAD: dict[str, list[object]] = {
    "nodeAffinity": [
        *(1, [1], [[1]], [[{}]], [[{"key": "a", "operator": "Equals"}]]),
        *([[EXPRESSION | {"values": own}]] for own in (["x"], ["1", "2"], ["9" * 5000])),
        [[{"key": "a", "operator": "In", "values": [1]}]],
        [[{"key": "a", "operator": "In", "values": ["b"], "field": True}]],
        [[{"key": "metadata.name", "operator": "Exists", "field": True}]],
        [[{"key": "a", "operator": "Exists", "more": 1}]],
    ],
    "outerSlices": [1, [1], [{}], [{"size": 0, "required": "rack"}]],
}
NO_HOLD = [1, [], {}, {"code": "NoRoom", "message": "x"}, {"code": "Incomplete", "message": ""}]


@pytest.mark.parametrize(
    ("field", "bad"), [(f, b) for f, every in BAD.items() for b in every], ids=lambda v: str(v)[:60]
)
def test_the_judge_takes_no_other_form_of_a_role(field: str, bad: object) -> None:
    def change(plan: Doc) -> None:
        wanted(plan, "a")["spec"]["roles"][0][field] = bad

    assert "form" in rules(changed("two pods", change))


@pytest.mark.parametrize("bad", NO_HOLD)
def test_the_judge_takes_no_other_hold(bad: object) -> None:
    plan = changed("two pods", lambda plan: wanted(plan, "a")["status"].update(hold=bad))
    assert "form" in rules(sealed(plan))


HELD = {"code": "Unsupported", "message": "it is held"}


def hold(plan: Doc) -> None:
    wanted(plan, "a")["status"]["hold"] = HELD


def held_for_another_reason(plan: Doc) -> None:
    hold(plan)
    entry(plan, "a").update(decision="wait", pods=[], reason={"code": "NoRoom", "message": "no"})


def incomplete_without_hold(plan: Doc) -> None:
    why = HELD | {"code": "Incomplete"}
    entry(plan, "a").update(decision="wait", pods=[], reason=why)


@pytest.mark.parametrize(
    ("change", "rule"),
    [(hold, "hold"), (held_for_another_reason, "reason"), (incomplete_without_hold, "reason")],
)
def test_the_judge_finds_every_breach_of_a_hold(change: Callable[[Doc], None], rule: str) -> None:
    assert rules(restated(changed("two pods", change))) == {rule}


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_judge_counts_indices_from_the_first_one(shift: int) -> None:
    assert [one["name"] for one in entry(_plan("from index 1"), "a")["pods"]] == [
        "a-worker-1",
        "a-worker-2",
    ]

    def change(plan: Doc) -> None:
        for pod in entry(plan, "a")["pods"]:
            pod["index"] += shift
            pod["name"] = f"a-worker-{pod['index']}"

    assert rules(restated(changed("from index 1", change))) == {"all-or-nothing"}


TORN = "slice: slice {} of role worker must stay in one {}, uses 2"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("b0-r0-0 b0-r0-0 b0-r1-0 b0-r1-0", []),
        ("b0-r0-0 b0-r1-0 b0-r0-0 b0-r1-0", [TORN.format(i, "rack") for i in (0, 1)]),
        ("b0-r0-0 b0-r0-0 b1-r0-0 b1-r0-0", [TORN.format(0, "block")]),
    ],
)
def test_the_judge_finds_each_torn_layer(where: str, said: list[str]) -> None:
    def change(plan: Doc) -> None:
        taken: dict[str, int] = {}
        for pod, place in zip(entry(plan, "a")["pods"], where.split(), strict=True):
            taken[place] = taken.get(place, -1) + 1
            pod.update(node=place, gpus=[taken[place]])

    found = check(restated(changed("layers", change)))
    assert [f"{one.rule}: {one.message}" for one in found] == said


def talk(plan: Doc, name: str) -> Doc:
    own: Doc = wanted(plan, name)["spec"]["communication"]
    return own


PRICES: dict[str, Callable[[Doc], object]] = {
    "as if joined": lambda plan: talk(plan, "a").pop("nvlinkAcrossNodes"),
    "as if apart": lambda plan: talk(plan, "b").update(nvlinkAcrossNodes=False),
    "stated as NVLink": lambda plan: entry(plan, "a").update(bandwidthMBps=721_800),
    "stated as network": lambda plan: entry(plan, "b").update(bandwidthMBps=50_000),
}


@pytest.mark.parametrize("name", PRICES)
def test_the_judge_prices_every_gang_by_its_own_use_of_nvlink(name: str) -> None:
    stated = [entry(_plan("trays"), name) for name in "ab"]
    assert [(one["bandwidthMBps"], one["share"]) for one in stated] == [
        (50_000, 1000),
        (721_800, 1000),
    ]
    assert rules(sealed(changed("trays", PRICES[name]))) == {"bandwidth"}


# Disruption budgets

GPUS = list(range(8))


def budget(allowed: int, name: str = "b") -> Doc:
    return {"namespace": "default", "name": name, "allowed": allowed}


def evicting(*budgets: Doc, move: bool = False) -> Doc:
    """``v0`` (two pods) and ``v1`` (one) stop for ``high``, or ``v0`` moves."""
    servers = cluster([dgx()], [node(f"h{i}", "DGX H100", "b1/r1") for i in range(5)])
    servers["spec"]["disruptionBudgets"] = list(budgets)
    flags = {"movable": True} if move else {"preemptible": True}
    victims = [
        gang_document(
            name,
            role("worker", len(at), 8),
            pods=tuple(standing(name, n, GPUS, i, budgets=["b"]) for i, n in enumerate(at)),
            **flags,
        )
        for name, at in (("v0", ["h0", "h1"]), ("v1", ["h2"]))
    ]
    high = gang_document("high", role("worker", 3, 8), priority=9)
    if move:
        goes = decided("v0", "move", ("h3", GPUS), ("h4", GPUS))
        waits = decided("high", "wait", why="NoRoom")
        return made(servers, [high, *victims], [waits, goes, decided("v1", "keep", ("h2", GPUS))])
    takes = decided("high", "place", *((f"h{i}", GPUS) for i in range(3)))
    return made(servers, [high, *victims], [takes, stopped("v0", "high"), stopped("v1", "high")])


@pytest.mark.parametrize(("move", "evicted"), [(False, 3), (True, 2)])
def test_the_judge_counts_every_eviction(evicted: int, *, move: bool) -> None:
    assert check(evicting(budget(evicted), move=move)) == []
    (found,) = check(evicting(budget(evicted - 1), move=move))
    assert (found.rule, found.gang) == ("budgets", None)
    assert found.message == f"default/b: {evicted} pods are evicted, it allows {evicted - 1}"


@pytest.mark.parametrize(
    ("budgets", "first", "rule"),
    [
        ([budget(9, "c")], ["b"], "reference"),
        ([budget(9), budget(9, "a")], ["b"], "order"),
        ([budget(9), budget(9)], ["b"], "reference"),
        ([budget(9)], ["b", "b"], "reference"),
        ([budget(-1)], ["b"], "form"),
    ],
)
def test_the_judge_reads_budgets_that_there_are_in_order_and_once(
    budgets: Sequence[Doc], first: list[str], rule: str
) -> None:
    plan = evicting(budget(9))
    plan["instance"]["cluster"]["spec"]["disruptionBudgets"] = budgets
    plan["instance"]["gangs"][1]["status"]["pods"][0]["budgets"] = first
    assert rules(sealed(plan)) - {"budgets"} == {rule}


# Strict queues


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"priority": 0}, []),  # younger by name
        ({"priority": 1}, ["queue-order"]),
        ({"priority": 1, "queue": "lab"}, []),
    ],
)
def test_the_judge_finds_who_overtakes(spec: Doc, found: list[str]) -> None:
    plan, bio = queues_plan(), dict[str, Any](queue="bio")
    plan["instance"]["gangs"].append(gang_document("more", role(gpus=8), **bio | spec))
    plan["spec"]["gangs"].append(decided("more", "wait", why="Unknown"))
    (own,) = (q for q in plan["instance"]["queues"] if q["metadata"]["name"] == "bio")
    own["spec"]["order"] = "strict"
    assert [v.rule for v in check(restated(plan)) if v.rule == "queue-order"] == found


def test_a_stated_place_in_a_queue_is_checked() -> None:
    plan = queues_plan()
    plan["instance"]["queues"].append(queue_document("zoo", order="strict"))
    for name, day in (("more", 20), ("next", 21)):
        own: Doc = {"queue": "zoo", "submittedAt": f"2026-11-{day}T00:00:00Z"}
        plan["instance"]["gangs"].append(gang_document(name, role(gpus=8), **own))
        plan["spec"]["gangs"].append(decided(name, "wait", why="Unknown"))
    entry(plan, "next")["reason"]["code"] = "QueueOrder"
    assert "reason" not in rules(restated(plan))
    entry(plan, "more")["reason"]["code"] = "QueueOrder"
    assert "reason" in rules(restated(plan))
