"""Requests recorded with a real API server are sent to the test server, which has to answer alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apiserver import FakeCluster
from apiserver_kinds import Json, Kind, Tree

DATA = Path(__file__).parents[1] / "data" / "kube_api" / "exchanges.jsonl"
PLANNER = "system:serviceaccount:planner-system:planner"
FREE = {
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "message"),
    *("lastTransitionTime", "lastProbeTime", "observedGeneration", "allocationTimestamp"),
    *("qosClass", "dnsPolicy", "enableServiceLinks", "preemptionPolicy", "securityContext"),
    *("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "fields"),
    *("tolerations", "resources"),
}
"""Fields that a server makes up, and that nobody reads."""
SCENES: list[list[Tree]] = []
for line in map(json.loads, DATA.read_text(encoding="utf-8").splitlines()):
    SCENES += [[]] if "scene" in line else []
    SCENES[-1].append(line)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene[0]["scene"])
def test_the_server_answers_as_the_recorded_one(scene: list[Tree]) -> None:
    """See tests/data/kube_api/README.md for the fields of a line."""
    cluster = FakeCluster()
    cluster.kinds.serve(Kind("PodGroup", "podgroups", "scheduling.k8s.io", "v1alpha2"))
    for name, fields in scene[0]["nodes"].items():
        cluster.add_node(name, **fields)
    found = {}
    for line in scene[1:]:
        for name in line.get("names", ()):
            tree = line.get("put") or line["create"]
            tree = tree | {"metadata": tree.get("metadata", {}) | {"name": name}}
            (cluster.put if "put" in line else cluster.create)(tree)
        for name in line.get("gone", ()):
            cluster.handle("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        if "send" in line:
            ours = answered(cluster, line)
            if ours != (wanted := plain(line.get("answer")) if "answer" in line else "taken"):
                found[f"{line['send']}: {line['note']}"] = (ours, wanted)
        for name, seen in line.get("see", {}).items():
            pod = cluster.pod(name)
            ours = {"node": pod["spec"].get("nodeName")}
            ours["conditions"] = plain(pod["status"].get("conditions"))
            wanted = {key: plain(value) for key, value in seen.items()}
            if {key: ours[key] for key in seen} != wanted:
                found[f"{name}: {line['note']}"] = (ours, wanted)
    assert found == {}


def answered(cluster: FakeCluster, line: Tree) -> Json:
    """Our answer; of a refusal what a program may depend on: no wording."""
    method, _, path = line["send"].partition(" ")
    place = cluster.kinds.place(path.partition("?")[0])
    assert place is not None, path
    old = cluster.objects.find(place.kind, place.namespace, place.name)
    kind = f"application/{line['as']}-patch+json" if "as" in line else "application/json"
    body = filled(cluster, line.get("body"), old)
    code, tree, _ = cluster.handle(method, path, body, kind, PLANNER if "by" in line else None)
    if code < 300:
        return plain(tree) if "answer" in line else "taken"
    name = (tree.get("details") or {}).get("name")
    return plain({"code": tree["code"], "reason": tree["reason"], "name": name})


def filled(cluster: FakeCluster, body: Json, old: Tree | None) -> Json:
    """``$uid`` and ``$version`` stand for those of the object, ``$uid of POD`` for another's."""
    if isinstance(body, dict):
        return {key: filled(cluster, value, old) for key, value in body.items()}
    if isinstance(body, list):
        return [filled(cluster, value, old) for value in body]
    if not isinstance(body, str) or body[:1] != "$":
        return body
    what, _, name = body.partition(" of ")
    metadata = (cluster.pod(name) if name else old or {})["metadata"]
    return metadata["resourceVersion" if what == "$version" else "uid"]


def plain(tree: Json) -> Json:
    """Without what a server makes up, and what is empty."""
    if isinstance(tree, dict):
        if "deletionTimestamp" in tree:
            tree = tree | {"deletionTimestamp": "set"}
        kept = {key: plain(value) for key, value in tree.items() if key not in FREE}
        return {key: value for key, value in kept.items() if value not in ({}, [], None)}
    return [plain(one) for one in tree] if isinstance(tree, list) else tree
