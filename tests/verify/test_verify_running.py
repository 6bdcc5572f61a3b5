"""Running gangs and the tiers that follow from them: stop, shrink, move, grow, complete."""

from __future__ import annotations

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    node,
    restated,
    role,
    rules_broken,
    sealed,
    standing,
    stopped,
)

from models.verify.check import check, derive

ALL = list(range(8))
LOW, HIGH = list(range(4)), list(range(4, 8))


def servers(count: int) -> Doc:
    return cluster([dgx()], [node(f"h{i}", "DGX H100", "b1/r1") for i in range(1, count + 1)])


def preempted(priority: int, *, node: str = "h1", **more: object) -> Doc:
    """``old`` (priority 5, two pods on h1 and h2) is stopped; ``new`` comes to ``node``."""
    old = gang(
        "old",
        role("worker", 2, 8),
        priority=5,
        preemptible=True,
        pods=(standing("old", "h1", ALL), standing("old", "h2", ALL, 1)),
        **more,
    )
    new = gang("new", role("worker", 1, 8), priority=priority)
    return made(
        servers(3),
        [new, old],
        [decided("new", "place", (node, ALL)), stopped("old", "new")],
    )


def test_a_preemptible_gang_stops_for_a_higher_one_that_takes_one_of_its_nodes() -> None:
    plan = preempted(6)
    assert check(plan) == []
    values = derive(plan)
    assert (values["kept/5"], values["admission/5"], values["disruption"]) == (0, 0, 16)


def test_an_equal_priority_is_not_higher() -> None:
    assert rules_broken(preempted(5)) == {"preemption"}


def test_the_higher_gang_must_come_to_a_node_that_is_given_up() -> None:
    assert rules_broken(preempted(6, node="h3")) == {"preemption"}


def test_a_movable_gang_is_not_dropped_unless_it_is_preemptible() -> None:
    plan = preempted(6, movable=True)
    assert check(plan) == []
    plan["instance"]["gangs"][1]["spec"]["preemptible"] = False
    assert rules_broken(restated(plan)) == {"standing"}


def elastic(**spec: object) -> Doc:
    """``old`` runs four pods of four GPUs on h1 and h2, at least one, in steps of one."""
    places = [("h1", LOW), ("h1", HIGH), ("h2", LOW), ("h2", HIGH)]
    old = gang(
        "old",
        role("worker", {"min": 1, "max": 4, "step": 1}, 4),
        priority=5,
        pods=tuple(standing("old", n, g, i) for i, (n, g) in enumerate(places)),
        **spec,
    )
    new = gang("new", role("worker", 1, 4), priority=6)
    return made(
        servers(3),
        [new, old],
        [decided("new", "place", ("h2", HIGH)), decided("old", "resize", *places[:3])],
    )


def test_a_preemptible_gang_shrinks_for_a_higher_one() -> None:
    plan = elastic(preemptible=True)
    assert check(plan) == []
    values = derive(plan)
    assert (values["kept/5"], values["disruption"], values["growth/5"]) == (12, 4, 8)


def test_a_preemptible_gang_does_not_shrink_for_a_gang_elsewhere() -> None:
    plan = elastic(preemptible=True)
    entry(plan, "new")["pods"][0].update(node="h3")
    assert rules_broken(restated(plan)) == {"preemption"}


def test_a_fixed_gang_does_not_shrink_at_all() -> None:
    assert rules_broken(elastic()) == {"standing"}


def test_a_gang_that_moves_counts_whole_as_disruption_and_keeps_its_gpus() -> None:
    plan = elastic(movable=True)
    old = entry(plan, "old")
    old["pods"][0].update(node="h3")
    old["decision"] = "move"
    values = derive(restated(plan))
    assert check(plan) == []
    # All 16 it had, though one pod of four moves and one is dropped; three pods are kept.
    assert (values["disruption"], values["kept/5"]) == (16, 12)


def test_a_pod_that_changes_gpus_alone_has_moved() -> None:
    old = gang("old", role("worker", 1, 4), movable=True, pods=(standing("old", "h1", LOW),))
    plan = made(servers(1), [old], [decided("old", "move", ("h1", HIGH))])
    assert check(plan) == []
    assert derive(plan)["disruption"] == 4
    entry(plan, "old")["decision"] = "keep"
    assert rules_broken(sealed(plan)) == {"decision"}


def broken(count: int, *places: tuple[str, list[int]], **spec: object) -> Doc:
    """``old`` (elastic: 2, 4 or 6 pods) stands with pods 0 and 2; it is completed to ``count``."""
    old = gang(
        "old",
        role("worker", {"min": 2, "max": 6, "step": 2}, 4),
        pods=(standing("old", "h1", LOW), standing("old", "h2", LOW, 2)),
        **spec,
    )
    where = {0: ("h1", LOW), 2: ("h2", LOW)}
    new = iter(places)
    whole = [where[i] if i in where else next(new) for i in range(count)]
    return made(servers(3), [old], [decided("old", "complete", *whole)])


def test_completing_is_bound_by_the_share_and_growing_is_not() -> None:
    topology = {"minBandwidthShare": 1}
    nodes = [node(f"h{i}", "DGX H100", "b1/r1", nics=[{"name": "e", "gbps": 1}]) for i in (1, 2, 3)]

    plan = broken(4, ("h1", HIGH), ("h2", HIGH), topology=topology)
    plan["instance"]["cluster"]["spec"]["nodes"] = nodes
    assert rules_broken(restated(plan)) == {"min-share"}

    old = gang(
        "old",
        role("worker", {"min": 1, "max": 2, "step": 1}, 8),
        pods=(standing("old", "h1", ALL),),
        topology=topology,
    )
    plan = made(
        cluster([dgx()], nodes), [old], [decided("old", "resize", ("h1", ALL), ("h2", ALL))]
    )
    assert check(plan) == []


def test_an_incomplete_gang_is_kept_but_not_admitted() -> None:
    old = gang(
        "old",
        role("worker", 2, 8),
        preemptible=True,
        topology={"preferred": "node"},
        pods=(standing("old", "h1", ALL),),
    )
    plan = made(servers(2), [old], [decided("old", "keep", ("h1", ALL), why="Incomplete")])
    assert check(plan) == []
    values = derive(plan)
    assert values.pop("kept/0") == 8
    assert values.pop("stranded") == 0
    assert set(values.values()) == {0}
    # The running pods have a bandwidth.
    assert (entry(plan, "old")["bandwidthMBps"], entry(plan, "old")["share"]) == (370800, 1000)


@pytest.mark.parametrize(
    ("spec", "count", "stated"),
    [
        ({"preemptible": True}, 1, True),
        ({"movable": True}, 2, True),  # elastic, above min
        ({"movable": True}, 1, False),  # at min
        ({}, 2, False),
    ],
)
def test_kept_is_stated_where_a_running_gang_could_be_stopped_or_shrunk(
    spec: Doc, count: int, stated: bool
) -> None:
    where = [("h1", LOW), ("h1", HIGH)][:count]
    old = gang(
        "old",
        role("worker", {"min": 1, "max": 2, "step": 1}, 4),
        pods=tuple(standing("old", n, g, i) for i, (n, g) in enumerate(where)),
        **spec,
    )
    plan = made(servers(1), [old], [decided("old", "keep", *where)])
    assert check(plan) == []
    assert ("kept/0" in derive(plan)) is stated


def test_only_admitted_gangs_have_grown() -> None:
    replicas = {"min": 2, "max": 4, "step": 1}
    gangs = [
        gang("a", role("worker", replicas, 2)),
        # A pod is missing: it has one of at least two.
        gang("b", role("worker", replicas, 2), pods=(standing("b", "h1", [0, 1]),)),
        gang("c", role("worker", replicas, 2)),
    ]
    decisions = [
        decided("a", "wait", why="NoRoom"),
        decided("b", "keep", ("h1", [0, 1]), why="Incomplete"),
        decided("c", "place", *(("h2", [i, i + 1]) for i in (0, 2, 4))),
    ]
    plan = made(servers(2), gangs, decisions)
    assert check(plan) == []
    assert derive(plan)["growth/0"] == 2
