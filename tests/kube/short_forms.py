"""Kubernetes objects and what is read of them in short forms, for the cases in ``cases/``.

An object is ``Kind name``, ``Kind namespace/name`` or ``Kind@group/version name``, alone or as the only key
of a mapping of what it has beside that of ``base``. Keys of ``metadata`` are recognised, ``status`` and those
that begin with a full stop are fields of the object, all others of ``spec``. A mapping is merged into what
is there, ``_`` takes a field away. Of pods and nodes: ``gpus``, ``at``, ``gated``; ``asks`` is the
``resources`` of the only container; ``owner``: ``Kind name`` of the controller.

What is read is given less what is usual: nodes as ``kube.node`` makes them, roles as pods of ``kube.pod``.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import kube
from building import instance_document
from bundles import load_all

from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.reason_words import words

Tree = dict[str, Any]

GONE = "_"
METADATA = {
    *("labels", "annotations", "generateName", "creationTimestamp", "deletionTimestamp", "uid"),
    *("ownerReferences", "finalizers", "generation", "resourceVersion"),
}
KINDS = """
v1 Pod Node Namespace PodTemplate PersistentVolumeClaim PersistentVolume ReplicationController List
batch/v1 Job
apps/v1 StatefulSet ReplicaSet Deployment DaemonSet
policy/v1 PodDisruptionBudget
scheduling.k8s.io/v1 PriorityClass
storage.k8s.io/v1 StorageClass
node.k8s.io/v1 RuntimeClass
resource.k8s.io/v1 ResourceClaim ResourceSlice DeviceClass ResourceClaimTemplate
resource.nvidia.com/v1beta1 ComputeDomain
jobset.x-k8s.io/v1alpha2 JobSet
leaderworkerset.x-k8s.io/v1 LeaderWorkerSet
kubeflow.org/v1 PyTorchJob TFJob XGBoostJob PaddleJob JAXJob
kubeflow.org/v2beta1 MPIJob
trainer.kubeflow.org/v1alpha1 TrainJob
ray.io/v1 RayCluster RayJob RayService
autoscaling.x-k8s.io/v1 ProvisioningRequest
kueue.x-k8s.io/v1beta2 Workload LocalQueue ClusterQueue Cohort ResourceFlavor WorkloadPriorityClass Topology
scheduling.run.ai/v2 Queue
scheduling.run.ai/v2alpha2 PodGroup
topology.volcano.sh/v1alpha1 HyperNode
scheduler.grove.io/v1alpha1 PodGang
grove.io/v1alpha1 PodCliqueSet PodClique PodCliqueScalingGroup
scheduling.x-k8s.io/v1alpha1 ElasticQuota
workload.codeflare.dev/v1beta2 AppWrapper
gangplan.dev/v1alpha1 Policy Gang Cluster
"""
VERSIONS = {
    kind: line.split()[0] for line in KINDS.strip().splitlines() for kind in line.split()[1:]
}
SEVERAL = re.compile(r"(.*?)\[(\d+)-(\d+)\](.*)")
USUAL = re.compile(
    "Node [^:]+: server with 8 x NVIDIA-GPU unknown, treated as PCIe-only .*"
    "|Kubernetes pods: none in the input, so all GPUs count as free.*"
)


def head(written: str) -> tuple[str, str, str, str]:
    """Kind, version, namespace and name."""
    kind, _, full = written.partition(" ")
    kind, _, version = kind.partition("@")
    space, slash, name = full.partition("/")
    return kind, version or VERSIONS[kind], space if slash else "", name if slash else full


def base(written: str, patch: Mapping[str, Any]) -> Tree:
    """An object as usual; pods are in ``default``, of ``kube.pod`` and made at 08:00, others at 06:00."""
    kind, version, space, name = head(written)
    if (kind, version) == ("Node", "v1"):
        own = {key: patch[key] for key in ("gpus", "resource") if key in patch}
        return kube.node(name, **own)
    if (kind, version) == ("Pod", "v1"):
        own = {key: patch[key] for key in ("gpus", "gated") if key in patch}
        return kube.pod(name, namespace=space or "default", on=patch.get("at"), **own)
    about = {"name": name}
    if space:
        about |= {"namespace": space, "uid": f"uid-{kind}-{name}"}
        about["creationTimestamp"] = "2026-11-20T06:00:00Z"
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": {}}


def owner(written: str) -> list[Tree]:
    """The owner references of what this controls."""
    kind, version, _, name = head(written)
    about = {"name": name, "uid": f"uid-{kind}-{name}", "controller": True}
    return [{"apiVersion": version, "kind": kind, **about}]


def whole(short: str | Tree) -> Tree:
    """The object of a short form."""
    written, patch = (short, {}) if isinstance(short, str) else next(iter(short.items()))
    tree = base(written, patch)
    is_shaped = tree["kind"] in ("Pod", "Node") and tree["apiVersion"] == "v1"
    for key, value in patch.items():
        if is_shaped and key in ("gpus", "at", "gated", "resource"):
            continue
        if key == "owner":
            tree["metadata"]["ownerReferences"] = owner(value)
        elif key == "asks":
            tree["spec"]["containers"] = [{"name": "main", "resources": copy.deepcopy(value)}]
        elif key in METADATA:
            merge(tree["metadata"], {key: value})
        elif key == "start":  # what the record of its start says
            places = ("node", "gpus", "rank", "pin")
            place = ["p", "u", *(value.get(one, "" if one == "pin" else None) for one in places)]
            start = {"gang": ["default", "g"], "plan": "gp-0123456789abcdef0123", "pods": [place]}
            tree["gangplanStart"] = json.dumps(start | {"terms": value.get("terms")})
        elif key == "status" or key.startswith("."):
            merge(tree, {key.removeprefix("."): value})
        else:
            merge(tree["spec"], {key: value})
    if not tree["spec"] and tree["kind"] != "Pod":
        del tree["spec"]
    return tree


def every(short: str | Tree) -> list[Tree]:
    """The objects of a short form."""
    written, patch = (short, {}) if isinstance(short, str) else next(iter(short.items()))
    if not (several := SEVERAL.fullmatch(written)):
        return [whole(short)]
    found = []
    for number in range(int(several[2]), int(several[3]) + 1):
        marks = (
            {"$a": number} if SEVERAL.fullmatch(several[4]) else {"$0": number, "$1": number + 1}
        )
        found += every({f"{several[1]}{number}{several[4]}": numbered(patch, marks)})
    return found


def numbered(value: Any, marks: Mapping[str, int]) -> Any:  # noqa: ANN401  # any JSON
    """The same with numbers in place of their marks."""
    if isinstance(value, dict):
        return {numbered(key, marks): numbered(one, marks) for key, one in value.items()}
    if isinstance(value, list):
        return [numbered(one, marks) for one in value]
    if isinstance(value, str):
        for mark, number in marks.items():
            value = value.replace(mark, str(number))
    return value


def merge(into: Tree, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value == GONE:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


# ---- what is read


def read(objects: Iterable[str | Tree]) -> LoadedInput:
    return load_all(one for short in objects for one in every(short))


def decisions(found: LoadedInput) -> dict[str, str]:
    """What a plan that the judge accepts says of each gang: a decision, or the code why it waits."""
    made = {"name": "p", "created_at": "2026-11-20T12:00:00Z", "generator": "test"}
    plan = compose(found.instance, solve(found.instance), words, **made)
    assert check(plan) == []
    return {
        f"{one['namespace']}/{one['name']}": one["reason"]["code"]
        if one["decision"] == "wait"
        else one["decision"]
        for one in plan["spec"]["gangs"]
    }


def brief(found: LoadedInput) -> Tree:
    """What was read, in short, without hints: each stands once in ``hints.yaml``."""
    document = json.loads(json.dumps(instance_document(found.instance)))
    remarks, left_out, source = found.remarks, found.left_out, found.levels_source
    cluster = document["cluster"]["spec"]
    nodes = {one["name"]: less(one, NODE | {"name": one["name"]}) for one in cluster["nodes"]}
    domains = {key: one.pop("domains").values() for key, one in nodes.items() if "domains" in one}
    models = {one["name"]: model(one) for one in cluster["serverModels"]}
    parts = {
        "levels": list(map(level, cluster["levels"])),
        "source": source if cluster["levels"] else None,
        "domains": {key: " ".join(map(str, one)) for key, one in domains.items()},
        "models": {key: one for key, one in models.items() if one},
        "nodes": {key: one for key, one in nodes.items() if one},
        "queues": {one["metadata"]["name"]: one["spec"] for one in document.get("queues", ())},
        "gangs": {
            f"{one['metadata']['namespace']}/{one['metadata']['name']}": gang(one)
            for one in document["gangs"]
        },
        "budgets": {
            f"{one['namespace']}/{one['name']}": one["allowed"]
            for one in cluster.get("disruptionBudgets", ())
        },
        "now": document["policy"]["spec"].get("now"),
        "remarks": [line.partition(" (hint: ")[0] for line in remarks if not USUAL.fullmatch(line)],
        "left out": dict(left_out),
    }
    return {key: one for key, one in parts.items() if one and one not in NOW}


NODE: Tree = {
    "model": "unknown 8x NVIDIA-GPU", "domains": {}, "unschedulable": False, "ready": True,
    "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110"},
    "unhealthyGpus": [], "unknownUnhealthy": 0, "labels": {}, "taints": [],
}  # fmt: skip
NOW = ("2026-11-20T08:00:00Z", "1970-01-01T00:00:00Z")
LEVEL: Tree = {"oversubscription": 1, "nvlink": False, "requested": False, "counted": True}
GANG: Tree = {
    "priority": 0, "preemptible": False, "movable": False, "topology": {},
    "submittedAt": "2026-11-20T08:00:00Z",
    "communication": {"pattern": "all-reduce", "weight": 1, "fraction": 0.25},
}  # fmt: skip
ROLE: Tree = {
    "replicas": 1, "gpus": 0, "requests": {"cpu": "4", "memory": "16Gi"}, "topology": {},
    "nodeSelector": {}, "tolerations": [], "mixModels": False,
}  # fmt: skip


def less(tree: Tree, usual: Tree) -> Tree:
    """What differs from the usual; what it lacks is gone."""
    found = {key: one for key, one in tree.items() if key not in usual or one != usual[key]}
    return found | {key: GONE for key in usual if key not in tree}


def level(tree: Tree) -> str | Tree:
    """Its name and label, and what is not usual of it."""
    rest = {key: one for key, one in tree.items() if key not in ("name", "label")}
    rest = {key: one for key, one in rest.items() if one != LEVEL.get(key)}
    name = f"{tree['name']} {tree.get('label') or ''}".strip()
    return {name: rest} if rest else name


def model(tree: Tree) -> str | None:
    """A server that no catalogue has."""
    if tree["confidence"] != "assumed" or tree["name"] == NODE["model"]:
        return None
    return f"{tree['gpus']} x {tree['gpu']} of {tree['vendor'] or 'nobody'}, {tree['fabric']}"


def gang(tree: Tree) -> str | Tree:
    """An only role ``worker`` and what the gang has are one mapping; of one waiting pod alone, the role."""
    found = less(tree["spec"], GANG)
    about, roles = tree["metadata"], {role["name"]: shape(role) for role in found.pop("roles")}
    status = dict(tree.get("status", {}))
    pods = seats(status.pop("pods", ()), about["namespace"])
    if status.get("startedAt") == GANG["submittedAt"]:
        del status["startedAt"]
    if "hold" in found:
        found["hold"] = ": ".join(found["hold"].values())
    if list(roles) == ["worker"]:
        pods = pods.get("worker", GONE)
        only = roles["worker"] if isinstance(roles["worker"], dict) else {"of": roles["worker"]}
        found = {f"all {key}" if key in only else key: one for key, one in found.items()} | only
        roles = {}
    parts = {"roles": roles, "pods": pods if pods != about["name"] else {}}
    found |= {key: one for key, one in parts.items() if one} | status
    return found["of"] if list(found) == ["of"] else found


def shape(role: Tree) -> str | Tree:
    """``4x8`` for 4 pods of 8 GPUs; beside what is not usual as ``of``."""
    size = f"{role['replicas']}x{role['gpus']}"
    rest = {
        key: one for key, one in less(role, ROLE).items() if key not in ("name", "replicas", "gpus")
    }
    if isinstance(rest.get("requests"), dict):
        rest["requests"] = less(rest["requests"], ROLE["requests"])
    return {"of": size, **rest} if rest else size


def seats(pods: Iterable[Tree], space: str) -> dict[str, str]:
    """By role ``name#uid@node[gpus](mode)``, less what is usual; ``5=`` before an index not the next."""
    found: dict[str, str] = {}
    following: dict[str, int] = {}
    for pod in pods:
        role, index = pod["role"], pod["index"]
        text = "" if index == following.get(role, 0) else f"{index}="
        text += (name := pod.get("name", ""))
        if pod.get("uid") not in (f"uid-{space}-{name}", None):
            text += f"#{pod['uid']}"
        if "node" in pod:
            text += f"@{pod['node']}"
        if pod.get("gpus") is not None:
            text += json.dumps(pod["gpus"], separators=(",", ":"))
        if pod.get("mode") not in ("gate", None):
            text += f"({pod['mode']})"
        elif "node" not in pod and "mode" not in pod:
            text += "(left)"
        known = {"name", "uid", "role", "index", "node", "gpus", "mode"}
        text += "".join(f"{key}={pod[key]}" for key in pod if key not in known)
        found[role] = f"{found[role]} {text}" if role in found else text
        following[role] = index + 1
    return found


# ---- cases


def cases(group: Tree) -> list[tuple[list[str | Tree], Tree]]:
    """What is read, and what of it: of a group ``in`` and ``out``, once or for every row of values.

    A row has values for ``$A``, ``$B`` and so on; ``_`` leaves out what has it. ``each`` has pairs of ``in``,
    or several of them as ``any``, and ``out``. ``with``: objects before those of all.
    """
    before = group.get("with", [])
    found = []
    for one in group.get("each", [group]):
        for row in one.get("rows", [[]]):
            values = {f"${chr(ord('A') + place)}": value for place, value in enumerate(row)}
            out = filled(one["out"], values)
            found += [
                (before + filled(some, values), out) for some in one.get("any", [one.get("in")])
            ]
    return found


def filled(value: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, dict):
        made = {filled(key, values): filled(one, values) for key, one in value.items()}
        return {key: one for key, one in made.items() if one is not ABSENT}
    if isinstance(value, list):
        return [one for one in (filled(one, values) for one in value) if one is not ABSENT]
    if isinstance(value, str) and value in values:
        return ABSENT if values[value] == GONE else copy.deepcopy(values[value])
    if isinstance(value, str) and "$" in value:
        return VARIABLE.sub(lambda found: str(values.get(found[0], found[0])), value)
    return value


ABSENT = object()
VARIABLE = re.compile(r"\$[A-Z]")


def hint(remark: str) -> str:
    """The hint of a remark that is not usual; ``none`` where it has none."""
    return "none" if USUAL.fullmatch(remark) else remark.partition(" (hint: ")[2][:-1] or "none"
