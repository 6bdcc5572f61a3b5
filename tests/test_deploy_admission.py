from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from admission import Asked, Tree, policies, refused

from models.applying.intents import Intent
from models.applying.seen import NodeSeen
from planner.cluster.backends import KEYS
from planner.cluster.live import _seen
from planner.cluster.pinning import pin

PLAN = "gp-0123456789abcdef0123"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
INTENT = Intent(PLAN, "llama", 2, "n1", (0, 1))
BACK_ENDS = ("nvidia.com/use-gpuuuid", "scheduling.koordinator.sh/device-allocated")


def _pod(**spec: object) -> Tree:
    """A gated pod as the API server stores it, with the fields a patch might be after."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "research",
            "uid": "u1",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2026-11-21T00:00:00Z",
            "labels": {"app": "train", "gangplan.dev/preemptible": "true"},
            "annotations": {"keep": "this", "gangplan.dev/submitted-at": "2026-11-20T00:00:00Z"},
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "o1", "controller": True}],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "managedFields": [{"manager": "kube-controller-manager"}],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "schedulingGates": [{"name": "other.io/gate"}, {"name": "gangplan.dev/placement"}],
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
            ],
            "initContainers": [{"name": "s", "image": "i"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Never",
            "priority": 10,
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def _intended(pod: Tree) -> Tree:
    """The pod after the intent was written, as a patch by us leaves it."""
    pod = copy.deepcopy(pod)
    pod["metadata"]["labels"] |= INTENT.labels()
    pod["metadata"]["annotations"] |= INTENT.annotations()
    pod["metadata"]["managedFields"].append({"manager": "gangplan"})
    pod["metadata"]["resourceVersion"] = "8"
    return pod


def _ungated(pod: Tree, spec: Tree) -> Tree:
    """The pod without our gate, with the pin that ``planner.cluster.pinning`` makes for it."""
    pod = copy.deepcopy(pod)
    gates = [gate for gate in pod["spec"]["schedulingGates"] if "gangplan" not in gate["name"]]
    pod["spec"] |= {"schedulingGates": gates} if gates else {}
    if not gates:
        del pod["spec"]["schedulingGates"]
    pod["metadata"]["generation"] = 2
    pod["spec"].setdefault("nodeSelector", {}).update(spec.get("nodeSelector", {}))
    if not pod["spec"]["nodeSelector"]:
        del pod["spec"]["nodeSelector"]
    if "affinity" in spec:
        mine = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        mine[REQUIRED] = spec["affinity"]["nodeAffinity"][REQUIRED]
    return pod


def _pinned(pod: Tree, *, hostname: str | None) -> Tree:
    """Our own patch, made by the code that makes it in a run."""
    labels = (("kubernetes.io/hostname", hostname or "shared"),)
    node = NodeSeen("n1", hostname=hostname, labels=labels)
    return _ungated(pod, pin(_seen(pod), node))


def _patch(old: Tree, new: Tree) -> Asked:
    return Asked("pods", "UPDATE", new, old)


TERMS = [
    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
    {
        "matchExpressions": [{"key": "rack", "operator": "Exists"}],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
    },
]
AFFINITY = {
    "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
    "nodeAffinity": {
        REQUIRED: {"nodeSelectorTerms": TERMS},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5}],
    },
}


def test_every_policy_is_bound_and_compiles() -> None:
    assert [policy.name for policy in policies()] == [
        "gangplan-claims",
        "gangplan-pods",
        "gangplan-requests",
        "gangplan-bindings",
        "gangplan-evictions",
    ]


def test_an_intent_may_be_written_and_taken_off_again() -> None:
    before, after = _pod(), _intended(_pod())
    assert refused(_patch(before, after)) == []
    assert refused(_patch(after, before)) == []


def test_an_intent_may_be_written_on_a_pod_without_labels_and_annotations() -> None:
    bare = _pod()
    del bare["metadata"]["labels"], bare["metadata"]["annotations"]
    after = copy.deepcopy(bare)
    after["metadata"] |= {"labels": INTENT.labels(), "annotations": INTENT.annotations()}
    assert refused(_patch(bare, after)) == []
    assert refused(_patch(after, bare)) == []


@pytest.mark.parametrize("key", BACK_ENDS)
def test_the_annotations_of_gpu_back_ends_may_be_written(key: str) -> None:
    after = _intended(_pod())
    after["metadata"]["annotations"][key] = "GPU-1,GPU-2"
    assert refused(_patch(_pod(), after)) == []


def test_the_annotations_let_through_are_those_that_are_written() -> None:
    from models.applying.intents import KEYS as INTENTS

    written = {*INTENTS, *(key for keys in KEYS.values() for key in keys)}
    assert written == {*INTENTS, *BACK_ENDS}
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
    before = _intended(_pod(**copy.deepcopy(spec)))
    after = _pinned(before, hostname=hostname)
    assert after["spec"] != before["spec"]
    assert refused(_patch(before, after)) == []


def test_a_gate_may_be_taken_off_without_a_pin() -> None:
    before = _intended(_pod())
    assert refused(_patch(before, _ungated(before, {}))) == []


Change = Callable[[Tree], object]


def _metadata(key: str, value: object) -> Change:
    return lambda pod: pod["metadata"].__setitem__(key, value)


def _spec(key: str, value: object) -> Change:
    return lambda pod: pod["spec"].__setitem__(key, value)


def _label(key: str, value: str) -> Change:
    return lambda pod: pod["metadata"]["labels"].__setitem__(key, value)


def _annotation(key: str, value: str) -> Change:
    return lambda pod: pod["metadata"]["annotations"].__setitem__(key, value)


FORBIDDEN: dict[str, Change] = {
    # metadata
    "another's label": _label("app", "other"),
    "a new label": _label("pool", "x"),
    "a label of ours for tenants": _label("gangplan.dev/preemptible", "false"),
    "a label that only begins like ours": _label("gangplan.dev/plan2", PLAN),
    "no plan's id": _label("gangplan.dev/plan", "anything"),
    "an id and more": _label("gangplan.dev/plan", PLAN + "0"),
    "a label gone": lambda pod: pod["metadata"]["labels"].pop("app"),
    "all labels gone": lambda pod: pod["metadata"].pop("labels"),
    "another's annotation": _annotation("keep", "that"),
    "a new annotation": _annotation("cni.projectcalico.org/ipAddrs", "[]"),
    "a tenant's wish": _annotation("gangplan.dev/submitted-at", "2020-01-01T00:00:00Z"),
    "a server model": _annotation("gangplan.dev/server-model", "x"),
    "a prefix of ours": _annotation("gangplan.dev/plan.", PLAN),
    "an annotation gone": lambda pod: pod["metadata"]["annotations"].pop("keep"),
    "owners": _metadata("ownerReferences", []),
    "owners gone": lambda pod: pod["metadata"].pop("ownerReferences"),
    "a finalizer": _metadata("finalizers", ["batch.kubernetes.io/job-tracking", "x.io/y"]),
    "finalizers gone": lambda pod: pod["metadata"].pop("finalizers"),
    "a name": _metadata("name", "q"),
    "a uid": _metadata("uid", "u2"),
    "a deletion": _metadata("deletionTimestamp", "2026-11-21T00:00:00Z"),
    "a field that does not exist yet": _metadata("someday", 1),
    # spec
    "an image": lambda pod: pod["spec"]["containers"][0].__setitem__("image", "evil"),
    "an init image": lambda pod: pod["spec"]["initContainers"][0].__setitem__("image", "evil"),
    "init containers gone": lambda pod: pod["spec"].pop("initContainers"),
    "limits": lambda pod: pod["spec"]["containers"][0].__setitem__("resources", {}),
    "a command": lambda pod: pod["spec"]["containers"][0].__setitem__("command", ["sh"]),
    "a container": lambda pod: pod["spec"]["containers"].append({"name": "d", "image": "i"}),
    "an ephemeral container": _spec("ephemeralContainers", [{"name": "d"}]),
    "a toleration": lambda pod: pod["spec"]["tolerations"].append({"operator": "Exists"}),
    "tolerations gone": lambda pod: pod["spec"].pop("tolerations"),
    "a grace period": _spec("terminationGracePeriodSeconds", 0),
    "a deadline": _spec("activeDeadlineSeconds", 1),
    "a priority": _spec("priority", 100),
    "a scheduler": _spec("schedulerName", "gangplan"),
    "a node": _spec("nodeName", "n1"),
    "an account": _spec("serviceAccountName", "admin"),
    "the host's network": _spec("hostNetwork", True),
    "a group": _spec("schedulingGroup", {"podGroupName": "g"}),
    "claims": _spec("resourceClaims", []),
    "a spec field of tomorrow": _spec("someday", {}),
    # gates and pins
    "another's gate": _spec("schedulingGates", [{"name": "gangplan.dev/placement"}]),
    "all gates": _spec("schedulingGates", []),
    "all gates gone": lambda pod: pod["spec"].pop("schedulingGates"),
    "a new gate": lambda pod: pod["spec"]["schedulingGates"].append({"name": "x.io/y"}),
    "gates in another order": lambda pod: pod["spec"]["schedulingGates"].reverse(),
    "a selector without ungating": _spec("nodeSelector", {"kubernetes.io/hostname": "n1"}),
    "an affinity without ungating": _spec(
        "affinity",
        {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                }
            }
        },
    ),
    "an empty affinity beside it": _spec("affinity", {"podAntiAffinity": {}}),
}


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("ungating", [False, True])
def test_nothing_else_of_a_pod_may_be_changed(change: Change, ungating: bool) -> None:
    before = _intended(_pod())
    after = copy.deepcopy(before)
    allowed_when_ungating = (
        "without ungating",
        "gate",
    )
    name = next(key for key, one in FORBIDDEN.items() if one is change)
    if ungating and not any(word in name for word in allowed_when_ungating):
        after = _pinned(before, hostname="n1.example")
    change(after)
    assert len(refused(_patch(before, after))) >= 1


SELECTED = {"nodeSelector": {"pool": "h100", "kubernetes.io/arch": "amd64"}}


def _field(name: str, *values: str, operator: str = "In") -> Tree:
    return {"key": name, "operator": operator, "values": list(values)}


def _terms(*terms: Tree) -> Tree:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


OURS = _field("metadata.name", "n1")

FORBIDDEN_PINS: dict[str, tuple[Tree, Tree]] = {
    "a selector changed": (
        SELECTED,
        {"nodeSelector": {"pool": "a100", "kubernetes.io/arch": "amd64"}},
    ),
    "a selector dropped": (SELECTED, {"nodeSelector": {"pool": "h100"}}),
    "all selectors dropped": (SELECTED, {"nodeSelector": {}}),
    "another selector": ({}, {"nodeSelector": {"pool": "h100"}}),
    "a role": ({}, {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}),
    "another node than intended": (
        {},
        {"affinity": _terms({"matchFields": [_field("metadata.name", "n2")]})},
    ),
    "two nodes": ({}, {"affinity": _terms({"matchFields": [_field("metadata.name", "n1", "n2")]})}),
    "two terms": ({}, {"affinity": _terms({"matchFields": [OURS]}, {"matchFields": [OURS]})}),
    "an operator": (
        {},
        {"affinity": _terms({"matchFields": [_field("metadata.name", "n1", operator="NotIn")]})},
    ),
    "a field": ({}, {"affinity": _terms({"matchFields": [_field("metadata.uid", "n1")]})}),
    "an expression": ({}, {"affinity": _terms({"matchExpressions": [_field("zone", "a")]})}),
    "an expression beside": (
        {},
        {"affinity": _terms({"matchFields": [OURS], "matchExpressions": [_field("zone", "a")]})},
    ),
    "preferences beside": (
        {},
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [OURS]}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
                }
            }
        },
    ),
    "pod affinity beside": (
        {},
        {"affinity": {**_terms({"matchFields": [OURS]}), "podAffinity": {}}},
    ),
    "terms dropped": (
        {"affinity": AFFINITY},
        {"affinity": {"podAffinity": AFFINITY["podAffinity"]}},
    ),
    "one term dropped": (
        {"affinity": _terms(*TERMS)},
        {"affinity": _terms({**TERMS[0], "matchFields": [OURS]})},
    ),
    "one term twice": (
        {"affinity": _terms(*TERMS)},
        {
            "affinity": _terms(
                {**TERMS[0], "matchFields": [OURS]}, {**TERMS[0], "matchFields": [OURS]}
            )
        },
    ),
    "a term widened": (
        {"affinity": _terms(TERMS[0])},
        {"affinity": _terms({"matchFields": [OURS]})},
    ),
    "a term's own field replaced": (
        {"affinity": _terms(TERMS[1])},
        {"affinity": _terms({**TERMS[1], "matchFields": [OURS]})},
    ),
    "a term's expression changed": (
        {"affinity": _terms(TERMS[0])},
        {"affinity": _terms({"matchExpressions": [_field("zone", "c")], "matchFields": [OURS]})},
    ),
}


@pytest.mark.parametrize(("before", "after"), FORBIDDEN_PINS.values(), ids=FORBIDDEN_PINS.keys())
def test_a_pin_only_adds_the_node_of_the_intent(before: Tree, after: Tree) -> None:
    old = _intended(_pod(**copy.deepcopy(before)))
    new = _ungated(old, {})
    new["spec"] |= copy.deepcopy(after)
    assert len(refused(_patch(old, new))) >= 1


def test_a_pin_by_affinity_needs_an_intent() -> None:
    old = _pod()
    new = _ungated(old, {"affinity": _terms({"matchFields": [OURS]})})
    (said,) = refused(_patch(old, new))
    assert said.startswith("gangplan may pin a pod by affinity only to the node of its intent")
    assert refused(_patch(_intended(old), _intended(new))) == []


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_other_accounts_are_not_concerned(change: Change) -> None:
    after = _intended(_pod())
    change(after)
    other = Asked("pods", "UPDATE", after, _pod(), user="system:serviceaccount:gangplan-system:x")
    assert refused(other) == []


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
        ("bindings", "", "CREATE"),
    ],
)
def test_no_other_request_about_pods_may_be_sent(resource: str, sub: str, operation: str) -> None:
    body = None if operation in {"DELETE", "CONNECT"} else _pod()
    asked = Asked(resource, operation, body, _pod(), sub=sub)
    message = (
        "gangplan may patch, bind and evict pods and give claims their devices, and nothing else"
    )
    assert refused(asked) == [message]


def _binding(**metadata: object) -> Asked:
    body = {
        "metadata": {"name": "p", "namespace": "research", "uid": "u1", **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    return Asked("pods", "CREATE", body, sub="binding")


def test_a_binding_passes_also_with_what_the_server_adds_from_the_node() -> None:
    zone = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    assert refused(_binding()) == []
    assert refused(_binding(labels={**INTENT.labels(), **zone})) == []
    assert refused(_binding(annotations=INTENT.annotations() | dict.fromkeys(BACK_ENDS, "x"))) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"app": "other"}},
        {"labels": {"gangplan.dev/plan": "x"}},
        {"labels": {"-bad key": "1"}},
        {"annotations": {"keep": "that"}},
        {"annotations": {"gangplan.dev/preemptible": "true"}},
        {"uid": ""},
    ],
)
def test_a_binding_brings_nothing_else_onto_the_pod(metadata: Tree) -> None:
    assert len(refused(_binding(**metadata))) == 1


def test_a_binding_names_a_uid_and_a_node() -> None:
    asked = _binding()
    assert asked.object is not None
    del asked.object["metadata"]["uid"]
    asked.object["target"]["kind"] = "Pod"
    assert refused(asked) == [
        "a Binding by gangplan names the uid of its pod",
        "a Binding by gangplan is to a node",
    ]


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


# ---- claims

FINALIZER = "resource.kubernetes.io/delete-protection"
ALLOCATION = {
    "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-0"}]},
    "allocationTimestamp": "2026-11-21T00:00:00Z",
}
OTHER_ALLOCATION = {"devices": {"results": []}}
USER = {"resource": "pods", "name": "p", "uid": "u1"}
OTHER_USER = {"resource": "pods", "name": "q", "uid": "u2"}


def _claim(*, marked: bool = True, finalizers: tuple[str, ...] = (), **status: object) -> Tree:
    metadata: Tree = {"name": "c", "namespace": "research", "uid": "k", "resourceVersion": "3"}
    if marked:
        metadata["annotations"] = {"gangplan.dev/plan": PLAN}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "g"}}]}}
    return {"metadata": metadata, "spec": spec} | ({"status": status} if status else {})


def _on_claim(old: Tree, new: Tree, sub: str = "") -> list[str]:
    asked = Asked("resourceclaims", "UPDATE", new, old, sub=sub, group="resource.k8s.io")
    return refused(asked)


def test_a_claim_may_be_marked_guarded_allocated_reserved_and_freed_again() -> None:
    steps = [
        (_claim(marked=False), _claim(finalizers=(FINALIZER,)), ""),
        (_claim(), _claim(allocation=ALLOCATION, reservedFor=[USER]), "status"),
        (
            _claim(allocation=ALLOCATION),
            _claim(allocation=ALLOCATION, reservedFor=[USER]),
            "status",
        ),
        (_claim(allocation=ALLOCATION, reservedFor=[USER]), _claim(), "status"),
        (_claim(allocation=ALLOCATION), _claim(), "status"),
        (_claim(finalizers=(FINALIZER,)), _claim(marked=False, finalizers=(FINALIZER,)), ""),
    ]
    for old, new, sub in steps:
        assert _on_claim(old, new, sub) == []


def _with(tree: Tree, part: str, **fields: object) -> Tree:
    return tree | {part: tree.get(part, {}) | fields}


FORBIDDEN_OF_CLAIMS: dict[str, tuple[Tree, Tree, str]] = {
    "what it asks": (_claim(), _with(_claim(), "spec", devices={}), ""),
    "a label": (_claim(), _with(_claim(), "metadata", labels={"a": "b"}), ""),
    "an owner": (_claim(), _with(_claim(), "metadata", ownerReferences=[{"uid": "x"}]), ""),
    "a name": (_claim(), _with(_claim(), "metadata", name="d"), ""),
    "another annotation": (
        _claim(marked=False),
        _with(_claim(marked=False), "metadata", annotations={"a": "b"}),
        "",
    ),
    "an annotation gone": (_with(_claim(), "metadata", annotations={"a": "b"}), _claim(), ""),
    "a finalizer": (_claim(), _claim(finalizers=("x.io/y",)), ""),
    "a finalizer gone": (_claim(finalizers=(FINALIZER,)), _claim(), ""),
    "devices unmarked": (
        _claim(marked=False),
        _claim(marked=False, allocation=ALLOCATION),
        "status",
    ),
    "devices and mark at once": (_claim(marked=False), _claim(allocation=ALLOCATION), "status"),
    "other devices": (
        _claim(allocation=ALLOCATION),
        _claim(allocation=OTHER_ALLOCATION),
        "status",
    ),
    "another's devices": (
        _claim(marked=False, allocation=ALLOCATION),
        _claim(marked=False),
        "status",
    ),
    "devices in use": (
        _claim(allocation=ALLOCATION, reservedFor=[USER, OTHER_USER]),
        _claim(),
        "status",
    ),
    "a reservation dropped": (
        _claim(allocation=ALLOCATION, reservedFor=[USER, OTHER_USER]),
        _claim(allocation=ALLOCATION, reservedFor=[USER]),
        "status",
    ),
    "a reservation of no pod": (
        _claim(allocation=ALLOCATION),
        _claim(allocation=ALLOCATION, reservedFor=[{**USER, "resource": "nodes"}]),
        "status",
    ),
    "a driver's words": (_claim(), _claim(devices=[{"driver": "d", "data": {}}]), "status"),
    "a status of tomorrow": (_claim(), _claim(someday=1), "status"),
    "a driver's words gone": (_claim(devices=[{"driver": "d"}]), _claim(), "status"),
}


@pytest.mark.parametrize(
    ("old", "new", "sub"), FORBIDDEN_OF_CLAIMS.values(), ids=FORBIDDEN_OF_CLAIMS.keys()
)
def test_nothing_else_of_a_claim_may_be_changed(old: Tree, new: Tree, sub: str) -> None:
    assert len(_on_claim(old, new, sub)) >= 1


@pytest.mark.parametrize("operation", ["CREATE", "DELETE"])
def test_claims_are_neither_made_nor_deleted(operation: str) -> None:
    asked = Asked("resourceclaims", operation, _claim(), None, group="resource.k8s.io")
    assert len(refused(asked)) == 1


def test_every_rule_refuses_something_that_no_other_rule_does() -> None:
    """A rule that could be left out would be one that no test here holds to."""
    alone: set[str] = set()
    for change in FORBIDDEN.values():
        after = _intended(_pod())
        change(after)
        alone |= _only(refused(_patch(_intended(_pod()), after)))
    for before, spec in FORBIDDEN_PINS.values():
        old = _intended(_pod(**copy.deepcopy(before)))
        new = _ungated(old, {})
        new["spec"] |= copy.deepcopy(spec)
        alone |= _only(refused(_patch(old, new)))
    for claim in FORBIDDEN_OF_CLAIMS.values():
        alone |= _only(_on_claim(*claim))
    rules = {
        message
        for policy in policies()
        if policy.name in {"gangplan-pods", "gangplan-claims"}
        for message, _ in policy.validations
    }
    assert alone == rules


def _only(said: list[str]) -> set[str]:
    return set(said) if len(said) == 1 else set()
