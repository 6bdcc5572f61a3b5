"""Pods: whether gangplan places them, where they run, where room is held for them, their priority."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kube import node, pod
from kube_pods import asking, one, read, thing

from models.documents.gang import NodeExpression, Toleration
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
from planner.read.kube.pods.placement import PROVEN, UNPROVEN
from planner.read.kube.pods.pod_rules import JOINS, REQUIRED, UNREADABLE_RULE, RuleKind
from planner.read.kube.pods.room import HELD

HOST = "kubernetes.io/hostname"


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return {"nodeAffinity": required}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


# whose pods, and how they are started


def test_a_gated_pod_is_ours_to_place_by_its_gate() -> None:
    found = one(pod("a", gpus=2, gated=True))
    assert (found.to_place, found.mode, found.node, found.bound) == (True, "gate", None, False)
    assert (found.gpus, found.gpu_resource, found.indices) == (2, "nvidia.com/gpu", None)


def test_pods_of_other_schedulers_and_pods_that_go_away_are_not_ours() -> None:
    assert not one(pod("a")).to_place
    assert not one(pod("a", schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])).to_place
    leaving = pod("a", gated=True)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
    found = one(leaving)
    assert (found.to_place, found.terminating, found.node) == (False, True, None)


# where pods stand


def test_a_bound_pod_holds_whatever_its_phase_but_a_finished_one() -> None:
    for phase in ("Running", "Pending", "Unknown", "", None, 7):
        there = pod("a", gpus=2, on="n1")
        there["status"] = {"phase": phase}
        found = one(node("n1"), there)
        assert (found.node, found.bound, found.finished, found.gpus) == ("n1", True, None, 2)
    for phase in ("Succeeded", "Failed"):
        done = pod("a", gpus=2, on="n1")
        done["status"]["phase"] = phase
        found = one(node("n1"), done)
        assert (found.finished, found.bound, found.to_place, found.gpus) == (phase, False, False, 2)


def test_a_pod_on_a_node_that_is_gone_is_said_to_be_missing() -> None:
    pods, lines = read(node("n1"), pod("a", gpus=8, on="n9"))
    assert (pods["a"].node, pods["a"].bound, pods["a"].to_place) == (None, True, False)
    assert lines == [
        "Pod default/a: is bound to a node that is not in the input; it counts as missing"
    ]


# room that is planned


def test_an_ungated_pod_that_is_pinned_holds_its_room() -> None:
    label = pod("a", gpus=4, nodeSelector={HOST: "n1"})
    name = pod("b", gpus=2, affinity=_affinity({"matchFields": [_in("metadata.name", "n1")]}))
    host = pod("c", gpus=1, affinity=_affinity({"matchExpressions": [_in(HOST, "n1")]}))
    pods, lines = read(node("n1"), node("n2"), label, name, host)
    for found in pods.values():
        assert (found.node, found.bound, found.to_place) == ("n1", False, False)
    assert lines == [f"Pod default/a, default/b, default/c: {HELD}"]


def test_what_is_no_pin_keeps_no_room() -> None:
    pin = {HOST: "n1"}
    gated = pod("gated", nodeSelector=pin, gated=True)
    foreign = pod("foreign", nodeSelector=pin, schedulingGates=[{"name": "kueue.x-k8s.io/x"}])
    terms = _affinity(
        {"matchExpressions": [_in(HOST, "n1")]}, {"matchExpressions": [_in(HOST, "n2")]}
    )
    either = pod("either", affinity=terms)
    two = pod("two", affinity=_affinity({"matchExpressions": [_in(HOST, "n1", "n2")]}))
    pods, _ = read(node("n1"), node("n2"), gated, foreign, either, two)
    assert {name for name, found in pods.items() if found.node is not None} == set()
    assert {name for name, found in pods.items() if found.to_place} == {"gated"}


MARKS: dict[str, Any] = {
    "labels": {"gangplan.dev/plan": "p1"},
    "annotations": {"gangplan.dev/node": "n1", "gangplan.dev/gpus": "0,1"},
}


def test_room_of_a_plan_is_held_for_pods_whose_intent_is_proven() -> None:
    gated = pod("a", gpus=2, gated=True, **MARKS)
    found = one(node("n1"), gated | {PROVEN: True})
    assert (found.node, found.bound, found.to_place, found.indices) == ("n1", False, False, (0, 1))
    released = pod("a", gpus=2, nodeSelector={HOST: "n1"}, **MARKS)
    # a node that is full or cordoned since: its run decides what becomes of it
    full = node("n1")
    full["spec"]["unschedulable"] = True
    pods, lines = read(full, pod("b", gpus=8, on="n1"), released | {PROVEN: True})
    assert (pods["a"].node, pods["a"].gpus) == ("n1", 2)
    assert lines == [
        "Node n1: its pods, planned ones included, hold more GPUs than it has; none is free there"
    ]


@pytest.mark.parametrize("proof", [None, False, "true", 1, {}])
def test_marks_of_a_plan_without_a_proof_hold_nothing(proof: object) -> None:
    pods, lines = read(node("n1"), pod("a", gpus=2, gated=True, **MARKS) | {PROVEN: proof})
    assert (pods["a"].node, pods["a"].to_place) == (None, True)
    assert lines == [f"Pod default/a: {UNPROVEN}"]
    pinned = pod("a", gpus=2, gated=True, nodeSelector={HOST: "n1"}, **MARKS)
    assert one(node("n1"), pinned).node is None
    foreign = one(node("n1"), pod("a", gpus=2, **MARKS))
    assert (foreign.node, foreign.to_place) == (None, False)


# priority


def test_priority_is_the_pods_own_then_its_classs_then_the_default() -> None:
    classes = (
        thing("PriorityClass", "high", "scheduling.k8s.io/v1", value=700),
        thing("PriorityClass", "usual", "scheduling.k8s.io/v1", value=50, globalDefault=True),
    )
    assert one(pod("a", priority=9, priorityClassName="high"), *classes).priority == 9
    assert one(pod("a", priority=None, priorityClassName="high"), *classes).priority == 700
    assert one(pod("a", priority=None), *classes).priority == 50
    assert one(pod("a", priority=None)).priority == 0
    assert (
        one(pod("a", priority=None, priorityClassName="system-node-critical")).priority == 2 * 10**9
    )


# constraints


def test_selector_affinity_and_tolerations_are_taken_over() -> None:
    term = {
        "matchExpressions": [
            _in("zone", "a", "b"),
            {"key": "gen", "operator": "Gt", "values": ["4"]},
        ],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n3"]}],
    }
    found = one(
        pod(
            "a",
            gated=True,
            nodeSelector={"pool": "x"},
            affinity=_affinity(term, {}),
            tolerations=[
                {"key": "k", "value": "v", "effect": "NoSchedule"},
                {"operator": "Exists", "tolerationSeconds": 300},
                {"key": "k", "value": "v", "effect": "NoSchedule", "tolerationSeconds": 5},
            ],
        )
    )
    assert found.selector == {"pool": "x"}
    assert found.affinity == (
        (
            NodeExpression("zone", "In", ("a", "b")),
            NodeExpression("gen", "Gt", ("4",)),
            NodeExpression("metadata.name", "NotIn", ("n3",), field=True),
        ),
    )
    equal = Toleration("k", "Equal", "v", "NoSchedule")
    assert found.tolerations == (equal, Toleration("", "Exists", "", ""))
    assert found.unsupported == ()


def test_what_cannot_be_read_is_named_unless_the_policy_ignores_it() -> None:
    odd = pod(
        "a",
        gated=True,
        affinity={
            kind: {REQUIRED: [{"labelSelector": {}}]} for kind in ("podAffinity", "podAntiAffinity")
        },
        topologySpreadConstraints=[{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"}],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    claim = thing("PersistentVolumeClaim", "data", "v1", "default", spec={"volumeName": "pv1"})
    volume = thing(
        "PersistentVolume",
        "pv1",
        "v1",
        spec={"nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}},
    )
    words = (
        JOINS,
        *(kind.problem(UNREADABLE_RULE) for kind in RuleKind),
        "a volume that only some nodes can mount",
    )
    names = ("podAffinity", "podAntiAffinity", "topologySpread", "volumeZone")
    found = one(odd, claim, volume, ignore=names[3:])
    assert (found.unsupported, found.affinity) == (words[:3], (IMPOSSIBLE,))
    assert one(odd, claim, volume, ignore=names).unsupported == ()
    for word, name in zip(words, names, strict=True):
        ignored = tuple(other for other in names if other != name)
        assert one(odd, claim, volume, ignore=ignored).unsupported == (word,)


def test_a_runtime_class_that_selects_nodes_is_honoured_where_the_pod_does_not_say_it() -> None:
    kata = thing(
        "RuntimeClass", "kata", "node.k8s.io/v1", scheduling={"nodeSelector": {"kata": "y"}}
    )
    assert one(kata, pod("a", runtimeClassName="kata")).unsupported == ("runtimeClass scheduling",)
    says = pod("a", runtimeClassName="kata", nodeSelector={"kata": "y"})
    assert one(kata, says).unsupported == ()


def test_requests_leave_out_gpus_pod_slots_and_what_no_node_knows() -> None:
    requests = {
        "cpu": "1",
        "memory": "1Gi",
        "pods": "3",
        "ephemeral-storage": "1Gi",
        "example.com/fpga": "2",
        "nvidia.com/gpu": "1",
    }
    found = one(node("n1"), pod("a", gated=True, containers=[asking(requests)]))
    assert found.requests == {"cpu": 1000, "example.com/fpga": 2, "memory": 2**30}
    knows = node("n1")
    knows["status"]["allocatable"]["ephemeral-storage"] = "1Ti"
    found = one(knows, pod("a", gated=True, containers=[asking(requests)]))
    assert found.requests["ephemeral-storage"] == 2**30


def test_an_amount_nobody_can_read_keeps_a_waiting_pod_waiting_and_a_node_full() -> None:
    odd = asking({"cpu": "1", "nvidia.com/gpu": "eight"})
    pods, lines = read(
        node("n1"),
        pod("waits", gated=True, containers=[odd]),
        pod("runs", on="n1", containers=[odd]),
    )
    assert pods["waits"].unsupported == ("an amount that cannot be read",)
    assert (pods["runs"].gpus, pods["runs"].indices) == (8, None)
    assert any("it counts as holding all of its node" in line for line in lines)


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
