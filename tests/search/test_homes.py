"""Plans that follow a solution of the slots: each gang in the domain that the solution has for it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from building import build, gang, mask, node
from building_servers import switched

from models.documents.policy import Objective
from models.instance.cluster import Node
from models.instance.instance import Instance
from models.instance.queue import Amount, Queue
from models.instance.reshaping import with_reshapable
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import base_decisions
from models.program.linear_program import Linear
from models.program.slots.slot_program import SlotModel
from models.values.tier_values import Evaluation, tiers_of
from planner.search.bound.slot_bounds import SlotProblem, SlotSearch
from planner.search.budget import Budget
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy


def aimed(instance: Instance) -> dict[str, int]:
    """The values after the plan that follows one solution for all tiers."""
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    slots = SlotSearch(ledger, Budget(instance.policy.solve), frozenset(), tuple)
    slots.build()
    slots.aim()
    return {result.name: result.value for result in ledger.results()}


def test_who_was_to_move_stays_where_the_time_is_over_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = cleared()
    budget = Budget(instance.policy.solve)
    model = SlotModel(instance)
    goal = Goal(expression(model, instance, "admission/1"), maximize=True)
    values = branch(model.program, goal, budget, nodes=100, seconds=10).values
    moved = [mode for mode in model.modes if values[mode.variable] and mode.option.effect.moved]
    assert moved, "the pair needs its rack"
    looks = iter([False])  # the pair is placed, nobody after it
    monkeypatch.setattr(budget, "exhausted", lambda: next(looks, True))
    decisions = SlotProblem(model, budget).decode(values)
    waits = ["wait" if one.name == "pair" else "keep" for one in instance.gangs]
    assert [one.decision for one in decisions] == waits


def parts_beside_servers(gpus: tuple[str, str]) -> list[Node]:
    """Two servers that may be partitioned, by their GPU, which have instances of unlike profiles."""
    boards = ("H100-80", "H200")
    kinds = tuple((f"nvidia.com/mig-{name}", 0) for name in ("3g.40gb", "3g.71gb"))
    return [
        replace(node(f"n{i}", switched(8, gpu=gpu)), allocatable=kinds, dynamic_mig=board)
        for i, (gpu, board) in enumerate(zip(gpus, boards, strict=True))
    ]


def test_slow_gangs_leave_fast_servers_to_those_that_are_fast_in_the_solution() -> None:
    """The large gang is placed first, and is slow in the solution: the small ones need the fast server."""
    speeds = (Fraction(2250), Fraction(312))
    nodes = [
        replace(one, model=replace(one.model, relative_speed=speed))
        for one, speed in zip(parts_beside_servers(("B200", "A100")), speeds, strict=True)
        if one.model is not None
    ]
    gangs = [gang(f"small{k}", 1, 1, priority=1) for k in range(8)]
    gangs += [gang("part", 1, 0, requests={"nvidia.com/mig-3g.40gb": 1}), gang("large", 1, 8)]
    instance = with_reshapable(build(nodes=nodes, gangs=gangs, objectives=("goodput", "waiting")))
    model, budget = SlotModel(instance), Budget(instance.policy.solve)
    both = Linear().add_linear(expression(model, instance, "goodput/1"), 100)
    both.add_linear(expression(model, instance, "goodput/0"))
    goal = Goal(both, maximize=True)
    values = branch(model.program, goal, budget, nodes=100, seconds=10).values
    value = Evaluation(instance, SlotProblem(model, budget).decode(values))
    found = {tier.name: value.tier(tier) for tier in tiers_of(instance)}
    assert found["goodput/1"] == 8000
    assert found["goodput/0"] == 960, "the large gang is on the slow server"
    assert 100 * found["goodput/1"] + found["goodput/0"] == both.value(values)


def racks(*sizes: int) -> list[Node]:
    """Servers of 8 GPUs, so many in each rack of one block."""
    names = [f"r{rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    return [node(f"n{i:02}", switched(8), "b", rack) for i, rack in enumerate(names)]


def cleared() -> Instance:
    """Each rack has a server with one GPU taken: in one by a gang that may move, in the other not."""
    stays = gang("stays", 1, 1, stands=[(0, 0, 0, mask(0))])
    moves = gang("moves", 1, 1, stands=[(0, 0, 2, mask(0))], movable=True)
    pair = gang("pair", 2, 8, same="rack", priority=1)
    spare = [node("n04", switched(8), "b", "r2")]
    return build(nodes=[*racks(2, 2), *spare], gangs=[stays, moves, pair])


def expression(model: SlotModel, instance: Instance, name: str) -> Linear:
    """What the program has for a tier."""
    found = next(model.expression(tier) for tier in tiers_of(instance) if tier.name == name)
    assert found is not None, name
    return found


def test_a_plan_that_stops_a_gang_which_may_only_move_is_mended() -> None:
    instance = cleared()
    ledger = Ledger(instance, base_decisions(instance))
    comes = [
        GangDecision("place", (PodPlacement(0, 0, 2, 255), PodPlacement(0, 1, 3, 255)))
        if one.name == "pair"
        else GangDecision("preempt")
        if one.name == "moves"
        else decision
        for one, decision in zip(instance.gangs, base_decisions(instance), strict=True)
    ]
    ledger.offer(comes)
    stopped = [one.decision == "preempt" for one in ledger.incumbent.decisions]
    assert not any(stopped)


def test_who_is_promised_a_start_starts_beside_higher_priorities() -> None:
    # the low gang is within the guarantee of its queue: tiers of the high one must not leave it out
    low = replace(gang("low", 1, 8), queue="own")
    instance = build(nodes=racks(2), gangs=[low, gang("high", 2, 8, priority=1)])
    queues = (Queue("own", guarantee=Amount(8)),)
    objectives = (*map(Objective, ("guarantee", "admission", "waiting", "preference")),)
    policy = replace(instance.policy, objectives=objectives)
    values = aimed(replace(instance, queues=queues, policy=policy))
    assert (values["guarantee/0"], values["admission/0"]) == (8, 8)
