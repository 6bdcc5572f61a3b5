"""What a gang was started under holds until it ends, whatever its tenant writes later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bundles import packed
from conftest import RunCli
from kube import node, pod
from kube_gangs import thing

Json = dict[str, Any]


def queue(name: str) -> Json:
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"guarantee": {"gpus": 8}},
    }


def budget(name: str, healthy: int, desired: int, **status: object) -> Json:
    spec = {"minAvailable": desired, "selector": {"matchLabels": {"app": "low"}}}
    made = thing("PodDisruptionBudget", "policy/v1", name, spec)
    made["metadata"]["generation"] = 1
    made["status"] = {
        "observedGeneration": 1,
        "disruptionsAllowed": max(0, healthy - desired),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        **status,
    }
    return made


FREE, FULL = budget("free", 0, 0), budget("full", 0, 1)
MARK = {"gangplan.dev/preemptible": "true"}


def waiting() -> list[Json]:
    low = pod("low", gpus=8, gated=True, labels={"app": "low"}, annotations=MARK)
    return [low]


@pytest.mark.parametrize(
    ("budgets", "decision", "code"),
    [([], "place", None), ([FREE], "place", None), ([FULL], "wait", "Quota")],
)
def test_a_gang_that_a_budget_would_keep_borrows_nothing(
    cli: RunCli, budgets: list[Json], decision: str, code: str | None
) -> None:
    """All 8 GPUs are promised to ``mine``, so only what may be stopped starts beyond that."""
    items = [node("n1"), queue("mine"), *waiting(), *budgets]
    bundle = packed(items)
    result = cli("plan", "-", "-o", "json", stdin=bundle)
    assert result.code == 0, result.err
    (gang,) = json.loads(result.out)["spec"]["gangs"]
    assert (gang["decision"], (gang["reason"] or {}).get("code")) == (decision, code)
