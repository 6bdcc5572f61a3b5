"""An apply that receives a signal, or loses its lock, between two writes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import Call
from apply_runs import Bench, a_cluster, bench, placed

LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangplan-system/leases/gangplan"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Ten gangs of two pods, a to j: eight may be under way at once."""
    gangs = tuple((name, 2, 1) for name in "abcdefghij")
    with bench(a_cluster(gangs=gangs), tmp_path, monkeypatch) as found:
        yield found


def starts(call: Call) -> bool:
    """Whether the request starts a pod."""
    return "nodeSelector" in str(call.body)


def signalled(made: Bench, number: int, *, at: str) -> None:
    """A signal when the first pod whose path holds ``at`` was started."""
    done: list[str] = []

    def hook(call: Call) -> None:
        if call.writes and at in call.path and starts(call) and not done:
            done.append(call.path)
            os.kill(os.getpid(), number)

    made.cluster.after.append(hook)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_the_gangs_under_way_become_whole_and_begins_no_other(
    made: Bench, number: int, code: int
) -> None:
    plan = made.plan()
    signalled(made, number, at="/pods/a-")

    said = made.apply(plan, "-o", "json")

    bound = {name for name, node in made.bound().items() if node is not None}
    assert (said.code, bound) == (code, {f"{name}-{n}" for name in "abcdefgh" for n in (0, 1)})
    outcomes = {gang["name"]: gang["outcome"] for gang in said.data()["gangs"]}
    assert outcomes["i"] == outcomes["j"] == "halted"
    assert said.data()["status"] == "stopped"
    assert said.err.splitlines()[-1].endswith("(resumes it)")


def test_the_same_command_resumes_what_a_signal_stopped(made: Bench) -> None:
    plan = made.plan()
    signalled(made, signal.SIGTERM, at="/pods/a-")
    made.apply(plan)

    said = made.apply(plan)

    assert said.code == 0, "the lock was given back: nothing to wait for"
    assert made.bound() == placed(plan)


def test_the_lock_tells_that_the_run_was_stopped(made: Bench) -> None:
    plan = made.plan()
    signalled(made, signal.SIGTERM, at="/pods/b-")
    made.apply(plan)

    lease = made.cluster.handle("GET", LEASE)[1]
    note = json.loads(lease["metadata"]["annotations"]["gangplan.dev/last-run"])
    assert not lease["spec"].get("holderIdentity")
    assert (note["status"], note["exit_code"]) == ("stopped", 143)


def test_a_lock_that_somebody_took_meanwhile_is_left_alone(made: Bench) -> None:
    plan = made.plan()
    taken: list[int] = []

    def hook(call: Call) -> None:
        if call.writes and "/pods/a-" in call.path and starts(call) and not taken:
            taken.append(1)
            lease = made.cluster.handle("GET", LEASE)[1]
            lease["spec"]["holderIdentity"] = "somebody"
            made.cluster.put(lease)

    made.cluster.after.append(hook)

    assert made.apply(plan).code == 0, "a Lease stops no writes: uid and version of each write do"

    lease = made.cluster.handle("GET", LEASE)[1]
    assert lease["spec"]["holderIdentity"] == "somebody", "not released: it was not ours any more"


def test_a_signal_before_the_first_write_leaves_the_cluster_as_it_was(made: Bench) -> None:
    plan = made.plan()

    def hook(call: Call) -> None:
        if call.path == "/api/v1/pods":
            os.kill(os.getpid(), signal.SIGTERM)

    made.cluster.after.append(hook)

    said = made.apply(plan)

    assert (said.code, made.written()) == (143, [])
