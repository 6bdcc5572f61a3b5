"""What a gang was started under holds until it ends, whatever its tenant writes later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import RunCli
from kube import node, pod
from kube_gangs import thing

from models.apply.intents import Intent, Terms, read_intent, read_terms
from models.units import epoch_seconds

Json = dict[str, Any]

PLAN = "gp-" + "0" * 20
NOON = epoch_seconds("2026-11-24T12:00:00Z")
HOUR = 3600


def queue(name: str) -> Json:
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"guarantee": {"gpus": 8}},
    }


@pytest.mark.parametrize(
    "terms",
    [
        Terms(0),
        Terms(-10, preemptible=True),
        Terms(2_000_000_000, movable=True, until=NOON),
        Terms(5, preemptible=True, movable=True, until=NOON, queue="a.b-c"),
        Terms(5, preemptible=True, until=NOON + HOUR, queue="a.b-c", since=NOON),
    ],
)
def test_terms_are_read_as_they_were_written(terms: Terms) -> None:
    assert read_terms(terms.text()) == terms
    intent = Intent(PLAN, "j", 1, "n1", None, terms=terms)
    assert read_intent(intent.labels(), intent.annotations()) == intent
    assert read_intent({}, intent.annotations()) is None


@pytest.mark.parametrize(
    "written",
    ["", "priority=", "priority=01", "priority=1 ", "preemptible", "priority=1 movable preemptible",
     "priority=1 until=2026-11-24", "priority=1 until=2026-99-24T12:00:00Z", "priority=1 queue=",
     "priority=1 since=2026-11-24", "priority=1 until=2026-11-24T12:00:00Z since=2026-11-24T12:00:00Z",
     "priority=1 queue=a b", "priority=\u0661", "priority=1\n"],
)  # fmt: skip
def test_anything_else_is_no_terms_and_no_intent(written: str) -> None:
    assert read_terms(written) is None
    intent = Intent(PLAN, "j", 1, "n1", None)
    notes = {**intent.annotations(), "gangplan.dev/terms": written}
    assert read_intent(intent.labels(), notes) is None


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
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    result = cli("plan", "-", "-o", "json", stdin=bundle)
    assert result.code == 0, result.err
    (gang,) = json.loads(result.out)["spec"]["gangs"]
    assert (gang["decision"], (gang["reason"] or {}).get("code")) == (decision, code)
