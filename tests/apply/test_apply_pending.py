"""Pins that are pending, rivals in the planned room: what is done, and what is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import Call
from apply_runs import TOLERATE, Bench, Tree, a_cluster, bench, placed


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4, all gated. 16 + 8 GPUs fill them."""
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


def test_pins_that_the_scheduler_has_not_bound_yet_are_no_failure(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.scheduler.on = False

    said = gated.apply(plan)

    assert said.code == 0
    assert said.out.count("pending") == 2
    assert said.err.splitlines()[-1] == "next: gangplan status   (2 gangs to be bound)"


def test_pending_pins_are_not_written_again_and_are_whole_once_bound(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.scheduler.on = False
    gated.apply(plan)
    before = gated.written()
    gated.apply(plan)
    assert gated.written() == before

    gated.cluster.scheduler.on = True
    gated.cluster.settle()

    said = gated.apply(plan, "-o", "json")
    assert {gang["outcome"] for gang in said.data()["gangs"]} == {"unchanged"}
    assert gated.bound() == placed(plan)


def test_a_rival_in_the_planned_room_is_reported_with_its_undo_commands(gated: Bench) -> None:
    """It comes once the first pod of a is started, and takes the node of the second."""
    plan = gated.plan()
    where = placed(plan)
    came: list[str] = []

    def rival(call: Call) -> None:
        started = call.writes and "/pods/a-" in call.path and "schedulingGates" in str(call.body)
        if started and not came:
            other = "a-1" if call.path.endswith("a-0") else "a-0"
            came.append(other)
            gated.cluster.add_pod("rival", gpus=8, node=where[other], tolerations=TOLERATE)

    gated.cluster.after.append(rival)

    said = gated.apply(plan, "-o", "json")

    found = {gang["name"]: gang for gang in said.data()["gangs"]}
    assert (said.code, found["a"]["outcome"], found["b"]["outcome"]) == (7, "partial", "started")
    assert len(found["a"]["undo"]) == 2
    assert f"node {where[came[0]]} has 0 free GPUs, the plan needs 8" in found["a"]["why"]

    undone = gated.apply(plan, "--evict-partial", "-o", "json")
    assert (undone.code, undone.data()["evicted"]) == (0, 2)
    assert {name for name, node in gated.bound().items() if node} == {"b-0", "b-1", "rival"}


def test_only_pods_with_an_intent_of_ours_are_ever_evicted(gated: Bench) -> None:
    """Another client rewrites the annotations of a-0: then it carries no intent of this plan."""
    plan = gated.plan()
    cluster = gated.cluster
    where = placed(plan)

    def rival(call: Call) -> None:
        if call.writes and call.path.endswith("/pods/a-1") and "schedulingGates" in str(call.body):
            cluster.after.clear()
            cluster.add_pod("rival", gpus=8, node=where["a-0"], tolerations=TOLERATE)

    cluster.after.append(rival)
    gated.apply(plan)
    body = {"metadata": {"annotations": {"gangplan.dev/gang": "mine"}}}
    for name in ("a-0", "a-1"):
        path = f"/api/v1/namespaces/default/pods/{name}?fieldManager=somebody"
        cluster.handle("PATCH", path, body, "application/merge-patch+json")

    gated.apply(plan, "--evict-partial")

    assert not [path for _, path in gated.written() if path.endswith("/eviction")]


def test_a_node_that_lost_the_label_of_a_pin_is_reported_with_its_undo_commands(
    gated: Bench,
) -> None:
    """The first pod of a is bound; then the node of the second is called otherwise, and no pin fits it."""
    plan = gated.plan()
    where = placed(plan)
    came: list[str] = []

    def relabel(call: Call) -> None:
        started = call.writes and "/pods/a-" in call.path and "schedulingGates" in str(call.body)
        if started and not came:
            other = "a-1" if call.path.endswith("a-0") else "a-0"
            came.append(other)
            gated.cluster.change("Node", where[other], renamed)

    gated.cluster.after.append(relabel)
    said = gated.apply(plan)

    assert said.code == 7, said.err
    assert f"lacks the label kubernetes.io/hostname={where[came[0]]}" in said.out
    assert said.err.count("delete --raw") == 2, (
        "the one that is bound, and the one that never will be"
    )


def renamed(node: Tree) -> Tree:
    labels = {**node["metadata"]["labels"], "kubernetes.io/hostname": "elsewhere"}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def test_past_the_pending_limit_the_same_command_reports_and_undoes_them(gated: Bench) -> None:
    """kube-scheduler never says a word of them."""
    plan = gated.plan()
    gated.cluster.scheduler.on = False
    gated.apply(plan)
    gated.cluster.advance(301)

    late = gated.apply(plan)
    assert (late.code, late.err.count("delete --raw")) == (7, 4)
    assert "was not bound to node" in late.out

    undone = gated.apply(plan, "--evict-partial", "-o", "json")
    assert undone.code == 0, undone.err
    assert {gang["outcome"] for gang in undone.data()["gangs"]} == {"undone"}
    assert gated.bound() == {}
