"""Volume claims, volumes and storage classes for tests, and the lists that a snapshot has of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bundles import packed
from kube_pods import thing

from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

Tree = dict[str, Any]

WAIT, NOW = "WaitForFirstConsumer", "Immediate"
HOST = "kubernetes.io/hostname"
_GROUPS = {"StorageClass": "storage.k8s.io/v1"}


def storage_class(name: str = "local", *, mode: str = WAIT) -> Tree:
    return thing("StorageClass", name, "storage.k8s.io/v1", volumeBindingMode=mode)


def claim(
    name: str,
    *,
    of: str | None = "local",
    namespace: str = "default",
    phase: str = "Pending",
    metadata: Tree | None = None,
    **spec: object,
) -> Tree:
    """A claim of the class ``of``."""
    classed = {} if of is None else {"storageClassName": of}
    about = {"uid": f"uid-{namespace}-{name}", **(metadata or {})}
    fields = {"spec": classed | spec, "status": {"phase": phase}}
    return thing("PersistentVolumeClaim", name, "v1", namespace, about, **fields)


def only_on(*nodes: str, key: str = HOST) -> Tree:
    """The node affinity of a volume."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(nodes)}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def volume(
    name: str,
    node: str | None = None,
    *,
    phase: str = "Available",
    metadata: Tree | None = None,
    **spec: object,
) -> Tree:
    """A volume, on one node if given."""
    tied = {} if node is None else {"nodeAffinity": only_on(node)}
    fields = {"spec": tied | spec, "status": {"phase": phase}}
    return thing("PersistentVolume", name, "v1", "", metadata, **fields)


def using(*claims: str) -> list[Tree]:
    """Volumes of a pod."""
    return [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": c}} for i, c in enumerate(claims)
    ]


def loaded(folder: Path, *trees: Tree, lists: bool = True) -> LoadedInput:
    """What is read of these objects. ``lists``: of claims, volumes and classes, even if there are none."""
    kinds = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass") if lists else ()
    for kind in kinds:
        listed = {
            "apiVersion": _GROUPS.get(kind, "v1"),
            "kind": f"{kind}List",
            "items": [tree for tree in trees if tree["kind"] == kind],
        }
        (folder / f"{kind}.json").write_text(json.dumps(listed))
    rest = [tree for tree in trees if tree["kind"] not in kinds]
    (folder / "objects.json").write_bytes(packed(rest))
    return load([str(folder)])
