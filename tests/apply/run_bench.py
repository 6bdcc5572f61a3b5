"""``gangplan run`` in this process against a fake cluster: over HTTP with the real kubectl, or in memory.

Served, nothing of the program is replaced; in memory only the proxy and the recording are, so
that hundreds of runs take seconds. Used by test_run_* and test_status_*.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import Endpoint, FakeWire, serving
from apply_runs import Hasty
from conftest import Result, RunCli
from snapshots import environment

from models.instance.solution import Solution
from planner.pipelines.timed_search import TimedSearch

Tree = dict[str, Any]

LOCK = "gangplan-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{LOCK}/leases/gangplan"

LOG_TYPES = {
    "read",
    "first_plan",
    "solve_progress",
    "saving",
    "solve_done",
    "verify_done",
    "change",
    "apply_start",
    "apply_done",
    "error",
    "summary",
}
"""Types of JSON log lines: there are no others."""


@dataclass(slots=True)
class RunBench:
    """A served cluster and the program."""

    cluster: FakeCluster
    folder: Path
    cli: RunCli
    endpoint: Endpoint | None = None

    def run(self, *options: str, **environ: str) -> Result:
        """``gangplan run``, with a small budget, waiting for nothing."""
        return self.verb("run", "--budget", "5", "--wait", "0s", *options, **environ)

    def verb(self, *words: str, **environ: str) -> Result:
        return self.cli(*words, environ=environment(self.folder, USER="tester", **environ))

    def places(self) -> dict[str, str | None]:
        """Where each pod is."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.cluster.pods()}

    def written(self, since: int = 0) -> list[tuple[str, str]]:
        """(method, path) of the writes from that call on, those of the lock left out."""
        return [
            (call.method, call.path)
            for call in self.cluster.writes
            if call.number >= since and "/leases" not in call.path
        ]

    def asked(self) -> int:
        """How many requests there were so far."""
        return len(self.cluster.calls)

    def lease(self) -> Tree:
        code, tree, _ = self.cluster.handle("GET", LEASE)
        assert code == 200, tree
        return tree

    def lease_is_free(self) -> bool:
        """Whether the lock is free, or was never taken."""
        code, tree, _ = self.cluster.handle("GET", LEASE)
        return code == 404 or tree["spec"]["holderIdentity"] == ""

    def last_run(self) -> Tree:
        """What the lock says of the last run; the lock has to be free."""
        tree = self.lease()
        assert tree["spec"]["holderIdentity"] == "", "the lock was not released"
        found: Tree = json.loads(tree["metadata"]["annotations"]["gangplan.dev/last-run"])
        return found


@contextmanager
def run_bench(
    cluster: FakeCluster, folder: Path, cli: RunCli, *, tls: bool = False
) -> Iterator[RunBench]:
    """Serve the cluster while the block runs. ``tls``: where accounts matter."""
    cluster.add_namespace(LOCK)
    with serving(cluster, folder, tls=tls) as endpoint:
        yield RunBench(cluster, folder, cli, endpoint)


@contextmanager
def memory_bench(
    cluster: FakeCluster, folder: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunBench]:
    """The same without a socket: a wire into the cluster."""
    cluster.add_namespace(LOCK)

    @contextmanager
    def opened(environ: Mapping[str, str], **_: object) -> Iterator[FakeWire]:
        del environ
        yield FakeWire(cluster)

    with monkeypatch.context() as patched:
        patched.setattr("planner.cluster.proxy.connect", opened)
        patched.setattr("planner.cluster.retry.RetryingTransport", Hasty)
        yield RunBench(cluster, folder, cli)


def nodes(count: int, *, groups: bool = False) -> FakeCluster:
    """A cluster of nodes n0, n1, ... of 8 GPUs each. Its clock stands still."""
    made = FakeCluster(groups=groups)
    for number in range(count):
        made.add_node(f"n{number}")
    return made


def events(result: Result) -> list[Tree]:
    """JSON log lines: of the fixed types, the last one the only summary."""
    found: list[Tree] = [json.loads(line) for line in result.err.splitlines()]
    assert {one["type"] for one in found} <= LOG_TYPES
    assert [one["type"] for one in found].count("summary") == 1
    assert found[-1]["type"] == "summary"
    assert found[-1]["exit_code"] == result.code
    return found


def summary(result: Result) -> str:
    """The one summary line, which is the last one."""
    lines = [line for line in result.err.splitlines() if line.startswith("run ")]
    assert len(lines) == 1, result.err
    assert result.err.splitlines()[-1] == lines[0]
    assert f"(exit {result.code})" in lines[0]
    return lines[0]


def while_solving(monkeypatch: pytest.MonkeyPatch, *happen: Callable[[], None]) -> None:
    """Let something happen at the end of the first search, something else at that of the second."""
    ahead = list(happen)
    search = TimedSearch.run  # the moment that a test needs

    def solved(timed: TimedSearch) -> Solution:
        found = search(timed)
        if ahead:
            ahead.pop(0)()
        return found

    monkeypatch.setattr(TimedSearch, "run", solved)


def is_write(call: Call) -> bool:
    """Whether a request changes a pod."""
    return call.writes and "/pods/" in call.path


class Cut:
    """The server is gone from the ``at``-th write to the pods of one gang on, the first that is written to.

    Gangs are applied side by side: to the pods of the others the server is gone from the start.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.gang: list[str] = []
        self.seen = 0

    def __call__(self, call: Call) -> Answer | None:
        if is_write(call):
            gang = call.path.split("/pods/")[1].split("/")[0].rpartition("-")[0]
            self.gang.append(gang)
            if gang != self.gang[0]:
                return LOST
            self.seen += 1
        return LOST if self.seen > self.at else None
