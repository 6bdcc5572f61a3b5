"""The schedulers that benchmarks compare with: their published examples, and never a better plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from building import build, gang, mask, node

from benchmarks.building import DGX1_V100, DGX_H100
from benchmarks.instances import busy, fleet, mesh, nvl72, running, switched
from benchmarks.measure import Referee
from models.instance.cluster import Node
from models.instance.instance import Instance
from planner.baselines.gpu_choice import buddy, device_plugin, free_cells, koordinator
from planner.baselines.rules import BASELINES
from planner.baselines.scheduler import schedule, signed_values, solution_of
from planner.search.solve import solve

DRAWS = {
    "busy": partial(busy, 64, 60, 3),
    "mesh": partial(mesh, 20, 20, 1, variant="free"),
    "nvl72": partial(nvl72, 3, 14, 1),
    "running": partial(running, 24, 20, 18, 1),
    "fleet": partial(fleet, 48, 1),
    "switched": partial(switched, 32, 30, 2, tight=True, odd_sizes=True, carried=True),
}
SMALL = {
    "busy": partial(busy, 12, 12, 6),
    "mesh": partial(mesh, 12, 14, 2),
    "nvl72": partial(nvl72, 2, 10, 0),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_every_plan_of_a_baseline_passes_the_judge(draw: str) -> None:
    instance = DRAWS[draw]()
    referee = Referee(instance)
    for name, rules in BASELINES.items():
        decisions = schedule(instance, rules)
        found = referee.figures(solution_of(instance, decisions, name), name)
        assert (name, found["violations"]) == (name, [])
        assert sum(decision.decision == "place" for decision in decisions) > 0


@pytest.mark.parametrize("draw", SMALL)
def test_no_baseline_has_a_better_plan(draw: str) -> None:
    instance = SMALL[draw]()
    limits = replace(instance.policy.solve, budget=4)
    ours = signed_values(solve(replace(instance, policy=replace(instance.policy, solve=limits))))
    for name, rules in BASELINES.items():
        theirs = solution_of(instance, schedule(instance, rules), name)
        assert ours >= signed_values(theirs), name


def cluster_of(*free: int, racks: tuple[str, ...] = ()) -> list[Node]:
    """DGX H100 with so many GPUs free each, the others sick; all in one rack unless named."""
    return [
        node(f"n{i}", DGX_H100, rack=racks[i] if racks else "r1", unhealthy=range(count, 8))
        for i, count in enumerate(free)
    ]


def placed(instance: Instance, scheduler: str, name: str) -> list[int]:
    """Pods of the gang on each node, in the order of the nodes."""
    decisions = schedule(instance, BASELINES[scheduler])
    (decision,) = (d for g, d in zip(instance.gangs, decisions, strict=True) if g.name == name)
    counts = Counter(pod.node for pod in decision.pods)
    return [counts[n] for n in range(len(instance.cluster.nodes))]


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    # The example of Kueue's enhancement 2724: nodes for 3, 3, 2 and 1 pods, a gang of seven.
    [("kueue-best-fit", [3, 3, 0, 1]), ("kueue-least-free", [1, 3, 2, 1])],
)
def test_kueue_takes_the_domains_of_its_published_example(
    scheduler: str, expected: list[int]
) -> None:
    instance = build(nodes=cluster_of(3, 3, 2, 1), gangs=[gang("a", pods=7, prefer="rack")])
    # Nodes of equal room may stand in for one another.
    found = placed(instance, scheduler, "a")
    assert (sorted(found[:2]), found[2:]) == (sorted(expected[:2]), expected[2:])


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [("kube-spread", [0, 0, 1]), ("kube-pack", [1, 0, 0]), ("first-fit-decreasing", [1, 0, 0])],
)
def test_a_pod_goes_to_the_emptiest_the_fullest_or_the_first_node(
    scheduler: str, expected: list[int]
) -> None:
    instance = build(nodes=cluster_of(2, 4, 8), gangs=[gang("a", gpus_per_pod=2)])
    assert placed(instance, scheduler, "a") == expected


@pytest.mark.parametrize(
    "scheduler",
    ["kueue-best-fit", "kueue-least-free", "kai", "volcano", "hived", "koordinator"],
)
def test_a_gang_that_wants_one_rack_gets_the_tightest_that_holds_it(scheduler: str) -> None:
    nodes = cluster_of(8, 8, 8, 8, 8, racks=("r1", "r1", "r1", "r2", "r2"))
    instance = build(nodes=nodes, gangs=[gang("a", pods=2, gpus_per_pod=8, prefer="rack")])
    assert placed(instance, scheduler, "a") == [0, 0, 0, 1, 1]


def test_fgd_avoids_the_node_whose_fragment_would_grow() -> None:
    # Free 3, 5 and 8; half of the pods ask 1 GPU, a fifth 2, a fifth 4, a tenth 8. The expected fragments are
    # 0.9, 0.5 and 0. Four GPUs of the second node leave 1 x 0.5 there, of the third 4 x 0.1 where was none.
    queue = [gang(f"q{i}", gpus_per_pod=size) for i, size in enumerate((1,) * 5 + (2, 2, 4, 8))]
    instance = build(
        nodes=cluster_of(3, 5, 8), gangs=[gang("a", gpus_per_pod=4, priority=1), *queue]
    )
    assert placed(instance, "fgd", "a") == [0, 1, 0]


def test_what_a_scheduler_does_not_know_waits() -> None:
    sliced = gang("a", pods=4, gpus_per_pod=8, slices=(2, "rack"))
    within = gang("b", pods=2, gpus_per_pod=8, same="rack", priority=-1)
    instance = build(nodes=cluster_of(*(8,) * 8), gangs=[sliced, within])
    for scheduler, expected in (("kai", (4, 2)), ("hived", (0, 2)), ("fgd", (0, 0))):
        found = tuple(sum(placed(instance, scheduler, name)) for name in ("a", "b"))
        assert found == expected, scheduler


def test_gpu_sets_are_those_of_the_published_rules() -> None:
    # Pairs and quads as in the plugin's table for the DGX-1 Volta.
    assert device_plugin(DGX1_V100, 0xFF, 2) == mask(0, 3)
    assert device_plugin(DGX1_V100, 0xFF, 4) == mask(0, 1, 2, 3)
    # 1, 4, 5, 6, 7 are free: 1 is far from 4, 6 and 7.
    assert koordinator(DGX1_V100, mask(1, 4, 5, 6, 7), 4) == mask(4, 5, 6, 7)
    # Any GPU would do, but only 1 breaks no free block of two or more.
    assert koordinator(DGX_H100, mask(1, 2, 3, 4, 5), 1) == mask(1)
    assert free_cells(mask(1, 2, 4, 5, 6, 7), 8) == [mask(4, 5, 6, 7), mask(1), mask(2)]
    assert buddy(DGX_H100, mask(1, 2, 4, 5, 6, 7), 1) == mask(1)
    assert buddy(DGX_H100, mask(1, 2, 4, 5, 6, 7), 2) == mask(4, 5)
