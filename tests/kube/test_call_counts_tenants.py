"""What one tenant writes into its pods makes neither reading nor a first plan nor its check quadratic.

Calls are counted as in ``test_call_counts.py``. What Python does without calls, such as a look into a
dictionary of equal hashes, is not seen so: that has a test of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundles import packed
from effort import spread
from kube import node, pod

from benchmarks.phases import counting
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.kube.lookup import mask_key, mask_of
from planner.read.kube.shares import MAX_ABSENT
from planner.search.solve import Search
from planner.search.start.greedy import greedy

SMALL, LARGE = 40, 120
SLACK = 1.25
MOST = SLACK * LARGE / SMALL
"""Pods, on a node of eight GPUs: most wait."""

Change = Callable[[dict[str, Any], int], object]


def _required(kind: str, which: str, what: object) -> dict[str, Any]:
    return {kind: {which: what}}


def _selects(i: int) -> dict[str, Any]:
    return {
        "labelSelector": {"matchLabels": {"app": f"a{i}"}},
        "topologyKey": "kubernetes.io/hostname",
    }


def _apart(tree: dict[str, Any], i: int) -> None:
    tree["metadata"]["labels"]["app"] = f"a{i}"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    tree["spec"]["affinity"] = _required("podAntiAffinity", required, [_selects(i)])


def _spread(tree: dict[str, Any], i: int) -> None:
    tree["metadata"]["labels"]["app"] = f"a{i}"
    more = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    tree["spec"]["topologySpreadConstraints"] = [_selects(i) | more]


def _affine(tree: dict[str, Any], i: int) -> None:
    one = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [f"x{i}"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    tree["spec"]["affinity"] = _required("nodeAffinity", required, terms)


def _amounts(tree: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = tree["spec"]["containers"][0]["resources"]["requests"]
    return found


WRITTEN: dict[str, Change] = {
    "nothing": lambda *_: None,
    "pod anti-affinity": _apart,
    "spread": _spread,
    "node affinity": _affine,
    "toleration": lambda tree, i: tree["spec"].update(
        tolerations=[{"key": f"k{i}", "operator": "Exists"}]
    ),
    "resources": lambda tree, i: _amounts(tree).update({f"x.io/r{i}-{j}": "1" for j in range(10)}),
    "cpu": lambda tree, i: _amounts(tree).update(cpu=f"{i + 1}m"),
    "priority": lambda tree, i: tree["spec"].update(priority=i),
    "labels": lambda tree, i: tree["metadata"]["labels"].update(
        {f"k{i}-{j}": "v" for j in range(10)}
    ),
    "namespace": lambda tree, i: tree["metadata"].update(namespace=f"t{i}"),
}
"""What each pod has that no other has."""


def _calls(count: int, change: Change, folder: Path) -> dict[str, int]:
    """Calls of reading these pods, of placing them and of checking that."""
    pods = [pod(f"p{i}", gpus=1, gated=True) for i in range(count)]
    for i, tree in enumerate(pods):
        change(tree, i)
    items = [node("n"), *pods]
    file = folder / f"{count}.json"
    file.write_bytes(packed(items))
    found = {}
    with counting() as calls:
        instance = load((str(file),)).instance
    found["reading"] = calls[0]
    limits = replace(instance.policy.solve, time_limit_s=0)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    with counting() as calls:
        greedy(instance, base_decisions(instance))
    found["first plan"] = calls[0]
    solution = Search(instance).run()
    stated = {"name": "p", "created_at": "2026-01-01T00:00:00Z", "generator": "test"}
    document = compose(instance, solution, **stated)
    with counting() as calls:
        assert check(document) == []
    found["checking"] = calls[0]
    return found


@pytest.mark.usefixtures("search_clock")
@pytest.mark.parametrize("written", spread(list(WRITTEN), 6))
def test_what_differs_in_each_pod_of_a_tenant_costs_each_pod_the_same(
    written: str, tmp_path: Path
) -> None:
    small, large = (_calls(count, WRITTEN[written], tmp_path) for count in (SMALL, LARGE))
    grown = {phase: round(large[phase] / small[phase], 2) for phase in small}
    assert all(ratio <= MOST for ratio in grown.values()), grown


def test_sets_of_one_pod_each_have_hashes_of_their_own() -> None:
    # As integers, 1 << n has the hash 2 ** (n % 61): 61 of them, and each look compares one in 61 of all.
    assert len({hash(1 << n) for n in range(5000)}) == 61
    assert len({hash(mask_key(1 << n)) for n in range(5000)}) == 5000
    assert mask_of([0, 3, 64]) == 1 | 8 | 1 << 64
    assert mask_of([]) == 0


def test_resources_that_no_node_has_leave_the_nodes_to_the_others(tmp_path: Path) -> None:
    # One tenant requests 300 of them, of which 200 are stated; three others request one in all.
    trees = [pod(f"p{i:03}", namespace="many", gpus=1, gated=True) for i in range(300)]
    for i, tree in enumerate(trees):
        _amounts(tree)[f"x.io/r{i}"] = "1"
    trees += [pod(f"q{i}", namespace="few", gpus=1, gated=True) for i in range(3)]
    _amounts(trees[-1])["x.io/mine"] = "1"
    file = tmp_path / "in.json"
    items = [node("n"), *trees]
    file.write_bytes(packed(items))
    instance = load((str(file),)).instance
    (only,) = instance.cluster.nodes
    assert sum(name.startswith("x.io/") for name, _ in only.allocatable) == MAX_ABSENT
    held = [gang.name for gang in instance.gangs if gang.hold is not None]
    assert held == [f"p{i:03}" for i in range(MAX_ABSENT - 1, 300)]
    plan = greedy(instance, base_decisions(instance))
    started = [g.name for g, one in zip(instance.gangs, plan, strict=True) if one.pods]
    assert started == ["q0", "q1"]  # the third waits for a resource that nobody has
