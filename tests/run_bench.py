"""``gangplan run`` in this process against a fake cluster, through the real kubectl and its proxy.

Promises: nothing is replaced but, where a test says so, what happens while the solver works. Used by
tests/test_run_*.py and tests/test_status_*.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, RunCli
from fake_cluster import Call, FakeCluster
from fake_http import Endpoint, serving
from snapshots import environment

from planner import planning

Tree = dict[str, Any]

LOCK = "gangplan-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{LOCK}/leases/gangplan"

LOG_TYPES = {
    "read",
    "solve_progress",
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
    endpoint: Endpoint
    folder: Path
    cli: RunCli

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

    def last_run(self) -> Tree:
        """What the lock says of the last run; the lock has to be free."""
        tree = self.lease()
        assert tree["spec"]["holderIdentity"] == "", "the lock was not given back"
        found: Tree = json.loads(tree["metadata"]["annotations"]["gangplan.dev/last-run"])
        return found


@contextmanager
def run_bench(
    cluster: FakeCluster, folder: Path, cli: RunCli, *, tls: bool = False
) -> Iterator[RunBench]:
    """Serve the cluster while the block runs. ``tls``: where accounts matter."""
    cluster.add_namespace(LOCK)
    with serving(cluster, folder, tls=tls) as endpoint:
        yield RunBench(cluster, endpoint, folder, cli)


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
    search = planning._solve  # the moment that a test needs

    def solved(*given: Any) -> Any:  # noqa: ANN401
        found = search(*given)
        if ahead:
            ahead.pop(0)()
        return found

    monkeypatch.setattr(planning, "_solve", solved)


def is_write(call: Call) -> bool:
    """Whether a request changes a pod."""
    return call.writes and "/pods/" in call.path
