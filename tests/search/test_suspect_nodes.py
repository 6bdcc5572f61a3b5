"""The tier ``suspect``: nodes that failed lately stay free where that costs nothing before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bounding import alone
from building import build, gang
from comparing import differences
from effort import spread
from kube import node
from kube_nodes import one
from tiny import tiny
from tiny_busy import busy

from models.documents.canonical import canonical_instance
from models.documents.policy import DAY_S, Objective
from models.instance.instance import Instance
from models.results.plan import compose
from models.units import epoch_seconds
from models.verify.check import check
from planner.search.solve import solve

NOW = 1_795_000_000
HOUR = 3600
FIRST = ("admission", "suspect", "preference", "bandwidth", "span", "stranded")


def cluster_with(*failures: int | None, first: tuple[str, ...] = FIRST) -> Instance:
    """Nodes that failed so many seconds ago, and a gang of one node."""
    instance = build(racks=1, nodes_per_rack=len(failures), gangs=[gang("a", 1, 8)])
    nodes = tuple(
        replace(own, last_failure=None if ago is None else NOW - ago)
        for own, ago in zip(instance.cluster.nodes, failures, strict=True)
    )
    policy = replace(instance.policy, now=NOW, objectives=tuple(map(Objective, first)))
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes), policy=policy)


def document(instance: Instance) -> dict[str, Any]:
    return compose(
        instance, solve(instance), name="test", created_at="2026-01-01T00:00:00Z", generator="test"
    )


def node_of(plan: dict[str, Any]) -> str:
    (only,) = plan["spec"]["gangs"]
    return str(only["pods"][0]["node"])


def suspect(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {tier["name"]: tier for tier in plan["status"]["objectives"]}["suspect"]
    return found


def value(plan: dict[str, Any]) -> int:
    return int(suspect(plan)["value"])


def test_a_gang_starts_on_the_node_that_did_not_fail_lately() -> None:
    names = [own.name for own in cluster_with(HOUR, None).cluster.nodes]
    for failures, place in (((HOUR, None), 1), ((None, HOUR), 0), ((HOUR, DAY_S), 1)):
        plan = document(cluster_with(*failures))
        assert check(plan) == []
        assert node_of(plan) == names[place], failures
        assert value(plan) == (8 if failures[1 - place] is not None else 0)


def test_the_time_of_a_failure_is_in_the_plan() -> None:
    plan = document(cluster_with(HOUR, None))
    assert plan["instance"]["cluster"]["spec"]["nodes"][0]["lastFailure"] == "2026-11-18T10:06:40Z"
    plain = cluster_with(None, None, first=("admission", "span"))
    assert "lastFailure" not in str(canonical_instance(plain))


@pytest.mark.parametrize("seed", spread(range(400), 40))
def test_plans_are_those_of_exhaustive_search(seed: int) -> None:
    assert differences(tiny(seed, more=("suspects",))) == []
    assert differences(busy(seed, more=("suspects",))) == []


@pytest.mark.parametrize("seed", spread(range(400), 20))
def test_bounds_of_the_full_program_hold(seed: int) -> None:
    assert alone(tiny(seed, more=("suspects",))) == []


def failed_at(since: str, *, status: str = "True", **annotations: str) -> tuple[int | None, str]:
    """When a node failed that was created at 00:00 and has this condition Ready; and the remarks."""
    tree = node("n")
    tree["metadata"] |= {"creationTimestamp": "2026-11-01T00:00:00Z", "annotations": annotations}
    condition = {"type": "Ready", "status": status, "lastTransitionTime": since}
    tree["status"]["conditions"] = [condition]
    found, said = one(tree)
    return found.failed_at, said


def test_a_node_of_a_cluster_failed_when_it_came_back() -> None:
    back = epoch_seconds("2026-11-01T00:10:00Z")
    assert failed_at("2026-11-01T00:09:59Z") == (None, "")
    assert failed_at("2026-11-01T00:10:00Z") == (back, "")
    assert failed_at("yesterday") == (None, "")


def test_a_health_check_may_say_when_a_node_failed() -> None:
    joined, key = "2026-11-01T00:01:00Z", "gangplan.dev/last-failure"
    later = epoch_seconds("2026-11-02T00:00:00Z")
    assert failed_at(joined, **{key: "2026-11-02T00:00:00Z"}) == (later, "")
    assert failed_at("2026-11-02T00:00:00Z", **{key: "2026-11-01T12:00:00Z"}) == (later, "")
    found, said = failed_at(joined, **{key: "soon"})
    assert found is None
    assert f"annotation {key} is not a time; ignored" in said
