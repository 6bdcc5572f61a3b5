"""PodDisruptionBudgets as objects: what each allows, which pods it counts, and which evictions go together.

The statuses are those that kube-controller-manager 1.36.2 writes for the budgets.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from kube import node, objects, pod
from kube_gangs import owned, thing
from outcomes import planned

from models.instance.disruption_budgets import DisruptionBudgets
from planner.read.findings import Remarks
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.read.kube.pods.budgets import (
    TOO_MANY_PARTS,
    UNREADABLE_SELECTOR,
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


def read(*trees: Tree) -> DisruptionBudgets:
    """Without a remark."""
    remarks = Remarks()
    found = read_budgets(objects(*trees), remarks)
    assert not remarks.lines()
    return found


def odd(*trees: Tree) -> tuple[DisruptionBudgets, list[str]]:
    remarks = Remarks()
    return read_budgets(objects(*trees), remarks), remarks.lines()


FOUR = [running(f"p{i}") for i in range(4)]
KEYS = [("default", f"p{i}") for i in range(4)]


def test_a_budget_allows_so_many_evictions_together() -> None:
    found = read(budget(), *FOUR)
    assert found.allowed == {("default", "b"): 1}
    assert found.guards == dict.fromkeys(KEYS, ("b",))
    assert found.refusal(KEYS[:1]) is None
    assert found.refusal(KEYS) == "the disruption budget default/b allows 1 of 4 evictions"
    assert found.refusal([("other", "p0"), ("default", "q")]) is None


def test_two_budgets_over_a_pod_forbid_its_eviction_whatever_they_allow() -> None:
    found = read(budget(allowed=4, desired=0), budget("c", allowed=4, desired=0), *FOUR)
    assert found.guards == dict.fromkeys(KEYS, ("b", "c"))
    assert found.refusal(KEYS[:1]) == (
        "pod default/p0 is in the disruption budgets b and c: a pod in more than one cannot be evicted"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"observedGeneration": 0},
        {"observedGeneration": None},
        {"disruptionsAllowed": -1},
        {"disruptionsAllowed": 2, "currentHealthy": 3},
        {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}]},
    ],
)
def test_a_status_that_the_server_would_not_act_on_allows_nothing(change: Tree) -> None:
    tree = budget()
    tree["status"] |= change
    assert read(tree, *FOUR).allowed == {("default", "b"): 0}


def test_pods_that_were_disrupted_already_are_off_what_is_allowed() -> None:
    # 5 pods, 3 must stay; the server let one go and counts 4 healthy ones, so one more may go.
    tree = budget(allowed=1, healthy=4)
    tree["status"]["disruptedPods"] = {"p4": "2026-11-22T10:00:00Z"}
    leaving = running("p4")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:30Z"
    found = read(tree, *FOUR, leaving)
    assert found.refusal([*KEYS[:1], ("default", "p4")]) is None
    assert found.refusal(KEYS[:2]) == "the disruption budget default/b allows 1 of 2 evictions"


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "guarded"),
    [
        ("AlwaysAllow", 0, 3, False),
        ("IfHealthyBudget", 3, 3, False),
        (None, 3, 3, False),
        (None, 2, 3, True),
        (None, 0, 0, True),
        ("SomethingNew", 3, 3, True),
    ],
)
def test_a_pod_that_is_not_ready_goes_by_the_policy_for_unhealthy_pods(
    policy: str | None, healthy: int, desired: int, *, guarded: bool
) -> None:
    tree = budget(allowed=0, healthy=healthy, desired=desired, unhealthyPodEvictionPolicy=policy)
    found = read(tree, running("p0", ready=False), running("p1"))
    assert found.guards == dict.fromkeys(KEYS[: 2 if guarded else 0] or KEYS[1:2], ("b",))


SELECTORS = [
    ({}, "p q"),
    (None, ""),
    ({"matchLabels": {"app": "a"}}, "p"),
    ({"matchLabels": {"app": "a", "x": "y"}}, ""),
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}, "p"),
    ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, "q"),
    ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "p q"),
    ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, ""),
    (
        {
            "matchLabels": {"app": "a"},
            "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}],
        },
        "",
    ),
]


@pytest.mark.parametrize(("selector", "selected"), SELECTORS)
def test_a_budget_guards_the_pods_that_it_selects(selector: object, selected: str) -> None:
    elsewhere = running("r", namespace="other")
    found = read(
        budget(selector=selector), running("p"), running("q", labels={"app": "b"}), elsewhere
    )
    assert [name for _, name in sorted(found.guards)] == selected.split()


@pytest.mark.parametrize(
    "selector",
    [
        "app=a",
        {"matchLabels": ["app"]},
        {"matchLabels": {"app": 1}},
        {"matchExpressions": {"key": "app"}},
        {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In"}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [1]}]},
        {"matchExpressions": [{"operator": "Exists"}]},
        {"matchExpressions": [None]},
        {"matchExpressions": [{"key": str(i), "operator": "Exists"} for i in range(1001)]},
    ],
)
def test_a_selector_that_cannot_be_read_guards_its_whole_namespace(selector: object) -> None:
    pods = (running("p"), running("q", labels={"app": "b"}), running("r", namespace="other"))
    found, remarks = odd(budget(selector=selector), *pods)
    assert list(found.guards) == [("default", "p"), ("default", "q")]
    assert remarks == [f"PodDisruptionBudget default/b: {UNREADABLE_SELECTOR}"]


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


def job(name: str, size: int, *, priority: int = 0, on: int | None = None) -> list[Tree]:
    """A Job of whole servers: it runs from server ``on`` on and may be stopped, or waits for gangplan."""
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    annotations = {} if on is None else {"gangplan.dev/preemptible": "true"}
    trees = [thing("Job", "batch/v1", name, spec)]
    for i in range(size):
        one = pod(
            f"{name}-{i}",
            gpus=8,
            on=None if on is None else f"n{on + i}",
            gated=on is None,
            labels={"app": name, "batch.kubernetes.io/job-completion-index": str(i)},
            annotations=annotations,
            priority=priority,
        )
        one["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        trees.append(owned(one, "Job", "batch/v1", name))
    return trees


def loaded(folder: Path, *trees: Tree, nodes: int = 4) -> LoadedInput:
    """As ``kubectl get nodes,pods,jobs,pdb -A -o json`` prints it."""
    found = [*(node(f"n{i}") for i in range(nodes)), *trees]
    listing = {"apiVersion": "v1", "items": found, "kind": "List", "metadata": {}}
    path = folder / "objects.json"
    path.write_text(json.dumps(listing))
    return load([str(path)])


def guard(allowed: int, **more: object) -> Tree:
    return budget(
        "keep-three", allowed=allowed, selector={"matchLabels": {"app": "victim"}}, **more
    )


SCENARIO = [*job("victim", 4, on=0), *job("high", 3, priority=100)]


@pytest.mark.parametrize(("allowed", "decision"), [(1, "keep"), (4, "preempt")])
def test_a_job_is_a_victim_only_if_its_budget_lets_all_its_pods_go(
    tmp_path: Path, allowed: int, decision: str
) -> None:
    found = loaded(tmp_path, *SCENARIO, guard(allowed, healthy=4, desired=4 - allowed))
    (own,) = found.instance.cluster.budgets
    assert (own.namespace, own.name, own.allowed) == ("default", "keep-three", allowed)
    plan = planned(found.instance)
    assert plan.decisions() == {"high": "wait" if allowed < 4 else "place", "victim": decision}
    reason = plan.of("high").reason
    if reason is not None:
        assert [one.gang for one in reason.fields.by] == ["default/victim"]


def test_the_plan_takes_the_victim_that_is_free_to_go(tmp_path: Path) -> None:
    other = job("other", 3, on=4, priority=10)
    found = loaded(tmp_path, *SCENARIO, *other, guard(1), nodes=7)
    assert planned(found.instance).decisions() == {
        "high": "place",
        "other": "preempt",
        "victim": "keep",
    }


def test_a_namespace_has_so_many_parts_of_selectors_and_no_more() -> None:
    values = [f"v{i}" for i in range(9_999)]
    some = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    budgets = [budget(f"b{i:02}", selector=some) for i in range(MAX_PARTS // 10_000 + 1)]
    elsewhere = budget("c", namespace="other", selector=some)
    found, remarks = odd(*budgets, elsewhere, running("p"), running("q", namespace="other"))
    assert found.guards == {("default", "p"): ("b20",)}
    assert remarks == [f"PodDisruptionBudget default/b20: {TOO_MANY_PARTS}"]
