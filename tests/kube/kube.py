"""Kubernetes objects for tests: recorded snapshots, and small ones built by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from input_folders import EXPECTED, INPUTS

from models.units import InvalidValueError, epoch_seconds
from planner.read.kube.lookup import text
from planner.read.kube.objects import kube_object
from planner.read.kube.records import KubeObject, Objects

SNAPSHOTS = INPUTS / "snapshots"


def listed(path: Path) -> list[dict[str, Any]]:
    """The items of a recorded list, each with its kind and apiVersion."""
    raw = path.read_bytes()
    tree = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    kind, version = tree["kind"].removesuffix("List"), tree["apiVersion"]
    return [{"kind": kind, "apiVersion": version, **item} for item in tree["items"]]


def load(name: str) -> Objects:
    """All objects of a recorded snapshot."""
    found = Objects()
    for path in sorted((SNAPSHOTS / name).glob("*.json*")):
        for tree in listed(path):
            found.add(parsed(tree))
    return found


def expected(name: str) -> dict[str, Any]:
    """The facts a correct reader finds in a recorded snapshot."""
    facts: dict[str, Any] = json.loads((EXPECTED / f"{name}.facts").read_text())
    return facts


def without_done(fact: dict[str, Any]) -> dict[str, Any]:
    """A gang of the facts less its pods that succeeded, which their Jobs do not make again.

    Those that are left are numbered anew. Only gangs of one role have such pods.
    """
    left = [pod for pod in fact["pods"] if pod["phase"] != "Succeeded"]
    if len(left) == len(fact["pods"]):
        return fact
    (role,) = fact["roles"]
    pods = [{**pod, "index": place, "rank": place} for place, pod in enumerate(left)]
    replicas = role["replicas"] - len(fact["pods"]) + len(left)
    return {**fact, "pods": pods, "roles": [{**role, "replicas": replicas}]}


def parsed(tree: dict[str, Any]) -> KubeObject:
    """A tree as the object it is."""
    try:
        created = epoch_seconds(text(tree, "metadata", "creationTimestamp") or "")
    except InvalidValueError:
        created = None
    found = kube_object(tree, tree["kind"], tree["apiVersion"], created)
    assert found is not None
    return found


def objects(*trees: dict[str, Any]) -> Objects:
    """Objects of these trees."""
    found = Objects()
    for tree in trees:
        assert found.add(parsed(tree))
    return found


def node(
    name: str, *, gpus: int = 8, resource: str = "nvidia.com/gpu", **labels: str
) -> dict[str, Any]:
    """A Ready node; labels by keyword are set as given (use ``**{"a/b": "c"}``)."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}
    if gpus:
        amounts[resource] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    gpus: int = 0,
    on: str | None = None,
    gated: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> dict[str, Any]:
    """A pod of one container: bound to ``on``, or pending; ``spec`` fields as given."""
    requests = {"cpu": "4", "memory": "16Gi"}
    if gpus:
        requests["nvidia.com/gpu"] = str(gpus)
    tree: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "schedulerName": "default-scheduler",
            "priority": 0,
            **({"nodeName": on} if on else {}),
            **({"schedulingGates": [{"name": "gangplan.dev/placement"}]} if gated else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }
    return tree
