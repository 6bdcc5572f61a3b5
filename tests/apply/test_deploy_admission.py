"""What the admission policies let the planner's account do to pods and claims, and keep everybody else from.

What our own code writes is made by our own code; what is forbidden is in ``admission_cases.yaml``.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission import Asked, Tree, policies, refused
from apiserver import FakeCluster
from apiserver_http import FakeWire

from models.apply.gate_and_pin import pin
from models.apply.live_state import LiveNode
from models.apply.records import PodPlace
from models.apply.terms import KEYS, PLAN
from models.instance.policy import KubernetesPolicy
from planner.cluster.live_view import ClusterReader
from planner.cluster.start_records import StartRecords
from planner.cluster.writes import COST

CASES = yaml.load(
    Path(__file__).with_name("admission_cases.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PLACE = PodPlace("llama-0", "u-1", "n1", (0, 1))
BACK_ENDS = ("nvidia.com/use-gpuuuid",)
HOST = "kubernetes.io/hostname"


def cases(part: str) -> list[Any]:
    """Parameters: the message that refuses, and the case."""
    return [
        pytest.param(message, case, id=name)
        for message, named in CASES[part].items()
        for name, case in named.items()
    ]


def merged(tree: Any, patch: Any) -> Any:  # noqa: ANN401
    """RFC 7386: null takes off."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(tree) if isinstance(tree, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


POD, CLAIM = CASES["pod"], CASES["claim"]


def a_pod(**spec: object) -> Tree:
    """A gated pod as the API server stores it, with the fields a patch might be after."""
    return copy.deepcopy({**POD, "spec": POD["spec"] | spec})


def intended(pod: Tree) -> Tree:
    """The pod with its plan and place, as a patch by us leaves it."""
    pod = copy.deepcopy(pod)
    pod["metadata"].setdefault("labels", {}).update({PLAN: "gp-0123456789abcdef0123"})
    pod["metadata"].setdefault("annotations", {}).update(PLACE.annotations())
    pod["metadata"]["managedFields"].append({"manager": "gangplan"})
    pod["metadata"]["resourceVersion"] = "8"
    return pod


def ungated(pod: Tree, spec: Tree) -> Tree:
    """The pod without our gate, with the pin that ``models.apply.starts`` makes for it."""
    pod = copy.deepcopy(pod)
    gates = [one for one in pod["spec"].pop("schedulingGates") if "gangplan" not in one["name"]]
    pod["spec"] |= {"schedulingGates": gates} if gates else {}
    pod["metadata"]["generation"] = 2
    selector = {**pod["spec"].pop("nodeSelector", {}), **spec.get("nodeSelector", {})}
    pod["spec"] |= {"nodeSelector": selector} if selector else {}
    if "affinity" in spec:
        mine = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        mine[REQUIRED] = spec["affinity"]["nodeAffinity"][REQUIRED]
    return pod


def pinned(pod: Tree, *, hostname: str | None) -> Tree:
    """Our own patch, made by the code that makes it in a run."""
    node = LiveNode("n1", hostname=hostname, labels=((HOST, hostname or "shared"),))
    wire = FakeWire(FakeCluster())
    records = StartRecords(wire, "gangplan-system")
    live = ClusterReader(wire, KubernetesPolicy(), records).one(pod)
    assert live is not None
    return ungated(pod, pin(live, node))


def patched(old: Tree, new: Tree) -> list[str]:
    return refused(Asked("pods", "UPDATE", new, old))


def affine(spec: Tree) -> Tree:
    """Spec fields, with ``terms``, ``preferred`` and ``podAffinity`` in an affinity."""
    spec = copy.deepcopy(spec)
    node = {REQUIRED: {"nodeSelectorTerms": spec.pop("terms")}} if "terms" in spec else {}
    node |= {PREFERRED: spec.pop("preferred")} if "preferred" in spec else {}
    found = {"nodeAffinity": node} if node else {}
    found |= {"podAffinity": spec.pop("podAffinity")} if "podAffinity" in spec else {}
    return spec | ({"affinity": found} if found else {})


(TERMS,) = [
    named["one term twice"][0] for named in CASES["pins"].values() if "one term twice" in named
]
AFFINITY = affine(
    {**TERMS, "preferred": [{"weight": 5}], "podAffinity": {PREFERRED: [{"weight": 1}]}}
)


def test_every_policy_is_bound_and_compiles() -> None:
    assert [policy.name.removeprefix("gangplan-") for policy in policies()] == [
        "claims", "nodes", "pods", "requests", "evictions",
    ]  # fmt: skip


# ---- nodes, by the planner's account

NODE: Tree = {
    "metadata": {
        "name": "n1",
        "uid": "u",
        "labels": {HOST: "n1", "gangplan.dev/placement-1": "0" * 16},
    },
    "spec": {"unschedulable": True},
    "status": {"allocatable": {"cpu": "8"}},
}


@pytest.mark.parametrize(("message", "case"), cases("nodes"))
def test_a_change_of_a_node_that_is_not_ours_to_make(message: str, case: Tree) -> None:
    assert refused(Asked("nodes", "UPDATE", merged(NODE, case), NODE)) == [message]


def test_a_node_gets_the_label_of_a_gang_and_loses_it() -> None:
    for value in ("0123456789abcdef", None):
        new = merged(NODE, {"metadata": {"labels": {"gangplan.dev/placement-1": value}}})
        assert refused(Asked("nodes", "UPDATE", new, NODE)) == []
    only = ["gangplan may patch nodes, and nothing else of them"]
    assert refused(Asked("nodes", "DELETE", None, NODE)) == only
    assert refused(Asked("nodes", "UPDATE", NODE, NODE, "status")) == only


# ---- pods, by the planner's account


def test_an_intent_may_be_written_and_taken_off_again() -> None:
    bare = a_pod()
    del bare["metadata"]["labels"], bare["metadata"]["annotations"]
    for before in (a_pod(), bare):
        assert patched(before, intended(before)) == []
        assert patched(intended(before), before) == []


@pytest.mark.parametrize("key", [*BACK_ENDS, COST])
def test_the_annotations_of_gpu_back_ends_may_be_written(key: str) -> None:
    after = intended(a_pod())
    after["metadata"]["annotations"][key] = "GPU-1,GPU-2"
    assert patched(a_pod(), after) == []


def listed(policy: str, variable: str) -> list[str]:
    """The value of a variable of a policy."""
    (found,) = [one for one in policies() if one.name == f"gangplan-{policy}"]
    value: Any = dict(found.variables)[variable].eval(data={}).plain_value()
    return list(value)


def test_the_label_and_annotations_let_through_are_those_that_are_written() -> None:
    # the cost marks the pods of a ReplicaSet that are to go when it shrinks
    assert set(listed("pods", "ourAnnotations")) == {*KEYS, *BACK_ENDS, COST}
    assert listed("pods", "ourLabels") == [PLAN]


@pytest.mark.parametrize("hostname", ["n1.example", None])
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {"pool": "h100"}},
        {"affinity": {"podAffinity": {"x": [1]}}},
        AFFINITY,
        {"schedulingGates": [{"name": "gangplan.dev/placement"}]},
        {"nodeSelector": {HOST: "n1.example"}},
    ],
    ids=["bare", "selector", "pod affinity", "terms", "one gate", "host chosen"],
)
def test_our_gate_may_be_taken_off_with_every_pin_we_make(spec: Tree, hostname: str | None) -> None:
    if hostname is None and HOST in spec.get("nodeSelector", {}):
        spec = {"nodeSelector": {HOST: "shared"}}
    before = intended(a_pod(**spec))
    after = pinned(before, hostname=hostname)
    assert after["spec"] != before["spec"]
    assert patched(before, after) == []


def test_a_gate_may_be_taken_off_without_a_pin() -> None:
    before = intended(a_pod())
    assert patched(before, ungated(before, {})) == []


@pytest.mark.parametrize(("message", "change"), cases("pods"))
def test_no_other_field_of_a_pod_may_be_changed(message: str, change: Tree) -> None:
    """By our account; others are not held back."""
    before = intended(a_pod())
    after = merged(before, change)
    assert patched(before, after) == [message]
    assert patched(before, merged(pinned(before, hostname="n1.example"), change)) == [message]
    other = Asked("pods", "UPDATE", after, before, user="system:serviceaccount:gangplan-system:x")
    assert refused(other) == []


@pytest.mark.parametrize(("message", "change"), cases("gates"))
def test_nothing_is_pinned_behind_a_gate(message: str, change: Tree) -> None:
    before = intended(a_pod())
    assert patched(before, merged(before, change)) == [message]


def pinned_by(case: list[Tree]) -> tuple[Tree, Tree]:
    """A pod before and after a patch that takes off the gate and sets fields of the spec."""
    old = intended(a_pod(**affine(case[0])))
    new = ungated(old, {})
    new["spec"] |= affine(case[1])
    return old, new


@pytest.mark.parametrize(("message", "case"), cases("pins"))
def test_a_pin_only_adds_the_node_of_the_intent(message: str, case: list[Tree]) -> None:
    assert patched(*pinned_by(case)) == [message]


def test_a_pin_drops_no_terms_and_needs_an_intent_for_a_node() -> None:
    old = intended(a_pod(**AFFINITY))
    new = ungated(old, {})
    new["spec"]["affinity"] = {"podAffinity": AFFINITY["affinity"]["podAffinity"]}
    assert len(patched(old, new)) == 2
    old = a_pod()
    new = ungated(old, affine({"terms": [{"matchFields": [{"key": "metadata.name", "operator": "In",
                                                           "values": ["n1"]}]}]}))  # fmt: skip
    (said,) = patched(old, new)
    assert said.startswith("gangplan may pin a pod by affinity only to the node that it names")
    assert patched(intended(old), intended(new)) == []


@pytest.mark.parametrize(
    "asked",
    [
        *("pods CREATE", "pods DELETE", "pods/status UPDATE", "pods/resize UPDATE"),
        *("pods/ephemeralcontainers UPDATE", "pods/exec CONNECT", "pods/attach CONNECT"),
        *("pods/portforward CONNECT", "pods/proxy CONNECT", "pods/binding CREATE"),
        "bindings CREATE",
    ],
)
def test_no_other_request_about_pods_may_be_sent(asked: str) -> None:
    what, operation = asked.split()
    resource, _, sub = what.partition("/")
    body = None if operation in {"DELETE", "CONNECT"} else a_pod()
    message = (
        "gangplan may patch and evict pods, give claims their devices and keep records of starts, "
        "and nothing else"
    )
    assert refused(Asked(resource, operation, body, a_pod(), sub=sub)) == [message]


@pytest.mark.parametrize(
    ("options", "refusals"),
    [
        ({"preconditions": {"uid": "u1"}}, 0),
        ({"preconditions": {"uid": "u1"}, "dryRun": ["All"]}, 0),
        (None, 1),
        ({"preconditions": {}}, 1),
        ({"preconditions": {"uid": ""}}, 1),
        ({"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0}, 1),
    ],
)
def test_an_eviction_names_the_uid_and_no_grace(options: Tree | None, refusals: int) -> None:
    body = {"metadata": {"name": "p"}} | ({"deleteOptions": options} if options else {})
    assert len(refused(Asked("pods", "CREATE", body, sub="eviction"))) == refusals


# ---- claims, by the planner's account


def on_claim(case: list[Tree]) -> list[str]:
    old, new = (merged(CLAIM, patch) for patch in case)
    sub = "status" if any("status" in patch for patch in case) else ""
    return refused(
        Asked("resourceclaims", "UPDATE", new, old, sub=sub, group="resource.k8s.io")
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES["claims allowed"])
def test_a_claim_may_be_marked_guarded_allocated_reserved_and_freed_again(case: list[Tree]) -> None:
    assert on_claim(case) == []


@pytest.mark.parametrize(("message", "case"), cases("claims"))
def test_nothing_else_of_a_claim_may_be_changed(message: str, case: list[Tree]) -> None:
    assert on_claim(case) == [message]


@pytest.mark.parametrize("operation", ["CREATE", "DELETE"])
def test_claims_are_neither_made_nor_deleted(operation: str) -> None:
    asked = Asked("resourceclaims", operation, CLAIM, None, group="resource.k8s.io")
    assert len(refused(asked)) == 1


@pytest.mark.parametrize(
    ("policy", "parts"), [("pods", ["pods", "gates", "pins"]), ("claims", ["claims"])]
)
def test_every_rule_alone_refuses_something(policy: str, parts: list[str]) -> None:
    """A rule that could be left out would be one that no test here holds to."""
    (rules,) = [one.validations for one in policies() if one.name == f"gangplan-{policy}"]
    assert {message for part in parts for message in CASES[part]} == {one for one, _ in rules}


# ---- records, by the planner's account

RECORD: Tree = {
    "metadata": {"name": f"gangplan-start-{'0' * 20}", "namespace": "gangplan-system"},
    "data": {"start": "{}"},
}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_of_configmaps_only_records_of_starts_are_written_and_removed(operation: str) -> None:
    odd = ({"name": "gangplan-policy"}, {"name": "gangplan-start-x"}, {"namespace": "research"})
    for change, said in ({}, 0), *((one, 1) for one in odd):
        found = merged(RECORD, {"metadata": change})
        new, old = (None if operation == one else found for one in ("DELETE", "CREATE"))
        assert len(refused(Asked("configmaps", operation, new, old))) == said
    assert refused(Asked("configmaps", "DELETE", None, merged(RECORD, {}), user="ops")) == []
