"""Invariants of a live cluster, judged from its pods alone: no partial gang, no GPU given twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tree = dict[str, Any]


def placed(pods: Mapping[str, Tree]) -> dict[str, tuple[str, str]]:
    """Pod name to (node, indices its annotation names), of all that are bound."""
    return {
        name: (pod["spec"]["nodeName"], annotations_of(pod).get("gangplan.dev/gpus", ""))
        for name, pod in pods.items()
        if pod["spec"].get("nodeName")
    }


def annotations_of(pod: Tree) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations") or {}
    return found


def gpus_of(pod: Tree) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(one["resources"]["limits"]["nvidia.com/gpu"]) for one in containers)


def overfull(pods: Mapping[str, Tree], gpus: int = 8) -> list[str]:
    """Nodes that gave more GPUs than they have, and GPUs that two pods were given."""
    given: dict[str, int] = {}
    holder: dict[tuple[str, str], str] = {}
    faults = []
    for name, pod in sorted(pods.items()):
        place = pod["spec"].get("nodeName")
        if place is None:
            continue
        given[place] = given.get(place, 0) + gpus_of(pod)
        indices = annotations_of(pod).get("gangplan.dev/gpus", "")
        for index in indices.split(",") if indices else ():
            other = holder.setdefault((place, index), name)
            if other != name:
                faults.append(f"{place}: GPU {index} is given to {other} and to {name}")
    return faults + [
        f"{place}: {count} of {gpus}" for place, count in given.items() if count > gpus
    ]


def partial(pods: Mapping[str, Tree]) -> list[str]:
    """Gangs of which some pods are bound and others are not."""
    bound: dict[str, set[bool]] = {}
    for pod in pods.values():
        gang = pod["metadata"]["labels"]["gang"]
        bound.setdefault(gang, set()).add("nodeName" in pod["spec"])
    return sorted(gang for gang, found in bound.items() if len(found) == 2)
