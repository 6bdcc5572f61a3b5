"""Recorded exchanges with a real API server, replayed against the fake one, and what differs.

Promises: rows are played in the order they were recorded, on a cluster that holds what the recording
had; uids and resourceVersions are made those of the recording before each row. Called by
``test_fake_transcripts*``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fake_cluster import FakeCluster
from fake_http import Endpoint
from fake_kinds import CLAIM, POD, Place
from fake_trees import Json, Tree

TRANSCRIPTS = Path(__file__).parent / "data" / "kube_api" / "transcripts.jsonl"

_UID = re.compile(r"UID in object meta: ([0-9a-f-]+)")
_VERSION = re.compile(r"ResourceVersion in object meta: (\d+)|ResourceVersion in record \((\d+)\)")
_FREE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_TIMES = ("lastTransitionTime", "lastProbeTime", "observedGeneration", "allocationTimestamp")


@lru_cache(maxsize=1)
def rows() -> tuple[Tree, ...]:
    """All lines; the first is about the recording."""
    text = TRANSCRIPTS.read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


Happening = Callable[[FakeCluster], object]
Look = Callable[[FakeCluster, Tree], list[str]]
"""How what the fake cluster shows differs from what the row observed."""


@dataclass(slots=True)
class Scene:
    """Rows that were recorded one after another. ``cluster``: as it was before the first.

    ``before``: what happened between the rows, by the number of the row that comes next.
    ``files``: bodies that kubectl read from a file. ``user``: token whose kubeconfig is used.
    ``looks``: for rows that only observe: what to compare with what was seen.
    """

    numbers: tuple[int, ...]
    cluster: Callable[[], FakeCluster]
    before: Mapping[int, Happening] = field(default_factory=dict)
    files: Mapping[int, Tree] = field(default_factory=dict)
    looks: Mapping[int, Look] = field(default_factory=dict)

    def play(
        self, kubectl: Callable[[FakeCluster, Tree, Tree | None], list[str]] | None = None
    ) -> dict[int, list[str]]:
        """Differences by row number; an empty list where there are none.

        ``kubectl``: plays a row of kubectl; without it those are left to ``carried``.
        """
        cluster = self.cluster()
        found: dict[int, list[str]] = {}
        for number in self.numbers:
            row = rows()[number]
            if number in self.before:
                self.before[number](cluster)
                cluster.settle()
            identify(cluster, row)
            if number in self.looks:
                found[number] = self.looks[number](cluster, row)
            elif "path" in row:
                found[number] = asked(cluster, row)
            else:
                assert kubectl is not None, f"row {number} needs kubectl"
                found[number] = kubectl(cluster, row, self.files.get(number))
        return found


def asked(cluster: FakeCluster, row: Tree) -> list[str]:
    """Send the request of a row; how the answer differs."""
    body = json.loads(json.dumps(row.get("body")))
    kind = row.get("contentType", "application/json")
    code, tree, _ = cluster.handle(row["method"], row["path"], body, kind)
    found = [] if code == row["status"] else [f"status {code}, recorded {row['status']}"]
    return found + differences(tree, row["response"])


def differences(ours: Json, recorded: Json) -> list[str]:
    """Where two answers differ in more than names and times that a server makes up."""
    left, right = _plain(ours), _plain(recorded)
    return list(_compared("", left, right))


def identify(cluster: FakeCluster, row: Tree) -> None:
    """Give the object of a row the uid and resourceVersion that the recording had."""
    path = row.get("path", "")
    place = cluster.kinds.place(path.partition("?")[0]) if path else None
    payload = row.get("body")
    if place is None and " -p " in row.get("kubectl", ""):
        name = row["kubectl"].split()[2]
        place = Place(POD if " pod " in row["kubectl"] else CLAIM, "default", name, "")
        payload = json.loads(row["kubectl"].split(" -p ", 1)[1])
    if place is None and (found := re.search(r"/pods/([\w-]+)/binding", row.get("kubectl", ""))):
        place = Place(POD, "default", found[1], "")
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


def _rename(cluster: FakeCluster, place: Place, uid: str) -> None:
    old = cluster.store.get(place.kind, place.namespace, place.name)
    assert old is not None
    if old["metadata"]["uid"] != uid:
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


def _plain(tree: Json) -> Json:
    """Without what a server makes up, and without its diffs of Go structures."""
    if isinstance(tree, dict):
        return {
            key: _plain(value)
            for key, value in tree.items()
            if key not in _FREE and key not in _TIMES and value not in ({}, [], None)
        }
    if isinstance(tree, list):
        return [_plain(one) for one in tree]
    if isinstance(tree, str):
        return re.split(r"\n(?:@@|[-+] \w+: )", tree)[0]
    return tree


def _compared(where: str, ours: Json, recorded: Json) -> list[str]:
    if isinstance(ours, dict) and isinstance(recorded, dict):
        found = []
        for key in sorted(ours.keys() | recorded.keys()):
            if key not in ours:
                found.append(f"{where}.{key}: missing, recorded {recorded[key]!r}")
            elif key not in recorded:
                found.append(f"{where}.{key}: {ours[key]!r}, not recorded")
            else:
                found += _compared(f"{where}.{key}", ours[key], recorded[key])
        return found
    if isinstance(ours, list) and isinstance(recorded, list) and len(ours) == len(recorded):
        return [
            line
            for index, (a, b) in enumerate(zip(ours, recorded, strict=True))
            for line in _compared(f"{where}[{index}]", a, b)
        ]
    return [] if ours == recorded else [f"{where}: {ours!r}, recorded {recorded!r}"]


# ---- kubectl


def carried(
    cluster: FakeCluster, row: Tree, file: Tree | None, endpoint: Endpoint, token: str | None
) -> list[str]:
    """Run the kubectl of a row; how its exit code and its words differ."""
    kubeconfig = endpoint.kubeconfig if token is None else endpoint.as_user(token)
    stdin = row.get("stdin")
    sent = stdin if isinstance(stdin, str) else json.dumps(stdin)
    arguments = _arguments(row["kubectl"])
    if file is not None:
        path = endpoint.folder / "body.json"
        path.write_text(json.dumps(file), encoding="utf-8")
        arguments = [str(path) if one in ("b.json", "d.json") else one for one in arguments]
    done = subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={kubeconfig}", *arguments],
        input=sent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "KUBERC": "off"},
    )
    found = (
        []
        if done.returncode == row["exit"]
        else [f"exit {done.returncode}, recorded {row['exit']}"]
    )
    return (
        found
        + _talk(done.stdout, row["stdout"], "stdout")
        + _talk(done.stderr, row["stderr"], "stderr")
    )


def _arguments(command: str) -> list[str]:
    head, dash, payload = command.partition(" -p ")
    return [*head.split(), *(["-p", payload] if dash else [])]


def _talk(ours: str, recorded: str, where: str) -> list[str]:
    a, b = _words(ours), _words(recorded)
    if a == b:
        return []
    return [f"{where}: {a!r}, recorded {b!r}"]


def _words(text: str) -> Json:
    """What kubectl says, less what a server makes up; documents as trees."""
    text = text.strip()
    if text.startswith("{"):
        try:
            return _plain(json.loads(text))
        except ValueError:
            pass
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("Warning: ")]
    return re.sub(r"\n(?:@@|[-+] \w+: )[\s\S]*$", "", "\n".join(lines))
