"""perGpu: a free GPU without its share of cpu and memory counts as stranded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from building import build, gang, mask, node, role
from building_servers import switched

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from models.values.leftover import stranded
from models.values.tier_values import Evaluation
from planner.search.solve import solve
from planner.search.start.greedy import greedy


def shared(instance: Instance, **per_gpu: int) -> Instance:
    """The instance with shares that free GPUs need, by resource."""
    return replace(
        instance, policy=replace(instance.policy, per_gpu=tuple(sorted(per_gpu.items())))
    )


CPU = role("server", 1, 0, requests={"cpu": 40})
FULL = gang("full", 1, 8, requests={"cpu": 60}, stands=[(0, 0, 0, mask(*range(8)))])


def placed_on(instance: Instance, decisions: tuple[GangDecision, ...], name: str) -> str:
    (own,) = (d for g, d in zip(instance.gangs, decisions, strict=True) if g.name == name)
    return instance.cluster.nodes[own.pods[0].node].name


@pytest.mark.parametrize(
    ("cpu_node", "expected"), [(True, "n3"), (False, "n1")], ids=["a cpu node", "a taken node"]
)
def test_a_pod_without_gpus_stays_away_from_free_gpus(cpu_node: bool, expected: str) -> None:
    # 100 cpu a server, 12 a GPU. On n2 40 of them would leave 60 for eight GPUs: three stranded. On n1
    # nothing is free to be stranded, and n3 has no GPUs.
    model = switched(8)
    nodes = [
        node("n1", model, allocatable={"cpu": 100}),
        node("n2", model, allocatable={"cpu": 100}),
    ]
    nodes += [node("n3", None, allocatable={"cpu": 50})] if cpu_node else []
    gangs = [gang("cpu", roles=[CPU]), *([] if cpu_node else [FULL])]
    instance = shared(build(nodes=nodes, gangs=gangs, mix={1: 1000}), cpu=12)
    for decisions in (
        greedy(instance, base_decisions(instance)),
        solve(instance).decisions,
    ):
        assert placed_on(instance, decisions, "cpu") == expected
        assert Evaluation(instance, decisions).vector()[-1] == 0


def test_the_roomier_node_is_taken_although_it_has_more_free_gpus() -> None:
    # n1: 4 free GPUs and 48 cpu left, all of which they need. n2: 8 free GPUs, 200 cpu, 96 needed.
    half = gang("half", 1, 4, requests={"cpu": 52}, stands=[(0, 0, 0, mask(0, 1, 2, 3))])
    nodes = [
        node("n1", switched(8), allocatable={"cpu": 100}),
        node("n2", switched(8), allocatable={"cpu": 200}),
    ]
    instance = build(nodes=nodes, gangs=[half, gang("cpu", roles=[CPU])], mix={1: 1000})
    for shares, expected in (({}, "n1"), ({"cpu": 12}, "n2")):
        own = shared(instance, **shares)
        assert placed_on(own, greedy(own, base_decisions(own)), "cpu") == expected
    found = solve(shared(instance, cpu=12))
    assert placed_on(instance, found.decisions, "cpu") == "n2"
    assert found.stopped_by == "proof"


def test_usable_gpus_by_hand() -> None:
    # Free GPUs 8, 8, 4; cpu for 8, 5 and 4 of them. mix: 1 for 300, 4 for 500, 16 for 200 permille.
    # F = 20. Size 1: 8 + 5 + 4 = 17, so 3 x 300; size 4: 2 + 1 + 1 = 4, so 4 x 500; two whole servers
    # for 16: only one is usable as a whole, so 20 x 200.
    nodes = [
        node("n1", switched(8), allocatable={"cpu": 100}),
        node("n2", switched(8), allocatable={"cpu": 69, "memory": 10**12}),
        node("n3", switched(8), allocatable={}),
    ]
    half = gang("half", 1, 4, stands=[(0, 0, 2, mask(0, 1, 2, 3))])
    instance = build(nodes=nodes, gangs=[half], mix={1: 300, 4: 500, 16: 200})
    own = shared(instance, cpu=12, memory=10**9)
    base = Evaluation(own, base_decisions(own))
    assert (base.free, base.usable) == ([8, 8, 4], [8, 5, 4])
    assert stranded(own, base.free, base.usable) == 3 * 300 + 4 * 500 + 20 * 200
    assert stranded(instance, base.free) == 0 + 0 + 4 * 200
