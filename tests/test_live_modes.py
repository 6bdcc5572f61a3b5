"""Applying to a live cluster as its pods want it: gate, binding, both, and all in one plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from effort import first_fast
from live_checks import annotations_of, overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted, ten_gangs
from live_relay import Call
from live_runs import Ran, apply_words, placements, planned, ran

pytest_plugins = ("live_fixtures",)


def applied(live: Live, plan: Path) -> Ran:
    """Applied whole: every pod that the plan starts is bound where it says, with its GPUs named."""
    done = ran(live, *apply_words(live, plan))
    assert done.code == 0, done.err
    assert placed(live.pods()) == placements(plan)
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
    return done


def named(call: Call) -> str:
    """The pod that a call is about."""
    return call.path.partition("/pods/")[2].partition("/")[0]


@pytest.mark.parametrize("mode", first_fast(["both", "gate", "binding"]))
def test_ten_gangs_come_to_stand_where_the_plan_says_and_a_second_apply_writes_nothing(
    live: Live, mode: str
) -> None:
    live.create(*ten_gangs(mode))
    plan = planned(live)
    assert len(placements(plan)) == 20
    done = applied(live, plan)
    writes = [call for call in done.calls if call.writes_pods]
    # an intent for each pod, with its gate if that starts it; then its gate, its binding, or both
    assert sum(call.intends for call in writes) == (0 if mode == "gate" else 20)
    assert sum(call.ungates for call in writes) == (0 if mode == "binding" else 20)
    assert sum(call.binds for call in writes) == (0 if mode == "gate" else 20)
    again = ran(live, *apply_words(live, plan))
    assert (again.code, [str(c) for c in again.calls if c.writes_pods]) == (0, []), again.err


@pytest.mark.parametrize("mode", first_fast(["gate", "binding"]))
def test_every_write_names_the_pod_it_means_and_intents_come_first(live: Live, mode: str) -> None:
    live.create(Wanted("one", 2, 8, mode), Wanted("two", 3, 4, mode))
    done = applied(live, planned(live))
    writes = [call for call in done.calls if call.writes_pods]
    for call in writes:
        metadata = json.loads(call.body)["metadata"]
        assert metadata["uid"], call
        assert metadata["resourceVersion"], call
    for gang, size in (("one", 2), ("two", 3)):
        kinds = [
            "intent" if call.intends else "start" if call.starts else "mark"
            for call in writes
            if named(call).startswith(gang)
        ]
        first = ["intent"] * size if mode == "binding" else []
        assert kinds[: len(first) + size] == [*first, *["start"] * size]
        assert set(kinds[len(first) + size :]) == {"mark"}


def test_gangs_of_every_mode_stand_in_one_plan(live: Live) -> None:
    modes = ("gate", "binding", "both")
    live.create(*(Wanted(mode, 2, 8, mode) for mode in modes))
    applied(live, planned(live))
    for pod in live.pods().values():
        told = annotations_of(pod)
        assert told["gangplan.dev/gang-size"] == "2"
        assert told["gangplan.dev/plan"] == pod["metadata"]["labels"]["gangplan.dev/plan"]
        assert told["gangplan.dev/node"] == pod["spec"]["nodeName"]
        assert "schedulingGates" not in pod["spec"]


def test_a_server_side_dry_run_writes_nothing(live: Live) -> None:
    before = live.create(Wanted("one", 2, 8, "gate"), Wanted("two", 2, 8, "binding"))
    done = ran(live, *apply_words(live, planned(live), "--dry-run", "server"))
    assert done.code == 0, done.err
    assert [str(call) for call in done.calls if call.writes] == []
    versions = {name: pod["metadata"]["resourceVersion"] for name, pod in before.items()}
    assert {n: p["metadata"]["resourceVersion"] for n, p in live.pods().items()} == versions
