"""Back ends from the command line on: a plan of a fake cluster, applied, killed, and applied again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apiserver_setup import GATE
from apply_runs import OWN, TOLERATE, Bench, Fault, bench, cut
from backend_world import FINALIZER, claim, devices_of, metadata_of, request, slice_of, status_of
from effort import spread

Tree = dict[str, Any]

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"
_DEVICES = {
    "slices": f"/apis/{API}/resourceslices",
    "classes": f"/apis/{API}/deviceclasses",
    "claims": f"/apis/{API}/resourceclaims",
}


def a_cluster() -> FakeCluster:
    """Two nodes of 8 devices; gangs a and b of two pods with a claim for 4 GPUs each: all are taken."""
    found = FakeCluster()
    for node in ("n1", "n2"):
        found.add_node(node, gpus=0, taints=[OWN])
        found.create(slice_of(node))
    spec = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    found.create(
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": spec}
    )
    for gang in ("a", "b"):
        job = found.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": gang, "namespace": "default"},
                "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed"},
            }
        )
        for index in range(2):
            name = f"{gang}-{index}"
            found.create(claim(f"claim-{name}", request(4)))
            number = {"batch.kubernetes.io/job-completion-index": str(index)}
            found.add_pod(
                name,
                gpus=0,
                gates=[GATE],
                labels=number | {"batch.kubernetes.io/job-name": gang},
                annotations=number,
                owner=job,
                tolerations=TOLERATE,
                resourceClaims=[{"name": "gpu", "resourceClaimName": f"claim-{name}"}],
            )
    found.add_namespace("gangplan-system")
    return found


def planned(bench_: Bench, backend: str = "dra") -> Path:
    """A plan of the cluster, its devices and claims among what is read."""
    source = bench_.folder / "plan.json.read"
    source.mkdir()
    for part, path in _DEVICES.items():
        _, tree, _ = bench_.cluster.handle("GET", path)
        (source / f"{part}.json").write_text(json.dumps(tree), encoding="utf-8")
    return bench_.plan(policy={"kubernetes": {"gpuBackend": backend}})


@pytest.fixture
def any_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


def wanted(bench_: Bench, plan: Path) -> dict[str, tuple[str, list[str]]]:
    """Node and devices of every pod of the plan."""
    document = bench_.run("show", str(plan), "-o", "json").data()
    return {
        pod["name"]: (pod["node"], [f"gpu-{index}" for index in pod["gpus"]])
        for gang in document["spec"]["gangs"]
        for pod in gang["pods"]
    }


def there(bench_: Bench) -> dict[str, tuple[str | None, list[str]]]:
    return {
        name: (node, devices_of(bench_.cluster, f"claim-{name}"))
        for name, node in bench_.bound().items()
    }


def test_every_pod_gets_the_devices_of_the_plan(any_mode: Bench) -> None:
    plan = planned(any_mode)
    said = any_mode.apply(plan)
    assert said.code == 0, said.err
    assert there(any_mode) == wanted(any_mode, plan)
    assert len(there(any_mode)) == 4
    for name in there(any_mode):
        assert FINALIZER in metadata_of(any_mode.cluster, f"claim-{name}")["finalizers"]
        assert len(status_of(any_mode.cluster, f"claim-{name}")["reservedFor"]) == 1


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost after", 409])
def test_a_run_cut_anywhere_is_finished_by_the_next(
    kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the requests about claims and a sample of the others; each on a cluster of its own."""
    with bench(a_cluster(), tmp_path, monkeypatch) as first:
        plan = planned(first)
        aim = wanted(first, plan)
        first.apply(plan)
        calls = first.cluster.calls
        points = [at for at, call in enumerate(calls) if "/resourceclaims/" in call.path]
        points = sorted({*points[::2], *range(0, len(calls), 7)})
    assert any(calls[at].method == "PATCH" for at in points)
    kept = plan.read_bytes()
    for at in spread(points):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(a_cluster(), folder, monkeypatch) as made:
            again = folder / "plan.json"
            again.write_bytes(kept)
            with cut(made.cluster, Fault(at, kind, every=True)):
                made.apply(again)
            for _ in range(2):
                said = made.apply(again)
            assert said.code == 0, (at, said.err)
            assert there(made) == aim, at


REGISTER = "hami.io/node-nvidia-register"
USE = "nvidia.com/use-gpuuuid"


@pytest.fixture
def hami(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A node whose 4 cards HAMi hands out in 10 shares each; ``big`` wants 3 of them, ``odd`` 1."""
    cluster = FakeCluster()
    cluster.add_node("n1", gpus=40)
    entries = [{"id": f"GPU-{i}", "health": True, **({"index": i} if i else {})} for i in range(4)]

    def registered(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {REGISTER: json.dumps(entries)}
        return tree

    cluster.change("Node", "n1", registered)
    cluster.add_pod("big", gpus=3, gates=[GATE], scheduler="hami-scheduler", priority=9)
    cluster.add_pod("odd", gpus=1, gates=[GATE], scheduler="default-scheduler")
    cluster.add_namespace("gangplan-system")
    with bench(cluster, tmp_path, monkeypatch) as made:
        yield made


def annotations(bench_: Bench, name: str) -> dict[str, str]:
    found: dict[str, str] = bench_.cluster.pod(name)["metadata"].get("annotations") or {}
    return found


def test_hami_gets_whole_cards_and_others_wait(hami: Bench) -> None:
    plan = hami.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
    said = hami.apply(plan)
    document = hami.run("show", str(plan), "-o", "json").data()
    placed = {gang["name"]: gang["pods"] for gang in document["spec"]["gangs"]}
    cards = ",".join(f"GPU-{index}" for index in placed["big"][0]["gpus"])
    assert annotations(hami, "big")[USE] == cards
    assert "schedulingGates" not in hami.cluster.pod("big")["spec"]
    assert len(placed["odd"]) == 1, "its scheduler is not known to the plan, only to the pod"
    assert said.code == 7
    assert "only HAMi's scheduler reads a list of cards" in said.out + said.err
    assert hami.cluster.pod("odd")["spec"]["schedulingGates"] == [{"name": GATE}]
    assert "gangplan.dev/plan" not in annotations(hami, "odd")


def test_what_was_written_for_a_gang_that_cannot_be_carried_is_taken_off(hami: Bench) -> None:
    """duo: its second pod has a choice of its own, which only shows when its cards are written."""
    for name in ("big", "odd"):
        hami.cluster.remove("Pod", name)
    job = hami.cluster.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "duo", "namespace": "default"},
            "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed"},
        }
    )
    for index in range(2):
        number = {"batch.kubernetes.io/job-completion-index": str(index)}
        hami.cluster.add_pod(
            f"duo-{index}",
            gpus=1,
            gates=[GATE],
            scheduler="hami-scheduler",
            labels=number | {"batch.kubernetes.io/job-name": "duo"},
            annotations=number | ({USE: "GPU-0"} if index else {}),
            owner=job,
        )
    plan = hami.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
    said = hami.apply(plan)
    assert said.code == 7
    assert "chooses cards already" in said.out + said.err
    written = [call for call in hami.cluster.writes if call.path.endswith("/pods/duo-0")]
    assert USE in written[0].body["metadata"]["annotations"]
    assert USE not in annotations(hami, "duo-0")
    assert "gangplan.dev/plan" not in annotations(hami, "duo-0")
    assert annotations(hami, "duo-1")[USE] == "GPU-0", "what its owner wrote stays"
