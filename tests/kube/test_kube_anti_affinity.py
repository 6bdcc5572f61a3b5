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
RACK = "example.com/rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rule(key: str = HOST, selector: object = None, **fields: object) -> dict[str, Any]:
    chosen = {"matchLabels": {"app": "train"}} if selector is None else selector
    term = {"topologyKey": key, "labelSelector": chosen, **fields}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"podAntiAffinity": required}


def rule_term(*expressions: dict[str, Any]) -> dict[str, Any]:
    """A term about nodes, of pods of the namespace with these labels."""
    return {"topologyKey": HOST, "labelSelector": {"matchExpressions": list(expressions)}}


def kept_off(*trees: dict[str, Any], **policy: object) -> tuple[tuple[NodeExpression, ...], ...]:
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
        (NodeExpression(HOST, "NotIn", ("n1",)),),
    )
    assert kept_off(pod("loner", on="n1", affinity=rule(RACK))) == (
        (NodeExpression(RACK, "NotIn", ("r1",)),),
    )


def test_every_term_of_an_affinity_is_narrowed() -> None:
    terms = [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    mine = pod("x", gated=True, labels={"app": "train"}, affinity={"nodeAffinity": required})
    found, said = read(node("n1"), mine, pod("loner", on="n1", affinity=rule()))
    closed = NodeExpression(HOST, "NotIn", ("n1",))
    assert found["x"].affinity == (
        (NodeExpression("a", "Exists"), closed),
        (NodeExpression("b", "Exists"), closed),
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
    closed = ((NodeExpression(HOST, "NotIn", ("n1",)),),)
    ways: list[dict[str, Any]] = [
        {"namespaces": ["default"]},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": "a"}}},  # counts as all
        {"namespaceSelector": {}, "matchLabelKeys": ["rank"]},  # likewise
    ]
    for fields in ways:
        loner = pod("loner", on="n1", namespace="other", affinity=rule(**fields))
        assert kept_off(loner) == closed


def test_a_policy_may_ignore_anti_affinity() -> None:
    loner = pod("loner", on="n1", affinity=rule(selector={}))
    assert kept_off(loner) == ((NodeExpression(HOST, "NotIn", ("n1",)),),)
    assert kept_off(loner, ignore=("podAntiAffinity",)) == ()


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


def test_a_pod_that_keeps_other_namespaces_off_a_domain_is_named() -> None:
    away = rule(RACK, {}, namespaceSelector={})
    nodes = [node("n1"), node("n2")]
    for tree in nodes:
        tree["metadata"]["labels"][RACK] = "r1"
    mine = pod("mine", gated=True)
    _, said = read(*nodes, mine, pod("loner", on="n1", namespace="other", affinity=away))
    repelling, repelled = said
    what = "its required podAntiAffinity keeps waiting pods of other namespaces off its"
    assert repelling == f"Pod other/loner: {what} {RACK}"
    assert repelled.startswith("Pod default/mine: kept off nodes of running pods")
    _, said = read(*nodes, mine, pod("loner", on="n1", affinity=rule(RACK, {})))
    assert [line.partition(":")[0] for line in said] == ["Pod default/mine"]


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
