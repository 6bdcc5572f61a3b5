"""``gangplan explain``: one gang of a plan in full, from the plan document alone."""

from __future__ import annotations

import json
from pathlib import Path

import kube
import pytest
from conftest import RunCli

from planner.show.text import width


@pytest.mark.slow
def test_every_gang_of_a_recorded_cluster_is_explained(cli: RunCli, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    source = kube.SNAPSHOTS / "v100-mpi"
    assert cli("plan", str(source), "--budget", "1", "--out", plan).code == 0
    spec = json.loads(Path(plan).read_text(encoding="utf-8"))
    decided = {(gang["namespace"], gang["name"]): gang for gang in spec["spec"]["gangs"]}
    some = sorted(decided)[:: max(1, len(decided) // 5)]
    assert len({decided[key]["decision"] for key in some}) > 1
    for key in some:
        counts = ("explain", plan, "/".join(key), "--time-limit", "0s")
        document = json.loads(cli(*counts, "-o", "json").out)
        assert document["reason"] == decided[key]["reason"]
        for role in document["candidates"]:
            out = sum(one["nodes"] for one in role["excluded"])
            assert out + role["eligibleNodes"] == len(spec["instance"]["cluster"]["spec"]["nodes"])
        out = cli(*counts, environ={"COLUMNS": "80"}).out
        assert max(map(width, out.splitlines())) <= 80
