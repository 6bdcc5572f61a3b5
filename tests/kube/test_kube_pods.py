"""Pods: whether gangplan places them, where they run, where room is held for them, their priority."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kube import pod
from kube_pods import one

from planner.read.findings import Remarks
from planner.read.kube.object_bounds import ObjectReducer
from planner.read.kube.objects import Gatherer
from planner.read.kube.pods.constraints import (
    IMPOSSIBLE,
    MAX_EXPRESSIONS,
    MAX_PARTS,
    MAX_SELECTORS,
    MAX_TERMS,
    MAX_TOLERATIONS,
    MAX_VALUES,
    TOO_MANY_SELECTORS,
    TOO_MANY_TERMS,
    TOO_MANY_TOLERATIONS,
)
from planner.read.kube.pods.pod_rules import REQUIRED

HOST = "kubernetes.io/hostname"


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return {"nodeAffinity": required}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


# --- bounds of what a pod states


def _terms(terms: int, expressions: int, values: int = 1) -> dict[str, Any]:
    """An affinity of so many terms, each of so many expressions of so many values."""
    return _affinity(
        *(
            {
                "matchExpressions": [
                    {
                        "key": f"k{t}",
                        "operator": "In",
                        "values": [f"v{e}-{v}" for v in range(values)],
                    }
                    for e in range(expressions)
                ]
            }
            for t in range(terms)
        )
    )


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        ((MAX_TERMS, 10), (MAX_TERMS + 1, 1)),
        ((1, MAX_EXPRESSIONS), (1, MAX_EXPRESSIONS + 1)),
        ((10, 10, MAX_VALUES // 100), (1, 1, MAX_VALUES + 1)),
    ],
)
def test_an_affinity_of_more_than_is_read_allows_no_node(
    largest: tuple[int, ...], larger: tuple[int, ...]
) -> None:
    found = one(pod("a", gated=True, affinity=_terms(*largest)))
    assert (len(found.affinity), found.unsupported) == (largest[0], ())
    found = one(pod("a", gated=True, affinity=_terms(*larger)))
    assert (found.affinity, found.unsupported) == ((IMPOSSIBLE,), (TOO_MANY_TERMS,))
    assert TOO_MANY_TERMS == (
        "a required nodeAffinity of more than 100 terms, 1,000 expressions or 10,000 values, or of more"
        " than the 200,000 of its namespace"
    )


def test_more_selectors_or_tolerations_than_are_read_are_not_supported() -> None:
    labels = {f"k{i}": "v" for i in range(MAX_SELECTORS)}
    found = one(pod("a", gated=True, nodeSelector=labels))
    assert (found.selector, found.unsupported) == (labels, ())
    found = one(pod("a", gated=True, nodeSelector={**labels, "more": "v"}))
    assert (found.affinity, found.unsupported) == ((IMPOSSIBLE,), (TOO_MANY_SELECTORS,))
    tolerated = [{"key": f"k{i}", "operator": "Exists"} for i in range(MAX_TOLERATIONS)]
    found = one(pod("a", gated=True, tolerations=tolerated))
    assert (len(found.tolerations), found.unsupported) == (MAX_TOLERATIONS, ())
    found = one(pod("a", gated=True, tolerations=[*tolerated, {"operator": "Exists"}]))
    assert (found.tolerations, found.unsupported) == ((), (TOO_MANY_TOLERATIONS,))


def _wide(number: int, terms: int) -> Iterator[dict[str, Any]]:
    """Terms of 5,000 parts each that are no other pod's."""
    for t in range(terms):
        values = [f"{number}-{t}-{v}" for v in range(4_999)]
        yield {"matchExpressions": [_in(HOST, *values)]}


def test_a_namespace_keeps_so_many_expressions_and_no_more() -> None:
    gatherer = Gatherer(Remarks(), ObjectReducer())
    each = 10_000  # two expressions of 4,999 values
    pods = [
        pod(f"p{i}", namespace=namespace, affinity=_affinity(*_wide(i, 2)))
        for namespace in ("greedy", "modest")
        for i in range(MAX_PARTS // each + (namespace == "greedy"))
    ]
    # equal ones count once, wherever they are
    for tree in (*pods, pod("again", namespace="greedy", affinity=_affinity(*_wide(0, 2)))):
        gatherer.add(tree, "a file")
    large = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}] * (MAX_TERMS + 1)}}}
    beyond = [
        one.subject for one in gatherer.objects.of("Pod") if one.tree["spec"]["affinity"] == large
    ]
    assert beyond == [f"Pod greedy/p{MAX_PARTS // each}"]
