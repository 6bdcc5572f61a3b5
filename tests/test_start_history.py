"""Intervals of starts in a plan: what is learned of a trace, what the plan states, what the judge refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from building import build, gang
from conftest import RunCli
from test_replay_simulation import baseline, scenario

from models.instance.start_history import Asks
from models.values.expected_starts import Waits
from planner.read.inputs import load
from planner.replay.jobs import MS
from planner.replay.simulation import Simulation

NOW = "2026-11-21T12:00:00Z"
HEAD = {"apiVersion": "gangplan.dev/v1alpha1"}
CLUSTER = {"nodes": [{"name": "n1", "model": "DGX H100"}]}


def gang_document(name: str, submitted: str, **status: object) -> dict[str, Any]:
    spec = {"submittedAt": submitted, "roles": [{"name": "worker", "replicas": 1, "gpus": 8}]}
    return HEAD | {"kind": "Gang", "metadata": {"name": name}, "spec": spec, "status": status}


def files(folder: Path, jobs: list[dict[str, Any]], policy: dict[str, Any]) -> str:
    """A server on which one gang runs and another waits, and a trace."""
    pod = {"name": "runs-worker-0", "role": "worker", "index": 0, "node": "n1"}
    pod["gpus"] = [*range(8)]
    documents = [
        HEAD | {"kind": "Cluster", "metadata": {"name": "c"}, "spec": CLUSTER},
        HEAD | {"kind": "Policy", "spec": {"now": NOW} | policy},
        gang_document("runs", "2026-11-21T11:00:00Z", startedAt=NOW, pods=[pod]),
        gang_document("waits", NOW),
        HEAD | {"kind": "Trace", "metadata": {"name": "t"}, "spec": {"jobs": jobs}},
    ]
    path = folder / "input.json"
    path.write_text(json.dumps(HEAD | {"kind": "List", "items": documents}))
    return str(path)


def pairs(count: int, *, seen: bool = True) -> list[dict[str, Any]]:
    """Every 500 s a job that starts at once, and one that waits for it: each takes 100 s."""
    jobs = []
    for number in range(2 * count):
        at = 500 * (number // 2)
        job = {"name": f"j{number:03}", "submitSeconds": at, "durationSeconds": 100}
        job |= {"pods": 1, "gpus": 8}
        jobs.append(job | ({"observed": {"startedSeconds": at + number % 2 * 100}} if seen else {}))
    return jobs


def made(cli: RunCli, folder: Path, jobs: list[dict[str, Any]], **policy: object) -> dict[str, Any]:
    out = folder / "plan.json"
    done = cli("plan", files(folder, jobs, policy), "--out", str(out))
    assert done.code == 0, done.err
    return dict(json.loads(out.read_text()))


def between(plan: dict[str, Any], name: str = "waits") -> dict[str, str] | None:
    found = next(one for one in plan["spec"]["gangs"] if one["name"] == name)
    return found.get("expectedStartBetween")


def test_a_plan_states_from_when_to_when_gangs_that_wait_start(cli: RunCli, tmp_path: Path) -> None:
    plan = made(cli, tmp_path, pairs(40))
    found = between(plan)
    # It runs for 100 s, and the next starts then, as 40 have: 160 s with the minute that counts as certain.
    # At first three times as long, and less and less: 21 have been stated, and held.
    assert found is not None
    assert found["earliest"] == "2026-11-21T12:00:00Z"
    assert "2026-11-21T12:05:00Z" < found["latest"] < "2026-11-21T12:07:00Z"
    assert between(plan, "runs") is None
    told = cli("explain", str(tmp_path / "plan.json"), "waits")
    assert "9 of 10 start" in told.out
    assert f"between {found['earliest']} and {found['latest']}" in told.out
    assert cli("verify", str(tmp_path / "plan.json")).code == 0


def test_the_order_of_gangs_may_be_learned_beside_it(cli: RunCli, tmp_path: Path) -> None:
    plan = made(cli, tmp_path, pairs(40), order="shortest")
    assert between(plan) is not None
    assert plan["instance"]["gangs"][0]["status"]["expectedLeft"] == "100s"


@pytest.mark.parametrize(("count", "seen"), [(18, True), (40, False)])
def test_without_a_basis_there_is_no_interval(
    count: int, seen: bool, cli: RunCli, tmp_path: Path
) -> None:
    plan = made(cli, tmp_path, pairs(count, seen=seen))
    assert between(plan) is None
    assert any("it is not used" in one for one in plan["status"].get("remarks", ())) is not seen


@pytest.mark.parametrize(
    ("name", "earliest", "latest", "what"),
    [
        ("runs", "12:00:00", "12:01:00", "does not wait: it has no expectedStartBetween"),
        ("waits", "11:59:59", "12:01:00", "its expectedStartBetween is past"),
        (
            "waits",
            "12:02:00",
            "12:01:00",
            "its expectedStartBetween is past, or ends before it beg",
        ),
    ],
)
def test_the_judge_refuses_an_interval_that_cannot_be(
    name: str, earliest: str, latest: str, what: str, cli: RunCli, tmp_path: Path
) -> None:
    plan = made(cli, tmp_path, pairs(40))
    gang = next(one for one in plan["spec"]["gangs"] if one["name"] == name)
    times = {"earliest": earliest, "latest": latest}
    gang["expectedStartBetween"] = {n: f"2026-11-21T{at}Z" for n, at in times.items()}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = cli("verify", str(tmp_path / "plan.json"))
    assert done.code == 5
    assert what in done.out + done.err


def test_a_trace_teaches_what_the_replay_learned_that_it_is_of(tmp_path: Path, cli: RunCli) -> None:
    """Jobs of random sizes and times on three servers, first come, first served, all at one speed."""
    draw, one, at, jobs = random.Random(3), build(racks=1, nodes_per_rack=3), 0, []
    for number in range(300):
        at += draw.randrange(1, 140)
        jobs.append((gang(f"j{number:03}", draw.choice([1, 2, 3]), 8), at, draw.randrange(10, 900)))
    done = Simulation(scenario(one, jobs), baseline(one, "fifo"))
    done.run()
    trace = [
        {
            "name": job.facts.gang.name, "namespace": job.facts.gang.namespace, "gpus": 8,
            "pods": job.facts.gpus // 8, "submitSeconds": job.facts.submit_ms // MS,
            "durationSeconds": job.facts.duration_ms // MS,
            "observed": {"startedSeconds": job.started // MS},
        }
        for job in done.jobs
        if job.started is not None
    ]  # fmt: skip
    assert len(trace) == 300
    path = files(tmp_path, trace, {})
    text = json.loads(Path(path).read_text())
    text["items"][0]["spec"]["nodes"][0]["name"] = "n[1-3]"
    Path(path).write_text(json.dumps(text))
    history = load([path]).instance.history
    assert history is not None
    learned, waits = history.factors, done._waits  # the same, by another way
    assert isinstance(waits, Waits)
    for gpus, before, wait in [(8, 8, 100), (16, 64, 1000), (24, 200, 5000)]:
        mine = learned.between(0, Asks(gpus, before, 24, wait), {})
        theirs = waits.factors().between(0, Asks(gpus, before, 24, wait * MS), {})
        assert mine is not None
        assert theirs is not None
        assert mine.latest == pytest.approx(theirs.latest / MS, rel=0.02)
