"""Changes that make a plan stale, and changes that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from apply_world import OTHER_PLAN, World, gang, order_for, orders, stop_for, world_of

from models.apply.intents import Intent
from models.apply.plan_actions import NodeAssumptions, PlanActions
from models.apply.staleness import changes
from models.documents.gang import Toleration

A = ("default", "a-0")
TAINT = ("k", "v", "NoSchedule")


def planned() -> tuple[World, PlanActions]:
    """Gang a: one pod of 4 GPUs and 1,000 millicores for n0, which has 8 GPUs and 1,500."""
    world = world_of(2)
    labels = (("rack", "r1"), ("pool", "x"))
    node(world, allocatable=(("cpu", 1500), ("pods", 3)), labels=labels)
    pod = world.pod("a-0", 4, requests=(("cpu", 1000),))
    relied = NodeAssumptions("n0", 8, (*labels, ("spot", None)))
    made = orders(world, gang("a", [order_for(pod, "n0", range(4))]))
    return world, replace(made, nodes=(relied,))


def told(world: World, plan: PlanActions) -> list[str]:
    return [str(line) for line in changes(plan, world.view())]


def node(world: World, **more: object) -> None:
    world.nodes["n0"] = replace(world.nodes["n0"], **more)  # type: ignore[arg-type]


def tolerates(*toleration: str) -> dict[str, object]:
    return {"tolerations": (Toleration(*toleration),)}


FOREIGN = Intent(OTHER_PLAN, "a", 1, "n1", None)


@pytest.mark.parametrize(
    ("of_pod", "of_node", "what"),
    [
        ({}, {}, None),
        ({"uid": "other"}, {}, "pod default/a-0 was replaced by another pod"),
        ({"terminating": True}, {}, "pod default/a-0 is being deleted"),
        ({"finished": True}, {}, "pod default/a-0 has finished"),
        ({"node": "n1"}, {}, "pod default/a-0 is bound to node n1"),
        ({"node": "n0"}, {}, "pod default/a-0 is bound to node n0"),
        ({"gates": ()}, {}, "pod default/a-0 lost its gate"),
        ({"gpus": 8}, {}, "pod default/a-0 requests 8 GPUs, not 4"),
        ({"intent": FOREIGN, "intent_is_ours": True}, {},
         f"pod default/a-0 carries the intent of plan {OTHER_PLAN}"),
        ({}, {"ready": False}, "node n0 is not Ready"),
        ({}, {"unschedulable": True}, "node n0 is cordoned"),
        ({}, {"labels": (("pool", "x"), ("rack", "r2"))}, "node n0 has the label rack=r2, not r1"),
        ({}, {"labels": (("rack", "r1"),)}, "node n0 lost the label pool=x"),
        ({}, {"labels": (("pool", "x"), ("rack", "r1"), ("spot", ""))},
         "node n0 has the new label spot="),
        ({}, {"labels": (("pool", "x"), ("rack", "r1"), ("other", "y"))}, None),
        ({}, {"gpus": 7}, "node n0 offers 7 GPUs, not 8"),
        ({}, {"gpus": 9}, None),
        ({}, {"allocatable": (("cpu", 1000), ("pods", 1))}, None),
        ({}, {"allocatable": (("cpu", 999),)}, "node n0 lacks free cpu: 1 short"),
        ({}, {"allocatable": (("pods", 0),)}, "node n0 has no room for 1 more pods"),
        ({}, {"taints": (TAINT,)}, "node n0 is tainted k=v:NoSchedule"),
        (tolerates("k", "Equal", "v", ""), {"taints": (TAINT,)}, None),
        (tolerates("k", "Exists", "", "NoSchedule"), {"taints": (TAINT,)}, None),
        (tolerates("", "Exists", "", ""), {"taints": (TAINT,)}, None),
        (tolerates("k", "Equal", "w", ""), {"taints": (TAINT,)},
         "node n0 is tainted k=v:NoSchedule"),
        (tolerates("k", "Exists", "", "NoExecute"), {"taints": (TAINT,)},
         "node n0 is tainted k=v:NoSchedule"),
        (tolerates("j", "Exists", "", ""), {"taints": (TAINT,)},
         "node n0 is tainted k=v:NoSchedule"),
    ],
)  # fmt: skip
def test_a_pod_or_node_that_is_not_what_it_was_is_reported(
    of_pod: dict[str, object], of_node: dict[str, object], what: str | None
) -> None:
    world, plan = planned()
    world.change(A, **of_pod)
    node(world, **of_node)
    assert told(world, plan) == ([] if what is None else [what])


def test_what_is_gone_is_reported_and_a_taint_that_was_there_is_no_news() -> None:
    world, plan = planned()
    node(world, taints=(TAINT,))
    assert told(world, replace(plan, nodes=(replace(plan.nodes[0], taints=(TAINT,)),))) == []
    del world.nodes["n0"]
    assert told(world, plan) == ["node n0 is gone"]
    world, plan = planned()
    world.pods.clear()
    assert told(world, plan) == ["pod default/a-0 is gone"]


def test_room_is_enough_to_the_last_gpu_and_missing_one_beyond() -> None:
    world, plan = planned()
    world.pod("r-0", 4, mode="none", node="n0")
    assert told(world, plan) == []
    world.pod("r-1", 1, mode="none", node="n0")
    assert told(world, plan) == ["node n0 has 3 free GPUs, the plan needs 4"]


def test_a_gpu_that_another_pod_holds_is_missing_though_the_number_would_do() -> None:
    world, plan = planned()
    world.pod("r-0", 2, mode="none", node="n0", indices=(4, 5))
    assert told(world, plan) == []
    world.pod("r-1", 1, mode="none", node="n0", indices=(3,))
    assert told(world, plan) == ["node n0 has GPU 3 in use by pod default/r-1"]


@pytest.mark.parametrize(
    ("rival", "pinned", "stopped", "free"),
    [
        ({"node": "n0"}, False, False, 0),
        ({"node": "n0", "terminating": True}, False, False, 0),
        ({"node": "n0", "finished": True}, False, False, 8),
        ({}, True, False, 0),
        ({}, False, False, 8),
        ({"node": "n0"}, False, True, 8),
    ],
    ids=["runs", "leaving", "finished", "pinned", "waits", "a victim"],
)
def test_what_takes_room_and_what_does_not(
    rival: dict[str, object], *, pinned: bool, stopped: bool, free: int
) -> None:
    world, plan = planned()
    pod = world.pod("r-0", 8, mode="none", **rival)
    if pinned:
        world.pins[pod.uid] = "n0"
    if stopped:
        stops = gang("r", (), "preempt", stops=(stop_for(pod),))
        plan = replace(plan, gangs=(*plan.gangs, stops))
    short = [f"node n0 has {free} free GPUs, the plan needs 4"]
    assert told(world, plan) == (short if free < 4 else [])
