"""Plans of a fake cluster and the verbs that apply them, in this process without a socket.

The program is the real one; only the proxy is replaced by a transport into the fake cluster.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster, Hook
from apiserver_http import FakeWire
from apiserver_kinds import ApiError
from effort import examples

from planner import errors
from planner.cli.app import run
from planner.cluster.lock import Lock
from planner.cluster.retry import RetryingTransport
from planner.cluster.transport import Transport
from planner.show.console import Console

Tree = dict[str, Any]

OWN = ("example.com/ours", "yes", "NoSchedule")
"""Taint that keeps other schedulers' pods off a node."""

TOLERATE = [{"key": OWN[0], "operator": "Exists"}]

_RECORDED = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "identity": "/api/v1/namespaces/kube-system",
    "jobs": "/apis/batch/v1/jobs",
    "sets": "/apis/apps/v1/replicasets",
    "stateful": "/apis/apps/v1/statefulsets",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
}


_PLANNED: dict[str, bytes] = {}


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


class Hasty(RetryingTransport):
    """Asks again at once."""

    def __init__(
        self,
        wire: Transport,
        sleep: object = None,
        lock: Lock | None = None,
    ) -> None:
        del sleep
        super().__init__(wire, sleep=lambda _: None, lock=lock)


class Crash(BaseException):
    """The process is gone: nothing of it may go on."""


@dataclass(slots=True)
class Fault:
    """Meddles with the ``at``-th write to a pod, or with the ``at``-th request of any kind.

    ``kind``: ``crash before`` and ``crash after`` the server carries it out, ``lost before`` and ``lost
    after``, or the status to answer instead. ``struck``: whether it came to that.
    """

    at: int
    kind: str | int
    every: bool = False
    seen: int = 0
    struck: bool = False
    dead: bool = False

    def before(self, call: Call) -> Answer | None:
        if self.dead:
            raise Crash
        if not (self.every or (call.writes and "/pods/" in call.path)):
            return None
        self.seen += 1
        if self.seen - 1 != self.at:
            return None
        self.struck = True
        match self.kind:
            case "crash before":
                self.dead = True
                raise Crash
            case "lost before":
                return LOST
            case int(status):
                return status, _status(status), {}
        return None

    def after(self, call: Call) -> Answer | None:
        if not self.struck or self.seen - 1 != self.at or self.dead:
            return None
        self.seen += 1
        match self.kind:
            case "crash after":
                self.dead = True
                raise Crash
            case "lost after":
                return LOST
        return None


@contextlib.contextmanager
def cut(cluster: FakeCluster, fault: Fault) -> Iterator[None]:
    """A run that the fault may kill; afterwards its lock has ended."""
    cluster.before.append(fault.before)
    cluster.after.append(fault.after)
    with contextlib.suppress(Crash):
        yield
    assert fault.struck, fault.at
    cluster.before.clear()
    cluster.after.clear()
    cluster.advance(120)


def cuts(calls: Sequence[Call], begin: int, step: int) -> list[int]:
    """Numbers of requests to cut a run at: all that write objects; as a sample, one of each few kinds.

    A kind: resource, and which fields and annotations are written. ``begin``: which of each ``step`` kinds.
    """
    kinds: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        found = re.search(r"/namespaces/[^/]+/(?!leases)(\w+)/[^/]+(/\w+)?$", call.path)
        if call.writes and found is not None:
            body = call.body or {}
            notes = (body.get("metadata") or {}).get("annotations") or {}
            kind = (*found.groups(), *sorted(body), *sorted(body.get("spec") or {}), *sorted(notes))
            kinds.setdefault(str(kind), []).append(number)
    if examples(1, 0):
        return sorted(number for numbers in kinds.values() for number in numbers)
    return [numbers[len(numbers) // 2] for numbers in kinds.values()][begin % step :: step]


def refusing(end: str, status: int, message: str, having: str = "") -> Hook:
    """Answers patches of the pod whose path ends so with this status, where ``having`` is in the body."""

    def hook(call: Call) -> Answer | None:
        if call.method == "PATCH" and call.path.endswith(end) and having in str(call.body):
            return status, {**_status(status), "message": message}, {}
        return None

    return hook


def _status(status: int) -> Tree:
    return ApiError(status, f"a test answers {status}").tree()


def record(cluster: FakeCluster, place: Path) -> None:
    """Write the lists of a snapshot, read straight from the cluster."""
    for name, path in _RECORDED.items():
        code, tree, _ = cluster.handle("GET", path)
        if code != 200:
            raise errors.UnavailableError(errors.Fault(f"GET {path}: HTTP {code}"))
        (place / f"{name}.json").write_text(json.dumps(tree), encoding="utf-8")


@dataclass(slots=True)
class Bench:
    """A cluster, a folder for plans, and the program. ``opened``: arguments of every proxy opened."""

    cluster: FakeCluster
    folder: Path
    user: str | None = None
    opened: list[Mapping[str, Any]] = field(default_factory=list)

    def plan(self, *more: str, policy: Tree | None = None, name: str = "plan.json") -> Path:
        """A plan of the cluster as it is; one that was made of the same lists before is taken again."""
        source = self.folder / f"{name}.read"
        source.mkdir(exist_ok=True)
        record(self.cluster, source)
        if policy is not None:
            document = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": policy}
            (source / "policy.json").write_text(json.dumps(document), encoding="utf-8")
        path = self.folder / name
        key = str((name, more, [(one.name, one.read_bytes()) for one in sorted(source.iterdir())]))
        if key not in _PLANNED:
            said = self.run("plan", str(source), "--out", str(path), *more)
            assert said.code == 0, said.err
            _PLANNED[key] = path.read_bytes()
        path.write_bytes(_PLANNED[key])
        self.cluster.calls.clear()
        return path

    def run(self, *words: str, answers: bytes | None = None, **environ: str) -> Said:
        """The program; ``answers``: what is typed at a terminal, None where there is no terminal."""
        out = io.StringIO()
        err, stdin = (
            (Terminal(), Keyboard(answers))
            if answers is not None
            else (io.StringIO(), io.BytesIO())
        )
        environ = {"USER": "tester", "TERM": "xterm", **environ}
        code = run(list(words), Console(stdout=out, stderr=err, stdin=stdin, environ=environ))
        return Said(code, out.getvalue(), err.getvalue())

    def apply(self, plan: Path, *more: str) -> Said:
        """``apply --yes``, waiting for nothing."""
        return self.run("apply", str(plan), "--yes", "--wait", "0s", *more)

    def outcomes(self, plan: Path, *more: str) -> tuple[int, dict[str, str]]:
        """The exit code of an apply, and what became of each gang."""
        said = self.apply(plan, "-o", "json", *more)
        return said.code, {gang["name"]: gang["outcome"] for gang in said.data()["gangs"]}

    def bound(self) -> dict[str, str | None]:
        """Where each pod is."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.cluster.pods()}

    def written(self) -> list[tuple[str, str]]:
        """(method, path) of the writes so far, those of the lock left out."""
        return [
            (call.method, call.path) for call in self.cluster.writes if "/leases" not in call.path
        ]


OnCluster = Callable[[FakeCluster], Bench]
"""The program on a cluster: see apply_fixtures."""


@contextlib.contextmanager
def bench(cluster: FakeCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The program's way to the cluster, replaced."""
    made = Bench(cluster, folder)

    @contextlib.contextmanager
    def opened(environ: Mapping[str, str], **given: object) -> Iterator[FakeWire]:
        del environ
        made.opened.append(given)
        yield FakeWire(cluster, made.user)

    with monkeypatch.context() as patched:
        patched.setattr("planner.cluster.proxy.connect", opened)
        patched.setattr("planner.cluster.retry.RetryingTransport", Hasty)
        patched.setattr("planner.pipelines.apply.TICK_S", 0.001)
        yield made


def a_cluster(*, gangs: Sequence[tuple[str, int, int]] = (("a", 2, 8), ("b", 2, 4))) -> FakeCluster:
    """Three nodes of 8 GPUs kept for us, and gangs of (name, pods, GPUs a pod) that wait."""
    cluster = FakeCluster()
    for number in (1, 2, 3):
        cluster.add_node(f"n{number}", taints=[OWN])
    for name, size, gpus in gangs:
        cluster.gang_of_pods(name, size, gpus=gpus, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    return cluster


def placed(plan: Path) -> dict[str, str]:
    """Pod to node, as the plan says."""
    gangs = json.loads(plan.read_text(encoding="utf-8"))["spec"]["gangs"]
    return {pod["name"]: pod["node"] for gang in gangs for pod in gang["pods"]}
