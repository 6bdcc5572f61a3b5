"""Pods as admission sees them before and after a patch, and patches that must not pass.

What our own code writes is made by our own code; everything else is a change of one field.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from admission import Asked, Tree
from apiserver import FakeCluster
from apiserver_http import FakeWire

from models.apply.intents import Intent
from models.apply.live_state import LiveNode
from models.apply.starts import pin
from models.instance.policy import KubernetesPolicy
from planner.cluster.live_view import ClusterReader

PLAN = "gp-0123456789abcdef0123"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
INTENT = Intent(PLAN, "llama", 2, "n1", (0, 1))
BACK_ENDS = ("nvidia.com/use-gpuuuid",)


def a_pod(**spec: object) -> Tree:
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


def intended(pod: Tree) -> Tree:
    """The pod after the intent was written, as a patch by us leaves it."""
    pod = copy.deepcopy(pod)
    pod["metadata"]["labels"] |= INTENT.labels()
    pod["metadata"]["annotations"] |= INTENT.annotations()
    pod["metadata"]["managedFields"].append({"manager": "gangplan"})
    pod["metadata"]["resourceVersion"] = "8"
    return pod


def ungated(pod: Tree, spec: Tree) -> Tree:
    """The pod without our gate, with the pin that ``models.apply.starts`` makes for it."""
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


def pinned(pod: Tree, *, hostname: str | None) -> Tree:
    """Our own patch, made by the code that makes it in a run."""
    labels = (("kubernetes.io/hostname", hostname or "shared"),)
    node = LiveNode("n1", hostname=hostname, labels=labels)
    live = ClusterReader(FakeWire(FakeCluster()), KubernetesPolicy()).one(pod)
    assert live is not None
    return ungated(pod, pin(live, node))


def patch_of(old: Tree, new: Tree) -> Asked:
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
}

FORBIDDEN_GATES: dict[str, Change] = {
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


SELECTED = {"nodeSelector": {"pool": "h100", "kubernetes.io/arch": "amd64"}}


def field_of(name: str, *values: str, operator: str = "In") -> Tree:
    return {"key": name, "operator": operator, "values": list(values)}


def terms_of(*terms: Tree) -> Tree:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


OURS = field_of("metadata.name", "n1")

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
        {"affinity": terms_of({"matchFields": [field_of("metadata.name", "n2")]})},
    ),
    "two nodes": (
        {},
        {"affinity": terms_of({"matchFields": [field_of("metadata.name", "n1", "n2")]})},
    ),
    "two terms": ({}, {"affinity": terms_of({"matchFields": [OURS]}, {"matchFields": [OURS]})}),
    "an operator": (
        {},
        {
            "affinity": terms_of(
                {"matchFields": [field_of("metadata.name", "n1", operator="NotIn")]}
            )
        },
    ),
    "a field": ({}, {"affinity": terms_of({"matchFields": [field_of("metadata.uid", "n1")]})}),
    "an expression": ({}, {"affinity": terms_of({"matchExpressions": [field_of("zone", "a")]})}),
    "an expression beside": (
        {},
        {
            "affinity": terms_of(
                {"matchFields": [OURS], "matchExpressions": [field_of("zone", "a")]}
            )
        },
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
        {"affinity": {**terms_of({"matchFields": [OURS]}), "podAffinity": {}}},
    ),
    "terms dropped": (
        {"affinity": AFFINITY},
        {"affinity": {"podAffinity": AFFINITY["podAffinity"]}},
    ),
    "one term dropped": (
        {"affinity": terms_of(*TERMS)},
        {"affinity": terms_of({**TERMS[0], "matchFields": [OURS]})},
    ),
    "one term twice": (
        {"affinity": terms_of(*TERMS)},
        {
            "affinity": terms_of(
                {**TERMS[0], "matchFields": [OURS]}, {**TERMS[0], "matchFields": [OURS]}
            )
        },
    ),
    "a term widened": (
        {"affinity": terms_of(TERMS[0])},
        {"affinity": terms_of({"matchFields": [OURS]})},
    ),
    "a term's own field replaced": (
        {"affinity": terms_of(TERMS[1])},
        {"affinity": terms_of({**TERMS[1], "matchFields": [OURS]})},
    ),
    "a term's expression changed": (
        {"affinity": terms_of(TERMS[0])},
        {
            "affinity": terms_of(
                {"matchExpressions": [field_of("zone", "c")], "matchFields": [OURS]}
            )
        },
    ),
}
