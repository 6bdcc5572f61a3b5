"""``gangplan replay``: equal results wherever runs are simulated, resuming, and what users see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from conftest import RunCli
from effort import HANG_S

from models.documents.replay import ReplayDocument

ROOT = Path(__file__).parent.parent
CLUSTER = str(ROOT / "inputs/quickstart/cluster.yaml")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """16 V100: first all, then four jobs of 4 and 8 GPUs, and one that is larger than the cluster."""
    sizes = ((2, 8, 0, 300), (1, 4, 10, 600), (1, 8, 20, 60), (1, 4, 30, 60), (3, 8, 40, 60))
    jobs = [
        {
            "name": f"j{number}", "namespace": "ml" if number % 2 else "vision", "pods": pods,
            "gpus": gpus, "submitSeconds": submit, "durationSeconds": duration,
        }
        for number, (pods, gpus, submit, duration) in enumerate(sizes)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    head = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Trace", "metadata": {"name": "five"}}
    path.write_text(json.dumps({**head, "spec": {"jobs": jobs}}))
    return str(path)


def document(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    ReplayDocument.model_validate(found)
    return dict(found)


def test_the_table_has_a_row_a_run_and_says_what_is_left_out(trace: str, cli: RunCli) -> None:
    """j0 until 300; then j1, j2 and j3 at once. Their waits, 290, 280 and 270, are 210 on the average."""
    done = cli("replay", trace, "--cluster", CLUSTER, "--every", "event", "--baseline", "fifo")
    assert done.code == 0
    left_out = "1 job left out, there is no place even on the empty cluster: vision/j4"
    assert left_out in done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert [row[0] for row in rows[1:3]] == ["default", "fifo"]
    assert rows[2][:2] == ["fifo", "4"]
    assert "3m" in rows[2]  # 210 s
    assert "planned at every event" in done.out


@pytest.mark.parametrize(("executor", "workers"), [("threads", "2"), ("processes", "2")])
def test_runs_are_the_same_wherever_they_are_simulated(
    executor: str, workers: str, trace: str, cli: RunCli, tmp_path: Path
) -> None:
    args = ("replay", trace, "--cluster", CLUSTER, "--every", "1m", "--baseline", "kueue")
    args += ("--baseline", "fifo", "--failures", "1h", "--seed", "3")
    files = [tmp_path / "one.json", tmp_path / "other.json"]
    cli(*args, "--executor", "threads", "--workers", "1", "--out", str(files[0]))
    cli(*args, "--executor", executor, "--workers", workers, "--out", str(files[1]))
    one, other = map(document, files)
    assert [run["name"] for run in one["status"]["runs"]] == ["default", "kueue", "fifo"]
    assert one["status"]["runs"] == other["status"]["runs"]
    assert one["status"]["digests"] == other["status"]["digests"]
    assert one["spec"] == other["spec"]


def test_a_resumed_replay_keeps_equal_runs_and_simulates_the_others(
    trace: str, cli: RunCli, tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    common = ("replay", trace, "--cluster", CLUSTER, "--executor", "threads", "--workers", "1")
    cli(*common, "--baseline", "kueue", "--baseline", "fifo", "--out", str(whole))
    cli(*common, "--baseline", "kueue", "--out", str(part))
    resumed = cli(
        *common, "--baseline", "kueue", "--baseline", "fifo", "--out", str(part), "--resume"
    )
    assert "kept 2 finished runs" in resumed.err
    assert "finished fifo" in resumed.err
    assert "finished kueue" not in resumed.err
    assert document(part)["status"]["runs"] == document(whole)["status"]["runs"]
    # another seed of failures is another run
    again = cli(
        *common, "--baseline", "kueue", "--out", str(part), "--resume", "--checkpoint", "1h"
    )
    assert "kept" not in again.err


def test_a_debounce_is_stated_and_makes_another_run_of_plans_alone(
    trace: str, cli: RunCli, tmp_path: Path
) -> None:
    """j0 starts 30 s late and runs until 330; j1, j2 and j3 start at 360: they wait 350, 340 and 330."""
    out = tmp_path / "replay.json"
    args = ("replay", trace, "--cluster", CLUSTER, "--baseline", "fifo", "--out", str(out))
    cli(*args, "--every", "event")
    assert "debounceSeconds" not in document(out)["spec"]
    done = cli(*args, "--every", "event", "--debounce", "30s", "--resume")
    assert "kept 1 finished run of" in done.err
    assert "finished default" in done.err
    assert "planned 30s after events" in done.out
    found = document(out)
    assert (found["spec"]["everySeconds"], found["spec"]["debounceSeconds"]) == (0, 30)
    planned, fifo = (run["queueingSeconds"]["mean"] for run in found["status"]["runs"])
    assert (planned, fifo) == ((30 + 350 + 340 + 330) / 4, (290 + 280 + 270) / 4)
    assert "kept 2 finished" in cli(*args, "--every", "event", "--debounce", "30s", "--resume").err


def test_repeats_have_means_spreads_and_paired_differences(
    trace: str, cli: RunCli, tmp_path: Path
) -> None:
    """In each repeat arrivals differ, and everybody has the same ones; a resumed replay keeps them."""
    out = tmp_path / "replay.json"
    args = (
        "replay",
        trace,
        "--cluster",
        CLUSTER,
        "--rules-only",
        "--repeat",
        "3",
        "--jitter",
        "20s",
    )
    args += ("--baseline", "tight", "--baseline", "fifo", "--workers", "1", "--out", str(out))
    done = cli(*args)
    assert done.code == 0
    status = document(out)["status"]
    runs = {
        (run["name"], run.get("repeat", 1)): run["jctSeconds"]["mean"] for run in status["runs"]
    }
    assert sorted(runs) == [(name, n) for name in ("fifo", "tight") for n in (1, 2, 3)]
    assert len({runs["fifo", n] for n in (1, 2, 3)}) > 1
    spreads = {one["name"]: one for one in status["spreads"]}
    means = [runs["fifo", n] for n in (1, 2, 3)]
    assert spreads["fifo"]["jctMeanSeconds"]["mean"] == pytest.approx(sum(means) / 3)
    assert spreads["fifo"]["jctMeanSeconds"]["sd"] == pytest.approx(stdev(means), abs=1e-3)
    behind = [runs["fifo", n] / runs["tight", n] - 1 for n in (1, 2, 3)]
    assert status["best"] == "tight"
    assert spreads["fifo"]["behindBest"]["mean"] == pytest.approx(sum(behind) / 3, abs=1e-3)
    assert spreads["tight"]["behindBest"] == {"mean": 0.0, "sd": 0.0}
    rows = [line.split() for line in done.out.splitlines()]
    assert [row[:2] for row in rows[1:3]] == [["tight", "3"], ["fifo", "3"]]
    assert "±" in rows[1]
    assert "kept 6 finished runs" in cli(*args, "--resume").err
    page = tmp_path / "page.html"
    assert cli("report", str(out), "--out", str(page)).code == 0
    assert "Over 3 runs each, tight has the shortest mean completion time" in page.read_text()


def test_a_fraction_without_communication_makes_places_alike(trace: str, cli: RunCli) -> None:
    """At 0 no place is slower than another: every job runs at full speed."""
    args = ("replay", trace, "--cluster", CLUSTER, "--rules-only", "--baseline", "leastallocated")
    found = json.loads(cli(*args, "--fraction", "0", "-o", "json").out)
    assert found["status"]["runs"][0]["speed"] == 1


def test_a_signal_keeps_the_runs_that_are_finished(trace: str, tmp_path: Path) -> None:
    """The baseline is finished in a moment, 1,200 plans are not."""
    out = tmp_path / "replay.json"
    jobs = json.loads(Path(trace).read_text())
    jobs["spec"]["jobs"] = [
        {
            "name": f"k{i}", "pods": 1, "gpus": 1 + i % 8, "submitSeconds": 100 * i,
            "durationSeconds": 50 + 40 * (i % 9),
        }
        for i in range(600)
    ]  # fmt: skip
    Path(trace).write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "planner", "replay", trace, "--cluster", CLUSTER]
    command += ["--baseline", "first-fit-decreasing", "--executor", "processes", "--workers", "2"]
    command += ["--every", "event", "--out", str(out)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("finished first-fit-decreasing")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 143
    assert "interrupted: 1 run not finished" in said
    found = document(out)
    assert [run["name"] for run in found["status"]["runs"]] == ["first-fit-decreasing"]
    assert found["status"]["missing"] == ["default"]


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (("--baseline", "kuueue"), 64, "no rules are named 'kuueue'"),
        (("--every", "0s"), 64, "--every is below one second"),
        (("--debounce", "30s"), 64, "--debounce without --every event"),
        (("--resume",), 64, "--resume without --out"),
        (("--failures", "1s"), 64, "--failures is below one hour"),
        (("--speedup", "0"), 64, "--speedup must be from 1/1000 to 1000"),
        (("--speedup", "1e999999999"), 64, "--speedup must be from 1/1000 to 1000"),
        (("--fraction", "2"), 64, "--fraction must be from 0 to 0.95"),
        (("--every", "evnt"), 64, "or use event"),
        (("--jitter", "soon", "--repeat", "2"), 64, "--jitter: "),
        (("--rules-only",), 64, "--rules-only without a --baseline"),
        (("--from", "9d"), 65, "of the trace arrives in the replayed part"),
        (("--policy", "missing.yaml"), 66, "missing.yaml"),
    ],
)
def test_mistakes_are_one_error(
    args: tuple[str, ...], code: int, what: str, trace: str, cli: RunCli
) -> None:
    done = cli("replay", trace, "--cluster", CLUSTER, *args)
    assert done.code == code
    assert what in done.err
    assert "Traceback" not in done.err


def test_the_trace_is_not_overwritten(trace: str, cli: RunCli) -> None:
    before = Path(trace).read_bytes()
    done = cli("replay", trace, "--cluster", CLUSTER, "--baseline", "fifo", "--out", trace)
    assert done.code == 64
    assert "--out would overwrite the input" in done.err
    assert Path(trace).read_bytes() == before


def test_a_file_that_is_no_replay_is_not_overwritten(
    trace: str, cli: RunCli, tmp_path: Path
) -> None:
    out = tmp_path / "notes.json"
    out.write_text("mine")
    done = cli("replay", trace, "--cluster", CLUSTER, "--out", str(out), "--resume")
    assert done.code == 64
    assert out.read_text() == "mine"
