"""The planning half of ``run`` with the real kubectl: recorded, planned, checked, nothing left behind."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import handmade
import pytest
from apiserver_http import serving
from conftest import RunCli
from snapshots import RecordedServer, environment, forbidden, more, small

from models.documents.plan import PlanDocument
from models.verify.check import check
from planner.cluster.snapshot import ACCEPT, SnapshotRequest
from planner.cluster.store import Store
from planner.pipelines.apply import ClusterTarget
from planner.pipelines.plan import Planned, PlanRequest
from planner.pipelines.run import LivePlanner, time_left
from planner.show.console import Console


@contextmanager
def planning(folder: Path, err: io.StringIO) -> Iterator[LivePlanner]:
    environ = environment(folder, SOURCE_DATE_EPOCH="1795000000")
    console = Console(stdout=io.StringIO(), stderr=err, environ=environ)
    wish = PlanRequest(paths=(), budget=5, workers=1, keep_running=True)
    reading = SnapshotRequest(starts={})
    with ClusterTarget(environ).connect(ACCEPT) as proxy:
        yield LivePlanner(wish, proxy, lambda: reading, console, Store(), time.monotonic)


@pytest.mark.slow
def test_the_plan_is_that_of_a_snapshot_and_says_which_cluster_and_pods_it_is_of(
    tmp_path: Path, cli: RunCli
) -> None:
    server = RecordedServer.of("v100-mpi")
    with serving(server, tmp_path, tls=False):
        with planning(tmp_path, io.StringIO()) as planner:
            document = json.loads(planner.plan().text)
        taken = cli("snapshot", "--out", str(tmp_path / "out"), environ=environment(tmp_path))
    assert taken.code == 0, taken.err
    assert check(document) == []
    spaces = {one["metadata"]["name"]: one for one in server.lists["namespaces"]}
    uid = spaces["kube-system"]["metadata"]["uid"]
    assert document["instance"]["cluster"]["metadata"]["uid"] == uid
    pods = [pod for gang in document["spec"]["gangs"] for pod in gang["pods"]]
    assert pods
    assert all("uid" in pod for pod in pods)
    # By hand: the same folder, the same clock, nothing that runs stopped or moved.
    by_hand = cli(
        *("plan", str(tmp_path / "out"), "--budget", "5", "--workers", "1"),
        *("--now", "2026-11-18T11:06:40Z", "-o", "name"),
        environ={"SOURCE_DATE_EPOCH": "1795000000"},
    )
    assert by_hand.code == 0, by_hand.err
    starting = [
        f"gang/{gang['namespace']}/{gang['name']}"
        for gang in document["spec"]["gangs"]
        if gang["decision"] in ("place", "complete")
    ]
    assert by_hand.out.split() == starting


UNREAD = (
    ("StatefulSet", "statefulsets", "apps/v1", None),
    ("PodDisruptionBudget", "poddisruptionbudgets", "policy/v1",
     "plans may stop or move gangs that disruption budgets protect"),
    ("Cohort", "cohorts", "kueue.x-k8s.io/v1beta2", "Cohorts of Kueue are not read: "),
    ("ElasticQuota", "elasticquotas", "scheduling.x-k8s.io/v1alpha1",
     "ElasticQuotas are not read: plans ignore their quotas"),
)  # fmt: skip


def test_what_may_not_be_listed_is_named_once_with_what_follows_and_the_rest_is_planned(
    tmp_path: Path,
) -> None:
    server, err = small(), io.StringIO()
    for kind, plural, version, _ in UNREAD:
        server.add(*more(kind, plural, version, "b"))
        right = plural if version == "apps/v1" else f"{plural}.{version.partition('/')[0]}"
        server.refuse(f"/apis/{version}/{plural}", forbidden("list", right))
    with serving(server, tmp_path, tls=False), planning(tmp_path, err) as one:
        first = one.plan()
        said, before = err.getvalue(), one.seconds["snapshot"]
        assert check(json.loads(first.text)) == []
        one.plan(first)
        assert one.seconds["snapshot"] > before
    assert {"snapshot", "read", "solve", "check"} <= one.seconds.keys()
    assert "not permitted, so not planned with: " in said
    assert "list statefulsets" in said
    for _, plural, version, follows in UNREAD[1:]:
        right = f"{plural}.{version.partition('/')[0]}"
        assert f"without the right to list {right}, {follows}" in said
    assert err.getvalue().count("warning:") == said.count("warning:")


@pytest.mark.parametrize(
    ("limit", "spent", "left"),
    [
        ("120s", 30.9, 90),  # 120 - 30
        ("120s", 110.0, 10),
        ("120s", 119.0, 10),  # never less than LEAST_TIME_S
        ("120s", 500.0, 10),
        ("5s", 4.0, 5),  # but never more than was allowed
    ],
)
def test_a_second_plan_gets_what_the_first_left_of_the_time_limit(
    limit: str, spent: float, left: int
) -> None:
    document = handmade.plan()
    document["instance"]["policy"]["spec"]["solve"] = {"timeLimit": limit}
    plan = PlanDocument.model_validate(document)
    assert time_left(Planned(plan, "", (), None, {"solve": spent})) == left
