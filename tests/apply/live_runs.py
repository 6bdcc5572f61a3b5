"""The real program against a live cluster: plans and runs in this process, and as one where it is killed."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import interactive
import pytest
from effort import HANG_S
from interactive import ROOT
from live_checks import placed
from live_cluster import VARIABLE, Live
from live_objects import Wanted, policy
from live_relay import Answer, Call, Forward, Meddler, honest
from snapshots import environment

from planner.cli.app import run
from planner.cluster import retry, rights
from planner.pipelines import apply
from planner.show.console import Console

Tree = dict[str, Any]

LEASE_S = 70.0
"""Longer than a lock lasts whose holder was killed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the program. ``code`` negative: the signal that ended it."""

    code: int
    out: str
    err: str
    calls: tuple[Call, ...]

    def events(self, kind: str) -> list[Tree]:
        """What ``--log-format json`` said of that type."""
        found = [json.loads(line) for line in self.err.splitlines()]
        return [event for event in found if event["type"] == kind]


def planned(live: Live, name: str = "plan", *options: str) -> Path:
    """A plan of the cluster as it is, made in this process. ``options``: of ``plan``."""
    folder = live.folder / f"{name}.read"
    folder.mkdir(exist_ok=True)
    for plural in ("nodes", "pods", "namespaces/kube-system"):
        kept = folder / f"{plural.rpartition('/')[2]}.json"
        kept.write_text(json.dumps(live.get(f"/api/v1/{plural}")), encoding="utf-8")
    path = live.folder / f"{name}.json"
    err = io.StringIO()
    console = Console(stdout=io.StringIO(), stderr=err, stdin=io.BytesIO(), environ={})
    words = ["plan", str(folder), "--policy", str(policy_of(live)), "--out", str(path), *options]
    code = run(words, console)
    assert code == 0, err.getvalue()
    return path


LOW = Wanted("low", 7, 8, preemptible=True)
"""Fills the seven nodes."""


def run_low(live: Live) -> None:
    """Start low, and say of its pods what kubelets would."""
    live.create(LOW)
    assert ran(live, *apply_words(live, planned(live))).code == 0
    live.report_ready(*live.pods())


def left(live: Live) -> int:
    """Pods of low that are bound."""
    return sum(name.startswith("low-") for name in placed(live.pods()))


def evictions(*runs: Ran) -> set[str]:
    """Pods whose eviction was asked for."""
    asked = [call.path for done in runs for call in done.calls if call.evicts]
    return {path.split("/")[-2] for path in asked}


def policy_of(live: Live, **kubernetes: str) -> Path:
    """The Policy of live tests. ``kubernetes``: more fields under that name."""
    path = live.folder / "policy.yaml"
    tree = policy(live.run)
    tree["spec"]["kubernetes"] |= kubernetes
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def placements(plan: Path) -> dict[str, tuple[str, str]]:
    """Pod name to (node, indices of its GPUs as the annotation says them), of all that start."""
    gangs = json.loads(plan.read_text(encoding="utf-8"))["spec"]["gangs"]
    return {
        pod["name"]: (pod["node"], ",".join(map(str, pod["gpus"] or ())))
        for gang in gangs
        if gang["decision"] in {"place", "complete", "move"}
        for pod in gang["pods"]
    }


def started(live: Live, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """The program, on its way, without a terminal."""
    return interactive.started(
        *arguments, cwd=live.folder, env={**_environ(live), "PYTHONPATH": str(ROOT)}
    )


def ran(live: Live, *arguments: str, meddler: Meddler = honest) -> Ran:
    """Run it to its end in this process, with answers as the meddler makes them."""
    out, err = io.StringIO(), io.StringIO()
    console = Console(stdout=out, stderr=err, stdin=io.BytesIO(), environ=_environ(live))
    with live.relay.meddling(meddler), hurried():
        code = run(arguments, console)
        calls = tuple(live.relay.calls)
    return Ran(code, out.getvalue(), err.getvalue(), calls)


@contextmanager
def hurried() -> Iterator[None]:
    """The program of this process looks ten times a second; our own server needs no patience, either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "TICK_S", 0.1)
        if VARIABLE not in os.environ:
            waits = tuple(one / 10 for one in retry.WAITS_S)
            patch.setattr(retry, "WAITS_S", waits)
            patch.setattr(rights, "WAITS_S", waits)
        yield


def _environ(live: Live) -> dict[str, str]:
    return environment(live.folder, KUBECONFIG=str(live.relayed), USER="tester")


def apply_words(live: Live, plan: Path, *more: str) -> list[str]:
    """``apply`` as an unattended caller writes it."""
    return ["apply", str(plan), "--yes", "--lock-namespace", live.lock_namespace, *more]


def run_words(live: Live, *more: str) -> list[str]:
    """``run`` as the cron job does it."""
    words = ["run", "--policy", str(policy_of(live)), "--lock-namespace", live.lock_namespace]
    return [*words, *more]


@dataclass(slots=True)
class Killer:
    """Kills the process with SIGKILL at its ``at``-th write to a pod or a record, or of those that count.

    ``after``: once the server carried that one out; else before it ever sees it.
    """

    at: int
    after: bool
    process: subprocess.Popen[str] | None = None
    seen: int = 0
    struck: Call | None = None
    then: list[Call] = field(default_factory=list)
    counts: Callable[[Call], bool] = lambda call: call.writes_pods or call.records

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        if self.struck is not None:
            self.then.append(call)
            return None
        counts = self.counts(call)
        self.seen += counts
        if not counts or self.seen < self.at:
            return forward()
        self.struck = call
        if self.after:
            forward()
        assert self.process is not None
        self.process.kill()
        return None


def killed(live: Live, killer: Killer, *arguments: str) -> Ran:
    """Run it until the killer strikes, or to its end if that comes before.

    If it struck, the server's clock is past the dead holder's lock, and kubectl has ended, too.
    """
    with live.relay.meddling(killer), started(live, *arguments) as process:
        killer.process = process
        out, err = process.communicate(timeout=HANG_S)
        calls = tuple(live.relay.calls)
        if killer.struck is not None:
            live.relay.later_s += LEASE_S
            live.wait_until(lambda: not children(live), "kubectl to end with us")
    return Ran(process.returncode, out, err, calls)


def children(live: Live) -> list[str]:
    """Command lines of processes whose environment names the relay's kubeconfig: kubectl, started for us."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
            words = path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        if words and f"KUBECONFIG={live.relayed}".encode() in variables:
            found.append(words)
    return found
