"""Measure how long a recorded cluster of 1,000 nodes and 8,000 pods takes to become an Instance.

Promises: the objects are those of inputs/snapshots/h100-gke, repeated under new names and grown to
what an API server sends (images, managedFields); the reading is a process of its own.
Called as ``python -m benchmarks.recorded [--nodes N] [--pods N]``.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).parent.parent / "inputs" / "snapshots" / "h100-gke"
IMAGES = 50
"""Images a kubelet reports a node, at most."""

READ = """
import resource, sys, time
start = time.monotonic()
from planner.read.inputs import load
built = load(sys.argv[1:])
seconds = time.monotonic() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
nodes, gangs = len(built.instance.cluster.nodes), len(built.instance.gangs)
print(f"{nodes} nodes, {gangs} gangs, {len(built.remarks)} remarks: {seconds:.2f} s, {peak} MiB")
"""

Tree = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure reading a large recorded cluster")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        items = [*nodes(options.nodes), *pods(options.pods)]
        path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        print(
            f"{options.nodes} nodes, {options.pods} pods: {path.stat().st_size / 2**20:.0f} MiB of JSON"
        )
        command = (sys.executable, "-c", READ, str(path))
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def nodes(count: int) -> list[Tree]:
    """Copies of the recorded nodes; copies of one round share blocks of their own."""
    recorded = _items("nodes.json.gz")
    found = []
    for i in range(count):
        tree, turn = copy.deepcopy(recorded[i % len(recorded)]), i // len(recorded)
        metadata = tree["metadata"]
        metadata["name"] += f"-{turn}"
        metadata["uid"] = f"{metadata['uid']}-{turn}"
        labels = metadata["labels"]
        labels["kubernetes.io/hostname"] = metadata["name"]
        for key in labels:
            if "gce-topology" in key:
                labels[key] = f"{labels[key]}-{turn}"
        tree["status"]["images"] = [
            {"names": [f"registry.example.com/image-{j}@sha256:{j:064x}"], "sizeBytes": 10**9 + j}
            for j in range(IMAGES)
        ]
        found.append({"kind": "Node", "apiVersion": "v1", **_managed(tree, "kubelet")})
    return found


def pods(count: int) -> list[Tree]:
    """Copies of the recorded pods; those of one round stand on the nodes of that round."""
    recorded = _items("pods.json.gz")
    found = []
    for i in range(count):
        tree, turn = copy.deepcopy(recorded[i % len(recorded)]), i // len(recorded)
        metadata = tree["metadata"]
        metadata["namespace"] += f"-{turn}"
        metadata["uid"] = f"{metadata['uid']}-{turn}"
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = f"{owner['uid']}-{turn}"
        if "nodeName" in tree["spec"]:
            tree["spec"]["nodeName"] += f"-{turn}"
        whole = _managed(tree, "kube-controller-manager", "kubelet")
        found.append({"kind": "Pod", "apiVersion": "v1", **whole})
    return found


def _items(name: str) -> list[Tree]:
    items: list[Tree] = json.loads(gzip.decompress((SNAPSHOT / name).read_bytes()))["items"]
    return items


def _managed(tree: Tree, *managers: str) -> Tree:
    """The object with the managedFields that an API server keeps of it."""
    owned = {name: tree[name] for name in ("metadata", "spec") if name in tree}
    tree["metadata"]["managedFields"] = [
        {
            "manager": name,
            "operation": "Update",
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields(owned),
        }
        for name in managers
    ]
    return tree


def _fields(value: object) -> Tree:
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": _fields(below) for name, below in value.items() if name != "managedFields"}


if __name__ == "__main__":
    main()
