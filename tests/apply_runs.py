"""Plans of a fake cluster, and the verbs that apply them, run in this process without a socket.

Promises: the program is the real one from its command line on; only the proxy is replaced by a wire into
the fake cluster. Used by tests/test_apply_*.py and tests/test_diff_*.py.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster
from fake_wire import FakeWire

from planner.cli import run
from planner.console import Console

Tree = dict[str, Any]

OWN = ("example.com/ours", "yes", "NoSchedule")
"""Taint that keeps other schedulers' pods off a node."""

TOLERATE = [{"key": OWN[0], "operator": "Exists"}]

_PARTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "identity": "/api/v1/namespaces/kube-system",
    "jobs": "/apis/batch/v1/jobs",
    "sets": "/apis/apps/v1/statefulsets",
}


@dataclass(slots=True)
class Said:
    """What one run of the program said. ``events``: JSON log lines, where it was asked for them."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Tree]:
        return [json.loads(line) for line in self.err.splitlines()]

    def data(self) -> Any:  # noqa: ANN401  # whatever JSON holds
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


class Keyboard(io.BytesIO):
    """A stdin with somebody at it."""

    def isatty(self) -> bool:
        return True


@dataclass(slots=True)
class Bench:
    """A cluster, a folder for plans, and the program. ``opened``: arguments of every proxy opened."""

    cluster: FakeCluster
    folder: Path
    user: str | None = None
    opened: list[Mapping[str, Any]] = field(default_factory=list)

    def plan(self, *more: str, policy: Tree | None = None, name: str = "plan.json") -> Path:
        """A plan of the cluster as it is."""
        source = self.folder / f"{name}.read"
        source.mkdir(exist_ok=True)
        for part, path in _PARTS.items():
            code, tree, _ = self.cluster.handle("GET", path)
            assert code == 200, (path, tree)
            (source / f"{part}.json").write_text(json.dumps(tree), encoding="utf-8")
        if policy is not None:
            document = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": policy}
            (source / "policy.json").write_text(json.dumps(document), encoding="utf-8")
        path = self.folder / name
        said = self.run("plan", str(source), "--out", str(path), *more)
        assert said.code == 0, said.err
        self.cluster.calls.clear()
        return path

    def run(self, *words: str, answers: bytes | None = None) -> Said:
        """The program; ``answers``: what is typed at a terminal, None where there is no terminal."""
        out = io.StringIO()
        err, stdin = (
            (Terminal(), Keyboard(answers))
            if answers is not None
            else (io.StringIO(), io.BytesIO())
        )
        environ = {"USER": "tester", "TERM": "xterm"}
        code = run(list(words), Console(stdout=out, stderr=err, stdin=stdin, environ=environ))
        return Said(code, out.getvalue(), err.getvalue())

    def apply(self, plan: Path, *more: str, **how: Any) -> Said:
        """``apply --yes``, waiting for nothing."""
        return self.run("apply", str(plan), "--yes", "--wait", "0s", *more, **how)

    def bound(self) -> dict[str, str | None]:
        """Where each pod is."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.cluster.pods()}

    def written(self) -> list[tuple[str, str]]:
        """(method, path) of the writes so far, those of the lock left out."""
        return [
            (call.method, call.path) for call in self.cluster.writes if "/leases" not in call.path
        ]


@contextlib.contextmanager
def bench(cluster: FakeCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The program's way to the cluster, replaced."""
    made = Bench(cluster, folder)

    @contextlib.contextmanager
    def opened(environ: Mapping[str, str], **given: Any) -> Iterator[FakeWire]:
        del environ
        made.opened.append(given)
        yield FakeWire(cluster, made.user)

    with monkeypatch.context() as patched:
        patched.setattr("planner.cluster.proxy.opened", opened)
        yield made


def a_cluster(
    *, mode: str = "gate", gangs: Sequence[tuple[str, int, int]] = (("a", 2, 8), ("b", 2, 4))
) -> FakeCluster:
    """Three nodes of 8 GPUs kept for us, and gangs of (name, pods, GPUs a pod) that wait."""
    cluster = FakeCluster()
    for number in (1, 2, 3):
        cluster.add_node(f"n{number}", taints=[OWN])
    for name, size, gpus in gangs:
        cluster.gang_of_pods(name, size, gpus=gpus, mode=mode, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    return cluster
