"""The back end that writes annotations, for HAMi, and when it must not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_world import CASES, PLAN

from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.plan_actions import GangActions, PlanActions, PodStart, PodStop
from models.apply.requests import Done
from models.instance.policy import GPU_BACKENDS
from planner.cluster.backends import backend_of
from planner.cluster.transport import Reply, Tree
from planner.read.kube.dialects.base import CannotEncode

USE = "nvidia.com/use-gpuuuid"


class NoWire:
    """A wire that nothing may be sent on."""

    def send(self, method: str, path: str, body: Tree | None = None, **_: Any) -> Reply:  # noqa: ANN401
        raise AssertionError((method, path, body))


def order(*gpus: int, open_: int = 0) -> PodStart:
    """``open_``: so many GPUs, which the node decides."""
    return PodStart("a", "p", "u", "worker", 0, "n1", None if open_ else gpus, open_ or len(gpus))


def pod(scheduler: str = "hami-scheduler", **annotations: str) -> Tree:
    metadata = {"name": "p", "namespace": "a", "uid": "u", "annotations": annotations}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler}}


def node(register: str | None = None) -> Tree:
    annotations = {} if register is None else {"hami.io/node-nvidia-register": register}
    capacity = {"nvidia.com/gpu": "8", "cpu": "96"}
    return {
        "metadata": {"name": "n1", "annotations": annotations},
        "status": {"capacity": capacity},
    }


def cards(named: list[str] | str | None) -> str | None:
    """A registration in HAMi's JSON; the index is left out where it is 0, as HAMi does."""
    if not isinstance(named, list):
        return named
    return json.dumps([{"id": one} | ({"index": i} if i else {}) for i, one in enumerate(named)])


WHOLE = order(*range(8))


@pytest.mark.parametrize("name", GPU_BACKENDS)
def test_every_back_end_of_the_policy_is_there_and_says_what_it_enforces(name: str) -> None:
    found = backend_of(name)
    assert found.name == name
    assert found.note
    assert not found.note.endswith(".")
    if name != "dra":  # those without objects send nothing
        assert found.allocate(NoWire(), order(0), LivePod("a", "p", "u", "1"), pod()) == Done()
        assert found.release(NoWire(), pod()) == Done()


@pytest.mark.parametrize("case", CASES["hami"], ids=str)
def test_what_is_written_for_hami_or_why_nothing_is(case: dict[str, Any]) -> None:
    gpus, scheduler = case["gpus"], case.get("scheduler", "hami-scheduler")
    start = order(open_=gpus) if isinstance(gpus, int) else order(*gpus)
    tree = pod(scheduler, **case.get("annotations", {}))
    try:
        found: object = backend_of("hami").annotations(
            start, node(cards(case.get("register"))), tree
        )
    except CannotEncode as error:
        found = str(error)
    assert found == case.get("why", {USE: case["written"]} if "written" in case else {})


def test_no_pod_is_evicted_for_a_gang_that_cannot_get_its_gpus() -> None:
    """g1 takes the whole node and g2 leaves the choice to it: nothing to write for either."""
    stop = PodStop("a", "q", "v", "worker", 0, "n1", 8)
    gangs = tuple(
        GangActions("a", f"g{i}", "place", 0, starts=(one,))
        for i, one in enumerate((order(0), WHOLE, order(open_=2)))
    )
    gangs = (*gangs, GangActions("a", "loser", "preempt", 0, stops=(stop,)))
    plan = PlanActions(PLAN, "c", "2026-11-21T00:00:00Z", "gate", "hami", gangs, ())
    for scheduler, expected in (("hami-scheduler", []), ("default-scheduler", ["g0"])):
        waiting = LivePod("a", "p", "u", "1", scheduler=scheduler)
        view = ClusterView("c", {"n1": LiveNode("n1", gpus=8)}, {("a", "p"): waiting})
        said = backend_of("hami").check(plan, view)
        assert [one.partition(": pod p: its scheduler is default-scheduler, and only HAMi's")[0]
                for one in said] == [f"gang a/{name}" for name in expected]  # fmt: skip
