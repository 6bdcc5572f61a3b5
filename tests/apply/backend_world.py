"""A fake cluster with DRA devices, claims and gated pods, and orders that give pods these devices.

Node n1 has GPUs 0 to 7 as devices gpu-0 ... gpu-7; every pod is of gang ``g`` in ``default``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from apiserver import FakeCluster
from apiserver_http import FakeWire
from cluster_contents import GATE

from models.apply.live_state import LivePod
from models.apply.plan_actions import PodStart
from models.apply.records import PodPlace, StartRecord
from models.apply.requests import Event
from planner.cluster.backends import backend_of
from planner.cluster.backends.base import Backend

if TYPE_CHECKING:
    from apply_runs import Bench

Tree = dict[str, Any]

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
PLAN = "gp-0123456789abcdef0123"
CASES = yaml.load(
    Path(__file__).with_name("backend_cases.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)
FINALIZER = "resource.kubernetes.io/delete-protection"


def resource(kind: str, name: str, spec: Tree, **metadata: str) -> Tree:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def slice_of(node: str, gpus: int = 8) -> Tree:
    """The devices of a node, published in an order of their own: names tell nothing of indices."""
    devices = [
        {"name": f"gpu-{i}", "attributes": {"index": {"int": i}, "uuid": {"string": f"GPU-{i}"}}}
        for i in reversed(range(gpus))
    ]
    pool = {"name": f"pool-{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return resource("ResourceSlice", f"{node}-gpu", spec)


def class_of(name: str, expression: str, **more: Any) -> Tree:  # noqa: ANN401
    selectors = [{"cel": {"expression": expression}}]
    return resource("DeviceClass", name, {"selectors": selectors, **more})


def request(count: int = 2, **more: Any) -> Tree:  # noqa: ANN401  # fields of the API
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return {"name": "gpu", "exactly": exactly | more}


def claim(name: str, *requests: Tree, **devices: Any) -> Tree:  # noqa: ANN401
    spec = {"devices": {"requests": list(requests) or [request()], **devices}}
    return resource("ResourceClaim", name, spec, namespace="default")


def cluster(*nodes: str, config: list[Tree] | None = None, **more: Any) -> FakeCluster:  # noqa: ANN401
    """Nodes with devices, and their class."""
    found = FakeCluster()
    for node in nodes or ("n1",):
        found.add_node(node, gpus=0, **more)
        found.create(slice_of(node))
    configured = {} if config is None else {"config": config}
    found.create(class_of(DRIVER, f"device.driver == '{DRIVER}'", **configured))
    return found


def add_pod(found: FakeCluster, name: str, *claims: str, **more: Any) -> Tree:  # noqa: ANN401
    """A pod that uses these claims."""
    named = [{"name": f"c{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    given = {"gates": [GATE], **({"resourceClaims": named} if named else {}), **more}
    return found.add_pod(name, gpus=0, **given)


def add_gang(found: FakeCluster, gang: str, size: int, *requests: Tree, **more: Any) -> None:  # noqa: ANN401
    """A job of gated pods, each with a claim of its own if there are requests; ``each``: more by index."""
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    about = {"name": gang, "namespace": "default"}
    job = found.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec})
    annotations = more.pop("each", {})
    for index in range(size):
        name = f"{gang}-{index}"
        claims = [f"claim-{name}"] if requests else []
        for one in claims:
            found.create(claim(one, *requests))
        number = {"batch.kubernetes.io/job-completion-index": str(index)}
        named = [{"name": f"c{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
        found.add_pod(
            name,
            **{"gpus": 0, "gates": [GATE], **({"resourceClaims": named} if named else {}), **more},
            labels=number | {"batch.kubernetes.io/job-name": gang},
            annotations=number | annotations.get(index, {}),
            owner=job,
        )


# ---- instances that are there (static MIG)

NVIDIA, MIG = "gpu.nvidia.com", "mig.nvidia.com"
SMALL, LARGE = "1g.10gb", "3g.40gb"
FIRST, SECOND, BIG = "gpu-1-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-1", "gpu-1-mig-3g40gb-19-4"


def _device(name: str, gpu: int, **own: str) -> Tree:
    own |= {"productName": "NVIDIA H100 80GB HBM3"}
    own["resource.kubernetes.io/pciBusID"] = f"0000:0{gpu + 1}:00.0"
    return {"name": name, "attributes": {key: {"string": value} for key, value in own.items()}}


def parted(*nodes: str, **more: Any) -> FakeCluster:  # noqa: ANN401
    """GPU 0 of each node is whole; GPU 1 has two small instances and a large one."""
    found = FakeCluster()
    instances = [
        _device(name, 1, type="mig", profile=profile, parentUUID="GPU-1", uuid=f"MIG-{name[-1]}")
        for name, profile in ((SECOND, SMALL), (BIG, LARGE), (FIRST, SMALL))
    ]
    devices = [*instances, _device("gpu-0", 0, type="gpu", uuid="GPU-0")]
    for node in nodes or ("n1",):
        found.add_node(node, gpus=0, **more)
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": NVIDIA, "nodeName": node, "pool": pool, "devices": devices}
        found.create(resource("ResourceSlice", f"{node}-gpu", spec))
    for name, kind in ((NVIDIA, "gpu"), (MIG, "mig")):
        words = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == '{kind}'"
        found.create(class_of(name, words))
    return found


def part(profile: str = SMALL, name: str = "part") -> Tree:
    """A request for an instance."""
    words = f"device.attributes['{NVIDIA}'].profile == '{profile}'"
    exactly = {"deviceClassName": MIG, "selectors": [{"cel": {"expression": words}}]}
    return {"name": name, "exactly": exactly}


GPU = {"name": "gpu", "exactly": {"deviceClassName": NVIDIA, "count": 1}}


# ---- plans and orders


def planned(bench_: Bench, backend: str = "dra", name: str = "plan.json") -> Path:
    """A plan of the cluster, its devices and claims among what is read."""
    source = bench_.folder / f"{name}.read"
    source.mkdir()
    for part in ("resourceslices", "deviceclasses", "resourceclaims"):
        _, tree, _ = bench_.cluster.handle("GET", f"/apis/{API}/{part}")
        (source / f"{part}.json").write_text(json.dumps(tree), encoding="utf-8")
    return bench_.plan(policy={"kubernetes": {"gpuBackend": backend}}, name=name)


def ordered(pod: Tree, gpus: tuple[int, ...] | None, node: str = "n1", count: int = 0) -> PodStart:
    metadata = pod["metadata"]
    return PodStart(
        metadata["namespace"], metadata["name"], metadata["uid"], "worker", 0, node, gpus,
        len(gpus) if gpus is not None else count,
    )  # fmt: skip


def seen(pod: Tree, gpus: tuple[int, ...] | None, node: str = "n1") -> LivePod:
    """The pod with the record of its start."""
    metadata = pod["metadata"]
    place = PodPlace(metadata["name"], metadata["uid"], node, gpus)
    start = StartRecord((metadata["namespace"], "g"), PLAN, (place,))
    return LivePod(
        metadata["namespace"], metadata["name"], metadata["uid"], "1", gates=(GATE,), start=start
    )


def give(
    found: FakeCluster,
    pod: Tree,
    gpus: tuple[int, ...] | None,
    node: str = "n1",
    backend: Backend | None = None,
) -> Event:
    """One call of ``allocate``, by a process of its own unless ``backend`` says otherwise."""
    asked = backend or backend_of("dra")
    return asked.allocate(FakeWire(found), ordered(pod, gpus, node), seen(pod, gpus, node), pod)


def release(found: FakeCluster, pod: Tree, backend: Backend | None = None) -> Event:
    return (backend or backend_of("dra")).release(FakeWire(found), pod)


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
