"""The pages of audits and replays, and what the page of a plan says of capacity."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import report_plans
from conftest import RunCli
from test_report import Elements
from test_walls import ROOT

from models.documents.replay import ReplayDocument, ReplayRun
from planner.replay.summary import spreads
from planner.show.report.charts import HEIGHT, LEFT, RIGHT, WIDTH, Series, chart
from planner.show.report.page import html
from planner.show.report.replay_page import replay_page, time_mean

Written = Callable[[dict[str, Any]], Elements]

API = "gangplan.dev/v1alpha1"
MADE = {"name": "x", "createdAt": "2026-11-20T08:00:00Z", "generator": "gangplan 0.2.0"}


def audit() -> dict[str, Any]:
    status = {
        "gpus": {"installed": 32, "healthy": 31, "held": 2, "free": 30, "stranded": 1.5},
        "strandedWhy": [
            {"cause": "cordoned", "gpus": 1.5, "nodes": 1, "detail": report_plans.SCRIPT}
        ],
        "effectiveGpus": {"before": 1, "unmoved": 2, "allowed": 2, "possible": 18, "bound": 20},
        "lost": {
            "gpus": 17,
            "atMost": 19,
            "slow": 1,
            "waiting": 16,
            "startable": 4,
            "placement": 13,
            "allowed": 1,
            "moneyPerDay": 816.0,
            "moneyPerDayAtMost": 912.0,
            "strandedMoneyPerDay": 72.0,
        },
        "gangs": [
            {
                "gang": "research/old",
                "priority": 0,
                "gpus": 2,
                "bandwidthMBps": 20000,
                "bestMBps": 40000,
                "share": 500,
                "speed": 500,
                "bestSpeed": 1000,
                "lostGpus": 1,
                "replanSpeed": 1000,
                "regainsGpus": 1,
                "nodes": ["v100-4"],
                "domains": {"rack": 1, "node": 1},
                "movable": True,
            }
        ],
        "whole": [{"level": "node", "now": 2, "possible": 3, "domains": 4}],
        "waiting": [
            {
                "gang": "research/whole",
                "priority": 10,
                "gpus": 16,
                "startsIf": "others stood better",
                "moves": [1],
            }
        ],
        "moves": [
            {
                "gangs": [
                    {
                        "gang": "research/old",
                        "gpus": 2,
                        "movable": True,
                        "from": ["v100-4"],
                        "to": ["v100-3"],
                        "speed": 500,
                        "speedAfter": 1000,
                    }
                ],
                "restarts": 1,
                "gpus": 2,
                "lostRuntimeGpuSeconds": 7200,
                "regainsGpus": 17,
                "bandwidth": 1000,
                "wholeNodes": 1,
                "wholeDomains": 0,
                "allowed": True,
            }
        ],
        "objectives": [
            {
                "name": "admission/10",
                "sense": "max",
                "now": 0,
                "possible": 20,
                "bound": 20,
                "gap": 0,
                "proof": "exact",
            }
        ],
        "search": {"solver": "by hand", "seed": 0, "stoppedBy": "proof"},
        "plan": handmade.plan(),
    }
    cluster = {"name": "two-racks", "nodes": 4, "gpus": 32, "levels": []}
    return {
        "apiVersion": API,
        "kind": "Audit",
        "metadata": MADE,
        "cluster": cluster,
        "status": status,
    }


def run(name: str, kind: str, mean: float) -> dict[str, Any]:
    times = {"mean": mean, "p50": mean / 2, "p99": 3 * mean}
    return {
        "name": name,
        "kind": kind,
        "inputs": "sha256:0",
        "jobs": 3,
        "completed": 3,
        "unfinished": 0,
        "endSeconds": 7200,
        "jctSeconds": times,
        "slowdown": 1.5,
        "queueingSeconds": {**times, "bySize": [{**times, "gpus": 8, "jobs": 3}]},
        "speed": 0.9,
        "utilisation": 0.5,
        "gpuGBps": 100.0,
        "preemptions": 1,
        "moves": 2,
        "failures": 0,
        "restarts": 3,
        "lostGpuSeconds": 0,
        "fairness": {
            "byQueue": [
                {
                    "queue": report_plans.SCRIPT,
                    "jobs": 3,
                    "gpuSeconds": 7200,
                    "meanQueueingSeconds": mean,
                    "service": 0.5,
                }
            ],
            "jain": 0.9,
        },
        "curves": {
            "seconds": [0, 3600, 7200],
            "gpusBusy": [8, 16, 0],
            "waitingGpus": [8, 0, 0],
            "effectiveGpus": [8, 12, 0],
        },
        "completionCurve": {"seconds": [60, 3600], "share": [0.5, 1.0]},
    }


def replay(*runs: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "trace": {"name": report_plans.ATTRIBUTE, "jobs": 3, "leftOut": 1, "gpuSeconds": 7200},
        "cluster": {"name": "two", "nodes": 2, "gpus": 16},
        "seed": 7,
        "fromSeconds": 0,
        "untilSeconds": None,
        "everySeconds": 600,
        "budget": 1,
        "speedup": 1.0,
        "restartSeconds": 120,
        "checkpointSeconds": 1800,
    }
    times = {"mean": 0.5, "p50": 0.5, "p99": 1.5}
    timing = [
        {
            "name": one["name"],
            "plans": 4,
            "planningSeconds": times,
            "maxSeconds": 1.5,
            "totalSeconds": 10,
        }
        for one in runs
    ]
    status = {"runs": list(runs), "digests": {"runs": "sha256:1"}, "timing": timing}
    return {
        "apiVersion": API,
        "kind": "Replay",
        "metadata": MADE,
        "spec": spec,
        "status": status,
    }


@pytest.fixture
def page(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.chdir(tmp_path)

    def write(document: dict[str, Any]) -> Elements:
        Path("saved.json").write_text(json.dumps(document), encoding="utf-8")
        result = cli("report", "saved.json", "--out", "report.html")
        assert (result.code, result.out) == (0, ""), result.err
        found = Elements(Path("report.html").read_text(encoding="utf-8"))
        names = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
        assert len(names) == len(set(names))
        assert [tag for tag, _ in found.tags].count("script") == 2
        assert not found.named("img")
        return found

    return write


def said(found: Elements) -> str:
    return " ".join(" ".join(found.text).split())


def test_an_audit_says_what_is_lost_in_gpus_and_money(page: Written) -> None:
    text = said(page(audit()))
    assert "Audit of two-racks" in text
    assert "GPUs a re-plan regains 17 at most 19" in text
    assert "Regained a day, in money 816 at most 912" in text
    assert "Of these, placement costs 13 the other 4 start without a move" in text
    assert "Stranded GPUs 1.5 of 30 free GPUs; 72 a day" in text
    assert "Gangs that start only in the re-plan 1 of 1 that wait; 16 GPUs" in text
    assert "research/old: v100-4 to v100-3" in text
    assert "The cluster now, and re-planned" in text
    assert report_plans.SCRIPT in text


def test_an_audit_of_a_large_cluster_has_no_map(page: Written) -> None:
    document = audit()
    del document["status"]["plan"]
    found = page(document)
    assert "map" not in [attributes.get("id") for _, attributes in found.tags]
    assert "Running gangs, and what each lacks" in said(found)


def test_a_replay_compares_the_best_policy_with_the_best_baseline(page: Written) -> None:
    runs = [
        run("ours", "policy", 900),
        run("kueue", "baseline", 1800),
        run("fifo", "baseline", 2000),
    ]
    found = page(replay(*runs))
    text = said(found)
    assert "Best policy 15m ours: mean completion time" in text
    assert "Best baseline 30m kueue: mean completion time" in text
    assert "50.0% shorter than under kueue, the best baseline (30m)" in text
    assert "Longest plan 1.5 s of 12 plans" in text
    assert report_plans.ATTRIBUTE in text
    (busy, *_) = [one["aria-label"] for one in found.named("svg") if one.get("role") == "img"]
    # 8 GPUs for the first hour and 16 for the second
    assert busy == "GPUs in use. ours: 12 on average; kueue: 12 on average; fifo: 12 on average"


def test_with_repeats_the_best_is_the_shortest_mean_over_them(page: Written) -> None:
    """kai has the shortest run, and kueue the shorter mean."""
    means = {"ours": (900, 1000), "kueue": (1800, 1900), "kai": (1700, 2100)}
    runs = [
        run(name, "policy" if name == "ours" else "baseline", mean) | {"repeat": repeat}
        for name, both in means.items()
        for repeat, mean in enumerate(both, 1)
    ]
    document = replay(*runs)
    together, best = spreads([ReplayRun.model_validate(one) for one in runs])
    document["status"] |= {"spreads": [one.to_json() for one in together], "best": best}
    for one, timing in zip(runs, document["status"]["timing"], strict=True):
        timing["repeat"] = one["repeat"]
    text = said(page(document))
    assert "Best policy 15m ± 1m ours: mean completion time, over 2 runs" in text
    assert "Best baseline 30m ± 1m kueue: mean completion time, over 2 runs" in text


def test_a_run_that_left_jobs_out_is_not_the_best() -> None:
    quick = {**run("quick", "policy", 10), "completed": 1, "unfinished": 2}
    document = replay(quick, run("ours", "policy", 900))
    text = html(replay_page(ReplayDocument.model_validate_json(json.dumps(document))))
    assert re.search(r"Best policy</dt><dd class=\"\">15m", text)


def test_lines_stay_inside_their_chart() -> None:
    points = [(float(x), 100 * abs(math.sin(x))) for x in range(1, 500)]
    for log in (False, True):
        found = chart(
            "t", "x", [Series("a", points), Series("empty", [])],
            x_text=str, y_text=str, summary=lambda _: "", log=log,
        )  # fmt: skip
        assert found is not None
        (line,) = found.lines
        numbers = [float(one) for one in re.findall(r"[0-9.]+", line.path)]
        across = [float(one) for one in re.findall(r"[MH]([0-9.]+)", line.path)]
        assert min(across) == LEFT
        assert max(across) == WIDTH - RIGHT
        assert max(numbers) <= WIDTH
        assert all(0 <= y <= HEIGHT for y, _ in found.up)
    assert chart("t", "x", [], x_text=str, y_text=str, summary=lambda _: "") is None


def test_the_mean_of_a_curve_counts_each_value_until_the_next() -> None:
    assert time_mean([(0.0, 8.0), (1.0, 2.0), (3.0, 9.0)]) == (8 * 1 + 2 * 2) / 3
    assert time_mean([(5.0, 7.0)]) == 7.0


def test_a_plan_says_what_else_could_start(page: Written, cli: RunCli) -> None:
    planned = cli("plan", str(ROOT / "inputs/quickstart"), "--out", "plan.json")
    (reason,) = re.findall(r"RequiredTopology: .*", planned.out)
    text = said(page(json.loads(Path("plan.json").read_text())))
    # 6 of 16 GPUs are held before the plan, 14 after it
    assert "2 usable nodes with 16 GPUs; 10 free now, 2 after the plan." in text
    assert "The largest gang that could start" in text
    assert (
        text.count(reason) == text.count("RequiredTopology") == 1
    )  # what `plan` says, and no other


def test_a_document_with_a_fault_names_its_place(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = audit()
    document["status"]["gpus"]["held"] = "two"
    Path("audit.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    result = cli("report", "audit.json", "--out", "report.html")
    assert (result.code, result.out) == (65, "")
    assert "error: status.gpus.held: " in result.err
    assert re.search(r"--> audit.json:\d+:\d+", result.err)


@pytest.mark.parametrize("value", [1e308, 10**400])
def test_a_replay_of_numbers_that_no_chart_can_draw_is_refused(
    value: float, cli: RunCli, tmp_path: Path
) -> None:
    document = replay(run("fifo", "baseline", 60))
    document["status"]["runs"][0]["curves"]["gpusBusy"][0] = value
    saved = tmp_path / "replay.json"
    saved.write_text(json.dumps(document), encoding="utf-8")
    result = cli("report", str(saved), "--out", str(tmp_path / "report.html"))
    assert (result.code, result.out) == (65, "")
    assert "curves.gpusBusy[0]: " in result.err
