"""Required anti-affinity of running pods: its domains are closed to waiting pods that it selects."""

from __future__ import annotations

from typing import Any

import pytest
from kube import node, pod
from kube_pods import read, thing

from planner.read.kube.records import Expression

HOST = "kubernetes.io/hostname"
RACK = "example.com/rack"


def rule(key: str = HOST, selector: object = None, **fields: object) -> dict[str, Any]:
    chosen = {"matchLabels": {"app": "train"}} if selector is None else selector
    term = {"topologyKey": key, "labelSelector": chosen, **fields}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"podAntiAffinity": required}


def kept_off(*trees: dict[str, Any], **policy: object) -> tuple[tuple[Expression, ...], ...]:
    """Node affinity of the pod `mine`, labelled app=train, beside these objects."""
    nodes = [node("n1"), node("n2"), node("n3")]
    for tree in nodes[:2]:
        tree["metadata"]["labels"][RACK] = "r1"
    mine = pod("mine", gpus=8, gated=True, labels={"app": "train"})
    found, _ = read(*nodes, mine, *trees, **policy)
    assert found["mine"].unsupported == ()
    return found["mine"].affinity


def test_the_domain_of_a_pod_that_will_not_share_it_is_closed() -> None:
    assert kept_off(pod("loner", on="n1", affinity=rule())) == (
        (Expression(HOST, "NotIn", ("n1",)),),
    )
    assert kept_off(pod("loner", on="n1", affinity=rule(RACK))) == (
        (Expression(RACK, "NotIn", ("r1",)),),
    )


def test_several_of_them_close_all_of_their_nodes() -> None:
    loners = [pod(f"loner-{i}", on=f"n{i}", affinity=rule()) for i in (3, 1)]
    assert kept_off(*loners) == ((Expression(HOST, "NotIn", ("n1", "n3")),),)


def test_every_term_of_an_affinity_is_narrowed() -> None:
    terms = [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    mine = pod("x", gated=True, labels={"app": "train"}, affinity={"nodeAffinity": required})
    found, said = read(node("n1"), mine, pod("loner", on="n1", affinity=rule()))
    closed = Expression(HOST, "NotIn", ("n1",))
    assert found["x"].affinity == (
        (Expression("a", "Exists"), closed),
        (Expression("b", "Exists"), closed),
    )
    (line,) = said
    assert line.startswith("Pod default/x: kept off nodes of running pods")


@pytest.mark.parametrize(
    "other",
    [
        pod("loner", on="n1", affinity=rule(selector={"matchLabels": {"app": "web"}})),
        pod("loner", on="n1", namespace="other", affinity=rule()),
        pod("loner", on="n3", affinity=rule(RACK)),  # n3 is in no rack
        pod("loner", affinity=rule()),  # waits itself
        pod("loner", on="n1", affinity={"podAntiAffinity": {"preferredDuringScheduling": [{}]}}),
        # an absent selector selects nothing, an empty one everything
        pod("loner", on="n1", affinity=rule(selector="odd")),
        pod("loner", on="n1", affinity=rule(namespaces=["other"])),
    ],
)
def test_pods_that_are_not_meant_go_anywhere(other: dict[str, Any]) -> None:
    assert kept_off(other) == ()


def test_other_namespaces_are_meant_where_the_rule_says_so() -> None:
    closed = ((Expression(HOST, "NotIn", ("n1",)),),)
    here = thing("Namespace", "default", "v1", metadata={"labels": {"team": "a"}})
    ways: list[dict[str, Any]] = [
        {"namespaces": ["default"]},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": "a"}}},
    ]
    for fields in ways:
        loner = pod("loner", on="n1", namespace="other", affinity=rule(**fields))
        assert kept_off(loner, here) == closed
    selector = {"matchLabels": {"team": "b"}}
    loner = pod("loner", on="n1", namespace="other", affinity=rule(namespaceSelector=selector))
    assert kept_off(loner, here) == ()
    assert kept_off(loner) == closed  # nobody says whose the namespace is


def test_a_policy_may_ignore_anti_affinity() -> None:
    loner = pod("loner", on="n1", affinity=rule(selector={}))
    assert kept_off(loner) == ((Expression(HOST, "NotIn", ("n1",)),),)
    assert kept_off(loner, ignore=("podAntiAffinity",)) == ()
