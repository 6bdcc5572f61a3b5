"""Requests recorded with a real API server are sent to the test server, which has to answer alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apiserver import FakeCluster
from apiserver_kinds import Json, Place, RequestInfo, Tree

DATA = Path(__file__).parents[1] / "data" / "kube_api" / "exchanges.jsonl"
PLANNER = "system:serviceaccount:planner-system:planner"
FREE = {
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"),
    *("lastTransitionTime", "lastProbeTime", "observedGeneration", "allocationTimestamp"),
}
"""Fields that a server makes up."""
SCENES: list[list[Tree]] = []
for line in map(json.loads, DATA.read_text(encoding="utf-8").splitlines()):
    SCENES += [[]] if "scene" in line else []
    SCENES[-1].append(line)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene[0]["scene"])
def test_the_server_answers_as_the_recorded_one(scene: list[Tree]) -> None:
    """See tests/data/kube_api/README.md for the fields of a line."""
    head, *lines = scene
    cluster = FakeCluster(groups=head.get("groups", False))
    for name, fields in head["nodes"].items():
        cluster.add_node(name, **fields)
    found = {}
    for line in lines:
        for name in line.get("names", ()):
            make(cluster, line, name)
        for name in line.get("gone", ()):
            cluster.handle("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        if "send" in line:
            wrong = answered(cluster, line)
            if wrong is not None:
                found[f"{line['send']}: {line['note']}"] = wrong
        for name, seen in line.get("see", {}).items():
            ours = {"node": cluster.node_of(name)}
            ours["conditions"] = plain(cluster.pod(name)["status"].get("conditions"))
            assert {key: ours[key] for key in seen} == seen, (name, line["note"])
    assert found == {}


def make(cluster: FakeCluster, line: Tree, name: str) -> None:
    """``put``: as it is; ``create``: as the server takes it from who creates it."""
    tree = line.get("put") or line["create"]
    tree = tree | {"metadata": tree.get("metadata", {}) | {"name": name}}
    if "put" in line:
        cluster.put(tree)
        return
    kind = cluster.kinds.of(tree["apiVersion"], tree["kind"])
    cluster.objects.create(Place(kind, "default"), tree, RequestInfo())
    cluster.settle()


def answered(cluster: FakeCluster, line: Tree) -> tuple[Json, Json] | None:
    """Our answer and the recorded one, where they differ."""
    method, _, path = line["send"].partition(" ")
    place = cluster.kinds.place(path.partition("?")[0])
    assert place is not None, path
    old = cluster.store.get(place.kind, place.namespace, place.name)
    kind = f"application/{line['as']}-patch+json" if "as" in line else "application/json"
    user = PLANNER if "by" in line else None
    body = filled(cluster, line.get("body"), old)
    code, tree, _ = cluster.handle(method, path, body, kind, user)
    ours = plain(tree) if code < 300 else refusal(tree)
    if "answer" not in line:
        return None if code < 300 else (ours, "no refusal")
    return None if ours == line["answer"] else (ours, line["answer"])


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


def refusal(tree: Tree) -> Tree:
    """What a program may depend on: no wording."""
    about = tree.get("details") or {}
    found = {"code": tree["code"], "reason": tree["reason"]}
    found |= {"name": about["name"]} if "name" in about else {}
    fields = sorted({one["field"] for one in about.get("causes", ()) if "field" in one})
    return found | ({"fields": fields} if "causes" in about else {})


def plain(tree: Json) -> Json:
    """Without what a server makes up, and what is empty."""
    if isinstance(tree, dict):
        if "deletionTimestamp" in tree:
            tree = tree | {"deletionTimestamp": "set"}
        kept = {key: plain(value) for key, value in tree.items() if key not in FREE}
        return {key: value for key, value in kept.items() if value not in ({}, [], None)}
    return [plain(one) for one in tree] if isinstance(tree, list) else tree
