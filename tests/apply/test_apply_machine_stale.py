"""Changes that make a plan stale, and changes that do not: ``stale_cases.yaml``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from apply_world import OTHER_PLAN, World, gang, order_for, orders, stopped, world_of
from msgspec import structs

from models.apply.plan_actions import NodeAssumptions, PlanActions
from models.apply.records import PodPlace, StartRecord
from models.apply.staleness import changes
from models.documents.gang import Toleration

CASES = yaml.load(
    Path(__file__).with_name("stale_cases.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)


def planned() -> tuple[World, PlanActions]:
    world = world_of(2)
    labels = (("rack", "r1"), ("pool", "x"))
    changed(world, {"allocatable": [["cpu", 1500], ["pods", 3]], "labels": labels})
    start = order_for(world.pod("a-0", 4, requests=(("cpu", 1000),)), "n0", range(4))
    relied = NodeAssumptions("n0", 8, (*labels, ("spot", None)))
    return world, replace(orders(world, gang("a", [start])), nodes=(relied,))


def changed(world: World, of_node: dict[str, Any]) -> None:
    more = {key: frozen(value) for key, value in of_node.items()}
    world.nodes["n0"] = replace(world.nodes["n0"], **more)


def frozen(value: Any) -> Any:  # noqa: ANN401
    return tuple(map(frozen, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_changed_since_is_reported_if_it_matters(case: dict[str, Any]) -> None:
    world, plan = planned()
    if rival := case.get("rival"):
        pod = world.pod("r-0", mode="none", **{key: frozen(one) for key, one in rival.items()})
        world.pins |= {pod.uid: "n0"} if "pinned" in case else {}
        plan = replace(
            plan, gangs=(*plan.gangs, *([stopped("r", [pod])] if "victim" in case else []))
        )
    if "beside" in case:
        starts = (*plan.gangs[0].starts, order_for(world.pod("a-1", 0), "n0", ()))
        plan = replace(plan, gangs=(structs.replace(plan.gangs[0], starts=starts),))
    if case.get("pod", ()) is None:
        world.pods.clear()
    elif pod := case.get("pod"):
        more = {key: frozen(value) for key, value in pod.items()}
        if more.pop("recorded", None):
            key, place = ("default", "a"), PodPlace("a-0", world.pods["default", "a-0"].uid, "n1")
            world.records[key, OTHER_PLAN] = StartRecord(key, OTHER_PLAN, (place,))
        if "tolerations" in more:
            more["tolerations"] = tuple(Toleration(*one) for one in more["tolerations"])
        world.change(("default", "a-0"), **more)
    if case.get("node", ()) is None:
        del world.nodes["n0"]
    else:
        changed(world, case.get("node", {}))
    if "known" in case:
        relied = replace(plan.nodes[0], taints=world.nodes["n0"].taints)
        plan = replace(plan, nodes=(relied,))
    said = [str(line) for line in changes(plan, world.view())]
    assert said == ([case["says"]] if "says" in case else [])
