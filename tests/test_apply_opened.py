"""Nodes that others came to while a plan was half applied: what is begun is seen to, the rest waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import Call
from apply_runs import TOLERATE, Bench, Crash, Fault, a_cluster, bench, placed


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Gangs a (two whole nodes) and b (2 x 3 GPUs on the third), bound by us."""
    gangs = (("a", 2, 8), ("b", 2, 3))
    with bench(a_cluster(mode="binding", gangs=gangs), tmp_path, monkeypatch) as found:
        yield found


def killed(made: Bench, plan: Path, at: int) -> None:
    """Apply until the write to a pod after ``at`` others, which the server carries out."""
    fault = Fault(at, "crash after")
    made.cluster.before.append(fault.before)
    made.cluster.after.append(fault.after)
    with pytest.raises(Crash):
        made.apply(plan)
    made.cluster.before.clear()
    made.cluster.after.clear()
    made.cluster.advance(63)


def intrude(made: Bench, node: str, gpus: int) -> None:
    made.cluster.add_pod("rival", gpus=gpus, node=node, tolerations=TOLERATE)


def test_a_gang_half_started_is_finished_and_none_is_begun_on_a_node_that_is_open(
    made: Bench,
) -> None:
    plan = made.plan()
    killed(made, plan, 2)  # both intents of a, and its first binding
    intrude(made, placed(plan)["b-0"], 1)  # there is room for b, but for how long

    said = made.apply(plan)

    assert said.code == 7
    assert {name for name, node in made.bound().items() if node} == {"a-0", "a-1", "rival"}
    assert "is open: default/rival of default-scheduler holds GPUs on it" in said.out
    assert made.apply(plan, "--allow-shared-nodes").code == 0


def test_a_gang_whose_room_a_rival_took_can_be_undone_by_the_command_that_is_named(
    made: Bench,
) -> None:
    plan = made.plan()
    node = placed(plan)["b-0"]

    def hook(call: Call) -> None:
        if call.writes and call.path.endswith("/b-1/binding"):
            intrude(made, node, 8)

    made.cluster.after.append(hook)
    first = made.apply(plan)
    made.cluster.after.clear()
    assert (first.code, "--evict-partial" in first.err) == (7, True), first.err
    again = made.apply(plan)
    assert (again.code, again.err.count("delete --raw")) == (7, 2), again.err
    undone = made.apply(plan, "--evict-partial")

    assert undone.code == 0, undone.err
    assert [pod["metadata"]["name"] for pod in made.cluster.pods()] == ["a-0", "a-1", "rival"]
