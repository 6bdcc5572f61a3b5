"""An apply that is cut off, or answered wrongly, at any request: applied again it comes to the same end.

The machine alone is swept in test_apply_machine_crashes; here the requests are the real ones,
sampled, against a server that answers as the recorded one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, Crash, Fault, bench
from effort import spread

GANGS = (("wide", 2, 8), ("five", 2, 5), ("small-a", 2, 1), ("small-b", 2, 1), ("half", 2, 4))
"""16 + 10 + 2 + 2 + 8 = 38 GPUs on five nodes of 8."""

STEP = 23
"""Every so many requests; the first one differs with each fault, so that together they hit most."""

CUTS: tuple[str | int, ...] = ("crash before", "crash after", "lost before", "lost after")
KINDS = (*CUTS, 409, 422, 429, 500)


def numbers(kind: str | int, count: int) -> Sequence[int]:
    """Of the requests to meddle with: all, or a sample that begins elsewhere for each kind."""
    begin = 3 * KINDS.index(kind) % STEP
    return spread([*range(begin, count), *range(begin)], STEP)


def mixed() -> FakeCluster:
    cluster = FakeCluster()
    for number in range(1, 6):
        cluster.add_node(f"n{number}", taints=[OWN])
    for name, size, gpus in GANGS:
        cluster.gang_of_pods(name, size, gpus=gpus, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    return cluster


def state(cluster: FakeCluster) -> dict[str, Any]:
    """All of each pod that applying may change."""
    return {
        pod["metadata"]["name"]: (
            pod["spec"].get("nodeName"),
            pod["spec"].get("schedulingGates"),
            pod["spec"].get("nodeSelector"),
            pod["metadata"].get("labels"),
            pod["metadata"].get("annotations"),
        )
        for pod in cluster.pods()
    }


class Undisturbed:
    """The plan, how many requests it takes, and where it ends. Every cluster made so is the same one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = mixed()
        with bench(cluster, folder, monkeypatch) as made:
            self.plan = made.plan()
            said = made.apply(self.plan)
        assert said.code == 0, said.err
        self.calls = len(cluster.calls)
        self.writes = sum("/pods/" in call.path for call in cluster.writes)
        self.end = state(cluster)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return Undisturbed(tmp_path_factory.mktemp("undisturbed"), monkeypatch)


def disturbed(made: Bench, fault: Fault, plan: Path) -> int | None:
    """Apply once with the fault, once without; the exit code of the first, None if it was killed."""
    cluster = made.cluster
    cluster.before.append(fault.before)
    cluster.after.append(fault.after)
    try:
        code = made.apply(plan).code
    except Crash:
        code = None
    assert fault.struck
    cluster.before.clear()
    cluster.after.clear()
    cluster.advance(63)  # the lock of one that was killed lasts 60 s, and 2 s of margin
    again = made.apply(plan)
    assert again.code == 0, again.err
    return code


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_goes_wrong_changes_nothing_in_the_end(
    kind: str | int, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in numbers(kind, undisturbed.writes):
        with bench(mixed(), tmp_path, monkeypatch) as made:
            code = disturbed(made, Fault(at, kind), undisturbed.plan)
            before = len(made.written())
            third = made.apply(undisturbed.plan)

        assert code in ((None,) if str(kind).startswith("crash") else (0, 7)), (kind, at)
        assert state(made.cluster) == undisturbed.end, (kind, at)
        assert (third.code, len(made.written())) == (0, before), "a third run has nothing to write"


@pytest.mark.parametrize("kind", ["crash after", "lost after", 500, 409])
def test_any_request_that_goes_wrong_changes_nothing_in_the_end(
    kind: str | int, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that read, that ask for rights, and that take or give back the lock among them."""
    for at in numbers(kind, undisturbed.calls):
        with bench(mixed(), tmp_path, monkeypatch) as made:
            code = disturbed(made, Fault(at, kind, every=True), undisturbed.plan)

        assert code in (None, 0, 7, 69), (kind, at)
        assert state(made.cluster) == undisturbed.end, (kind, at)
