"""What the admission policies let the planner's account do to pods."""

from __future__ import annotations

import copy

import pytest
from admission import Asked, Tree, policies, refused
from admitted_pods import (
    AFFINITY,
    BACK_ENDS,
    FORBIDDEN,
    FORBIDDEN_GATES,
    FORBIDDEN_PINS,
    INTENT,
    OURS,
    Change,
    a_pod,
    intended,
    patch_of,
    pinned,
    terms_of,
    ungated,
)

from planner.cluster.writes import COST


def test_every_policy_is_bound_and_compiles() -> None:
    assert [policy.name for policy in policies()] == [
        "gangplan-claims",
        "gangplan-marks",
        "gangplan-pods",
        "gangplan-requests",
        "gangplan-evictions",
    ]


def test_an_intent_may_be_written_and_taken_off_again() -> None:
    before, after = a_pod(), intended(a_pod())
    assert refused(patch_of(before, after)) == []
    assert refused(patch_of(after, before)) == []


def test_an_intent_may_be_written_on_a_pod_without_labels_and_annotations() -> None:
    bare = a_pod()
    del bare["metadata"]["labels"], bare["metadata"]["annotations"]
    after = copy.deepcopy(bare)
    after["metadata"] |= {"labels": INTENT.labels(), "annotations": INTENT.annotations()}
    assert refused(patch_of(bare, after)) == []
    assert refused(patch_of(after, bare)) == []


@pytest.mark.parametrize("key", [*BACK_ENDS, COST])
def test_the_annotations_of_gpu_back_ends_may_be_written(key: str) -> None:
    after = intended(a_pod())
    after["metadata"]["annotations"][key] = "GPU-1,GPU-2"
    assert refused(patch_of(a_pod(), after)) == []


def test_the_annotations_let_through_are_those_that_are_written() -> None:
    from models.apply.intents import KEYS as INTENTS

    # the cost marks the pods of a ReplicaSet that are to go when it shrinks
    written = {*INTENTS, *BACK_ENDS, COST}
    (pods,) = [policy for policy in policies() if policy.name == "gangplan-pods"]
    listed = dict(pods.variables)["ourAnnotations"].eval(data={}).plain_value()
    assert set(listed) == written


@pytest.mark.parametrize("hostname", ["n1.example", None])
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {"pool": "h100"}},
        {"affinity": {"podAffinity": {"x": [1]}}},
        {"affinity": AFFINITY},
        {"schedulingGates": [{"name": "gangplan.dev/placement"}]},
        {"nodeSelector": {"kubernetes.io/hostname": "n1.example"}},
    ],
    ids=["bare", "selector", "pod affinity", "terms", "one gate", "host chosen"],
)
def test_our_gate_may_be_taken_off_with_every_pin_we_make(spec: Tree, hostname: str | None) -> None:
    if hostname is None and "kubernetes.io/hostname" in spec.get("nodeSelector", {}):
        spec = {"nodeSelector": {"kubernetes.io/hostname": "shared"}}
    before = intended(a_pod(**copy.deepcopy(spec)))
    after = pinned(before, hostname=hostname)
    assert after["spec"] != before["spec"]
    assert refused(patch_of(before, after)) == []


def test_a_gate_may_be_taken_off_without_a_pin() -> None:
    before = intended(a_pod())
    assert refused(patch_of(before, ungated(before, {}))) == []


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("ungating", [False, True])
def test_no_other_field_of_a_pod_may_be_changed(change: Change, ungating: bool) -> None:
    before = intended(a_pod())
    after = pinned(before, hostname="n1.example") if ungating else copy.deepcopy(before)
    change(after)
    assert len(refused(patch_of(before, after))) == 1


@pytest.mark.parametrize("change", FORBIDDEN_GATES.values(), ids=FORBIDDEN_GATES.keys())
def test_gates_of_others_stay_and_nothing_is_pinned_behind_a_gate(change: Change) -> None:
    before = intended(a_pod())
    after = copy.deepcopy(before)
    change(after)
    assert len(refused(patch_of(before, after))) == 1


@pytest.mark.parametrize(("before", "after"), FORBIDDEN_PINS.values(), ids=FORBIDDEN_PINS.keys())
def test_a_pin_only_adds_the_node_of_the_intent(before: Tree, after: Tree) -> None:
    old = intended(a_pod(**copy.deepcopy(before)))
    new = ungated(old, {})
    new["spec"] |= copy.deepcopy(after)
    assert len(refused(patch_of(old, new))) >= 1


def test_a_pin_by_affinity_needs_an_intent() -> None:
    old = a_pod()
    new = ungated(old, {"affinity": terms_of({"matchFields": [OURS]})})
    (said,) = refused(patch_of(old, new))
    assert said.startswith("gangplan may pin a pod by affinity only to the node of its intent")
    assert refused(patch_of(intended(old), intended(new))) == []


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_other_accounts_are_held_back_from_the_label_of_plans_alone(change: Change) -> None:
    before = intended(a_pod())
    after = copy.deepcopy(before)
    change(after)
    other = Asked("pods", "UPDATE", after, before, user="system:serviceaccount:gangplan-system:x")
    kept = after["metadata"].get("labels", {}).get("gangplan.dev/plan") == INTENT.plan
    assert len(refused(other)) == (0 if kept else 1)


@pytest.mark.parametrize(
    ("resource", "sub", "operation"),
    [
        ("pods", "", "CREATE"),
        ("pods", "", "DELETE"),
        ("pods", "status", "UPDATE"),
        ("pods", "resize", "UPDATE"),
        ("pods", "ephemeralcontainers", "UPDATE"),
        ("pods", "exec", "CONNECT"),
        ("pods", "attach", "CONNECT"),
        ("pods", "portforward", "CONNECT"),
        ("pods", "proxy", "CONNECT"),
        ("pods", "binding", "CREATE"),
        ("bindings", "", "CREATE"),
    ],
)
def test_no_other_request_about_pods_may_be_sent(resource: str, sub: str, operation: str) -> None:
    body = None if operation in {"DELETE", "CONNECT"} else a_pod()
    asked = Asked(resource, operation, body, a_pod(), sub=sub)
    message = "gangplan may patch and evict pods and give claims their devices, and nothing else"
    assert refused(asked) == [message]


def _eviction(options: Tree | None) -> Asked:
    body: Tree = {"metadata": {"name": "p"}}
    return Asked(
        "pods", "CREATE", body | ({"deleteOptions": options} if options else {}), sub="eviction"
    )


def test_an_eviction_names_the_uid_and_leaves_the_grace_period_alone() -> None:
    uid = {"preconditions": {"uid": "u1"}}
    assert refused(_eviction(uid)) == []
    assert refused(_eviction({**uid, "dryRun": ["All"]})) == []
    assert len(refused(_eviction(None))) == 1
    assert len(refused(_eviction({"preconditions": {}}))) == 1
    assert len(refused(_eviction({"preconditions": {"uid": ""}}))) == 1
    assert len(refused(_eviction({**uid, "gracePeriodSeconds": 0}))) == 1


def test_every_rule_refuses_something_that_no_other_rule_does() -> None:
    """A rule that could be left out would be one that no test here holds to."""
    asked = []
    for change in (*FORBIDDEN.values(), *FORBIDDEN_GATES.values()):
        after = intended(a_pod())
        change(after)
        asked.append(patch_of(intended(a_pod()), after))
    for before, spec in FORBIDDEN_PINS.values():
        old = intended(a_pod(**copy.deepcopy(before)))
        new = ungated(old, {})
        new["spec"] |= copy.deepcopy(spec)
        asked.append(patch_of(old, new))
    alone = {said[0] for one in asked if len(said := refused(one)) == 1}
    (rules,) = [one.validations for one in policies() if one.name == "gangplan-pods"]
    assert alone == {message for message, _ in rules}
