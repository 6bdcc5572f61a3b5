"""A fake cluster with DRA devices, claims and gated pods, and orders that give pods these devices.

Node n1 has GPUs 0 to 7 as devices gpu-0 ... gpu-7; every pod is of gang ``g`` in ``default``.
"""

from __future__ import annotations

from typing import Any

from apiserver import FakeCluster
from apiserver_http import FakeWire
from apiserver_setup import GATE

from models.apply.intents import Intent
from models.apply.live_state import LivePod
from models.apply.plan_actions import PodStart
from models.apply.requests import Event
from planner.cluster.backends import backend_of
from planner.cluster.backends.base import Backend

Tree = dict[str, Any]

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
PLAN = "gp-0123456789abcdef0123"
FINALIZER = "resource.kubernetes.io/delete-protection"


def slice_of(node: str, gpus: int = 8) -> Tree:
    """The devices of a node, published in an order of their own: names tell nothing of indices."""
    devices = [
        {"name": f"gpu-{i}", "attributes": {"index": {"int": i}, "uuid": {"string": f"GPU-{i}"}}}
        for i in reversed(range(gpus))
    ]
    pool = {"name": f"pool-{node}", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


def request(count: int = 2, **more: Any) -> Tree:  # noqa: ANN401  # fields of the API
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return {"name": "gpu", "exactly": exactly | more}


def claim(name: str, *requests: Tree, **devices: Any) -> Tree:  # noqa: ANN401
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests) or [request()], **devices}},
    }


def cluster(*nodes: str, config: list[Tree] | None = None) -> FakeCluster:
    """Nodes with devices, and their class."""
    found = FakeCluster()
    for node in nodes or ("n1",):
        found.add_node(node, gpus=0)
        found.create(slice_of(node))
    spec: Tree = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    if config is not None:
        spec["config"] = config
    found.create(
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": spec}
    )
    return found


def add_pod(found: FakeCluster, name: str, *claims: str) -> Tree:
    """A pod that uses these claims."""
    named = [{"name": f"c{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    return found.add_pod(
        name,
        gpus=0,
        gates=[GATE],
        **({"resourceClaims": named} if named else {}),
    )


def ordered(pod: Tree, gpus: tuple[int, ...] | None, node: str = "n1", count: int = 0) -> PodStart:
    metadata = pod["metadata"]
    return PodStart(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        role="worker",
        index=0,
        node=node,
        gpus=gpus,
        gpu_count=len(gpus) if gpus is not None else count,
    )


def seen(pod: Tree, gpus: tuple[int, ...] | None, node: str = "n1") -> LivePod:
    """The pod with its intent on it."""
    metadata = pod["metadata"]
    intent = Intent(PLAN, "g", 1, node, gpus)
    return LivePod(
        metadata["namespace"], metadata["name"], metadata["uid"], "1", gates=(GATE,), intent=intent
    )


def give(
    found: FakeCluster,
    pod: Tree,
    gpus: tuple[int, ...] | None,
    node: str = "n1",
    mode: str = "gate",
    backend: Backend | None = None,
) -> Event:
    """One call of ``allocate``, by a process of its own unless ``backend`` says otherwise."""
    asked = backend or backend_of("dra")
    return asked.allocate(
        FakeWire(found), ordered(pod, gpus, node, mode), seen(pod, gpus, node), pod
    )


def status_of(found: FakeCluster, name: str) -> Tree:
    """Status of a claim."""
    kind = found.kinds.named("ResourceClaim")
    status: Tree = found.objects.get(kind, "default", name).get("status") or {}
    return status


def metadata_of(found: FakeCluster, name: str) -> Tree:
    kind = found.kinds.named("ResourceClaim")
    metadata: Tree = found.objects.get(kind, "default", name)["metadata"]
    return metadata


def devices_of(found: FakeCluster, name: str) -> list[str]:
    """Devices that a claim holds, in the order of its allocation."""
    allocation = status_of(found, name).get("allocation") or {}
    return [one["device"] for one in (allocation.get("devices") or {}).get("results") or []]
