"""``gangplan audit`` on the command line: formats, money, metrics, saved plans, and bad input.

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import RunCli
from effort import HANG_S

from models.documents.audit import AuditDocument
from models.instance.instance import Instance
from models.instance.solution import Solution
from planner.errors import Fault, RefusedPlanError
from planner.pipelines import audit as pipeline
from planner.pipelines.timed_search import TimedSearch
from planner.search.improve.regaining_moves import Regain

ROOT = Path(__file__).parent.parent

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


@pytest.fixture
def audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: RunCli
) -> Callable[..., AuditDocument]:
    """The audit of a cluster with these documents."""
    monkeypatch.chdir(tmp_path)

    def of(*documents: str, options: tuple[str, ...] = ()) -> AuditDocument:
        Path("scene.yaml").write_text("".join((CLUSTER, *documents)))
        result = cli("audit", "scene.yaml", "-o", "json", *options)
        assert result.code == 0, result.err
        return AuditDocument.model_validate_json(result.out)

    return of


def test_the_loss_and_its_parts(audit: Callable[..., AuditDocument]) -> None:
    found = audit(SPLIT, NOTE, BIG, policy(gpuHourPrice=2)).status
    assert (found.effective_gpus.before, found.effective_gpus.possible) == (7.56, 25)
    lost = found.lost
    assert (lost.gpus, lost.at_most, lost.slow, lost.waiting) == (17.44, 17.44, 1.44, 16)
    assert (lost.startable, lost.placement, lost.allowed) == (0, 17.44, 0)
    assert lost.money_per_day == 837.12  # 17.44 x 24 x 2
    (slow, full) = found.gangs
    assert (slow.gang, slow.speed, slow.best_speed, slow.replan_speed) == (
        "default/split",
        820,
        1000,
        1000,
    )
    assert (slow.bandwidth, slow.best, slow.share) == (200_000, 370_800, 539)
    assert (slow.lost_gpus, slow.regains_gpus, slow.nodes) == (1.44, 1.44, ("a1", "b1"))
    assert (slow.unknown_gpus, slow.movable, full.movable) == (True, False, True)
    assert [(one.gang, one.starts_if) for one in found.waiting] == [
        ("default/big", "others stood better")
    ]
    assert {one.level: (one.now, one.possible, one.domains) for one in found.whole} == {
        "rack": (0, 1, 2),
        "node": (1, 2, 4),  # 9 GPUs need two servers
    }


def test_the_moves_that_regain_most_have_their_price(audit: Callable[..., AuditDocument]) -> None:
    times = policy(now="2026-11-20T10:00:00Z")
    begun = SPLIT.replace("status:\n", "status:\n  startedAt: '2026-11-20T09:00:00Z'\n")
    (move,) = audit(begun, NOTE, BIG, times).status.moves
    assert [one.gang for one in move.gangs] == ["default/split"]
    assert [(one.gang, one.nodes) for one in move.starts] == [("default/big", ("b1", "b2"))]
    assert (move.restarts, move.gpus, move.regains_gpus, move.allowed) == (1, 8, 17.44, False)
    assert move.lost_runtime == 8 * 3600
    assert move.gangs[0].leaves == ("a1", "b1")
    assert move.gangs[0].comes == ("a1",)
    assert (move.gangs[0].speed, move.gangs[0].speed_after) == (820, 1000)


def test_the_first_line_separates_what_needs_no_move_from_what_placement_costs(
    cli: RunCli, tmp_path: Path
) -> None:
    """``small`` fits on a2 now: 4 GPUs x 24 x 2 = 192 a day. The rest is 17.44 x 48 = 837.12, as above."""
    small = gang("small", 1, 4, priority=-1)
    (tmp_path / "scene.yaml").write_text(CLUSTER + SPLIT + BIG + small + policy(gpuHourPrice=2))
    result = cli("audit", str(tmp_path / "scene.yaml"))
    first, second = result.out.splitlines()[:2]
    assert first == (
        "starting gangs that fit now adds 4 effective GPUs (192.00 a day); "
        "the placement of running gangs costs 17.44 (837.12 a day)"
    )
    assert second == (
        "the re-plan regains 21.44 effective GPUs (1,029.12 a day) in all; "
        "proven: no re-plan regains more"
    )


def test_moves_that_need_a_partner_are_found(audit: Callable[..., AuditDocument]) -> None:
    """Four full servers. ``split`` is whole on a1 once ``left`` goes to b1: 8 x 0.18 GPUs more."""
    full = [gang(f"full-{node}", 1, 8, node) for node in ("a2", "b2")]
    left, right = gang("left", 1, 4, "a1"), gang("right", 1, 4, "b1")
    found = audit(SPLIT, left, right, *full).status
    (move,) = found.moves
    assert (move.restarts, move.gpus, move.regains_gpus) == (2, 12, 1.44)
    assert {one.gang for one in move.gangs} in (
        {"default/split", "default/left"},
        {"default/split", "default/right"},
    )
    assert (found.move_search, found.lost.by_moves) == ("found", 1.44)
    assert found.whole_regain is not None
    assert (found.whole_regain.restarts, found.whole_regain.gpus) == (2, 12)


def test_it_says_whether_no_move_exists_or_none_was_found(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full.yaml").write_text(CLUSTER + NOTE)
    (tmp_path / "lost.yaml").write_text(CLUSTER + SPLIT + NOTE + BIG)
    monkeypatch.setattr("planner.search.improve.regaining_moves._chosen", lambda *_: [])
    none, missed = (
        cli("audit", str(tmp_path / name), "-o", "json") for name in ("full.yaml", "lost.yaml")
    )
    assert json.loads(none.out)["status"]["moveSearch"] == "none exists"
    status = json.loads(missed.out)["status"]
    assert (status["moves"], status["moveSearch"]) == ([], "none found")
    said = " ".join(cli("audit", str(tmp_path / "lost.yaml")).out.split())
    assert (
        "no move of a few gangs was found that regains a part of the 17.44; "
        "to regain all of it takes restarting "
    ) in said


DAMAGED = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: damaged}
spec:
  nodes:
  - {name: "n[1-3]", model: DGX H100}
  - {name: sick, model: DGX H100, unhealthyGpus: [0]}
  - {name: cordoned, model: DGX H100, unschedulable: true}
  - {name: down, model: DGX H100, ready: false}
"""


def test_nothing_is_possible_beyond_what_is_usable(tmp_path: Path, cli: RunCli) -> None:
    """8 + 8 + 8 + 7 GPUs may be used, however much waits.

    12 are held, so that 19 are free: two servers at most. Two are free where one gang goes to ``sick`` and
    two share a server.
    """
    running = [gang(f"r{i}", 1, 4, f"n{i}") for i in (1, 2, 3)]
    (tmp_path / "busy.yaml").write_text(DAMAGED + "".join(running) + gang("huge", 25, 4))
    (tmp_path / "calm.yaml").write_text(DAMAGED + "".join(running))
    busy, calm = (
        AuditDocument.model_validate_json(
            cli("audit", str(tmp_path / name), "-o", "json").out
        ).status
        for name in ("busy.yaml", "calm.yaml")
    )
    assert busy.effective_gpus.bound <= 31
    (nodes,) = calm.whole
    assert (nodes.now, nodes.possible, nodes.at_most, nodes.domains) == (0, 2, 2, 6)


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
    document = json.loads(cli("audit", "scene.yaml", "-o", "json").out)
    again = yaml.safe_load(cli("audit", "scene.yaml", "-o", "yaml").out)
    for one in (document, again):
        del one["metadata"], one["status"]["plan"]["metadata"]
    assert again == document


def test_metrics_and_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: RunCli,
    golden: Callable[[str, str], None],
) -> None:
    """The re-plan passes the judge as it is saved, and is never applied."""
    monkeypatch.chdir(tmp_path)
    Path("scene.yaml").write_text(CLUSTER + SPLIT + NOTE + BIG)
    options = ("--out", "audit.json", "--out-plan", "replan.json", "--metrics-file", "audit.prom")
    environ = {"SOURCE_DATE_EPOCH": "1790000000"}
    assert cli("audit", "scene.yaml", *options, environ=environ).code == 0
    golden("audit-metrics.txt", Path("audit.prom").read_text())
    assert cli("verify", "replan.json").code == 0
    refused = cli("apply", "replan.json", "--yes")
    assert refused.code not in (0, 1)
    assert "restarts that cost nothing" in refused.err
    saved = AuditDocument.model_validate_json(Path("audit.json").read_bytes())
    assert saved.status.plan is not None
    assert saved.status.plan.status.digests.spec in Path("replan.json").read_text()
    # a saved plan is audited as it was before the plan
    assert cli("plan", "scene.yaml", "--out", "plan.json").code == 0
    of_plan = json.loads(cli("audit", "plan.json", "-o", "json").out)
    assert of_plan["status"]["lost"]["gpus"] == saved.status.lost.gpus


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["missing"], 66, "missing"),
        (["scene.yaml", "--out", "scene.yaml"], 64, "overwrite"),
        (["scene.yaml", "--out-plan", "nowhere/x"], 73, "nowhere"),
        (["scene.yaml", "--metrics-file", "nowhere/x"], 73, "nowhere"),
        (["scene.yaml", "--out", "x", "--out-plan", "x"], 64, "two files"),
        (["scene.yaml", "--time-limit", "0s"], 64, "below one second"),
        (["scene.yaml", "--queue", "!"], 64, "name of a scheduler"),
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


class Hasty(TimedSearch):
    """The search for the re-plan has no time to find anything."""

    def run(self) -> Solution:
        gangs = self._search.instance.gangs
        movable = sum(gang.running and gang.movable for gang in gangs)
        return self._search.best() if movable == 2 and len(gangs) > 2 else super().run()


def test_a_replan_that_was_not_found_is_at_least_the_moves_that_were(
    audit: Callable[..., AuditDocument], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "TimedSearch", Hasty)
    found = audit(SPLIT, NOTE, BIG).status
    assert [move.regains_gpus for move in found.moves] == [17.44]
    assert found.lost.gpus == 17.44
    assert found.objectives[0].possible == 25_000


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
        AuditDocument.model_validate_json(out)


def test_moves_that_break_a_rule_together_are_not_stated(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli
) -> None:
    sizes: list[int] = []
    whole, check = pipeline.together, pipeline._Auditor._check

    def together(free: Instance, unmoved: Solution, moves: Sequence[Regain]) -> Solution:
        sizes.append(len(moves))
        return whole(free, unmoved, moves)

    def refusing(self: pipeline._Auditor, instance: Instance, solution: Solution) -> None:
        if sizes[-1:] == [2]:
            raise RefusedPlanError(Fault("gpu-binding: refused"))
        check(self, instance, solution)

    monkeypatch.setattr(pipeline, "together", together)
    monkeypatch.setattr(pipeline._Auditor, "_check", refusing)
    audited = cli("audit", str(ROOT / "inputs/moves"), "-o", "json")
    assert audited.code == 0, audited.err
    assert sizes == [2, 0]  # both, none
    assert json.loads(audited.out)["status"]["moves"] == []
