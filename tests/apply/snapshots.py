"""What tests of ``gangplan snapshot`` share: the real kubectl, a served cluster, the files written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver_http import serving
from apiserver_recorded import RecordedServer
from conftest import Result, RunCli
from kube import parsed

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
        return self.cli(
            "snapshot",
            "--out",
            str(self.out),
            *options,
            environ=environment(self.folder, **environ),
        )

    def litter(self) -> list[str]:
        """What stands beside ``out`` that was not there before."""
        return sorted(entry.name for entry in self.folder.iterdir() if entry.name.startswith("out"))


@contextmanager
def cluster(server: RecordedServer, folder: Path, cli: RunCli) -> Iterator[Cluster]:
    """Serve it while the block runs."""
    with serving(server, folder, tls=False) as endpoint:
        yield Cluster(server, folder, endpoint.url, cli)


def small() -> RecordedServer:
    """Two nodes, three pods, the namespace: enough where it is about what goes wrong."""
    server = RecordedServer()
    meta = {"resourceVersion": "1"}
    server.add("nodes", _list("Node", [{"metadata": {"name": f"n{i}", **meta}} for i in (1, 2)]))
    server.add(
        "pods", _list("Pod", [_pod(f"p{i}", "team-a" if i < 3 else "team-b") for i in (1, 2, 3)])
    )
    uid = {"name": "kube-system", "uid": "11111111-2222-3333-4444-555555555555"}
    server.add("namespaces", _list("Namespace", [{"metadata": uid}]))
    return server


def _list(kind: str, items: list[Tree], version: str = "v1") -> Tree:
    return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}


def _pod(name: str, namespace: str) -> Tree:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    }


def more(kind: str, plural: str, version: str, *names: str) -> tuple[str, Tree]:
    """A list of objects that have names in team-a and nothing else; for ``RecordedServer.add``."""
    items = [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "namespace": "team-a"},
            "spec": {},
        }
        for name in names
    ]
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
