"""Requests recorded with a real API server are sent to the test server, which has to answer alike.

kubectl's commands are sent as the requests that they make. Scenes are in tests/data/kube_api/scenes.yaml.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apiserver import FakeCluster
from apiserver_kinds import CLAIM, POD, POD_GROUP, Json, Place, RequestInfo, Tree

DATA = Path(__file__).parents[1] / "data" / "kube_api"
ROWS = [json.loads(line) for line in (DATA / "transcripts.jsonl").read_text().splitlines()]
SCENES = yaml.load((DATA / "scenes.yaml").read_text(), Loader=yaml.CSafeLoader)
ACCOUNT = "system:serviceaccount:planner-system:planner"
FREE = {
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"),
    *("lastTransitionTime", "lastProbeTime", "observedGeneration", "allocationTimestamp"),
}
"""Fields that a server makes up."""
TYPES = {name: f"application/{name}-patch+json" for name in ("json", "merge", "strategic-merge")}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene["about"])
def test_the_server_answers_as_the_recorded_one(scene: Tree) -> None:
    cluster = FakeCluster(groups=scene.get("groups", False))
    for name, fields in scene.get("nodes", {"n1": {}, "n2": {}}).items():
        cluster.add_node(name, **fields)
    make_pods(cluster, scene.get("pods", {}))
    found, uids = {}, {}
    for number in numbers(scene["rows"]):
        for happening in scene.get("before", {}).get(number, []):
            for what, given in happening.items():
                HAPPENINGS[what](cluster, given)
        row = ROWS[number]
        if "path" in row or "kubectl" in row:
            wrong = answered(cluster, row, uids, scene.get("bodies", {}).get(number))
        else:
            wrong = observed(cluster, row, scene.get("show", {}).get(number, []))
        if wrong:
            found[number] = wrong
    assert found == {}


def numbers(ranges: list[int | str]) -> Iterator[int]:
    for one in ranges:
        first, _, last = str(one).partition("-")
        yield from range(int(first), int(last or first) + 1)


# ---- what happened between the requests


def make_pods(cluster: FakeCluster, pods: Tree) -> None:
    for name, given in ((name, given) for names, given in pods.items() for name in names.split()):
        spec = {"schedulerName": "planner", "terminationGracePeriodSeconds": 0} | given
        gpus = spec.pop("gpus", 1)
        resources: Tree = {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}}
        for key, field in (
            ("claim", "resourceClaimName"),
            ("template", "resourceClaimTemplateName"),
        ):
            if key in spec:
                spec["resourceClaims"] = [{"name": "gpu", field: spec.pop(key)}]
                resources = {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}}
        if gates := spec.pop("gates", ()):
            spec["schedulingGates"] = [{"name": gate} for gate in gates]
        spec["containers"] = [{"name": "c", "image": "img", "resources": resources}]
        tree = {"metadata": {"name": name}, "spec": spec}
        cluster.objects.create(Place(POD, "default", "", ""), tree, RequestInfo())
    cluster.settle()


def make_claims(cluster: FakeCluster, claims: Tree) -> None:
    for name, given in claims.items():
        device = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount"}
        exactly = device | {"count": given.get("count", 2)}
        metadata = {"name": name, "finalizers": given.get("finalizers", [])}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        tree = {"metadata": metadata, "spec": spec}
        cluster.objects.create(Place(CLAIM, "default", "", ""), tree, RequestInfo())


def grant(cluster: FakeCluster, rules: list[Tree], namespace: str = "") -> None:
    """The service account has these rights; all others that it had in that place are gone."""
    where = {"name": "planner"} | ({"namespace": namespace} if namespace else {})
    role, api = "Role" if namespace else "ClusterRole", "rbac.authorization.k8s.io"
    api_version = {"apiVersion": f"{api}/v1", "metadata": where}
    subject = {"kind": "ServiceAccount", "name": "planner", "namespace": "planner-system"}
    ref = {"apiGroup": api, "kind": role, "name": "planner"}
    cluster.put(api_version | {"kind": role, "rules": rules})
    cluster.put(api_version | {"kind": f"{role}Binding", "subjects": [subject], "roleRef": ref})


def grant_words(cluster: FakeCluster, words: list[str]) -> None:
    """``patch pods/binding``, ``get leases.coordination.k8s.io``."""
    split = [
        (verb, *what.partition(".")) for verb, _, what in (one.partition(" ") for one in words)
    ]
    rules = [{"apiGroups": [g], "resources": [what], "verbs": [verb]} for verb, what, _, g in split]
    grant(cluster, rules)


def grant_lock(cluster: FakeCluster, number: int) -> None:
    cluster.add_namespace("planner-system")
    grant(cluster, ROWS[number]["role in the namespace of the lease"], "planner-system")


def make_group(cluster: FakeCluster, name: str) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    api = {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.name}
    cluster.put(api | {"metadata": {"name": name}, "spec": spec})


HAPPENINGS = {
    "group": make_group,
    "pods": make_pods,
    "claims": make_claims,
    "delete": lambda cluster, name: cluster.handle(
        "DELETE", f"/api/v1/namespaces/default/pods/{name}"
    ),
    "may": grant_words,
    "role": lambda cluster, number: grant(cluster, ROWS[number]["clusterrole"]),
    "lock": grant_lock,
}


# ---- what was sent, and what came back


def answered(cluster: FakeCluster, row: Tree, uids: Tree, body: Json) -> list[str]:
    """How the answer to the request of a row differs. ``uids``: ours by those of earlier rows."""
    method, path, body, kind = request_of(cluster, row, body)
    user = ACCOUNT if "service account" in row["note"] else None
    place = cluster.kinds.place(path.partition("?")[0])
    assert place is not None, path
    ours = uids | here(cluster, row, place, body)
    uids |= {key: value for key, value in ours.items() if "-" in key}
    text = re.sub(r"[\w-]+", lambda word: ours.get(word[0], word[0]), json.dumps(body))
    said = re.sub(r"[\w-]+", lambda word: ours.get(word[0], word[0]), row.get("stderr", ""))
    code, tree, _ = cluster.handle(method, path, json.loads(text), kind, user)
    if "path" in row:
        expected = re.sub(r"[\w-]+", lambda w: ours.get(w[0], w[0]), json.dumps(row["response"]))
        return differences((code, tree), (row["status"], json.loads(expected)))
    done = tree["status"]["allowed"] if "can-i" in row["kubectl"] else code < 300
    words = "" if done else plain(tree.get("message", "")).rpartition(" is invalid: ")[2]
    said = re.sub(r"error when \w+ \"STDIN\": ", "", plain(said))
    alike = done == (row["exit"] == 0) and words in said
    return [] if alike else [f"{code} {words!r}, recorded {said!r}"]


def request_of(cluster: FakeCluster, row: Tree, body: Json) -> tuple[str, str, Json, str]:
    """Method, path with its query, body and content type."""
    if "path" in row:
        return (
            row["method"],
            row["path"],
            row.get("body"),
            row.get("contentType", "application/json"),
        )
    head, _, payload = row["kubectl"].partition(" -p ")
    verb, *words = [word for word in shlex.split(head) if word != "-A"]
    options = dict(word.removeprefix("--").split("=") for word in words if "=" in word)
    sent, kind = row.get("stdin") if body is None else body, "application/json"
    query = "?dryRun=All" if options.get("dry-run") == "server" else ""
    if verb == "auth":
        attributes: Tree = {"verb": words[1], "namespace": "default"}
        attributes["resource"], _, attributes["name"] = words[2].partition("/")
        attributes["subresource"] = options.get("subresource", "")
        review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return "POST", review, {"spec": {"resourceAttributes": attributes}}, kind
    method = {
        "create": "POST",
        "replace": "PUT",
        "patch": "PATCH",
        "get": "GET",
        "delete": "DELETE",
    }[verb]
    if "--raw" in words:
        return method, words[words.index("--raw") + 1], sent, kind
    if sent:
        of = cluster.kinds.of(sent["apiVersion"], sent["kind"])
        metadata = sent["metadata"]
        name = f"/{metadata['name']}" if verb == "replace" else ""
        return (
            method,
            f"{of.root}/namespaces/{metadata.get('namespace', 'default')}/{of.plural}{name}",
            sent,
            kind,
        )
    of = next(one for one in cluster.kinds.all if words[0] in (one.plural, one.name.lower()))
    if (verb == "get" and len(words) == 1) or words[1].startswith("-"):
        return method, f"{of.root}/{of.plural}", None, kind
    namespace = words[words.index("-n") + 1] if "-n" in words else "default"
    sub = f"/{options['subresource']}" if "subresource" in options else ""
    path = f"{of.root}/namespaces/{namespace}/{of.plural}/{words[1]}{sub}{query}"
    return (
        method,
        path,
        json.loads(payload or "null"),
        TYPES[options.get("type", "strategic-merge")],
    )


def here(cluster: FakeCluster, row: Tree, place: Place, body: Json) -> dict[str, str]:
    """Our uid and resourceVersion for the recorded ones that were current when the row was sent."""
    found = {}
    words = json.dumps(row.get("response", "")) + row.get("stderr", "")
    old = cluster.store.get(place.kind, place.namespace, place.name)
    asked = {"uid": "", "resourceVersion": ""}
    if isinstance(body, dict):
        asked |= body.get("metadata") or {}
        for holder in (body.get("status") or {}).get("reservedFor") or []:
            if (pod := cluster.store.get(POD, "default", holder["name"])) is not None:
                found[holder["uid"]] = pod["metadata"]["uid"]
    elif isinstance(body, list):
        asked |= {
            one["path"].rpartition("/")[2]: one["value"] for one in body if one["op"] == "test"
        }
    if old is None:
        return found
    done = row.get("status", 500) < 300 or row.get("exit") == 0
    said = re.search(r"UID in object meta: ([0-9a-f-]+)", words)
    if done or "object has been modified" in words:
        found[asked["uid"]] = old["metadata"]["uid"]
    if done or "metadata.uid: Invalid value" in words:
        found[asked["resourceVersion"]] = old["metadata"]["resourceVersion"]
    if said:
        found[said[1]] = old["metadata"]["uid"]
    for version in re.findall(r"ResourceVersion in (?:object meta: |record \()(\d+)", words):
        found[version] = old["metadata"]["resourceVersion"]
    return found


def observed(cluster: FakeCluster, row: Tree, shown: list[str]) -> list[str]:
    """How the pods differ from what a row saw of them."""
    found = []
    for name, node in (row.get("where") or row.get("placed") or {}).items():
        found += differences(cluster.node_of(name), node)
    for name in shown:
        conditions = row["conditions"]
        if isinstance(conditions, dict):
            conditions = conditions[name[-1]]
        ours = cluster.pod(name)["status"]["conditions"]
        if isinstance(conditions[0], list):
            ours = [
                [one.get(key) for key in ("type", "status", "reason", "message")] for one in ours
            ]
        found += differences(ours, conditions)
        if "nodeName" in row:
            found += differences(cluster.node_of(name), row["nodeName"])
    for name, key in (("dt", "gated"), ("du", "ungated")):
        for one in row.get(key, []):
            (ours,) = cluster.pod(name)["status"]["resourceClaimStatuses"]
            found += differences(ours["name"], one["name"])
            assert ours["resourceClaimName"].startswith(f"{name}-gpu-")
            assert cluster.store.get(CLAIM, "default", ours["resourceClaimName"]) is not None
    return found


def differences(ours: Json, recorded: Json) -> list[str]:
    left, right = plain(ours), plain(recorded)
    return [] if left == right else [f"{left}, recorded {right}"]


def plain(tree: Json) -> Json:
    """Without what a server makes up, and without its diffs of Go structures."""
    if isinstance(tree, dict):
        if "causes" in tree:  # the real server says each as often as it looks
            tree = tree | {"causes": list({str(one): one for one in tree["causes"]}.values())}
        if "deletionTimestamp" in tree:
            tree = tree | {"deletionTimestamp": "set"}
        kept = {key: plain(value) for key, value in tree.items() if key not in FREE}
        return {key: value for key, value in kept.items() if value not in ({}, [], None)}
    if isinstance(tree, list | tuple):
        return [plain(one) for one in tree]
    if isinstance(tree, str):
        tree = re.split(r"\n(?:@@|[-+] \w+: )", tree)[0]
        return re.sub(r"Invalid value: \{.*\}: field is", "Invalid value: {}: field is", tree)
    return tree
