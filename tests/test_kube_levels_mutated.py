"""Levels of malformed objects: the result is always valid."""

from __future__ import annotations

import copy
from functools import cache

import kube
import yaml
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube_levels import CLIQUE, Tree, found

from models.documents.cluster import MAX_LEVELS, ClusterDocument
from models.documents.policy import PolicyDocument
from models.instance.policy import KubernetesPolicy, kubernetes_policy
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import is_label_key, is_name
from planner.read.kube.records import KubeNode, LevelAsk

KINDS = ("Node", "Topology", "ResourceFlavor", "HyperNode")
ODD: list[object] = [
    None, True, 0, -1, 10**30, 0.5, "", " ", "-x-", "x" * 300, "\n\x00", "ü", "node", "a/b/c",
    [], {}, [None], {"a": {}}, ["x", 1], "00000000-0.0", "(a*)*$", "[", "spine-1", "nvl-1",
]  # fmt: skip
ASKS = [
    LevelAsk(label=CLIQUE), LevelAsk(label="kubernetes.io/hostname"), LevelAsk(label="-"),
    LevelAsk(label="accelerator.topograph.run/domain"), LevelAsk(label="nvidia.com/gpu.product"),
    LevelAsk(label="topology.kubernetes.io/zone"), LevelAsk(tier=0), LevelAsk(tier=1),
    LevelAsk(tier=10**12), LevelAsk(tier_name="spine"), LevelAsk(tier_name=""),
]  # fmt: skip


@cache
def recorded(name: str) -> list[Tree]:
    """A few nodes of every domain, and all objects that describe levels."""
    trees = [
        tree
        for path in sorted((kube.SNAPSHOTS / name).glob("*.json*"))
        for tree in kube.listed(path)
        if tree["kind"] in KINDS
    ]
    nodes = [tree for tree in trees if tree["kind"] == "Node"]
    return [tree for tree in trees if tree["kind"] != "Node"] + nodes[:: 3 if len(nodes) > 9 else 1]


def places(tree: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    steps: list[tuple[str | int, object]] = []
    if isinstance(tree, dict):
        steps = [
            (k, v) for k, v in tree.items() if path or k not in ("kind", "apiVersion", "status")
        ]
    elif isinstance(tree, list):
        steps = list(enumerate(tree))
    found_: list[tuple[str | int, ...]] = []
    for step, value in steps:
        found_ += [(*path, step), *places(value, (*path, step))]
    return found_


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_levels_of_mutated_clusters_are_sound(data: st.DataObject) -> None:
    trees = list(recorded(data.draw(st.sampled_from(["nvl72", "h100-gke", "v100-mpi"]))))
    gone = data.draw(st.sampled_from([None, *KINDS[1:]]))
    trees = [tree for tree in trees if tree["kind"] != gone]
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(trees) - 1))
        trees[at] = mutated(trees[at], data)
    kept = {(tree["kind"], name): tree for tree in trees if (name := name_of(tree)) is not None}
    asks = data.draw(st.lists(st.sampled_from(ASKS), max_size=6))
    levels, nodes, said = found(list(kept.values()), *asks)
    check(levels, nodes, said)
    again, _, _ = found(list(kept.values()), *asks, policy=saved(levels))
    assert again.levels == levels.levels
    assert all(again.domain(one.name) == levels.domain(one.name) for one in nodes)


def name_of(tree: Tree) -> str | None:
    """Its name; None for one that no API server lets through as a name of a node."""
    metadata = tree.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or (tree["kind"] == "Node" and not is_name(name)):
        return None
    return name or None


def mutated(tree: Tree, data: st.DataObject) -> Tree:
    """A copy with one value gone or odd, or one label put in."""
    changed = copy.deepcopy(tree)
    there = places(changed)
    if not there:
        return changed
    path = data.draw(st.sampled_from(there))
    here: object = changed
    for step in path[:-1]:
        here = here[step]  # type: ignore[index]
    assert isinstance(here, dict | list)
    if data.draw(st.booleans()):
        del here[path[-1]]  # type: ignore[arg-type]
    else:
        here[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(ODD)))  # type: ignore[index]
    return changed


def check(levels: Levels, nodes: list[KubeNode], said: list[str]) -> None:
    names = [level.name for level in levels.levels]
    assert len(names) <= MAX_LEVELS
    assert all(line.isprintable() for line in said)
    assert levels.found.isprintable()
    for level in levels.levels:
        if level.label is not None:
            # what is implied on a node is what the node says
            index = names.index(level.name)
            for one in nodes:
                assert one.labels.get(level.label) == levels.domain(one.name)[index]
    for ask in ASKS:
        assert levels.resolve(ask) in (None, "node", *names)
    document = ClusterDocument.model_validate(cluster(levels, nodes))
    assert list(document.field_errors()) == []


def cluster(levels: Levels, nodes: list[KubeNode]) -> Tree:
    """The levels in a Cluster document; nodes get names of their own, which may be odd here."""
    stated = [
        {"name": level.name, "nvlink": level.nvlink}
        | ({} if level.label is None else {"label": level.label})
        for level in levels.levels
    ]
    labels = {level.label for level in levels.levels}
    entries = [
        {
            "name": f"n{i}",
            "domains": {
                level.name: value
                for level, value in zip(levels.levels, levels.domain(one.name), strict=True)
                if value is not None
            },
            "labels": {k: v for k, v in one.labels.items() if k in labels and is_label_key(k)},
        }
        for i, one in enumerate(nodes)
    ]
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"levels": stated, "nodes": entries},
    }


def saved(levels: Levels) -> KubernetesPolicy:
    document = PolicyDocument.model_validate(yaml.safe_load(levels.policy_text()))
    assert list(document.field_errors()) == []
    return kubernetes_policy(document.spec.kubernetes)
