"""openb's cluster and a batch of pods as compact documents, for ``gangplan plan``.

A pod is a gang of one pod. Pods without GPUs have the higher priority, so that they are all placed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.openb.trace import Arrivals, Cluster, Kind, Pod

API = "gangplan.dev/v1alpha1"
MODEL_LABEL = "example.com/gpu-model"
START = datetime(2023, 7, 1, tzinfo=UTC)


def write_documents(folder: Path, cluster: Cluster, pods: Arrivals) -> None:
    """``cluster.yaml``, ``queue.yaml`` and ``policy.yaml`` in a folder; JSON is YAML, too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cluster.yaml").write_text(_text([cluster_document(cluster)]), encoding="utf-8")
    gangs = [gang_document(i, pods.classes[c]) for i, c in enumerate(pods.order)]
    (folder / "queue.yaml").write_text(_text(gangs), encoding="utf-8")
    policy = {"apiVersion": API, "kind": "Policy", "spec": {"queueLimit": max(1, len(gangs))}}
    (folder / "policy.yaml").write_text(_text([policy]), encoding="utf-8")


def _text(documents: list[dict[str, Any]]) -> str:
    return "---\n".join(json.dumps(document) + "\n" for document in documents)


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """Nodes whose GPUs may be shared, without racks."""
    nodes = [
        {
            "name": name,
            "model": _server(cluster.kinds[kind])["name"],
            "labels": {MODEL_LABEL: cluster.kinds[kind].model},
            "allocatable": _amounts(cluster.kinds[kind]),
            "sharing": {},
        }
        for name, kind in zip(cluster.names, cluster.kind_of, strict=True)
    ]
    servers = {server["name"]: server for server in map(_server, cluster.kinds)}
    spec = {"serverModels": list(servers.values()), "nodes": nodes}
    return {"apiVersion": API, "kind": "Cluster", "metadata": {"name": "openb"}, "spec": spec}


def _server(kind: Kind) -> dict[str, Any]:
    """A server of PCIe; how its GPUs are connected is not published, and no pod of one node needs it."""
    gpus = range(kind.gpus)
    return {
        "name": f"openb {kind.model} x {kind.gpus}",
        "gpu": f"openb {kind.model}",
        "gpus": kind.gpus,
        "fabric": "pcie",
        "matrix": [["X" if a == b else "SYS" for b in gpus] for a in gpus],
        "numa": [0] * kind.gpus,
        "nics": [],
        "relativeSpeed": 1,
        "confidence": "assumed",
    }


def _amounts(of: Kind | Pod) -> dict[str, str]:
    return {"cpu": f"{of.cpu}m", "memory": f"{of.memory}Mi"}


def gang_document(index: int, pod: Pod) -> dict[str, Any]:
    """The gang of the ``index``-th arrival."""
    role: dict[str, Any] = {"name": "pod", "replicas": 1, "requests": _amounts(pod)}
    if pod.shares:
        role["gpu"] = {"fraction": pod.milli / 1000}
    else:
        role["gpus"] = pod.gpus
    if pod.models and pod.gpus:
        values = list(pod.models)
        role["nodeAffinity"] = [[{"key": MODEL_LABEL, "operator": "In", "values": values}]]
    spec = {
        "priority": 0 if pod.gpus else 1,
        "submittedAt": (START + timedelta(seconds=index)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "communication": {"pattern": "none"},
        "roles": [role],
    }
    metadata = {"name": f"pod-{index:05}", "namespace": "openb"}
    return {"apiVersion": API, "kind": "Gang", "metadata": metadata, "spec": spec}
