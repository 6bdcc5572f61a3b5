"""Node affinity: Kubernetes' meaning of every operator, in the search, in the judge, in reasons."""

from __future__ import annotations

import time
from random import Random
from typing import Any, get_args

import pytest
from building import build, gang, node, role
from building_servers import switched
from bundles import read_all
from outcomes import document_of, planned
from plan_documents import Doc, restated, wanted

from models.documents.gang import NodeExpression, Operator
from models.instance.gang import matches, shown
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from models.program.demand_builder import remaining_demand
from models.program.formulation import pairs
from models.verify.check import check
from planner.errors import InputError
from planner.search.start.greedy import greedy
from planner.show.reason_words import words

LABELS = {"zone": "a", "cores": "64", "name": "x64", "spot": "", "huge": "9" * 30}


def one(key: str, operator: str, *values: str, field: bool = False) -> NodeExpression:
    return NodeExpression(key, operator, values, field)


MEANING = [
    (one("zone", "In", "a", "b"), True),
    (one("zone", "In", "b"), False),
    (one("none", "In", "a"), False),
    (one("zone", "NotIn", "a"), False),
    (one("zone", "NotIn", "b"), True),
    (one("none", "NotIn", "a"), True),  # as in Kubernetes: without the label it is not in
    (one("zone", "Exists"), True),
    (one("spot", "Exists"), True),  # an empty value is a value
    (one("none", "Exists"), False),
    (one("none", "DoesNotExist"), True),
    (one("spot", "DoesNotExist"), False),
    (one("cores", "Gt", "63"), True),
    (one("cores", "Gt", "64"), False),
    (one("cores", "Gt", "-1"), True),
    (one("cores", "Lt", "65"), True),
    (one("cores", "Lt", "64"), False),
    (one("name", "Gt", "1"), False),  # no integer
    (one("name", "Lt", "100"), False),
    (one("spot", "Lt", "100"), False),
    (one("none", "Gt", "0"), False),
    (one("none", "Lt", "0"), False),
    (one("huge", "Gt", "1"), False),  # beyond 64 bits is no integer
    (one("metadata.name", "In", "n1", field=True), True),
    (one("metadata.name", "In", "n2", "n3", field=True), False),
    (one("metadata.name", "NotIn", "n1", field=True), False),
    (one("metadata.name", "NotIn", "n2", field=True), True),
    (one("metadata.name", "In", "n1"), False),  # a label of that name, which no node has
]


@pytest.mark.parametrize(("expression", "holds"), MEANING, ids=str)
def test_an_expression_means_what_it_means_in_kubernetes(
    expression: NodeExpression, holds: bool
) -> None:
    assert matches(((expression,),), LABELS, "n1") is holds
    place_ = "place" if holds else "wait"
    nodes = [node("n1", switched(1), labels=LABELS)]
    workers = role(affinity=((expression,),))
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=[workers])]))
    assert outcome.decision("a") == place_


@pytest.mark.parametrize(("expression", "holds"), MEANING, ids=str)
def test_the_judge_means_the_same(expression: NodeExpression, holds: bool) -> None:
    nodes = [node("n1", switched(1), labels=LABELS)]
    plan = document_of(build(nodes=nodes, gangs=[gang("a", roles=[role()])]))
    wanted(plan, "a")["spec"]["roles"][0]["nodeAffinity"] = [
        [
            {
                "key": expression.key,
                "operator": expression.operator,
                "values": list(expression.values),
                "field": expression.field,
            }
        ]
    ]
    assert {violation.rule for violation in check(restated(plan))} == (
        set() if holds else {"selector"}
    )


YES, NO = one("zone", "In", "a"), one("zone", "In", "b")


def test_labels_of_levels_and_host_names_are_implied() -> None:
    rack = ((one("example.com/rack", "In", "r2"), one("kubernetes.io/hostname", "NotIn", "n3")),)
    nodes = [node(f"n{i}", switched(1), rack=f"r{min(i, 2)}") for i in (1, 2, 3)]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=[role(affinity=rack)])]))
    assert outcome.nodes("a") == ["n2"]


def test_the_reason_names_it() -> None:
    asked = ((one("zone", "In", "b", "c"), one("cores", "Gt", "8")), (one("spot", "DoesNotExist"),))
    assert shown(asked) == "zone in (b, c) and cores > 8, or no spot"
    nodes = [node("n1", switched(1), labels=LABELS)]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=[role(affinity=asked)])]))
    reason = outcome.of("a").reason
    assert reason is not None
    assert reason.code == "Never"
    assert f"needs nodes with {shown(asked)}; there are none" in words(reason)


def test_a_long_affinity_is_cut_in_the_reason() -> None:
    hosts = tuple(f"host-{i:04}" for i in range(1000))
    asked = role(affinity=((one("metadata.name", "In", *hosts, field=True),),))
    reason = planned(build(gangs=[gang("a", roles=[asked])]), small=False).of("a").reason
    assert reason is not None
    assert len(words(reason)) < 600


def test_many_affinities_on_many_nodes_cost_little() -> None:
    # 500 gangs, each with an affinity of its own, on 1,000 nodes.
    nodes = [
        node(f"n{i:04}", switched(8), rack=f"r{i // 20}", labels={"size": str(i % 50)})
        for i in range(1000)
    ]
    gangs = [
        gang(
            f"g{i:03}",
            roles=[
                role(
                    affinity=(
                        (one("size", "Gt", str(i % 40)), one("example.com/rack", "NotIn", f"r{i}")),
                        (one("metadata.name", "In", f"n{i:04}", field=True),),
                    )
                )
            ],
        )
        for i in range(500)
    ]
    instance = build(nodes=nodes, gangs=gangs)
    began = time.process_time()
    assert all(remaining_demand(instance, index, (1,)).roles for index in range(500))
    assert time.process_time() - began < 4
    assert pairs(instance) >= 0
    placed = greedy(instance, base_decisions(instance))
    assert sum(decision.decision == "place" for decision in placed) == 500
    assert time.process_time() - began < 40


@pytest.mark.parametrize(
    "bad",
    [
        1,
        [1],
        [[1]],
        [[{}]],
        [[{"key": "a", "operator": "Equals"}]],
        [[{"key": "a", "operator": "Gt", "values": ["x"]}]],
        [[{"key": "a", "operator": "Gt", "values": ["1", "2"]}]],
        [[{"key": "a", "operator": "Lt", "values": ["9" * 5000]}]],
        [[{"key": "a", "operator": "In", "values": [1]}]],
        [[{"key": "a", "operator": "In", "values": ["b"], "field": True}]],
        [[{"key": "metadata.name", "operator": "Exists", "field": True}]],
        [[{"key": "a", "operator": "Exists", "more": 1}]],
    ],
)
def test_the_judge_takes_no_other_affinity(bad: object) -> None:
    plan = document_of(build(gangs=[gang("a", roles=[role()])]))
    wanted(plan, "a")["spec"]["roles"][0]["nodeAffinity"] = bad
    assert "form" in {violation.rule for violation in check(plan)}


def read_role(more: dict[str, Any]) -> Instance:
    documents = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"nodes": [{"name": "n", "model": "DGX H100"}]},
        },
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "a"},
            "spec": {"roles": [{"name": "w", "replicas": 2, "gpus": 1, **more}]},
        },
    ]
    return read_all(documents)


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ({"key": "a", "operator": "Equals"}, "'Equals' is not allowed here"),
        ({"key": "a", "operator": "In"}, "In without values"),
        ({"key": "a", "operator": "Exists", "values": ["b"]}, "Exists takes no values"),
        ({"key": "a", "operator": "Gt", "values": ["b"]}, "Gt compares with one whole number"),
        ({"key": "a", "operator": "Lt", "values": ["1", "2"]}, "Lt compares with one whole number"),
        ({"key": "a", "operator": "In", "values": ["b"], "field": True}, "no field 'a'"),
        ({"key": "metadata.name", "operator": "Exists", "field": True}, "Exists on a field"),
        ({"key": "a b", "operator": "Exists"}, "'a b' cannot be a label or resource name"),
    ],
)
def test_an_expression_that_says_nothing_is_refused(expression: Doc, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read_role({"nodeAffinity": [[expression]]})
    (fault,) = caught.value.faults
    assert what in fault.what
    assert fault.hint


def test_nodes_of_many_terms_are_those_that_match_by_themselves() -> None:
    r = Random(7)  # not a secret
    values = ("a", "b", "3", "-4", "+5", "9" * 30, "")

    def expression() -> NodeExpression:
        operator = r.choice(get_args(Operator))
        if operator in ("Gt", "Lt"):
            return one(r.choice("xyz"), operator, r.choice(("3", "-4", "0", "5")))
        listed = r.sample(values, 2) if operator in ("In", "NotIn") else []
        return one(r.choice("xyz"), operator, *listed)

    nodes = [
        node(
            f"n{i}",
            switched(8),
            labels={key: r.choice(values) for key in r.sample("xyz", r.randint(0, 3))},
        )
        for i in range(30)
    ]
    found = set()
    for _ in range(200):
        affinity = tuple(
            tuple(expression() for _ in range(r.randint(0, 3))) for _ in range(r.randint(1, 3))
        )
        instance = build(nodes=nodes, gangs=[gang("a", roles=[role("w", 1, 1, affinity=affinity)])])
        chosen = instance.eligible_nodes(instance.gangs[0].roles[0])
        assert chosen == {
            i
            for i, own in enumerate(instance.cluster.nodes)
            if matches(affinity, instance.labels_of(own), own.name)
        }
        found.add(len(chosen))
    assert len(found) > 10
