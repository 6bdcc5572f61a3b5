"""Pods for tests of gangs, read from few fields, so that only gangs are tested."""

from __future__ import annotations

from typing import Any


def thing(kind: str, version: str, name: str, spec: object, **metadata: object) -> dict[str, Any]:
    """An object of the namespace ``default``, made two hours before the pods of ``kube.pod``."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{kind}-{name}",
            "creationTimestamp": "2026-11-20T06:00:00Z",
            **metadata,
        },
        "spec": spec,
    }


def owned(tree: dict[str, Any], kind: str, version: str, name: str) -> dict[str, Any]:
    """The same object with a controller."""
    tree["metadata"]["ownerReferences"] = [
        {
            "apiVersion": version,
            "kind": kind,
            "name": name,
            "uid": f"uid-{kind}-{name}",
            "controller": True,
        }
    ]
    return tree
