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
from planner.cluster.transport import Reply, Tree
from planner.read.kube.dialects.base import CannotEncode

USE, AVOID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"


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


def cards(*uuids: str) -> str:
    """A registration in HAMi's JSON; the index is left out where it is 0, as HAMi does."""
    return json.dumps(
        [{"id": u, "count": 10} | ({"index": i} if i else {}) for i, u in enumerate(uuids)]
    )


TWICE = json.dumps([{"id": "A", "index": 1}, {"id": "B", "index": 1}])
WHOLE = order(*range(8))
CHOSEN = f"its own annotation {USE} chooses cards already"
FORBIDDEN = f"its annotation {AVOID} forbids a card that the plan gives it"
ONLY = "its scheduler is {}, and only HAMi's scheduler reads a list of cards"


@pytest.mark.parametrize("name", GPU_BACKENDS)
def test_every_back_end_of_the_policy_is_there_and_says_what_it_enforces(name: str) -> None:
    found = backend_of(name)
    assert found.name == name
    assert found.note
    assert not found.note.endswith(".")
    if name != "dra":  # those without objects send nothing
        assert found.allocate(NoWire(), order(0), LivePod("a", "p", "u", "1"), pod()) == Done()
        assert found.release(NoWire(), pod()) == Done()


@pytest.mark.parametrize(
    ("start", "on", "tree", "expected"),
    [
        # cards in order of their indices, and nothing that the node did not register
        (order(1, 3), cards("A", "B", "C", "D"), pod(), {USE: "B,D"}),
        (order(0), cards("A"), pod(), {USE: "A"}),
        (order(1), None, pod(), "node n1 registered no card with HAMi as GPU 1"),
        (order(1), cards("A"), pod(), "node n1 registered no card with HAMi as GPU 1"),
        (order(1), "[{", pod(), "node n1 registered no card with HAMi as GPU 1"),
        (order(1), TWICE, pod(), "node n1 registered several cards with HAMi as GPU 1"),
        # only HAMi's scheduler reads them; a whole node needs no choice
        *[
            (order(0), cards("A"), pod(name), ONLY.format(name))
            for name in ("default-scheduler", "gangplan", "volcano")
        ],
        *[(WHOLE, None, pod(name), {}) for name in ("default-scheduler", "gangplan", "volcano")],
        # what the pod's owner chose stands
        (order(0), cards("A"), pod(**{USE: "A"}), CHOSEN),
        (order(0), cards("A"), pod(**{USE: "B", MARK: PLAN}), {USE: "A"}),
        (order(0), cards("A"), pod(**{AVOID: "B, A"}), FORBIDDEN),
        (order(0), cards("A"), pod(**{AVOID: "B"}), {USE: "A"}),
        # what the plan leaves open; a launcher has no GPUs
        (order(open_=4), None, pod("x"), {}),
        (order(), None, pod("x"), {}),
    ],
)  # fmt: skip
def test_what_is_written_for_hami_or_why_nothing_is(
    start: PodStart, on: str | None, tree: Tree, expected: dict[str, str] | str
) -> None:
    try:
        found: object = backend_of("hami").annotations(start, node(on), tree)
    except CannotEncode as error:
        found = str(error)
    assert found == expected


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
