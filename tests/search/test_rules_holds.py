"""Held gangs: never placed, never completed, their reason is the hold's; the judge sees each breach."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from building import build, gang, node
from building_servers import switched
from outcomes import document_of, planned
from plan_documents import Doc, entry, restated, sealed, wanted

from models.instance.instance import Instance
from models.verify.check import check
from planner.pipelines.required_gangs import unmet
from planner.search.solve import solve
from planner.show.reason_words import words

HELD = "it is held"


def test_a_held_gang_waits_beside_free_nodes_and_gives_its_reason() -> None:
    instance = build(gangs=[gang("a", 1, 8, held="Unsupported", priority=9), gang("b", 1, 8)])
    outcome = planned(instance)
    assert outcome.decisions() == {"a": "wait", "b": "place"}
    reason = outcome.of("a").reason
    assert reason is not None
    assert (reason.code, words(reason)) == ("Unsupported", HELD)
    assert outcome.value("admission/9") == 0


def test_a_waiting_gang_may_wait_because_it_is_incomplete() -> None:
    outcome = planned(build(gangs=[gang("a", 2, 2, held="Incomplete")]))
    assert (outcome.decision("a"), outcome.reason("a")) == ("wait", "Incomplete")


def test_a_held_gang_with_pods_missing_is_kept_and_not_completed() -> None:
    broken = gang("a", 4, 2, stands=[(0, 1, 0, 3)], held="Unsupported")
    outcome = planned(build(gangs=[broken]))
    assert (outcome.decision("a"), outcome.reason("a")) == ("keep", "Unsupported")
    assert [pod.index for pod in outcome.of("a").pods] == [1]
    assert outcome.value("admission/0") == 0


def many() -> Instance:
    """40 nodes of 2 GPUs; 60 gangs of one pod of 2 GPUs, every third one held: 40 are not."""
    gangs = [gang(f"g{i:02}", 1, 2, held="Unsupported" if i % 3 == 0 else None) for i in range(60)]
    return build(
        nodes=[node(f"n{i:02}", switched(2), rack=f"r{i % 4}") for i in range(40)], gangs=gangs
    )


def test_a_required_gang_that_is_held_provably_cannot_be_admitted() -> None:
    instance = build(gangs=[gang("a", 1, 1, held="Unsupported")])
    solution = solve(instance)
    (left_out,) = unmet((0,), instance, solution, threading.Event())
    assert (left_out.proven, left_out.why) == (True, HELD)


def hold(code: str) -> Doc:
    return {"code": code, "message": HELD}


def held_while_placed(plan: Doc) -> None:
    wanted(plan, "a")["status"]["hold"] = hold("Unsupported")


def another_reason(plan: Doc) -> None:
    held_while_placed(plan)
    entry(plan, "a").update(decision="wait", pods=[], reason={"code": "NoRoom", "message": "no"})


def incomplete_without_hold(plan: Doc) -> None:
    entry(plan, "a").update(decision="wait", pods=[], reason=hold("Incomplete"))


@pytest.mark.parametrize(
    ("sabotage", "rule"),
    [
        (held_while_placed, "hold"),
        (another_reason, "reason"),
        (incomplete_without_hold, "reason"),
    ],
)
def test_the_judge_finds_every_breach_of_a_hold(sabotage: Callable[[Doc], None], rule: str) -> None:
    plan = document_of(build(gangs=[gang("a", 2, 2)]))
    assert check(plan) == []
    sabotage(plan)
    assert {violation.rule for violation in check(restated(plan))} == {rule}


@pytest.mark.parametrize(
    "bad", [1, [], {}, {"code": "NoRoom", "message": "x"}, {"code": "Incomplete", "message": ""}]
)
def test_the_judge_takes_no_other_hold(bad: object) -> None:
    plan = document_of(build(gangs=[gang("a", 2, 2)]))
    wanted(plan, "a")["status"]["hold"] = bad
    assert {violation.rule for violation in check(sealed(plan))} >= {"form"}
