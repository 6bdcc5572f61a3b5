"""``gangplan audit`` on the command line: formats, money, the re-plan, and bad input.

Four DGX H100 in two racks. ``split`` holds half of a1 and half of b1. Its pods reach each other over the
network: 4 x 50 = 200 GB/s of the 370.8 inside a server, a share of 0.539, so that a step takes
0.75 + 0.25 / 0.539 = 1.214 times as long, and its speed counts as 820. ``big`` wants a rack, and finds none.
The re-plan has ``split`` on a1 and ``big`` on b1 and b2: 8 x 0.18 + 16 = 17.44 effective GPUs more.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import RunCli
from effort import HANG_S

ROOT = Path(__file__).parents[2]

CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: two-racks}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "a[1-2]", model: DGX H100, domains: {rack: a}}
  - {name: "b[1-2]", model: DGX H100, domains: {rack: b}}
"""


def gang(name: str, pods: int, gpus: int, nodes: str = "", **spec: Any) -> str:  # noqa: ANN401
    """A gang with pods of so many GPUs; ``nodes``: those on which they stand, if they run."""
    standing = [
        {"name": f"{name}-{i}", "role": "worker", "index": i, "node": node}
        for i, node in enumerate(nodes.split())
    ]
    role = {"name": "worker", "replicas": pods, "gpus": gpus}
    document = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"roles": [role], **spec},
        **({"status": {"pods": standing}} if standing else {}),
    }
    return "---\n" + yaml.safe_dump(document)


def policy(**spec: Any) -> str:  # noqa: ANN401
    document = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": spec}
    return "---\n" + yaml.safe_dump(document)


SPLIT = gang("split", 2, 4, "a1 b1")
NOTE = gang("note", 1, 1, "a2", movable=True)
BIG = gang("big", 2, 8, topology={"required": "rack"})


Audited = Callable[..., dict[str, Any]]


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: RunCli) -> Audited:
    """The audit of a cluster with these documents."""
    monkeypatch.chdir(tmp_path)

    def of(*documents: str, cluster: str = CLUSTER) -> dict[str, Any]:
        Path("scene.yaml").write_text("".join((cluster, *documents)))
        result = cli("audit", "scene.yaml", "-o", "json")
        assert result.code == 0, result.err
        found: dict[str, Any] = json.loads(result.out)
        return found

    return of


def test_what_stands_beside_the_replan_and_what_it_is_worth(audit: Audited) -> None:
    found = audit(SPLIT, NOTE, BIG, policy(gpuHourPrice=2))
    assert found["effective"] == {
        "now": 7.56,
        "unmoved": 7.56,
        "replanned": 25,
        "atMost": 25,
        "lostPerDay": 837.12,  # 17.44 x 24 x 2
    }
    (big,) = found["waiting"]
    assert (big["gang"], big["startsIf"], big["steps"]) == ("default/big", "others moved", [1])


def test_a_step_has_its_price_and_work_that_is_lost_has_no_limit(audit: Audited) -> None:
    times = policy(now="2026-11-20T10:00:00Z", disruption={"cap": "1h"})
    begun = SPLIT.replace("status:\n", "status:\n  startedAt: '2026-11-18T10:00:00Z'\n")
    found = audit(begun, NOTE, BIG, times)
    (step,) = found["steps"]
    assert found["whole"] == 1
    assert step == {
        "restarts": 1,
        "gpus": 8,
        "lostGpuSeconds": 8 * 48 * 3600,
        "regains": 17.44,
        "starts": ["default/big"],
        "faster": ["default/split"],
        "slower": [],
        "waits": [],
        "moves": [{"gang": "default/split", "gpus": 8, "leaves": ["a1", "b1"], "comes": ["a1"]}],
        "allowed": False,
        "fewest": True,
    }


def test_gangs_that_need_each_other_restart_together(audit: Audited) -> None:
    """Four full servers. ``split`` is whole on a1 once ``left`` goes to b1: 8 x 0.18 GPUs more."""
    full = [gang(f"full-{node}", 1, 8, node) for node in ("a2", "b2")]
    left, right = gang("left", 1, 4, "a1"), gang("right", 1, 4, "b1")
    (step,) = audit(SPLIT, left, right, *full)["steps"]
    assert (step["restarts"], step["gpus"], step["regains"], step["fewest"]) == (2, 12, 1.44, True)
    assert {one["gang"] for one in step["moves"]} in (
        {"default/split", "default/left"},
        {"default/split", "default/right"},
    )


def test_one_restart_is_listed_where_a_replan_makes_many(audit: Audited) -> None:
    """Eight notebooks of one GPU hold a server each; a gang of a server starts once the cheapest goes."""
    cluster = CLUSTER.replace("a[1-2]", "a[1-4]").replace("b[1-2]", "b[1-4]")
    notes = [
        gang(f"note-{n}", 1, 1, node, priority=1000 * (n > 0))
        for n, node in enumerate(("a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"))
    ]
    found = audit(*notes, gang("one", 1, 8), cluster=cluster)
    (step,) = found["steps"]
    assert (step["starts"], step["restarts"], step["gpus"]) == (["default/one"], 1, 1)
    assert (step["fewest"], step["moves"][0]["gang"]) == (True, "default/note-0")


def test_a_gang_that_needs_more_than_there_is_never_starts(audit: Audited) -> None:
    waiting = audit(SPLIT, gang("huge", 5, 8), gang("later", 4, 8))["waiting"]
    assert {one["gang"]: one["startsIf"] for one in waiting} == {
        "default/huge": "never",
        "default/later": "others ended",
    }


def test_it_says_that_no_restart_helps(cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text(CLUSTER + NOTE)
    said = cli("audit", str(tmp_path / "full.yaml")).out
    assert (
        "proven: no better plan has more effective GPUs\nno restart was found that helps\n" in said
    )


def test_the_cheaper_of_two_gangs_in_the_way_restarts(audit: Audited) -> None:
    """Either notebook on a1 may go to make room for four GPUs there; ``dear`` has the higher priority."""
    cheap = gang("cheap", 1, 2, "a1", priority=0)
    dear = gang("dear", 1, 2, "a1", priority=1000)
    full = [gang(f"full-{node}", 1, 5, node) for node in ("a2", "b1", "b2")]
    (step,) = audit(dear, cheap, *full, gang("six", 1, 6))["steps"]
    assert [one["gang"] for one in step["moves"]] == ["default/cheap"]


def test_a_gang_of_higher_priority_starts_in_place_of_others(audit: Audited, cli: RunCli) -> None:
    """Without a restart ``low`` starts on a1; once ``note`` leaves b1, ``high`` has both servers free."""
    full = [gang(f"full-{node}", 1, 8, node) for node in ("a2", "b2")]
    note = gang("note", 1, 1, "b1")
    low = [gang(f"low-{n}", 1, 2) for n in range(4)]
    high = gang("high", 1, 8, priority=500)
    taken = gang("taken", 1, 7, "a1")
    (step,) = audit(*full, note, taken, *low, high)["steps"]
    assert (step["starts"], step["restarts"], step["regains"]) == (["default/high"], 1, 8 - 6)
    assert len(step["waits"]) == 3


def test_formats_are_as_agreed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: RunCli,
    golden: Callable[[str, str], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scene.yaml").write_text(CLUSTER + SPLIT + NOTE + BIG + policy(gpuHourPrice=2.5))
    for output in ("table", "wide"):
        result = cli("audit", "scene.yaml", "-o", output)
        golden(f"audit-{output}.txt", result.out)
    environ = {"SOURCE_DATE_EPOCH": "1790000000"}
    document = json.loads(cli("audit", "scene.yaml", "-o", "json", environ=environ).out)
    again = yaml.safe_load(cli("audit", "scene.yaml", "-o", "yaml", environ=environ).out)
    assert again == document


def test_the_replan_is_a_plan_that_is_never_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: RunCli
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scene.yaml").write_text(CLUSTER + SPLIT + NOTE + BIG)
    assert cli("audit", "scene.yaml", "--out", "replan.json").code == 0
    assert cli("verify", "replan.json").code == 0
    assert cli("report", "replan.json", "--out", "page.html").code == 0
    refused = cli("apply", "replan.json", "--yes")
    assert refused.code not in (0, 1)
    assert "restarts that cost nothing" in refused.err
    plan = json.loads(Path("replan.json").read_text())
    moved = [one["name"] for one in plan["spec"]["gangs"] if one["decision"] == "move"]
    assert moved == ["split"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["missing"], 66, "missing"),
        (["scene.yaml", "--out", "scene.yaml"], 64, "overwrite"),
        (["scene.yaml", "--out", "nowhere/x"], 73, "nowhere"),
        (["scene.yaml", "--time-limit", "0s"], 64, "below one second"),
        (["scene.yaml", "--scheduler", "!"], 64, "name of a scheduler"),
        (["empty.yaml"], 65, "cluster"),
    ],
)
def test_what_is_wrong_is_said_in_one_error(
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: RunCli,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scene.yaml").write_text(CLUSTER + SPLIT)
    Path("empty.yaml").write_text(SPLIT)
    result = cli("audit", *arguments)
    assert (result.code, result.out) == (code, "")
    assert says.lower() in result.err.lower()


def test_a_signal_ends_the_audit_with_what_was_found() -> None:
    """Before the search with nothing, later with an audit; to the end this one takes half a minute."""
    command = [sys.executable, "-m", "planner", "audit", "inputs/h100", "-o", "json"]
    process = subprocess.Popen(
        [*command, "--log-format", "json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline()  # it has begun
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 143
    assert "Traceback" not in err
    if out:
        assert json.loads(out)["effective"]["now"] > 0
