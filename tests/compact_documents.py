"""Compact documents of a few gangs on DGX H100 servers, and a file of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from plan_documents import Doc

HEAD = {"apiVersion": "gangplan.dev/v1alpha1"}


def gang(name: str, namespace: str = "crowd", **spec: object) -> Doc:
    roles = [{"name": "worker", "replicas": 1, "gpus": 1}]
    metadata = {"name": name, "namespace": namespace}
    return {**HEAD, "kind": "Gang", "metadata": metadata, "spec": {"roles": roles, **spec}}


def cluster(nodes: int = 1) -> Doc:
    entries = [{"name": f"gpu-{i}", "model": "DGX H100"} for i in range(nodes)]
    spec = {"levels": [], "nodes": entries}
    return {**HEAD, "kind": "Cluster", "metadata": {"name": "c"}, "spec": spec}


def written(folder: Path, documents: Sequence[Doc]) -> str:
    path = folder / "input.json"
    path.write_text(json.dumps({**HEAD, "kind": "List", "items": list(documents)}))
    return str(path)
