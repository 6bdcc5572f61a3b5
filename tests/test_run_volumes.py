"""Gangs whose pods need volumes: what a run starts, what it makes wait, and what it writes on claims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import serving
from apiserver_kinds import VOLUME_CLAIM
from apply_runs import OWN, TOLERATE
from conftest import Result, RunCli
from deploying import TENANT, USER, install
from kube_volumes import NOW, claim, storage_class, using, volume
from run_bench import RunBench, memory_bench, nodes, summary
from snapshots import environment

from planner.cluster.rights import Right

SELECTED = "volume.kubernetes.io/selected-node"
LOCAL_CLASS = storage_class()
CSI = storage_class("csi", provisioner="csi.example.com")


@pytest.fixture
def bench(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    """Four nodes of 8 GPUs."""
    with memory_bench(nodes(4), tmp_path, cli, monkeypatch) as found:
        yield found


def made(cluster: FakeCluster, *trees: dict[str, Any]) -> None:
    for tree in trees:
        cluster.create(tree)


def disk(size: str = "10Gi", *, of: str = "local") -> list[dict[str, Any]]:
    """An ephemeral volume ``data``: the claim of pod a-0 is a-0-data."""
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": asked | classed(of)}}}]


def classed(of: str) -> dict[str, str]:
    return {"storageClassName": of}


def claim_of(cluster: FakeCluster, name: str) -> dict[str, Any]:
    found = cluster.store.get(VOLUME_CLAIM, "default", name)
    assert found is not None
    return found


def selected(cluster: FakeCluster, name: str) -> str | None:
    notes = claim_of(cluster, name)["metadata"].get("annotations") or {}
    found: str | None = notes.get(SELECTED)
    return found


# gate mode: kube-scheduler gives pods their volumes


def test_a_gang_starts_on_the_nodes_with_local_volumes(bench: RunBench) -> None:
    made(bench.cluster, LOCAL_CLASS, volume("p1", "n1"), volume("p3", "n3"))
    bench.cluster.gang_of_pods("a", 2, volumes=disk())
    done = bench.run()
    assert done.code == 0, done.err
    assert sorted(filter(None, bench.places().values())) == ["n1", "n3"]
    assert claim_of(bench.cluster, "a-0-data")["status"]["phase"] == "Bound"


def test_a_gang_with_a_pod_without_volume_waits_whole(bench: RunBench) -> None:
    made(bench.cluster, LOCAL_CLASS, volume("p1", "n1"), volume("p2", "n2", size="9Gi"))
    bench.cluster.gang_of_pods("a", 2, volumes=disk())
    bench.cluster.gang_of_pods("b", 2)
    done = bench.run()
    assert done.code == 0, done.err
    assert "gangs: 1 started; 1 waiting" in summary(done)
    assert [bench.places()[f"a-{i}"] for i in range(2)] == [None, None]
    # it starts with the volume that it lacked
    for name in ("b-0", "b-1"):
        bench.cluster.remove("Pod", name)
    made(bench.cluster, volume("p0", "n0"))
    assert bench.run().code == 0
    assert sorted(filter(None, bench.places().values())) == ["n0", "n1"]


def test_a_gang_waits_for_claims_that_are_missing_or_bound_at_once(bench: RunBench) -> None:
    made(bench.cluster, storage_class("now", mode=NOW))
    bench.cluster.gang_of_pods("a", 1, volumes=using("later"))
    bench.cluster.gang_of_pods("b", 1, volumes=disk(of="now"))
    assert bench.run().code == 0
    assert set(bench.places().values()) == {None}
    made(bench.cluster, CSI, claim("later", of="csi"), volume("p", "n2", of="now"))
    assert bench.run().code == 0
    assert bench.places()["b-0"] == "n2"
    assert bench.places()["a-0"] is not None


# binding mode: gangplan stands for kube-scheduler


def test_a_bound_pod_gets_its_volume_where_it_goes(bench: RunBench) -> None:
    made(bench.cluster, CSI)
    bench.cluster.gang_of_pods("a", 2, mode="binding", volumes=disk(of="csi"))
    done = bench.run("--allow-shared-nodes")
    assert done.code == 0, done.err
    for number in range(2):
        node = bench.places()[f"a-{number}"]
        assert node is not None
        assert selected(bench.cluster, f"a-{number}-data") == node
        assert claim_of(bench.cluster, f"a-{number}-data")["status"]["phase"] == "Bound"
    # every claim before the first pod
    paths = [path for method, path in bench.written() if method in ("PATCH", "POST")]
    claims = [i for i, path in enumerate(paths) if "persistentvolumeclaims" in path]
    bound = [i for i, path in enumerate(paths) if path.endswith("/binding")]
    assert len(claims) == 2
    assert max(claims) < max(bound)
    patches = [call.body for call in bench.cluster.writes if "persistentvolumeclaims" in call.path]
    assert all({"uid", "resourceVersion"} <= patch["metadata"].keys() for patch in patches)
    again = bench.run("--allow-shared-nodes")
    assert "run unchanged (exit 0)" in summary(again)


def test_what_gangplan_binds_waits_for_volumes_that_only_kube_scheduler_gives(
    bench: RunBench,
) -> None:
    made(bench.cluster, LOCAL_CLASS, volume("p1", "n1"), volume("p3", "n3"))
    bench.cluster.gang_of_pods("a", 2, mode="binding", volumes=disk())
    done = bench.run("--allow-shared-nodes")
    assert done.code == 0, done.err
    assert set(bench.places().values()) == {None}
    assert "1 waiting" in summary(done)


@pytest.mark.parametrize("mode", ["gate", "binding"])
def test_a_claim_that_goes_elsewhere_before_the_start_skips_its_gang(
    bench: RunBench, mode: str
) -> None:
    made(bench.cluster, CSI)
    bench.cluster.gang_of_pods("a", 2, mode=mode, volumes=disk(of="csi"))
    readings: list[Call] = []
    taken_at = []

    def taken(call: Call) -> Answer | None:
        """Before the first start, somebody has the volume of a pod made on another node.

        For what gangplan binds: once intents are written; otherwise after the last reading of all pods.
        """
        if call.method == "GET" and call.path == "/api/v1/pods":
            readings.append(call)
        written = call.method == "PATCH" and "/pods/" in call.path
        if taken_at or not (written if mode == "binding" else len(readings) == 3):
            return None
        taken_at.append(call)
        one = claim_of(bench.cluster, "a-1-data")
        notes = {SELECTED: "n3"}
        new = one | {"metadata": one["metadata"] | {"annotations": notes}}
        bench.cluster.store.keep(VOLUME_CLAIM, new, manager="somebody")
        return None

    bench.cluster.after.append(taken)
    done = bench.run("--allow-shared-nodes")
    assert done.code == 7, done.err
    assert "node" in done.err
    assert set(bench.places().values()) == {None}
    again = bench.run("--allow-shared-nodes")
    assert again.code == 0, again.err
    assert None not in bench.places().values()


def test_whatever_claim_write_a_run_dies_at_the_next_one_completes_the_gang(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each write: nothing but whole gangs in the end."""
    for at in range(1, 13):
        for after in (False, True):
            folder = tmp_path / f"{at}-{after}"
            folder.mkdir()
            with memory_bench(nodes(3), folder, cli, monkeypatch) as bench:
                made(bench.cluster, CSI)
                bench.cluster.gang_of_pods("a", 3, mode="binding", volumes=disk(of="csi"))
                dead = _dying(bench.cluster, at, after=after)
                bench.run("--allow-shared-nodes")
                bench.cluster.before.remove(dead)
                bench.cluster.advance(120)
                done = bench.run("--allow-shared-nodes")
                assert done.code == 0, (at, after, done.err)
                assert None not in bench.places().values(), (at, after)
                for number in range(3):
                    on = selected(bench.cluster, f"a-{number}-data")
                    assert on == bench.places()[f"a-{number}"]


def as_the_account(cluster: FakeCluster, folder: Path, cli: RunCli) -> Result:
    """A run as the shipped account, over HTTP, of two gangs of a tenant; b has its volume, a none."""
    for number in range(3):
        cluster.add_node(f"n{number}", taints=[OWN])
    made(cluster, CSI, volume("p", of="csi", phase=""))
    made(cluster, claim("have", of="csi", namespace=TENANT, volumeName="p"))
    of = {"mode": "binding", "namespace": TENANT, "tolerations": TOLERATE}
    cluster.gang_of_pods("a", 1, volumes=disk(of="csi"), **of)
    cluster.gang_of_pods("b", 1, volumes=using("have"), **of)
    cluster.add_user("t", USER)
    with serving(cluster, folder) as endpoint:
        environ = environment(folder, KUBECONFIG=str(endpoint.as_user("t")))
        return cli("run", "--budget", "1", "--wait", "0s", environ=environ)


def test_the_shipped_account_may_do_what_volumes_take(tmp_path: Path, cli: RunCli) -> None:
    cluster = FakeCluster()
    install(cluster)
    said = as_the_account(cluster, tmp_path, cli)
    assert said.code == 0, said.err
    assert cluster.node_of("a-0", TENANT) is not None
    assert cluster.node_of("b-0", TENANT) is not None


def test_without_the_right_to_claims_only_pods_that_need_it_are_left_out(
    tmp_path: Path, cli: RunCli
) -> None:
    cluster = FakeCluster()
    install(cluster, without=Right("patch", "", "persistentvolumeclaims", namespace=TENANT))
    said = as_the_account(cluster, tmp_path, cli)
    assert said.code == 0, said.err
    assert (
        f"warning: not permitted to patch persistentvolumeclaims in {TENANT}: not planned there: 1 pod "
        "without volumes" in said.err.splitlines()
    )
    assert cluster.node_of("a-0", TENANT) is None
    assert cluster.node_of("b-0", TENANT) is not None


def _dying(cluster: FakeCluster, at: int, *, after: bool) -> Any:  # noqa: ANN401  # a hook
    """From the ``at``-th write on nothing is answered; ``after``: that one is still carried out."""
    writes: list[Call] = []

    def hook(call: Call) -> Answer | None:
        if call.method != "GET" and "/leases" not in call.path:
            writes.append(call)
        if len(writes) > at or (len(writes) == at and not after):
            return LOST
        return None

    cluster.before.append(hook)
    return hook
