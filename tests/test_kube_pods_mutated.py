"""Recorded pods with fields removed, of wrong types, or huge: nothing raises, no other pod changes."""

from __future__ import annotations

import copy
import random
from functools import lru_cache
from typing import Any

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import load, parsed

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.records import KubeNode, KubePod, Objects

_KEPT = 40
_ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    float("nan"),
    "",
    "no-such-thing",
    "\x00\ud800",
    "9" * 5000,
    "1e999",
    [],
    [None],
    ["x", 7],
    {},
    {"name": {}},
    {"": ""},
    [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": "1k"}}}],
)


@lru_cache(maxsize=4)
def _snapshot(name: str) -> tuple[Objects, list[KubeNode], tuple[int, ...]]:
    """Objects with a sample of the pods, the nodes, and the places of those that may be mutated."""
    found = load(name)
    pods = found.by_kind["Pod"]
    by_chance = random.Random(name)
    claimants = [pod for pod in pods if "resourceClaims" in pod.tree["spec"]]
    told = [pod for pod in pods if any("gpu-visible" in key for key in pod.annotations)]
    sample = {id(pod): pod for pod in [*claimants, *told, *by_chance.sample(pods, _KEPT)]}
    found.by_kind["Pod"] = list(sample.values())
    nodes = read_nodes(found, KubernetesPolicy(), Remarks())
    return found, nodes, tuple(range(len(sample)))


def _paths(tree: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a tree but its name, which tells the pods apart."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            if (*path, key) not in (
                (),
                ("metadata",),
                ("metadata", "name"),
                ("metadata", "namespace"),
            ):
                found += _paths(value, (*path, key))
            elif key == "metadata":
                found += _paths(value, (*path, key))[1:]
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            found += _paths(value, (*path, place))
    return found


def _mutated(tree: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy with up to three places dropped or replaced."""
    changed = copy.deepcopy(tree)
    for _ in range(chance.randint(1, 3)):
        *steps, last = chance.choice(_paths(changed))
        inner: Any = changed
        for step in steps:
            inner = inner[step]
        if chance.random() < 0.4:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(chance.choice(_ODD))
    return changed


def _facts(pod: KubePod) -> tuple[object, ...]:
    """Everything of a pod that no other pod may change: all but which GPUs it holds."""
    names = [name for name in KubePod.__dataclass_fields__ if name not in ("object", "indices")]
    return tuple(repr(getattr(pod, name)) for name in names)


@settings(max_examples=examples(150))
@given(
    st.sampled_from(["h100-gke", "nvl72", "v100-mpi"]),
    st.integers(0, 10**6),
    st.randoms(use_true_random=False),
)
def test_a_broken_pod_raises_nothing_and_changes_no_other(
    name: str, which: int, chance: random.Random
) -> None:
    found, nodes, places = _snapshot(name)
    policy = KubernetesPolicy()
    pods = found.by_kind["Pod"]
    victim = pods[places[which % len(places)]]
    broken = Objects(by_kind=dict(found.by_kind), index=found.index)
    replacement = parsed(_mutated(victim.tree, chance) | {"kind": "Pod", "apiVersion": "v1"})
    broken.by_kind["Pod"] = [replacement if pod is victim else pod for pod in pods]
    before = {pod.key: pod for pod in read_pods(found, nodes, policy, Remarks())}
    remarks = Remarks()
    after = {pod.key: pod for pod in read_pods(broken, nodes, policy, remarks)}
    assert set(after) == set(before)
    for key, pod in after.items():
        if key == (victim.namespace, victim.name):
            continue
        assert _facts(pod) == _facts(before[key])
        # a lie of the broken pod may cost another its indices, never give it other ones
        assert pod.indices in (before[key].indices, None)
    mine = after[victim.namespace, victim.name]
    assert mine.gpus >= 0
    assert mine.indices is None or len(mine.indices) == mine.gpus
    assert all(len(line) < 2000 for line in remarks.lines())
