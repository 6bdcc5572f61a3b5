"""``gangplan explain``: one gang of a plan in full, from the plan document alone."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import kube
import plan_changes
import pytest
from conftest import RunCli
from effort import HANG_S
from interactive import ROOT, environment
from plan_documents import sealed

from planner.cli.app import run
from planner.show.console import Console
from planner.show.text import width

INPUTS = Path(__file__).parents[2] / "inputs"

CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: mixed}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "h-[1-2]", model: DGX H100, domains: {rack: r1}, labels: {pool: a}}
  - {name: h-3, model: DGX H100, domains: {rack: r2}, labels: {pool: a}, unhealthyGpus: [7]}
  - {name: cordoned, model: DGX H100, domains: {rack: r2}, labels: {pool: a}, unschedulable: true}
  - name: tainted
    model: DGX H100
    domains: {rack: r2}
    labels: {pool: a}
    taints: [{key: infra, value: "yes", effect: NoSchedule}]
  - {name: elsewhere, model: DGX H100, domains: {rack: r2}, labels: {pool: b}}
  - {name: old, model: DGX-1 V100, domains: {rack: r2}, labels: {pool: a}}
"""
GANG = """---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: NAME, namespace: research}
spec:
  priority: PRIORITY
  submittedAt: 2026-11-20T08:00:00Z
  TOPOLOGY
  roles: [{name: worker, replicas: PODS, gpus: GPUS, model: DGX H100, nodeSelector: {pool: a}}]
"""


def asked(name: str, pods: int, gpus: int, *, priority: int = 0, rack: bool = False) -> str:
    words = {"NAME": name, "PRIORITY": priority, "PODS": pods, "GPUS": gpus}
    words["TOPOLOGY"] = "topology: {required: rack}" if rack else ""
    text = GANG
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text


def explained(cli: RunCli, plan: str, *arguments: str) -> dict[str, Any]:
    result = cli("explain", plan, *arguments, "-o", "json")
    assert result.code == 0, result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    gangs = [
        asked("first", 1, 8, priority=5),
        asked("late", 3, 8),
        asked("huge", 4, 8),
        asked("wide", 1, 16),
        asked("near", 3, 7, rack=True),
    ]
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "in.yaml").write_text(CLUSTER + "".join(gangs), encoding="utf-8")
    console = Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})
    assert run(["plan", str(folder / "in.yaml"), "--out", str(folder / "plan.json")], console) == 0
    return str(folder / "plan.json")


def test_a_node_is_excluded_by_its_first_cause(mixed: str, cli: RunCli) -> None:
    (role,) = explained(cli, mixed, "huge")["candidates"]
    assert {one["cause"]: one["nodes"] for one in role["excluded"]} == {
        "cordoned": 1,
        "taint": 1,
        "labels": 1,
        "model": 1,
    }
    assert role["neededPods"] == 4
    # h-1, h-2 and h-3: 8, 8 and 7 healthy GPUs, of which `first` takes 8
    assert (role["eligibleNodes"], role["freeGpus"], role["pods"]) == (3, 15, 1)
    out = cli("explain", mixed, "late").out
    assert "worker      1          -              -  excluded: taint infra=yes:NoSchedule\n" in out


def test_a_placed_gang_has_its_place(cli: RunCli, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / "quickstart"), "--out", plan).code == 0
    lines = cli("explain", plan, "resnet50").out
    assert "place        5     4  55.2   66.6 %   98 %  links         1  v100-2:0,3-4,7\n" in lines
    assert "needs      role worker: 4 pods of 1 GPU, 6 cpu and 40Gi memory\n" in lines


def test_a_stopped_gang_has_the_nodes_it_leaves(cli: RunCli, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(plan_changes.plan()), encoding="utf-8")
    out = cli("explain", str(plan), "batch").out
    assert "n02 -> (then " in out
    assert "plans may  stop it once it runs\n" in out


def test_every_gang_of_a_recorded_cluster_is_explained(cli: RunCli, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    source = kube.SNAPSHOTS / "v100-mpi"
    assert cli("plan", str(source), "--budget", "1", "--out", plan).code == 0
    spec = json.loads(Path(plan).read_text(encoding="utf-8"))
    decided = {(gang["namespace"], gang["name"]): gang for gang in spec["spec"]["gangs"]}
    some = sorted(decided)[:: max(1, len(decided) // 5)]
    assert len({decided[key]["decision"] for key in some}) > 1
    for key in some:
        document = explained(cli, plan, "/".join(key))
        assert document["reason"] == decided[key]["reason"]
        for role in document["candidates"]:
            out = sum(one["nodes"] for one in role["excluded"])
            assert out + role["eligibleNodes"] == len(spec["instance"]["cluster"]["spec"]["nodes"])
        out = cli("explain", plan, "/".join(key), environ={"COLUMNS": "80"}).out
        assert max(map(width, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["lote"], "GANG lote: no such gang", "did you mean 'late'?"),
        (["late", "-n", "web"], "GANG late: no such gang in namespace web", "gangs: twin"),
        (["twin"], "GANG twin is ambiguous", "say which: default/twin, web/twin"),
    ],
)
def test_an_unclear_gang_is_64(
    arguments: list[str], what: str, hint: str, cli: RunCli, tmp_path: Path
) -> None:
    plan = plan_changes.plan()
    for part, name in (("spec", "old"), ("spec", "fixed")):
        (gang,) = [one for one in plan[part]["gangs"] if one["name"] == name]
        gang["name"] = "twin"
        gang["namespace"] = "web" if name == "old" else "default"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(sealed(plan)), encoding="utf-8")
    result = cli("explain", str(path), *arguments)
    assert (result.code, result.out) == (64, "")
    assert result.err.startswith(f"error: {what}")
    assert f"hint: {hint}" in result.err


def test_a_plan_that_was_changed_drives_no_terminal_and_breaks_nothing(
    cli: RunCli, tmp_path: Path
) -> None:
    evil = "\x1b[31mred\x07\n\u202egnp"
    plan = plan_changes.plan()
    by_name = {gang["name"]: gang for gang in plan["spec"]["gangs"]}
    by_name["late"]["reason"] = {"code": "NoRoom", "message": evil}
    by_name["llama"]["pods"][0]["node"] = "nowhere"
    by_name["tune"]["pods"][0]["role"] = "nobody"
    by_name["old"]["pods"][0]["gpus"] = [1000]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    for name in by_name:
        for output in ("table", "json"):
            result = cli("explain", str(path), name, "-o", output)
            assert result.code == 0, result.err
            assert not {c for c in result.out if not c.isprintable()} - {"\n"}
            assert "warning: status.digests.spec does not match" in result.err
    by_name["late"]["name"] = "stranger"
    path.write_text(json.dumps(plan), encoding="utf-8")
    result = cli("explain", str(path), "stranger")
    assert result.code == 65
    assert "which its instance does not have" in result.err


def test_counts_alone_read_stdin_and_load_no_solver(tmp_path: Path) -> None:
    code = (
        "import sys; from planner.cli.app import run; from planner.show.console import Console;"
        "code = run(['explain', '-', 'late', '--time-limit', '0s'], Console());"
        "assert 'ortools' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(plan_changes.plan()),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        check=False,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "    NoRoom: " in done.stdout
