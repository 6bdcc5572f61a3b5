"""The test API server's disruption budgets, as measured on kube-apiserver 1.36.2."""

from __future__ import annotations

from typing import Any

import pytest
from apiserver import FakeCluster

Tree = dict[str, Any]

PATH = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LABELS = {"app": "x"}


@pytest.fixture
def four() -> FakeCluster:
    """Four healthy pods of a Job, and a gated one with the same labels."""
    cluster = FakeCluster()
    cluster.add_node("n0", gpus=8)
    cluster.gang_of_pods("x", 4, gpus=1, nodes=["n0"] * 4, labels=LABELS)
    cluster.add_pod("gated", gates=["gangplan.dev/placement"], labels=LABELS)
    return cluster


def budget(cluster: FakeCluster, name: str = "b", **spec: object) -> Tree:
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
    }
    cluster.create(tree)
    found: Tree = cluster.handle("GET", f"{PATH}/{name}")[1]["status"]
    return found


def evict(cluster: FakeCluster, name: str, query: str = "") -> tuple[int, Tree]:
    path = f"/api/v1/namespaces/default/pods/{name}/eviction{query}"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    code, tree, _ = cluster.handle("POST", path, body)
    return code, tree


def test_dry_runs_do_not_count_together_and_evictions_do(four: FakeCluster) -> None:
    four.remove("Pod", "gated")
    status = budget(four, minAvailable=3)
    numbers = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    assert [status[name] for name in numbers] == [1, 4, 3, 4]
    assert [evict(four, f"x-{i}", "?dryRun=All")[0] for i in range(4)] == [201] * 4
    assert evict(four, "x-0")[0] == 201
    code, refused = evict(four, "x-1")
    assert (code, refused["reason"]) == (429, "TooManyRequests")
    assert refused["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 3 healthy pods and has 3 currently",
        }
    ]


def test_a_pod_in_two_budgets_cannot_be_evicted(four: FakeCluster) -> None:
    for name in ("b", "c"):
        budget(four, name, minAvailable=0)
    code, refused = evict(four, "x-0")
    assert code == 500
    assert "more than one PodDisruptionBudget" in refused["message"]


@pytest.mark.parametrize("spec", [{"minAvailable": "50%"}, {"maxUnavailable": 1}], ids=str)
def test_what_needs_the_scale_of_a_job_fails_to_sync(four: FakeCluster, spec: Tree) -> None:
    four.remove("Pod", "gated")
    status = budget(four, **spec)
    condition = status["conditions"][0]
    assert (condition["reason"], condition["status"]) == ("SyncFailed", "False")
    assert condition["message"] == "jobs.batch does not implement the scale subresource"
    assert (status["disruptionsAllowed"], status["expectedPods"]) == (0, 0)
    code, refused = evict(four, "x-0")
    assert (code, refused["details"]["retryAfterSeconds"]) == (429, 10)
    assert "still being processed by the server" in refused["details"]["causes"][0]["message"]


def test_a_gated_pod_goes_though_its_budget_allows_nothing(four: FakeCluster) -> None:
    assert budget(four, minAvailable=5)["disruptionsAllowed"] == 0
    assert evict(four, "gated")[0] == 201


def test_percentages_of_a_stateful_set_are_counted(four: FakeCluster) -> None:
    """Of 3 replicas 50 % are 2, rounded up; maxUnavailable 50 % are 2, too."""
    owner = four.put(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "s"},
            "spec": {"replicas": 3},
        }
    )
    four.remove("Pod", "gated")
    for i in range(4):
        four.remove("Pod", f"x-{i}")
    for i in range(3):
        four.add_pod(f"s-{i}", node="n0", labels=LABELS, owner=owner)
    assert budget(four, "b", minAvailable="50%")["disruptionsAllowed"] == 1
    assert budget(four, "c", maxUnavailable="50%")["disruptionsAllowed"] == 2
