"""A start from an earlier plan: as far as it stands, and no further. Servers have 8 GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from threading import Event

from building import build, gang, mask, node
from building_servers import switched
from by_steps import better, faults
from effort import examples
from tiny_busy import busy

from models.documents.policy import SolveLimits
from models.instance.gang import Gang, PlannedPod
from models.instance.instance import EarlierPlan, Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.search.start.warm_start import resume

SEEDS = examples(200, 40)


def after(instance: Instance, earlier: Mapping[str, Sequence[int]]) -> Instance:
    """The instance with an earlier plan: the nodes of each gang's pods, none for one that waits or stops."""
    gangs = tuple(
        replace(
            one,
            planned=tuple(PlannedPod(0, i, n) for i, n in enumerate(earlier.get(one.name, ()))),
        )
        for one in instance.gangs
    )
    known = frozenset(one.key for one in gangs if one.name in earlier)
    return replace(instance, gangs=gangs, earlier=EarlierPlan(known, {}))


def resumed(instance: Instance) -> dict[str, GangDecision]:
    """The decision about each gang, by name."""
    plan = resume(instance, base_decisions(instance), Budget(instance.policy.solve))
    assert plan is not None
    return {gang.name: one for gang, one in zip(instance.gangs, plan, strict=True)}


def servers(count: int, *gangs: Gang) -> Instance:
    return build(nodes=[node(f"n{i}", switched(8)) for i in range(count)], gangs=gangs)


def runs(name: str, n: int, *gpus: int, **may: bool) -> Gang:
    """A gang of one pod that runs with these GPUs."""
    stands = [(0, 0, n, mask(*gpus))]
    movable, preemptible = may.get("movable", False), may.get("preemptible", False)
    return gang(name, 1, len(gpus), stands=stands, movable=movable, preemptible=preemptible)


def test_a_waiting_gang_starts_where_the_earlier_plan_had_it() -> None:
    # the tightest gap is on n0; the earlier plan chose n2
    instance = after(servers(3, runs("r", 0, 0, 1, 2, 3), gang("a", 1, 4)), {"a": [2], "r": [0]})
    assert [pod.node for pod in resumed(instance)["a"].pods] == [2]


def test_a_move_is_made_again_where_somebody_needs_it() -> None:
    gangs = runs("fixed", 0, 0, 1), runs("mover", 1, 0, movable=True), gang("big", 1, 8)
    earlier = {"fixed": [0], "mover": [0], "big": [1]}
    found = resumed(after(servers(2, *gangs), earlier))
    assert found["mover"].decision == "move"
    assert found["big"].decision == "place"


def test_a_stop_is_made_again_only_for_a_gang_that_comes() -> None:
    low = runs("low", 0, 0, preemptible=True)
    earlier = {"low": [], "high": [0]}
    again = resumed(after(servers(1, low, gang("high", 1, 8, priority=1)), earlier))
    assert again["low"].decision == "preempt"
    assert again["high"].decision == "place"
    other = gang("other", 1, 2, priority=1)
    alone = after(servers(1, low, other), {"low": [], "other": [0]})
    assert resumed(alone)["low"].decision == "keep"


def test_the_plan_of_the_same_instance_is_found_again() -> None:
    same = asked = 0
    for seed in range(SEEDS):
        r = Random(f"warm/{seed}")
        names = ("priorities", "preemptible", "movable", "running")
        instance = busy(seed, more=[name for name in names if r.random() < 0.5])
        found = solve(instance).decisions
        gangs = tuple(
            replace(one, planned=tuple(PlannedPod(p.role, p.index, p.node) for p in decision.pods))
            for one, decision in zip(instance.gangs, found, strict=True)
        )
        earlier = EarlierPlan(frozenset(one.key for one in gangs), {})
        again = replace(instance, gangs=gangs, earlier=earlier)
        plan = resume(again, base_decisions(again), Budget(SolveLimits()))
        if plan is None:
            continue
        ledger = Ledger(again, base_decisions(again))
        ledger.offer(plan)
        decisions = ledger.incumbent.decisions
        reasoned = with_reasons(again, decisions, Budget(SolveLimits(), Event()))
        assert faults(again, reasoned) == [], seed
        asked += 1
        same += better(instance, decisions)[:-2] >= better(instance, found)[:-2]
    # the search also chooses sizes, GPUs of meshes and pods without GPUs
    assert same > asked // 2
