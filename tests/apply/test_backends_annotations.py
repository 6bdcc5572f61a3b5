"""The back end that writes annotations, for HAMi, and when it must not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_world import PLAN

from models.apply.intents import PLAN as MARK
from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.plan_actions import GangActions, PlanActions, PodStart, PodStop
from models.apply.requests import Done
from models.instance.policy import GPU_BACKENDS
from planner.cluster.backends import backend_of
from planner.cluster.backends.base import Backend
from planner.cluster.transport import Reply, Transport, Tree
from planner.read.kube.dialects.base import CannotEncode

USE, AVOID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
REGISTER = "hami.io/node-nvidia-register"


class NoWire:
    """A wire that nothing may be sent on."""

    def send(self, method: str, path: str, body: Tree | None = None, **_: Any) -> Reply:  # noqa: ANN401
        raise AssertionError((method, path, body))


def order(*gpus: int, open_: int = 0) -> PodStart:
    """``open_``: so many GPUs, which the node decides."""
    return PodStart(
        namespace="a",
        name="p",
        uid="u",
        role="worker",
        index=0,
        node="n1",
        gpus=None if open_ else gpus,
        gpu_count=open_ or len(gpus),
    )


def pod(scheduler: str = "hami-scheduler", **annotations: str) -> Tree:
    metadata = {"name": "p", "namespace": "a", "uid": "u", "annotations": annotations}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler}}


def node(register: str | None = None, gpus: int = 8) -> Tree:
    annotations = {} if register is None else {REGISTER: register}
    capacity = {"nvidia.com/gpu": str(gpus), "cpu": "96"}
    return {
        "metadata": {"name": "n1", "annotations": annotations},
        "status": {"capacity": capacity},
    }


def cards(*uuids: str) -> str:
    """A registration in HAMi's JSON; the index is left out where it is 0, as HAMi does."""
    return json.dumps(
        [{"id": u, "count": 10, **({"index": i} if i else {})} for i, u in enumerate(uuids)]
    )


# ---- all of them


@pytest.mark.parametrize("name", GPU_BACKENDS)
def test_every_back_end_of_the_policy_is_there_and_says_what_it_enforces(name: str) -> None:
    found: Backend = backend_of(name)
    assert found.name == name
    assert found.note
    assert not found.note.endswith(".")


@pytest.mark.parametrize("name", ["annotation", "none", "hami"])
def test_back_ends_without_objects_send_nothing(name: str) -> None:
    found = backend_of(name)
    wire: Transport = NoWire()
    assert found.allocate(wire, order(0), LivePod("a", "p", "u", "1"), pod()) == Done()
    assert found.release(wire, pod()) == Done()


# ---- HAMi


def test_hami_gets_the_uuids_in_order_of_their_indices() -> None:
    written = backend_of("hami").annotations(order(1, 3), node(cards("A", "B", "C", "D")), pod())
    assert written == {USE: "B,D"}


@pytest.mark.parametrize(
    ("register", "why"),
    [
        (None, "node n1 registered no card with HAMi as GPU 1"),
        (cards("A"), "node n1 registered no card with HAMi as GPU 1"),
        ("[{", "node n1 registered no card with HAMi as GPU 1"),
        (
            json.dumps([{"id": "A", "index": 1}, {"id": "B", "index": 1}]),
            "node n1 registered several cards with HAMi as GPU 1",
        ),
    ],
)
def test_hami_gets_nothing_the_node_did_not_register(register: str | None, why: str) -> None:
    with pytest.raises(CannotEncode) as caught:
        backend_of("hami").annotations(order(1), node(register), pod())
    assert str(caught.value) == why


@pytest.mark.parametrize("scheduler", ["default-scheduler", "gangplan", "volcano"])
def test_only_hamis_scheduler_accepts_cards(scheduler: str) -> None:
    with pytest.raises(CannotEncode, match=f"its scheduler is {scheduler}"):
        backend_of("hami").annotations(order(0), node(cards("A")), pod(scheduler))
    whole = order(*range(8))
    assert backend_of("hami").annotations(whole, node(), pod(scheduler)) == {}


def test_a_choice_of_cards_by_the_pods_owner_stands() -> None:
    with pytest.raises(CannotEncode, match="chooses cards already"):
        backend_of("hami").annotations(order(0), node(cards("A")), pod(**{USE: "A"}))
    ours = pod(**{USE: "B", MARK: PLAN})
    assert backend_of("hami").annotations(order(0), node(cards("A")), ours) == {USE: "A"}
    with pytest.raises(CannotEncode, match="forbids a card"):
        backend_of("hami").annotations(order(0), node(cards("A")), pod(**{AVOID: "B, A"}))


def test_what_the_plan_leaves_open_is_left_open() -> None:
    found = backend_of("hami")
    assert found.annotations(order(open_=4), node(), pod("x")) == {}
    assert found.annotations(order(), node(), pod("x")) == {}, "a launcher has no GPUs"


# ---- before anybody is evicted


def orders(*pods: PodStart, evicts: bool = True) -> PlanActions:
    stops = (PodStop("a", "q", "v", "worker", 0, "n1", 8),) if evicts else ()
    gangs = tuple(
        GangActions("a", f"g{i}", "place", 0, starts=(pod_,)) for i, pod_ in enumerate(pods)
    )
    gangs = (*gangs, GangActions("a", "loser", "preempt", 0, stops=stops))
    return PlanActions(PLAN, "c", "2026-11-21T00:00:00Z", "gate", "hami", gangs, ())


def view(scheduler: str = "default-scheduler") -> ClusterView:
    waiting = LivePod("a", "p", "u", "1", scheduler=scheduler)
    return ClusterView("c", {"n1": LiveNode("n1", gpus=8)}, {("a", "p"): waiting})


def test_no_pod_is_evicted_for_a_gang_that_cannot_get_its_gpus() -> None:
    """g1 takes the whole node and g2 leaves the choice to it: nothing to write for either."""
    plan = orders(order(0), order(*range(8)), order(open_=2))
    found = backend_of("hami")
    (said,) = found.check(plan, view())
    assert said.startswith("gang a/g0: pod p: its scheduler is default-scheduler, and only HAMi's")
    assert found.check(plan, view("hami-scheduler")) == []
