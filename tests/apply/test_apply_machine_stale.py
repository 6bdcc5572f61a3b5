"""Changes that make a plan stale, and changes that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from apply_world import OTHER_PLAN, World, gang, order_for, orders, stop_for

from models.apply.intents import Intent
from models.apply.plan_actions import NodeAssumptions, PlanActions
from models.apply.staleness import changes
from models.documents.gang import Toleration

A = ("default", "a-0")


def one() -> tuple[World, PlanActions]:
    """Gang a: one pod of 4 GPUs and 1,000 millicores for n0, which has 8 GPUs and 1,500."""
    world = World()
    world.node(
        "n0", allocatable=(("cpu", 1500), ("pods", 3)), labels=(("rack", "r1"), ("pool", "x"))
    )
    world.node("n1")
    pod = world.pod("a-0", 4, requests=(("cpu", 1000),))
    relied = NodeAssumptions("n0", 8, (("rack", "r1"), ("pool", "x"), ("spot", None)))
    return world, replace(
        orders(world, gang("a", [order_for(pod, "n0", range(4))])), nodes=(relied,)
    )


def told(world: World, plan: PlanActions) -> list[str]:
    return [str(line) for line in changes(plan, world.view())]


def node(world: World, **more: object) -> None:
    world.nodes["n0"] = replace(world.nodes["n0"], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"uid": "other"}, "was replaced by another pod"),
        ({"terminating": True}, "is being deleted"),
        ({"finished": True}, "has finished"),
        ({"node": "n1"}, "is bound to node n1"),
        ({"node": "n0"}, "is bound to node n0"),
        ({"gates": ()}, "lost its gate"),
        ({"gpus": 8}, "requests 8 GPUs, not 4"),
        (
            {"intent": Intent(OTHER_PLAN, "a", 1, "n1", None), "intent_is_ours": True},
            f"carries the intent of plan {OTHER_PLAN}",
        ),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_a_pod_that_is_not_what_it_was_is_reported(change: dict[str, object], what: str) -> None:
    world, plan = one()
    world.change(A, **change)
    assert told(world, plan) == [f"pod default/a-0 {what}"]


def test_a_pod_that_is_gone_is_reported() -> None:
    world, plan = one()
    world.pods.clear()
    assert told(world, plan) == ["pod default/a-0 is gone"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ready": False}, "is not Ready"),
        ({"unschedulable": True}, "is cordoned"),
        ({"taints": (("k", "v", "NoSchedule"),)}, "is tainted k=v:NoSchedule"),
        (
            {"labels": (("pool", "x"), ("rack", "r2"))},
            "has the label rack=r2, not r1",
        ),
        ({"labels": (("rack", "r1"),)}, "lost the label pool=x"),
        (
            {"labels": (("pool", "x"), ("rack", "r1"), ("spot", ""))},
            "has the new label spot=",
        ),
        ({"gpus": 7}, "offers 7 GPUs, not 8"),
        ({"allocatable": (("cpu", 999),)}, "lacks free cpu: 1 short"),
        ({"allocatable": (("pods", 0),)}, "has no room for 1 more pods"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_a_node_that_is_not_what_it_was_is_reported(change: dict[str, object], what: str) -> None:
    world, plan = one()
    node(world, **change)
    assert told(world, plan) == [f"node n0 {what}"]


def test_a_node_that_is_gone_is_reported() -> None:
    world, plan = one()
    del world.nodes["n0"]
    assert told(world, plan) == ["node n0 is gone"]


def test_a_taint_that_was_there_or_is_tolerated_is_no_news() -> None:
    world, plan = one()
    taint = ("k", "v", "NoSchedule")
    node(world, taints=(taint,))
    known = replace(plan, nodes=(replace(plan.nodes[0], taints=(taint,)),))
    assert told(world, known) == []
    for toleration in [
        ("k", "Equal", "v", ""),
        ("k", "Exists", "", "NoSchedule"),
        ("", "Exists", "", ""),
    ]:
        world.change(A, tolerations=(Toleration(*toleration),))
        assert told(world, plan) == []
    for toleration in [
        ("k", "Equal", "w", ""),
        ("k", "Exists", "", "NoExecute"),
        ("j", "Exists", "", ""),
    ]:
        world.change(A, tolerations=(Toleration(*toleration),))
        assert told(world, plan) == ["node n0 is tainted k=v:NoSchedule"]


def test_room_is_enough_to_the_last_gpu_and_missing_one_beyond() -> None:
    world, plan = one()
    world.pod("r-0", 4, mode="none", node="n0")
    assert told(world, plan) == []
    world.pod("r-1", 1, mode="none", node="n0")
    assert told(world, plan) == ["node n0 has 3 free GPUs, the plan needs 4"]


def test_a_gpu_that_another_pod_holds_is_missing_though_the_number_would_do() -> None:
    world, plan = one()
    world.pod("r-0", 2, mode="none", node="n0", indices=(4, 5))
    assert told(world, plan) == []
    world.pod("r-1", 1, mode="none", node="n0", indices=(3,))
    assert told(world, plan) == ["node n0 has GPU 3 in use by pod default/r-1"]


def test_pinned_and_leaving_pods_take_room_and_finished_ones_do_not() -> None:
    for change, short in [({"terminating": True}, True), ({"finished": True}, False)]:
        world, plan = one()
        world.pod("r-0", 8, mode="none", node="n0", **change)
        assert bool(told(world, plan)) is short
    world, plan = one()
    pinned = world.pod("r-0", 8, mode="none")
    world.pins[pinned.uid] = "n0"
    assert len(told(world, plan)) == 1


def test_room_that_victims_still_hold_is_not_missing() -> None:
    world, plan = one()
    victim = world.pod("v-0", 8, mode="none", node="n0")
    assert len(told(world, plan)) == 1
    stops = gang("v", (), "preempt", stops=(stop_for(victim),))
    assert told(world, replace(plan, gangs=(*plan.gangs, stops))) == []
