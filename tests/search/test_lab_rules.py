"""The schedulers that benchmarks compare with: their published examples, and never a better plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from building import build, gang, node

from benchmarks.building import DGX_H100
from benchmarks.cases import CASES, instance_of
from benchmarks.generator import busy
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule, signed_values, solution_of
from benchmarks.measure import Referee
from models.instance.cluster import Node
from models.instance.instance import Instance
from planner.search.solve import solve

V100 = {"servers": {"DGX-1 V100": 1}, "largest": 8}
NVL72 = {"servers": {"GB200 NVL72 compute tray": 1}, "racks": (18, 18), "nvlink": True}
DRAWS = {
    "busy": partial(busy, 64, 60, 3),
    "mesh": partial(busy, 20, 20, 1, **V100),
    "nvl72": partial(busy, 54, 14, 1, **NVL72),
    "tight": partial(busy, 32, 30, 2, tight=True, odd=True, preemptible=0.3, movable=0.3),
    "fleet": partial(instance_of, CASES["fleet-64"]),
}
SMALL = {
    "busy": partial(busy, 12, 12, 6),
    "mesh": partial(busy, 12, 14, 2, **V100),
    "nvl72": partial(busy, 36, 10, 0, **NVL72),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_every_plan_of_a_baseline_passes_the_judge(draw: str) -> None:
    instance = DRAWS[draw]()
    referee = Referee(instance)
    for name, rules in AT_ONCE.items():
        decisions = schedule(instance, rules)
        found = referee.figures(solution_of(instance, decisions, name), name)
        assert (name, found["violations"]) == (name, [])
        assert sum(decision.decision == "place" for decision in decisions) > 0


@pytest.mark.parametrize("draw", SMALL)
def test_no_baseline_has_a_better_plan(draw: str) -> None:
    instance = SMALL[draw]()
    limits = replace(instance.policy.solve, budget=2)
    ours = signed_values(solve(replace(instance, policy=replace(instance.policy, solve=limits))))
    for name, rules in AT_ONCE.items():
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
    decisions = schedule(instance, AT_ONCE[scheduler])
    (decision,) = (d for g, d in zip(instance.gangs, decisions, strict=True) if g.name == name)
    counts = Counter(pod.node for pod in decision.pods)
    return [counts[n] for n in range(len(instance.cluster.nodes))]


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    # The example of Kueue's enhancement 2724: nodes for 3, 3, 2 and 1 pods, a gang of seven.
    [("kueue", [3, 3, 0, 1])],
)
def test_kueue_takes_the_domains_of_its_published_example(
    scheduler: str, expected: list[int]
) -> None:
    instance = build(nodes=cluster_of(3, 3, 2, 1), gangs=[gang("a", pods=7, prefer="rack")])
    # Nodes of equal room may stand in for one another.
    found = placed(instance, scheduler, "a")
    assert (sorted(found[:2]), found[2:]) == (sorted(expected[:2]), expected[2:])


@pytest.mark.parametrize(
    "scheduler",
    list(AT_ONCE),
)
def test_a_gang_that_wants_one_rack_gets_the_tightest_that_holds_it(scheduler: str) -> None:
    nodes = cluster_of(8, 8, 8, 8, 8, racks=("r1", "r1", "r1", "r2", "r2"))
    instance = build(nodes=nodes, gangs=[gang("a", pods=2, gpus_per_pod=8, prefer="rack")])
    assert placed(instance, scheduler, "a") == [0, 0, 0, 1, 1]


def test_one_layer_of_slices_is_known() -> None:
    sliced = gang("a", pods=4, gpus_per_pod=8, slices=(2, "rack"))
    within = gang("b", pods=2, gpus_per_pod=8, same="rack", priority=-1)
    instance = build(nodes=cluster_of(*(8,) * 8), gangs=[sliced, within])
    for scheduler, expected in (("kai", (4, 2)), ("volcano", (4, 2))):
        found = tuple(sum(placed(instance, scheduler, name)) for name in ("a", "b"))
        assert found == expected, scheduler
