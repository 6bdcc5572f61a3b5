"""Required anti-affinity of running pods: its domains are closed to waiting pods that it selects."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kube import node, pod
from kube_pods import read

from models.documents.gang import NodeExpression
from planner.read.kube.lookup import matches
from planner.read.kube.pods.constraints import MAX_EXPRESSIONS, MAX_TERMS, MAX_VALUES

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rule_term(*expressions: dict[str, Any]) -> dict[str, Any]:
    """A term about nodes, of pods of the namespace with these labels."""
    return {"topologyKey": HOST, "labelSelector": {"matchExpressions": list(expressions)}}


# --- bounds, and many at once


def expression(number: int, *values: str) -> dict[str, Any]:
    return {"key": f"k{number}", "operator": "NotIn", "values": list(values or ("v",))}


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        ([rule_term() for _ in range(MAX_TERMS)], [rule_term() for _ in range(MAX_TERMS + 1)]),
        (
            [rule_term(*map(expression, range(MAX_EXPRESSIONS)))],
            [rule_term(*map(expression, range(MAX_EXPRESSIONS + 1)))],
        ),
        (
            [rule_term(expression(0, *map(str, range(MAX_VALUES))))],
            [rule_term(expression(0, *map(str, range(MAX_VALUES + 1))))],
        ),
    ],
)
def test_an_anti_affinity_of_more_than_is_read_closes_nothing_and_is_named(
    largest: list[dict[str, Any]], larger: list[dict[str, Any]]
) -> None:
    mine = pod("mine", gated=True, labels={"app": "train"})
    for terms, closed in ((largest, ((NodeExpression(HOST, "NotIn", ("n1",)),),)), (larger, ())):
        required = {"podAntiAffinity": {REQUIRED: terms}}
        found, said = read(node("n1"), mine, pod("loner", on="n1", affinity=required))
        assert found["mine"].affinity == closed
        assert any(line.startswith("Pod default/loner: its required pod") for line in said) != bool(
            closed
        )


def test_many_terms_close_what_each_would_close_by_itself() -> None:
    r = Random(5)  # not a secret
    values = "abc"

    def requirement() -> dict[str, Any]:
        operator = r.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        listed = r.sample(values, 2) if operator in ("In", "NotIn") else []
        return {"key": r.choice("xyz"), "operator": operator, "values": listed}

    mine = [
        pod(f"m{i}", gated=True, labels={key: r.choice(values) for key in r.sample("xyz", 2)})
        for i in range(20)
    ]
    terms = [rule_term(*(requirement() for _ in range(r.randint(1, 3)))) for _ in range(40)]
    nodes = [node(f"n{i}") for i in range(40)]
    loners = [
        pod(f"l{i}", on=f"n{i}", affinity={"podAntiAffinity": {REQUIRED: [term]}})
        for i, term in enumerate(terms)
    ]
    found, _ = read(*nodes, *mine, *loners)
    kinds = set()
    for tree in mine:
        one = found[tree["metadata"]["name"]]
        closed = sorted(
            f"n{i}" for i, t in enumerate(terms) if matches(t["labelSelector"], one.labels)
        )
        assert one.affinity == (
            ((NodeExpression(HOST, "NotIn", tuple(closed)),),) if closed else ()
        )
        kinds.add(len(closed))
    assert len(kinds) > 3
