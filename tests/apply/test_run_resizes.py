"""Runs that resize Deployments and StatefulSets, cut off at any request: later runs come to the same end.

Four nodes of 8 GPUs; ``low`` has one to four pods of 8, ``high`` two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Crash, Fault
from conftest import Result, RunCli
from effort import spread
from run_bench import RunBench, memory_bench

from planner.cluster.writes import COST, GOES_FIRST

Tree = dict[str, Any]
KINDS = ("Deployment", "StatefulSet")
EVICT = "--allow-evictions"


def elastic(kind: str, replicas: int) -> Tree:
    """A controller of preemptible pods of 8 GPUs with a range from one to four."""
    labels = {"app": "low"}
    amounts = {"nvidia.com/gpu": "8"}
    containers = [{"name": "main", "image": "image", "resources": {"limits": amounts}}]
    pod: Tree = {"containers": containers, "terminationGracePeriodSeconds": 0}
    pod["schedulingGates"] = [{"name": "gangplan.dev/placement"}]
    notes = {"gangplan.dev/min": "1", "gangplan.dev/max": "4", "gangplan.dev/preemptible": "true"}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": "low", "podManagementPolicy": "Parallel"}
    metadata = {"name": "low", "namespace": "default", "annotations": notes}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


@contextmanager
def running(
    folder: Path,
    cli: RunCli,
    patch: pytest.MonkeyPatch,
    kind: str,
    pods: int,
) -> Iterator[RunBench]:
    """``low`` runs with so many pods."""
    cluster = FakeCluster(workloads=True, kubelets=True)
    for number in range(4):
        cluster.add_node(f"n{number}")
    folder.mkdir(exist_ok=True)
    with memory_bench(cluster, folder, cli, patch) as bench:
        assert bench.run().code == 0
        later(bench)
        cluster.create(elastic(kind, pods))
        said = run(bench)
        assert said.code == 0, said.err
        assert len(placed(bench, "low")) == pods
        later(bench)
        yield bench


def run(bench: RunBench, *options: str) -> Result:
    return bench.run(EVICT, *options)


def later(bench: RunBench) -> None:
    """After a lock has run out."""
    bench.cluster.advance(100)


def placed(bench: RunBench, gang: str) -> dict[str, str]:
    found = bench.places().items()
    return {name: place for name, place in found if place and name.startswith(gang)}


def replicas(bench: RunBench, kind: str) -> int:
    path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s/low"
    found: int = bench.cluster.handle("GET", path)[1]["spec"]["replicas"]
    return found


def high(bench: RunBench) -> None:
    bench.cluster.gang_of_pods("high", 2, gpus=8, priority=100)


def marked(bench: RunBench) -> set[str]:
    """Pods with the cost of those that go first."""
    return {
        pod["metadata"]["name"]
        for pod in bench.cluster.pods()
        if (pod["metadata"].get("annotations") or {}).get(COST) == GOES_FIRST
    }


@pytest.mark.parametrize("kind", [*KINDS, "ReplicaSet"])
def test_a_gang_shrinks_by_the_planned_pods(
    kind: str, tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, cli, monkeypatch, kind, 4) as bench:
        before = sorted(placed(bench, "low"))
        high(bench)
        said = run(bench)
        assert said.code == 0, said.err
        assert "default/low: resized: worker from 4 to 2 pods\n" in said.err
        assert len(placed(bench, "high")) == 2
        assert sorted(placed(bench, "low")) == before[:2]
        assert (replicas(bench, kind), marked(bench)) == (2, set())
        said = run(bench)
        assert (said.code, "nothing changed" in said.err) == (0, True), said.err


def test_pods_that_wait_go_before_the_planned_ones(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six pods four run: the number that stays is two, not six less two."""
    with running(tmp_path, cli, monkeypatch, "Deployment", 4) as bench:
        before = sorted(placed(bench, "low"))
        path = "/apis/apps/v1/namespaces/default/deployments/low/scale"
        merge = "application/merge-patch+json"
        assert bench.cluster.handle("PATCH", path, {"spec": {"replicas": 6}}, merge)[0] == 200
        high(bench)
        said = run(bench)
        assert said.code == 0, said.err
        assert (sorted(placed(bench, "low")), replicas(bench, "Deployment")) == (before[:2], 2)


def test_where_other_pods_went_it_is_said_and_the_next_run_goes_on(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that is to stay loses its readiness as the scale is set: its set removes that one."""
    with running(tmp_path, cli, monkeypatch, "Deployment", 4) as bench:
        stays = min(placed(bench, "low"))

        def fail(call: Any) -> None:  # noqa: ANN401  # a hook
            if call.path.endswith("/scale") and call.method == "PATCH":
                bench.cluster.kubelets = False
                bench.cluster.run_pod("default", stays, "Pending")

        high(bench)
        bench.cluster.before.append(fail)
        said = run(bench)
        bench.cluster.before.clear()
        assert said.code == 7, said.err
        assert "default/low: resized" in said.err
        assert "removed another pod than" in said.err
        assert len(placed(bench, "low")) == 2
        said = run(bench)
        assert said.code == 0, said.err
        assert (len(placed(bench, "high")), len(placed(bench, "low"))) == (2, 2)


def test_a_refused_scale_takes_the_marks_back(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, cli, monkeypatch, "Deployment", 4) as bench:
        high(bench)
        fault = Fault(10**6, "unused")

        def refuse(call: Any) -> Any:  # noqa: ANN401  # a hook
            if call.path.endswith("/scale") and call.method == "PATCH":
                return 403, {"kind": "Status", "message": "no"}, {}
            return fault.before(call)

        bench.cluster.before.append(refuse)
        said = run(bench)
        assert (said.code, marked(bench)) == (7, set()), said.err
        assert len(placed(bench, "low")) == 4


def test_new_pods_of_a_controller_start_in_the_run_that_grows_it(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        with running(tmp_path / kind, cli, monkeypatch, kind, 2) as bench:
            said = bench.run(EVICT, "--wait", "2s")
            assert said.code == 0, said.err
            assert "default/low: started" in said.err
            assert (len(placed(bench, "low")), replicas(bench, kind)) == (4, 4)


def test_pods_that_are_not_created_yet_are_left_to_the_next_run(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, cli, monkeypatch, "Deployment", 2) as bench:
        bench.cluster.workloads.on = False
        said = run(bench)
        assert said.code == 0, said.err
        words = (
            "default/low: resized: worker from 2 to 4 pods; its controller has created 0 of 2 pods"
        )
        assert words in said.err
        bench.cluster.workloads.on = True
        bench.cluster.settle()
        later(bench)
        said = run(bench)
        assert (said.code, len(placed(bench, "low"))) == (0, 4), said.err


def test_an_elastic_gang_that_lost_its_marked_pods_to_its_owner_is_well_again(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner scales it from four pods to one: the one without a mark stays."""
    with running(tmp_path, cli, monkeypatch, "Deployment", 4) as bench:
        merge = "application/merge-patch+json"
        for number in range(4):
            bench.cluster.cordon(f"n{number}")
        cost = {"metadata": {"annotations": {COST: "-5"}}}
        *going, stays = sorted(placed(bench, "low"))
        for name in going:
            path = f"/api/v1/namespaces/default/pods/{name}"
            assert bench.cluster.handle("PATCH", path, cost, merge)[0] == 200
        path = "/apis/apps/v1/namespaces/default/deployments/low/scale"
        assert bench.cluster.handle("PATCH", path, {"spec": {"replicas": 1}}, merge)[0] == 200
        assert list(placed(bench, "low")) == [stays]
        assert run(bench, "--evict-partial").code == 7
        later(bench)
        said = run(bench, "--evict-partial")
        assert (said.code, list(placed(bench, "low"))) == (0, [stays]), said.err


def test_where_no_scale_may_be_set_gangs_keep_their_sizes_and_others_start(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for one more pod: low may not grow into it, so small starts there."""
    with running(tmp_path, cli, monkeypatch, "Deployment", 3) as bench:

        def deny(call: Any) -> Any:  # noqa: ANN401  # a hook
            if call.path.endswith("/selfsubjectaccessreviews"):
                asked = call.body["spec"]["resourceAttributes"]
                if asked.get("subresource") == "scale":
                    return 201, {**call.body, "status": {"allowed": False}}, {}
            return None

        bench.cluster.before.append(deny)
        said = run(bench)
        assert said.code == 0, said.err
        assert (len(placed(bench, "low")), replicas(bench, "Deployment")) == (3, 3)
        bench.cluster.gang_of_pods("small", 1, gpus=8)
        said = run(bench)
        assert said.code == 0, said.err
        assert len(placed(bench, "small")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_that_moves_and_grows_at_once_is_whole_after_the_next_run(
    kind: str, tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of low gives its node to one that runs nowhere else; three nodes are left for low."""
    with running(tmp_path, cli, monkeypatch, kind, 2) as bench:
        path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s/low"
        notes = {"gangplan.dev/preemptible": None, "gangplan.dev/movable": "true"}
        body = {"metadata": {"annotations": notes}}
        assert bench.cluster.handle("PATCH", path, body, "application/merge-patch+json")[0] == 200
        place = min(placed(bench, "low").values())
        bench.cluster.gang_of_pods(
            "high", 1, gpus=8, priority=100, nodeSelector={"kubernetes.io/hostname": place}
        )
        for _ in range(3):
            said = run(bench, "--wait", "2s")
            later(bench)
        assert said.code == 0, said.err
        assert placed(bench, "high") == {"high-0": place}
        assert (len(placed(bench, "low")), replicas(bench, kind)) == (3, 3)


@pytest.mark.parametrize(
    ("way", "fault", "kind"),  # any two of them together
    [
        ("shrink", "crash before", KINDS[0]),
        ("shrink", "crash after", KINDS[1]),
        ("grow", "crash before", KINDS[1]),
        ("grow", "crash after", KINDS[0]),
    ],
)
def test_a_run_cut_off_at_any_request_is_continued(
    way: str, fault: str, kind: str, tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = 4 if way == "shrink" else 2
    for at in spread(range(200), 36, thorough=6):
        with running(tmp_path / str(at), cli, monkeypatch, kind, pods) as bench:
            if way == "shrink":
                high(bench)
            meddler = Fault(at, fault, every=True)
            bench.cluster.before.append(meddler.before)
            bench.cluster.after.append(meddler.after)
            with suppress(Crash):
                run(bench, "--wait", "2s")
            bench.cluster.before.clear()
            bench.cluster.after.clear()
            for _ in range(2):
                later(bench)
                said = run(bench, "--wait", "2s")
                assert said.code == 0, (at, said.err)
            there = (len(placed(bench, "low")), len(placed(bench, "high")), replicas(bench, kind))
            assert there == ((2, 2, 2) if way == "shrink" else (4, 0, 4)), (at, said.err)
        if not meddler.struck:
            break
    assert not meddler.struck
