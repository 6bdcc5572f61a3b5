"""What two plans are said to differ in; the sessions ``compare`` hold how it is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import handmade
import pytest

from models.documents.answers import ComparisonStatus
from models.documents.plan import PlanDocument
from models.results.comparison import compare

Edit = Callable[[dict[str, Any]], None]


def compared(*edits: Edit) -> ComparisonStatus:
    """The plan by hand against itself, both with these edits."""
    found = []
    for edit in edits:
        edit(document := handmade.plan())
        found.append(PlanDocument.model_validate(document))
    made = {"created_at": "2026-11-30T00:00:00Z", "generator": "test"}
    return compare(found[0], found[1], ("a.json", "b.json"), **made).status


def valued(name: str, value: int) -> Edit:
    def edit(plan: dict[str, Any]) -> None:
        (tier,) = (one for one in plan["status"]["objectives"] if one["name"] == name)
        tier |= {"value": value, "best": value, "bound": value, "gap": 0.0}

    return edit


@pytest.mark.parametrize(("name", "more"), [("admission/10", "second"), ("span", "first")])
def test_more_is_better_but_where_less_is(name: str, more: str) -> None:
    found = compared(valued(name, 10), valued(name, 11))
    assert (found.better, found.decided_by, found.same) == (more, name, False)


def test_queues_differ_in_what_waits_alone() -> None:
    def waiting(gpus: int) -> Edit:
        amounts = {"guarantee": 8, "limit": 40, "before": 2, "after": 20, "borrowed": 12}
        queue = {"name": "q", **amounts, "waiting": gpus}
        return lambda plan: plan["status"].update(queues=[queue])

    found = compared(waiting(1), waiting(2))
    (queue,) = found.queues
    assert (queue.first, queue.second) == (20, 20)
    assert (queue.first_waiting, queue.second_waiting, found.same) == (1, 2, False)


@pytest.mark.parametrize(("decision", "effect"), [("preempt", "stops"), ("wait", "waits")])
def test_a_gang_that_is_stopped_does_not_just_wait(decision: str, effect: str) -> None:
    def without(plan: dict[str, Any]) -> None:
        (gang,) = (one for one in plan["spec"]["gangs"] if one["name"] == "old")
        gang |= {"decision": decision, "pods": []}

    (gang,) = compared(lambda _: None, without).gangs
    assert (gang.gang, gang.effect) == ("research/old", effect)
