"""What a plan promises, as it is noted on the Lease, and whom an earlier plan knew. Runs: test_run_marks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from building import build, gang

from models.apply.notes import Promise, Promises, promised_by
from models.documents.policy import Reservations
from models.instance.gang import Gang
from models.instance.instance import EarlierPlan
from models.results.plan import compose, dumps
from models.units import time_text
from planner.pipelines.adjustments import with_promises
from planner.read.plan_files import read_plan
from planner.search.solve import solve

NOON = 1_795_521_600


def waits(name: str, since: int = NOON - 60, **fields: Any) -> Gang:  # noqa: ANN401
    return replace(gang(name, 1, 8, submitted=since), **fields)


def runs(name: str, since: int, **fields: Any) -> Gang:  # noqa: ANN401
    one = gang(name, 1, 8, stands=[(0, 0, 0, 0b11111111)], submitted=since)
    return replace(one, started_at=since, **fields)


def earlier(one: Gang, *starts: Promise) -> EarlierPlan:
    """What is known of the plan of noon a minute later."""
    found = with_promises(build(gangs=[one]), Promises(NOON, starts)).earlier
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "known"),
    [
        (waits("waited", NOON), True),
        (waits("new", NOON + 1), False),
        (waits("of no time", submitted_at=None), False),
        (waits("it stopped it", NOON + 9, evicted_at=NOON + 5, evictions=1), True),
        (waits("made again later", NOON + 9, evicted_at=NOON - 5, evictions=1), False),
        (runs("ran", NOON - 60), True),
        (runs("started", NOON + 1), False),
        (runs("started by it", NOON + 1, submitted_at=NOON - 1), True),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_whom_the_plan_knew_is_seen_by_the_times(one: Gang, *, known: bool) -> None:
    assert (one.key in earlier(one).gangs) is known


def test_places_on_nodes_that_are_gone_are_named() -> None:
    promise = Promise(("default", "g"), NOON + 60, (("worker", 0, "n09"),))
    found = earlier(waits("g"), promise)
    assert found.starts == {("default", "g"): NOON + 60}
    assert found.gone == {("default", "g"): frozenset({"n09"})}


def test_of_many_promises_the_highest_and_then_the_first_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang runs for an hour; of each of three priorities the first waits for it. Two are noted."""
    now = replace(runs("now", NOON - 60), expected_duration_s=3600)
    each = [waits(f"g{i}", priority=i, expected_duration_s=60) for i in range(3)]
    found = build(gangs=[now, *each])
    found = replace(found, policy=replace(found.policy, reservations=Reservations(), now=NOON))
    made = compose(found, solve(found), name="p", created_at=time_text(NOON), generator="test")
    plan = read_plan(dumps(made).encode(), "plan")
    monkeypatch.setattr("models.apply.notes.MAX_STARTS", 2)
    promises = promised_by(plan)
    assert promises is not None
    assert (promises.at, promises.due) == (NOON, ())
    place = (("worker", 0, "n01"),)
    assert [(one.gang[1], one.pods) for one in promises.starts] == [("g2", place), ("g1", place)]
    monkeypatch.setattr("models.apply.notes.MAX_PLACES", 30)
    promises = promised_by(plan)
    assert promises is not None
    assert [len(one.pods) for one in promises.starts] == [1, 0]
