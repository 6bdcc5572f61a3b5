"""What a run promised is noted in its Lease, and kept by the next one, on whatever host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from building import build, gang
from conftest import RunCli
from run_bench import RunBench, memory_bench, nodes

from models.apply.notes import Promise, Promises, promised_by, read_notes
from models.documents.policy import Reservations
from models.instance.gang import Gang
from models.instance.instance import EarlierPlan
from models.results.plan import compose, dumps
from models.units import time_text
from planner.pipelines.previous_plan import with_promises
from planner.read.plan_files import read_plan
from planner.search.solve import solve

Tree = dict[str, Any]

NOON = 1_795_521_600
HOUR = 3600


@pytest.fixture
def quick(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    """A node that is taken for an hour."""
    with memory_bench(nodes(1), tmp_path, cli, monkeypatch) as bench:
        bench.cluster.gang_of_pods("now", 1, activeDeadlineSeconds=HOUR)
        policy = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nspec: {reservations: {}}\n"
        (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")
        ran(bench)
        yield bench


def ran(bench: RunBench) -> dict[str, Tree]:
    """A run on a host that keeps nothing; what its plan says of each gang."""
    bench.cluster.clock.advance(60)  # type: ignore[attr-defined]
    policy, out = bench.folder / "policy.yaml", bench.folder / "plan.json"
    done = bench.run("--policy", str(policy), "--out", str(out), GANGPLAN_STATE="off")
    assert done.code == 0, done.err
    gangs = json.loads(out.read_text(encoding="utf-8"))["spec"]["gangs"]
    return {gang["name"]: gang for gang in gangs}


def noted(bench: RunBench) -> Promises | None:
    annotations = bench.lease()["metadata"]["annotations"]
    return read_notes(annotations.get("gangplan.dev/notes", "")).promises


def test_a_start_is_kept_though_the_host_kept_no_plan(quick: RunBench) -> None:
    """``high`` comes after the promise, and before ``next`` in the queue: it gets the hour behind."""
    quick.cluster.gang_of_pods("next", 1, activeDeadlineSeconds=HOUR)
    first = ran(quick)["next"]
    assert first["decision"] == "wait"
    promises = noted(quick)
    assert promises is not None
    assert [one.gang for one in promises.starts] == [("default", "next")]
    assert promises.starts[0].pods == (("worker", 0, "n0"),)
    quick.cluster.gang_of_pods("high", 1, priority=9, activeDeadlineSeconds=HOUR)
    for _ in range(2):
        later = ran(quick)
        assert later["next"]["reserved"]["start"] == first["reserved"]["start"]
        assert later["high"]["reserved"]["start"] > first["reserved"]["start"]


def test_a_start_that_cannot_be_kept_has_its_cause(quick: RunBench) -> None:
    quick.cluster.gang_of_pods("next", 1, activeDeadlineSeconds=HOUR)
    first = ran(quick)["next"]
    body = {"spec": {"unschedulable": True}}
    path, kind = "/api/v1/nodes/n0", "application/merge-patch+json"
    assert quick.cluster.handle("PATCH", path, body, kind)[0] == 200
    assert ran(quick)["next"]["delayed"] == {
        "promised": first["reserved"]["start"],
        "cause": "Failure",
        "by": ["n0"],
    }


@pytest.mark.parametrize(
    "found",
    [None, [], {}, {"at": "0", "starts": [], "due": []}, {"at": 0, "starts": {}, "due": []},
     {"at": 0, "starts": [], "due": 1}],
)  # fmt: skip
def test_a_note_in_another_form_promises_nothing(found: object) -> None:
    assert read_notes(json.dumps({"promises": found})).promises is None


def waits(name: str, since: int = NOON - 60, **fields: Any) -> Gang:  # noqa: ANN401
    return replace(gang(name, 1, 8, submitted=since), **fields)


def runs(name: str, since: int, **fields: Any) -> Gang:  # noqa: ANN401
    one = gang(name, 1, 8, stands=[(0, 0, 0, 0b11111111)], submitted=since)
    return replace(one, started_at=since, **fields)


def earlier(one: Gang, *starts: Promise, due: tuple[str, ...] = ()) -> EarlierPlan:
    """What is known of the plan of noon a minute later."""
    promises = Promises(NOON, starts, tuple(("default", name) for name in due))
    found = with_promises(build(gangs=[one]), promises).earlier
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "known"),
    [
        (waits("g"), True),
        (waits("g", NOON + 1), False),
        (waits("g", NOON - 60, submitted_at=None), False),
        (waits("g", NOON + 9, evicted_at=NOON + 5, evictions=1), True),
        (waits("g", NOON + 9, evicted_at=NOON - 5, evictions=1), False),
        (runs("g", NOON - 60), True),
        (runs("g", NOON + 1), False),
        (runs("g", NOON + 1, submitted_at=NOON - 1), True),
    ],
    ids=["waited", "new", "of no time", "it stopped it", "made again later", "ran", "started", "by it"],
)  # fmt: skip
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
    now = replace(runs("now", NOON - 60), expected_duration_s=HOUR)
    each = [waits(f"g{i}", priority=i, expected_duration_s=60) for i in range(3)]
    found = build(gangs=[now, *each])
    found = replace(found, policy=replace(found.policy, reservations=Reservations(), now=NOON))
    made = compose(found, solve(found), name="p", created_at=time_text(NOON), generator="test")
    plan = read_plan(dumps(made).encode(), "plan")
    monkeypatch.setattr("models.apply.notes.MAX_STARTS", 2)
    promises = promised_by(plan)
    assert promises is not None
    assert (promises.at, promises.due) == (NOON, ())
    assert [(one.gang[1], one.pods) for one in promises.starts] == [
        ("g2", (("worker", 0, "n01"),)),
        ("g1", (("worker", 0, "n01"),)),
    ]
    monkeypatch.setattr("models.apply.notes.MAX_PLACES", 30)
    promises = promised_by(plan)
    assert promises is not None
    assert [len(one.pods) for one in promises.starts] == [1, 0]
