"""A small cluster as Volcano leaves it, planned and explained: two vendors' GPUs and queues with limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundles import packed
from conftest import RunCli

Tree = dict[str, Any]
Planned = Callable[..., tuple[str, dict[str, Any]]]

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}
MI300X = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}


def node(name: str, resource: str, labels: dict[str, str]) -> Tree:
    allocatable = {"cpu": "100", "memory": "1000Gi", "pods": "110", resource: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(name: str, **spec: Tree | bool) -> Tree:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, "guarantee": {}, **spec},
        "status": {"state": "Open"},
    }


def job(
    name: str,
    replicas: int,
    gpus: int,
    *,
    at: tuple[str, ...] = (),
    where: str = "default",
    resource: str = NVIDIA,
    priority: int = 0,
    selector: dict[str, str] | None = None,
) -> list[Tree]:
    """A Volcano Job, its PodGroup and its pods; ``at``: the nodes of those that run."""
    requests = {"cpu": "4", "memory": "16Gi", resource: str(gpus)}
    spec: Tree = {
        "schedulerName": "volcano",
        "priority": priority,
        "nodeSelector": selector or {},
        "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
    }
    made = {"namespace": "default", "creationTimestamp": "2026-11-23T06:00:00Z"}
    uid = f"uid-{name}"
    batch = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    owner = {**batch, "name": name, "uid": uid, "controller": True}
    task = {"name": "worker", "replicas": replicas, "template": {"spec": spec}}
    group = f"{name}-{uid}"
    trees: list[Tree] = [
        {
            **batch,
            "metadata": {**made, "name": name, "uid": uid},
            "spec": {"minAvailable": replicas, "queue": where, "tasks": [task]},
            "status": {"state": {"phase": "Running" if at else "Pending"}},
        },
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {**made, "name": group, "ownerReferences": [owner]},
            "spec": {"minMember": replicas, "queue": where, "minTaskMember": {"worker": replicas}},
            "status": {"phase": "Running" if at else "Inqueue"},
        },
    ]
    for index in range(replicas):
        bound = {"nodeName": at[index]} if at else {}
        labels = {"volcano.sh/job-name": name, "volcano.sh/task-spec": "worker"}
        labels |= {"volcano.sh/task-index": str(index), "volcano.sh/queue-name": where}
        metadata = {
            **made,
            "name": f"{name}-worker-{index}",
            "uid": f"{uid}-{index}",
            "labels": labels,
            "annotations": {"scheduling.k8s.io/group-name": group, **labels},
            "ownerReferences": [owner],
        }
        status = {"phase": "Running" if at else "Pending"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        trees.append({**pod, "spec": {**spec, **bound}, "status": status})
    return trees


@pytest.fixture
def plan(cli: RunCli, tmp_path: Path) -> Planned:
    def planned(*trees: Tree) -> tuple[str, dict[str, Any]]:
        """The saved plan, and its gangs by name."""
        (tmp_path / "all.json").write_bytes(packed(trees))
        out = str(tmp_path / "plan.json")
        result = cli("plan", str(tmp_path / "all.json"), "--scheduler", "volcano", "--out", out)
        assert result.code == 0, result.err
        gangs = json.loads(Path(out).read_text(encoding="utf-8"))["spec"]["gangs"]
        return out, {one["name"]: one for one in gangs}

    return planned


def test_the_limit_of_a_queue_is_raised_though_its_pods_need_one_gpu_model(
    cli: RunCli, plan: Planned
) -> None:
    # The queue holds 8 GPUs of 16; 16 more need a limit of 24. All nodes with amd.com/gpu have one model.
    nodes = [node("h1", NVIDIA, H100), *(node(f"m{i}", AMD, MI300X) for i in range(3))]
    limited = queue("amd", capability={AMD: "16"})
    runs = job("runs", 1, 8, at=("m0",), where="amd", resource=AMD)
    out, gangs = plan(*nodes, limited, *runs, *job("pair", 2, 8, where="amd", resource=AMD))
    assert gangs["pair"]["reason"]["code"] == "Quota"
    shown = cli("explain", out, "pair")
    assert (shown.code, "raise the limit of queue amd to 24 GPUs" in shown.out) == (0, True)


def test_no_remedy_gives_a_pod_gpus_of_another_resource(cli: RunCli, plan: Planned) -> None:
    # The A100 that it selects does not exist, and free GPUs are AMD's alone, whatever it selects.
    nodes = [node("h1", NVIDIA, H100), node("m1", AMD, MI300X)]
    wants = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    out, gangs = plan(*nodes, *job("full", 1, 8, at=("h1",)), *job("old", 1, 8, selector=wants))
    assert gangs["old"]["reason"]["message"] == (
        "needs nodes with nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB, nvidia.com/gpu; there are none"
    )
    shown = cli("explain", out, "old").out
    assert "offers.gangplan.dev" not in shown
    assert "m1:" not in shown


def test_a_limit_is_the_reason_where_gangs_of_its_priority_use_it_up(plan: Planned) -> None:
    # `first` and `second` need 8 GPUs each of a queue that may hold 8; there are two free nodes.
    nodes = [node(f"h{i}", NVIDIA, H100) for i in range(2)]
    limited = queue("team", capability={NVIDIA: "8"})
    _, gangs = plan(
        *nodes, limited, *job("first", 1, 8, where="team"), *job("second", 1, 8, where="team")
    )
    (waits,) = (one for one in gangs.values() if one["decision"] == "wait")
    assert waits["reason"]["message"] == (
        "needs 8 GPUs; with this plan, queue 'team' holds 8 of the 8 that gangs like it may hold"
    )
