"""Recorded exchanges with a real API server, replayed against the fake one, and what differs.

Promises: rows are played in the order they were recorded, on a cluster that holds what the recording
had; uids and resourceVersions are made those of the recording before each row. Called by
``test_fake_transcripts*``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import fake_kubectl
from fake_cluster import FakeCluster
from fake_comparing import differences, rows
from fake_http import Endpoint, serving
from fake_kinds import BINDING, CLAIM, POD, Place
from fake_trees import Json, Tree

_UID = re.compile(r"UID in object meta: ([0-9a-f-]+)")
_VERSION = re.compile(r"ResourceVersion in object meta: (\d+)|ResourceVersion in record \((\d+)\)")
Happening = Callable[[FakeCluster], object]
Look = Callable[[FakeCluster, Tree], list[str]]
"""How what the fake cluster shows differs from what the row observed."""


@dataclass(slots=True)
class Scene:
    """Rows that were recorded one after another. ``cluster``: as it was before the first.

    ``before``: what happened between the rows, by the number of the row that comes next.
    ``files``: what kubectl was given to read, where the row does not say.
    ``looks``: for rows that only observe: what to compare with what was seen.
    """

    numbers: tuple[int, ...]
    cluster: Callable[[], FakeCluster]
    before: Mapping[int, Happening] = field(default_factory=dict)
    files: Mapping[int, Json] = field(default_factory=dict)
    looks: Mapping[int, Look] = field(default_factory=dict)

    def play(self, folder: Path | None = None) -> dict[int, list[str]]:
        """Differences by row number; an empty list where there are none.

        ``folder``: where a kubeconfig is written; without it no row may be of kubectl.
        """
        cluster = self.cluster()
        if folder is None:
            return {number: self._played(cluster, number, None) for number in self.numbers}
        with serving(cluster, folder) as endpoint:
            return {number: self._played(cluster, number, endpoint) for number in self.numbers}

    def _played(self, cluster: FakeCluster, number: int, endpoint: Endpoint | None) -> list[str]:
        row = rows()[number]
        if number in self.before:
            self.before[number](cluster)
            cluster.settle()
        identify(cluster, row)
        if number in self.looks:
            return self.looks[number](cluster, row)
        if "path" in row:
            return asked(cluster, row)
        assert endpoint is not None, f"row {number} needs kubectl"
        if "--subresource=status" in row["kubectl"] and fake_kubectl.minor() < 24:
            return fake_kubectl.patched_status(
                cluster, row
            )  # kubectl cannot; later rows build on it
        if "requests" in row:
            return fake_kubectl.sent(cluster, row, self.files.get(number), endpoint)
        return fake_kubectl.carried(row, self._file(number), endpoint)

    def _file(self, number: int) -> Json:
        """The body that a row read from a file: its own, or that of the row it repeats."""
        if number in self.files or "b.json" not in rows()[number]["kubectl"]:
            return self.files.get(number)
        name = rows()[number]["kubectl"].split("/pods/")[1].partition("/")[0]
        for earlier in reversed(range(number)):
            body = rows()[earlier].get("stdin") or rows()[earlier].get("body")
            if isinstance(body, dict) and (body.get("metadata") or {}).get("name") == name:
                return body
        raise AssertionError(f"row {number}: no body for {name}")


def asked(cluster: FakeCluster, row: Tree) -> list[str]:
    """Send the request of a row; how the answer differs."""
    body = json.loads(json.dumps(row.get("body")))
    kind = row.get("contentType", "application/json")
    code, tree, _ = cluster.handle(row["method"], row["path"], body, kind)
    _adopt(cluster, row)
    found = [] if code == row["status"] else [f"status {code}, recorded {row['status']}"]
    return found + differences(tree, row["response"])


def _adopt(cluster: FakeCluster, row: Tree) -> None:
    """Give what a row created the uid it had; later rows speak of it."""
    place = cluster.kinds.place(row["path"].partition("?")[0])
    made = row["response"].get("metadata") or {}
    if row["method"] == "POST" and place is not None and row["status"] == 201 and "uid" in made:
        _rename(cluster, Place(place.kind, place.namespace, made["name"], ""), made["uid"])


def identify(cluster: FakeCluster, row: Tree) -> None:
    """Give the object of a row the uid and resourceVersion that the recording had."""
    path = row.get("path", "")
    place = cluster.kinds.place(path.partition("?")[0]) if path else None
    payload: Json = row.get("body")
    if place is None and " -p " in row.get("kubectl", ""):
        name = row["kubectl"].split()[2]
        place = Place(POD if " pod " in row["kubectl"] else CLAIM, "default", name, "")
        payload = json.loads(row["kubectl"].split(" -p ", 1)[1])
    if place is None and (found := re.search(r"/pods/([\w-]+)/binding", row.get("kubectl", ""))):
        place = Place(POD, "default", found[1], "")
    for holder in _holders(row):
        _rename(cluster, Place(POD, "default", holder["name"], ""), holder["uid"])
    if place is not None and place.kind == BINDING and payload is not None:
        place = Place(POD, place.namespace, payload["metadata"]["name"], "")
    if place is None or not place.name:
        return
    old = cluster.store.get(place.kind, place.namespace, place.name)
    if old is None:
        return
    uid, version = _hints(row, payload)
    if uid:
        _rename(cluster, place, uid)
    if version:
        cluster.store.revision = int(version) - 1
        current = cluster.store.get(place.kind, place.namespace, place.name)
        assert current is not None
        cluster.store.keep(place.kind, current, manager="recording")


def _holders(row: Tree) -> list[Tree]:
    """Pods that a row reserves a claim for, and that were there."""
    body = row.get("body")
    command, _, payload = row.get("kubectl", "").partition(" -p ")
    if payload and "resourceclaim" in command:
        body = json.loads(payload)
    status = body.get("status") if isinstance(body, dict) else None
    found = (status or {}).get("reservedFor") or []
    return [one for one in found if "-" in one["uid"] and not one["uid"].startswith("00000000")]


def _rename(cluster: FakeCluster, place: Place, uid: str) -> None:
    old = cluster.store.get(place.kind, place.namespace, place.name)
    if old is not None and old["metadata"]["uid"] != uid:
        metadata = old["metadata"] | {"uid": uid}
        cluster.store.keep(place.kind, old | {"metadata": metadata}, manager="recording")


def _hints(row: Tree, payload: Json) -> tuple[str | None, str | None]:
    """(uid, resourceVersion) the object had before the row, as far as the row tells."""
    done = row.get("status", 500) < 300 or row.get("exit") == 0
    words = json.dumps(row.get("response", "")) + row.get("stderr", "")
    uid = _first(_UID, words)
    version = _first(_VERSION, words)
    if not done:
        if isinstance(payload, dict) and "object has been modified" in words:
            uid = (payload.get("metadata") or {}).get("uid") or uid
        if isinstance(payload, dict) and "metadata.uid: Invalid value" in words:
            version = (payload.get("metadata") or {}).get("resourceVersion")
        return uid, version
    answer = row.get("response") or {}
    uid = (answer.get("metadata") or {}).get("uid") or uid
    if isinstance(payload, dict):
        metadata = payload.get("metadata") or {}
        return metadata.get("uid") or uid, metadata.get("resourceVersion")
    if isinstance(payload, list):
        tests = {one["path"]: one["value"] for one in payload if one["op"] == "test"}
        return tests.get("/metadata/uid") or uid, tests.get("/metadata/resourceVersion")
    return uid, None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return next((group for group in found.groups() if group), None) if found else None
