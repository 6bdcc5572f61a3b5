"""Recorded exchanges with a real API server, replayed against the test server, and how the answers differ."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from apiserver import FakeCluster
from apiserver_http import Endpoint, serving
from apiserver_kinds import BINDING, CLAIM, POD, Json, Place, RequestInfo, Tree
from effort import HANG_S

TRANSCRIPTS = Path(__file__).parents[1] / "data" / "kube_api" / "transcripts.jsonl"

_FREE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_TIMES = ("lastTransitionTime", "lastProbeTime", "observedGeneration", "allocationTimestamp")


@lru_cache(maxsize=1)
def rows() -> tuple[Tree, ...]:
    """All lines; the first is about the recording."""
    text = TRANSCRIPTS.read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


def differences(ours: Json, recorded: Json) -> list[str]:
    """Where two answers differ in more than names and times that a server makes up."""
    left, right = plain(ours), plain(recorded)
    return list(_compared("", left, right))


def plain(tree: Json) -> Json:
    """Without what a server makes up, and without its diffs of Go structures."""
    if isinstance(tree, dict):
        if "causes" in tree:  # the real server says each as often as it looks
            tree = tree | {"causes": list({str(one): one for one in tree["causes"]}.values())}
        return {
            key: plain(value) if key != "deletionTimestamp" else "set"
            for key, value in tree.items()
            if key not in _FREE and key not in _TIMES and value not in ({}, [], None)
        }
    if isinstance(tree, list):
        return [plain(one) for one in tree]
    if isinstance(tree, str):
        tree = re.split(r"\n(?:@@|[-+] \w+: )", tree)[0]
        return re.sub(r"Invalid value: \{.*\}: field is", "Invalid value: {}: field is", tree)
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


@lru_cache(maxsize=1)
def minor() -> int:
    """The minor version of the kubectl that is used: 32 of v1.32.4."""
    done = subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), "version", "--client", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return int(re.sub(r"\D.*$", "", json.loads(done.stdout)["clientVersion"]["minor"]))


def comparable(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The rows that this kubectl should do and say as the one that was recorded (1.32) did."""
    return tuple(one for one in numbers if minor() in WORDED.get(one, range(20, 100)))


_NEWER = range(27, 100)
"""kubectl before 1.27 asks discovery for other things, and says some things otherwise."""

WORDED = {83: range(27, 33)} | dict.fromkeys(
    [
        *(19, 24, 29, 34, 39, 50, 55, 60, 73, 79, 80, 81, 82, 127, 130, 188, 282, 304, 306, 309),
        *(316, 317, 318, 319, 336, 423, 424, 426, 427, 428, 429, 430, 431, 432),
    ],
    _NEWER,
)
"""Rows whose kubectl does or says something else in other versions."""


def carried(row: Tree, file: Json, endpoint: Endpoint) -> list[str]:
    """Run the kubectl of a row; how its exit code and its words differ."""
    done = _run(row, row.get("stdin") if file is None else file, endpoint)
    found = []
    if done.returncode != row["exit"]:
        found.append(f"exit {done.returncode}, recorded {row['exit']}: {done.stderr}")
    found += _talk(done.stdout, row["stdout"], "stdout")
    return found + _talk(done.stderr, row["stderr"], "stderr")


def sent(cluster: FakeCluster, row: Tree, body: Json, endpoint: Endpoint) -> list[str]:
    """Run the kubectl of a row; how the requests it sends differ, discovery left out."""
    start = len(cluster.calls)
    done = _run(row, body, endpoint)
    made = []
    for call in cluster.calls[start:]:
        if call.place is None:
            continue
        query = "&".join(f"{key}={value}" for key, value in sorted(call.query.items()))
        assert call.answer is not None
        made.append(f"{call.method} {call.path}{'?' if query else ''}{query} {call.answer[0]}")
    wanted = [re.sub(r" [A-Z][A-Za-z ]*$", "", line) for line in row["requests"]]
    found = [] if done.returncode == row["exit"] else [f"exit {done.returncode}: {done.stderr}"]
    return found + ([] if made == wanted else [f"sent {made}, recorded {wanted}"])


def _run(row: Tree, body: Json, endpoint: Endpoint) -> subprocess.CompletedProcess[str]:
    account = "[as the planner service account]" in row["note"]
    kubeconfig = endpoint.as_user("planner") if account else endpoint.kubeconfig
    path = endpoint.folder / "body.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    arguments = [
        str(path) if one in ("b.json", "d.json") else one for one in _arguments(row["kubectl"])
    ]
    return subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={kubeconfig}", *arguments],
        input=body if isinstance(body, str) else json.dumps(body),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env=endpoint.environ(os.environ),
    )


def patched_status(cluster: FakeCluster, row: Tree) -> list[str]:
    """What ``kubectl patch resourceclaim NAME --subresource=status --type=merge`` sends."""
    name, payload = row["kubectl"].split()[2], row["kubectl"].split(" -p ", 1)[1]
    path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}/status"
    kind = "application/merge-patch+json"
    user = cluster.tokens["planner"].name if "service account" in row["note"] else None
    code, _, _ = cluster.handle("PATCH", path, json.loads(payload), kind, user)
    return [] if (code < 300) is (row["exit"] == 0) else [f"status {code}"]


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
            return plain(json.loads(text))
        except ValueError:
            pass
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("Warning: ")]
    return re.sub(r"\n(?:@@|[-+] \w+: )[\s\S]*$", "", "\n".join(lines))


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
        if "--subresource=status" in row["kubectl"] and minor() < 24:
            return patched_status(cluster, row)  # kubectl cannot; later rows build on it
        if "requests" in row:
            return sent(cluster, row, self.files.get(number), endpoint)
        return carried(row, self._file(number), endpoint)

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


GATE = "plan.example/gate"
POOL_TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}


def pod(cluster: FakeCluster, name: str, *, gpus: str = "1", **spec: Json) -> Tree:
    """A pod as the recording used them; ``spec``: more fields, ``gates``: names of gates."""
    gates = spec.pop("gates", ())
    labels = spec.pop("labels", {})
    annotations = spec.pop("annotations", {})
    finalizers = spec.pop("finalizers", ())
    limits = {"nvidia.com/gpu": gpus, "cpu": "1", "memory": "1Gi"}
    metadata: Tree = {"name": name}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if finalizers:
        metadata["finalizers"] = finalizers
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    tree = {
        "metadata": metadata,
        "spec": {
            "schedulerName": "planner",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "img", "resources": {"limits": limits}}],
            **spec,
        },
    }
    made = cluster.objects.create(Place(POD, "default", "", ""), tree, RequestInfo())
    cluster.settle()
    return made


def required(*terms: Tree) -> Tree:
    """An affinity to nodes that these terms select."""
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def cluster_of(
    pods: Mapping[str, Mapping[str, Json]],
    *,
    nodes: Callable[[FakeCluster], object] | None = None,
    **how: Json,
) -> Callable[[], FakeCluster]:
    """Makes a cluster of two nodes of 8 GPUs (or of ``nodes``) with these pods."""

    def made() -> FakeCluster:
        cluster = FakeCluster(**how)
        if nodes is None:
            cluster.add_node("n1", cpu="16", memory="64Gi")
            cluster.add_node("n2", cpu="16", memory="64Gi")
        else:
            nodes(cluster)
        for name, fields in pods.items():
            pod(cluster, name, **fields)
        return cluster

    return made


def names(stem: str, *numbers: int | str) -> dict[str, dict[str, Json]]:
    return {f"{stem}{number}": {} for number in numbers}


def again(name: str, **fields: Json) -> Callable[[FakeCluster], object]:
    """The pod of that name is deleted, if it is there, and made anew."""

    def happens(cluster: FakeCluster) -> None:
        if cluster.store.get(POD, "default", name) is not None:
            cluster.remove(POD, name)
        pod(cluster, name, **fields)

    return happens


def all_of(*happen: Callable[[FakeCluster], object]) -> Callable[[FakeCluster], object]:
    def happens(cluster: FakeCluster) -> None:
        for one in happen:
            one(cluster)

    return happens


def binding(name: str, node: str = "n1", **metadata: Json) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
