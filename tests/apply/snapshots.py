"""What tests of ``gangplan snapshot`` share: the real kubectl, a served cluster, the files written."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire, RawAnswer, serving
from apiserver_kinds import ApiError, Kind, Kinds, Place, denied
from apiserver_objects import page
from conftest import Result, RunCli
from effort import HANG_S
from kube import SNAPSHOTS, parsed

from planner.read.kube.records import Objects

Tree = dict[str, Any]


def real_kubectl() -> str:
    """The kubectl of $KUBECTL or PATH, or the one that ``make test`` fetched."""
    fetched = Path(__file__).parents[2] / ".venv" / "kubectl" / "usr" / "bin" / "kubectl"
    found = shutil.which(os.environ.get("KUBECTL") or "kubectl") or shutil.which(str(fetched))
    assert found is not None, "these tests need kubectl: `make test` fetches one (.ci/kubectl)"
    return found


def environment(home: Path, **more: str) -> dict[str, str]:
    """An environment in which nothing of the user's own kubectl configuration shows."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "KUBECTL": real_kubectl(),
        "KUBECONFIG": str(home / "kubeconfig"),
        **more,
    }


def script(path: Path, text: str) -> Path:
    """A program of that text."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def descendants(pid: int) -> list[int]:
    """Processes that it started, and those that these did."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{one}/task").glob("*/children"):
                found += map(int, path.read_text().split())
    return found[1:]


def living(pids: Iterable[int]) -> dict[int, str]:
    """Command lines of those that still run; ended ones that nobody has waited for do not."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            found |= {pid: words} if words else {}
    return found


def comes_true(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + HANG_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


# ---- recorded objects, and answers that go wrong


def recorded(path: Path) -> Tree:
    """A recorded list, packed or not."""
    raw = path.read_bytes()
    tree: Tree = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return tree


def status(code: int, reason: str, message: str) -> RawAnswer:
    """A failure as the API server words it."""
    return RawAnswer(code, json.dumps(ApiError(code, message, reason=reason).tree()).encode())


def forbidden(verb: str, resource: str) -> RawAnswer:
    plural, _, group = resource.partition(".")
    error = denied("tester", verb, Place(Kind("", plural, group)))
    return status(403, error.reason, error.message)


class RecordedServer(FakeCluster):
    """Serves lists as they were recorded, and nothing else. ``lists``: their objects, by plural.group."""

    def __init__(self) -> None:
        super().__init__(clock=time.time)
        self.kinds = Kinds(())
        self.lists: dict[str, list[Tree]] = {}

    @classmethod
    def of(cls, snapshot: str) -> RecordedServer:
        """Serves a recorded snapshot."""
        found = cls()
        for path in sorted((SNAPSHOTS / snapshot).glob("*.json*")):
            found.add(path.name.partition(".")[0], recorded(path))
        return found

    def add(self, plural: str, tree: Tree) -> None:
        group, _, version = tree["apiVersion"].rpartition("/")
        namespaced = any("namespace" in item["metadata"] for item in tree["items"])
        name = tree["kind"].removesuffix("List")
        kind = Kind(name, plural, group, version, namespaced, custom=True)
        self.kinds.serve(kind)
        self.lists[kind.resource] = tree["items"]

    def fail(
        self, path: str, *answers: RawAnswer, when: Callable[[Call], bool] = lambda _: True
    ) -> None:
        """Answer the first requests for the path so, the later ones as usual."""
        left = list(answers)

        def hook(call: Call) -> Answer | None:
            return left.pop(0).answer() if call.path == path and left and when(call) else None

        self.before.append(hook)

    def refuse(self, path: str, answer: RawAnswer) -> None:
        """Answer every request for the path so."""
        self.before.append(lambda call: answer.answer() if call.path == path else None)

    def asked(self, path: str) -> list[dict[str, str]]:
        """Queries of the requests for the path."""
        return [call.query for call in self.calls if call.path == path]

    def _read(self, call: Call) -> Tree:
        assert call.place is not None
        place = call.place
        items, space = self.lists[place.kind.resource], place.namespace
        items = [one for one in items if not space or one["metadata"]["namespace"] == space]
        if not place.name:
            return page(place.kind, items, call.query, "4711")
        for one in items:
            if one["metadata"]["name"] == place.name:
                return {"kind": place.kind.name, "apiVersion": place.kind.api_version} | one
        raise ApiError(404, "not found", place.kind, place.name)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is being served, and the command line that records it into ``out``."""

    server: RecordedServer
    folder: Path
    url: str
    cli: RunCli

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def snapshot(self, *options: str, **environ: str) -> Result:
        environ = environment(self.folder, **environ)
        return self.cli("snapshot", "--out", str(self.out), *options, environ=environ)

    def litter(self) -> list[str]:
        """What stands beside ``out`` that was not there before."""
        return sorted(entry.name for entry in self.folder.iterdir() if entry.name.startswith("out"))


@contextmanager
def cluster(server: RecordedServer, folder: Path, cli: RunCli) -> Iterator[Cluster]:
    """Serve it while the block runs."""
    with serving(server, folder, tls=False) as endpoint:
        yield Cluster(server, folder, endpoint.url, cli)


@contextmanager
def in_memory(server: RecordedServer, folder: Path, cli: RunCli) -> Iterator[Cluster]:
    """The same without kubectl and sockets."""

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeWire]:
        yield FakeWire(server)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.cluster.proxy.connect", opened)
        yield Cluster(server, folder, "", cli)


def small() -> RecordedServer:
    """Two nodes, three pods, the namespace: enough where it is about what goes wrong."""
    server = RecordedServer()
    server.add("nodes", _list("Node", [{"metadata": {"name": name}} for name in ("n1", "n2")]))
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    pods = [
        {
            "metadata": {"name": name, "namespace": space, "uid": f"uid-{name}"},
            "spec": requests,
            "status": {"phase": "Pending"},
        }
        for name, space in (("p1", "team-a"), ("p2", "team-a"), ("p3", "team-b"))
    ]
    server.add("pods", _list("Pod", pods))
    uid = {"name": "kube-system", "uid": "11111111-2222-3333-4444-555555555555"}
    server.add("namespaces", _list("Namespace", [{"metadata": uid}]))
    return server


def _list(kind: str, items: list[Tree], version: str = "v1") -> Tree:
    return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}


def more(kind: str, plural: str, version: str, *names: str) -> tuple[str, Tree]:
    """A list of objects that have names in team-a and nothing else; for ``RecordedServer.add``."""
    api = {"apiVersion": version, "kind": kind, "spec": {}}
    items = [api | {"metadata": {"name": name, "namespace": "team-a"}} for name in names]
    return plural, _list(kind, items, version)


def files(folder: Path) -> dict[str, Tree]:
    """Every file of a snapshot, parsed."""
    return {path.name: json.loads(path.read_bytes()) for path in sorted(folder.iterdir())}


def objects_of(lists: list[Tree]) -> Objects:
    """Objects of lists as a server or a snapshot holds them."""
    found = Objects()
    for tree in lists:
        kind, version = tree["kind"].removesuffix("List"), tree["apiVersion"]
        for item in tree["items"]:
            assert found.add(parsed({"kind": kind, "apiVersion": version, **item}))
    return found
