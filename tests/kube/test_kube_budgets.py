"""PodDisruptionBudgets as objects: what each allows, which pods it counts, and which evictions go together.

The statuses are those that kube-controller-manager 1.36.2 writes for the budgets.
"""

from __future__ import annotations

import time
from typing import Any

from kube import objects, pod

from models.instance.disruption_budgets import DisruptionBudgets
from planner.read.findings import Remarks
from planner.read.kube.pods.budgets import (
    TOO_MANY_PARTS,
    read_budgets,
)
from planner.read.kube.pods.constraints import MAX_PARTS

Tree = dict[str, Any]
A = {"app": "a"}


def budget(
    name: str = "b",
    *,
    allowed: int = 1,
    healthy: int = 4,
    desired: int = 3,
    selector: object = "of a",
    namespace: str = "default",
    **changes: object,
) -> Tree:
    """A budget over the pods of A; ``changes`` of its spec."""
    spec = {"minAvailable": desired, "selector": selector, **changes}
    if selector == "of a":
        spec["selector"] = {"matchLabels": dict(A)}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": spec,
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": healthy,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "Sufficient"}],
        },
    }


def running(name: str, *, ready: bool = True, phase: str = "Running", **more: object) -> Tree:
    tree = pod(name, on="n0", gpus=8, **{"labels": dict(A), **more})  # type: ignore[arg-type]
    status = "True" if ready else "False"
    tree["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": status}]}
    return tree


def odd(*trees: Tree) -> tuple[DisruptionBudgets, list[str]]:
    remarks = Remarks()
    return read_budgets(objects(*trees), remarks), remarks.lines()


def test_thousands_of_budgets_over_thousands_of_different_pods_are_read_at_once() -> None:
    pods = [running(f"p{i}", labels={"app": "a", "index": str(i)}) for i in range(4000)]
    budgets = [
        budget(f"b{i}", selector={"matchLabels": {"app": "a", "index": str(i)}})
        for i in range(4000)
    ]
    everything = [budget(f"c{i}", selector={}) for i in range(4000)]
    found, remarks = objects(*pods, *budgets, *everything), Remarks()
    began = time.process_time()
    guards = read_budgets(found, remarks).guards
    assert (
        time.process_time() - began < 5
    )  # about 0.3 s; each budget by each pod takes 30 s and more
    assert guards["default", "p7"] == ("b7", "c0")


# As inputs of a plan


def test_a_namespace_has_so_many_parts_of_selectors_and_no_more() -> None:
    values = [f"v{i}" for i in range(9_999)]
    some = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    budgets = [budget(f"b{i:02}", selector=some) for i in range(MAX_PARTS // 10_000 + 1)]
    elsewhere = budget("c", namespace="other", selector=some)
    found, remarks = odd(*budgets, elsewhere, running("p"), running("q", namespace="other"))
    assert found.guards == {("default", "p"): ("b20",)}
    assert remarks == [f"PodDisruptionBudget default/b20: {TOO_MANY_PARTS}"]
