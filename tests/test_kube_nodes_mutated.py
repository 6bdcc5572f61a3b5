"""Mutated real nodes: nothing is fatal, and no other node changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kube import load
from kube_nodes import read

from planner.read.kube.records import KubeNode, Objects

ODD = st.sampled_from([
    None, True, 0, -1, 2**70, 1.5, float("inf"), float("nan"), "", " ", "x" * 5000, "\x00", "9" * 50,
    "NoSchedule", "8", "1e999", [], {}, [[]], [{}], {"a": {}}, ["True"], [None], {"int": 5},
])  # fmt: skip

UNREAD = {("status", "images"), ("status", "nodeInfo"), ("status", "addresses")}
"""Places of no meaning, which would take most of the mutations."""

KEPT = {("kind",), ("apiVersion",), ("metadata",), ("metadata", "name")}
"""Without these it is another object, or none."""


def places(tree: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Every place below a tree that can be replaced or dropped."""
    if path[:2] in UNREAD:
        return []
    found: list[tuple[object, ...]] = [path] if path else []
    steps = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in steps:
        found += places(value, (*path, key))
    return found


def mutated(tree: dict[str, Any], draw: Callable[..., Any]) -> dict[str, Any]:
    changed = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 4))):
        options = [path for path in places(changed) if path not in KEPT]
        if not options:
            break
        *parents, last = draw(st.sampled_from(options))
        holder: Any = changed
        for step in parents:
            holder = holder[step]
        if draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = copy.deepcopy(draw(ODD))
    return changed


def recorded() -> list[dict[str, Any]]:
    """One node of each kind, with its slices, as they were recorded."""
    found = []
    for name, node_name in (("h100-gke", None), ("nvl72", "gb200-r06-n01"), ("v100-mpi", None)):
        input_: Objects = load(name)
        chosen = node_name or min(one_.name for one_ in input_.of("Node"))
        found += [
            one_.tree
            for one_ in (*input_.of("Node"), *input_.of("ResourceSlice"))
            if chosen in (one_.name, (one_.tree.get("spec") or {}).get("nodeName"))
        ]
    return found


RECORDED = recorded()


def told(found: KubeNode) -> tuple[object, ...]:
    """What a node comes to, without the object it was read from."""
    return (
        found.name, found.allocatable, found.gpus, found.installed, found.gpu_resource, found.ready,
        found.unschedulable, found.taints, found.devices, found.shared, found.topology_only, found.sick,
    )  # fmt: skip


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_mutation_is_fatal_or_touches_another_node(data: st.DataObject) -> None:
    trees = copy.deepcopy(RECORDED)
    number = data.draw(st.integers(0, len(trees) - 1))
    about = trees[number]["metadata"]["name"]
    about = (trees[number].get("spec") or {}).get("nodeName") or about
    before = {one_.name: told(one_) for one_ in read(*trees)[0]}
    trees[number] = mutated(trees[number], data.draw)
    found, _ = read(*trees)
    after = {one_.name: told(one_) for one_ in found}
    assert list(after) == sorted(before)
    assert {name: after[name] for name in after if name != about} == {
        name: before[name] for name in before if name != about
    }
    for one_ in found:
        assert 0 <= one_.gpus <= one_.installed <= 1024 or one_.shared is not None
        assert all(isinstance(v, int) and v >= 0 for v in one_.allocatable.values())
        assert {"cpu", "memory", "pods"} <= set(one_.allocatable)
