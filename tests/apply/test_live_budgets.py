"""A plan of a live cluster keeps gangs whose disruption budgets do not let all of their pods go."""

from __future__ import annotations

import json

import pytest
from live_checks import placed
from live_cluster import Live
from live_objects import Tree, Wanted
from live_runs import Ran, apply_words, planned, ran, run_words

pytest_plugins = ("live_fixtures",)

BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"

LOW = Wanted("low", 7, 8, preemptible=True)
"""Fills the seven nodes."""

HIGH = Wanted("high", 2, 8, high=True)


def unguard(live: Live, *names: str) -> None:
    for name in names:
        live.send("DELETE", f"{BUDGETS.format(live.namespace)}/{name}")


def evictions(done: Ran) -> list[str]:
    return [call.path for call in done.calls if call.evicts]


def high_waits(done: Ran) -> bool:
    return done.code == 0 and not evictions(done)


@pytest.mark.parametrize(
    "budgets",
    [
        {"some": ({"minAvailable": 5}, 2)},
        {"one": ({"minAvailable": 0}, 7), "two": ({"minAvailable": 0}, 7)},
    ],
)
def test_a_guarded_gang_is_no_victim_of_a_run_until_its_budget_lets_it_go(
    live: Live, budgets: dict[str, tuple[Tree, int]]
) -> None:
    live.create(LOW)
    assert ran(live, *apply_words(live, planned(live))).code == 0
    live.report_ready(*live.pods())
    for name, (spec, allowed) in budgets.items():
        counted = {"expectedPods": 7, "disruptionsAllowed": allowed}
        live.guard(name, LOW.name, counted, **spec)
    live.create(HIGH)
    out = live.folder / "waiting.json"
    kept = ran(live, *run_words(live, "--allow-evictions", "--out", str(out)))
    assert high_waits(kept), kept.err
    assert {name for name in placed(live.pods()) if name.startswith("low")} == {
        f"low-{i}" for i in range(7)
    }
    said = {one["name"]: one for one in json.loads(out.read_text())["spec"]["gangs"]}
    assert said["low"]["decision"] == "keep"
    named = [one["gang"] for one in said["high"]["reason"]["fields"]["by"]]
    assert named == [f"{live.namespace}/low"]
    unguard(live, *budgets)
    done = ran(live, *run_words(live, "--allow-evictions"))
    assert (done.code, len(evictions(done))) == (0, 7), done.err
    live.wait_until(lambda: len(placed(live.pods())) == 2, "the winner")
