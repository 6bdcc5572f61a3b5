"""Which nodes other schedulers may fill while we bind pods to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.apply.intents import Intent
from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.plan_actions import GangActions, PlanActions, PodStart, PodStop
from planner.cluster.node_guard import open_nodes, unguarded

OWN = ("example.com/ours", "yes", "NoSchedule")


def node(*taints: tuple[str, str, str]) -> LiveNode:
    return LiveNode("n1", gpus=8, taints=taints)


def pod(name: str, scheduler: str = "default-scheduler", **more: object) -> LivePod:
    """A pod with a GPU on n1, if nothing else is said."""
    made = LivePod("team", name, f"u-{name}", "1", node="n1", gpus=1, scheduler=scheduler)
    return replace(made, **more)  # type: ignore[arg-type]


def why(made: LiveNode, *pods: LivePod, ours: tuple[str, ...] = ()) -> list[str]:
    return [said for _, said in unguarded([made], pods, scheduler="gangplan", ours=ours)]


def test_a_taint_of_the_cluster_keeps_others_off() -> None:
    assert why(node(OWN)) == []
    assert why(node(("example.com/ours", "", "NoExecute"))) == []


def test_without_a_taint_a_node_is_open() -> None:
    assert why(node()) == ["no taint keeps other schedulers off it"]


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "aliyun.com/gpu",
        "habana.ai/gaudi",
        "node.kubernetes.io/unschedulable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    ],
)
def test_taints_that_every_gpu_pod_tolerates_or_that_pass_do_not_count(key: str) -> None:
    assert why(node((key, "", "NoSchedule"))) == ["no taint keeps other schedulers off it"]
    assert why(node((key, "", "NoSchedule"), OWN)) == []


def test_a_gpu_pod_of_another_scheduler_shows_that_the_taint_does_not_help() -> None:
    assert why(node(OWN), pod("vit-0")) == ["team/vit-0 of default-scheduler holds GPUs on it"]


@pytest.mark.parametrize(
    "harmless",
    [
        pod("ours", "gangplan"),
        pod("cpu", gpus=0),
        pod("done", finished=True),
        pod("dying", terminating=True),
        pod("elsewhere", node="n2"),
        pod("meant", intent=Intent("gp-0", "g", 1, "n1", None), intent_is_ours=True),
    ],
    ids=lambda one: one.name,
)
def test_pods_that_prove_nothing_are_passed_over(harmless: LivePod) -> None:
    assert why(node(OWN), harmless) == []


def test_pods_of_the_plan_itself_are_ours_whoever_schedules_them() -> None:
    assert why(node(OWN), pod("vit-0"), ours=("u-vit-0",)) == []


def test_a_pod_that_the_plan_stops_shows_nothing_of_who_comes_next() -> None:
    start = PodStart("team", "new-0", "u-new-0", "w", 0, "n1", None, 1, mode="binding")
    stop = PodStop("team", "old-0", "u-old-0", "w", 0, "n1", 1)
    gangs = (
        GangActions("team", "new", "place", 9, starts=(start,)),
        GangActions("team", "old", "preempt", 0, stops=(stop,)),
    )
    orders = PlanActions("gp-0", "c", "", "g", "gangplan", "annotation", gangs, ())
    new = pod("new-0", "gangplan", node=None)
    view = ClusterView("c", {"n1": node(OWN)}, {one.key: one for one in (new, pod("old-0"))})
    assert open_nodes(orders, view) == []
    stranger = pod("stranger-0")
    view.pods[stranger.key] = stranger
    assert [name for name, _ in open_nodes(orders, view)] == ["n1"]
