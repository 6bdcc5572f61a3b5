"""Plans follow the slots where not only the number of GPUs counts: gangs get sets as good as were counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from building import build, gang, mask
from building_servers import v100

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from models.program.slots.slot_program import SlotModel
from models.values.tier_values import Evaluation, tiers_of
from planner.search.bound.slot_bounds import SlotProblem
from planner.search.budget import Budget
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal


def held(*masks: int) -> list[Gang]:
    """One gang that runs on each server, with these GPUs."""
    return [
        gang(f"r{n}", 1, one.bit_count(), stands=[(0, 0, n, one)]) for n, one in enumerate(masks)
    ]


def servers(masks: Sequence[int], gangs: Sequence[Gang]) -> Instance:
    """V100 servers on which these GPUs are taken."""
    return build(nodes_per_rack=len(masks), model=v100(), gangs=[*held(*masks), *gangs])


QUAD = mask(0, 1, 2, 3)

CASES = {
    "a pair leaves the quad whole": servers(
        [mask(4, 5), QUAD], [gang("quad", 1, 4), gang("pair", 2, 1), gang("two", 1, 2)]
    ),
    "pods of two are in sets of four": servers(
        [QUAD, QUAD, mask(0, 4)], [gang("wide", 4, 2), gang("pair", 2, 1), gang("three", 3, 1)]
    ),
    "single pods share the two best sets": servers(
        [mask(0, 5), QUAD, QUAD], [gang("eight", 8, 1), gang("quad", 4, 1), gang("one", 1, 1)]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_has_the_bandwidth_that_was_counted(name: str) -> None:
    instance = CASES[name]
    model, budget = SlotModel(instance), Budget(instance.policy.solve)
    expressions = {tier.name: model.expression(tier) for tier in tiers_of(instance)}
    runs, bandwidth = expressions["admission/0"], expressions["bandwidth"]
    assert runs is not None
    assert bandwidth is not None
    most = Goal(runs, maximize=True)
    every = branch(model.program, most, budget, nodes=1000, seconds=10).bound
    goal = Goal(bandwidth, maximize=True, keep=((runs, every, every),))
    values = branch(model.program, goal, budget, nodes=1000, seconds=10).values
    plan = SlotProblem(model, budget).decode(values)
    after = dict(zip(expressions, Evaluation(instance, plan).vector(), strict=True))
    assert base_decisions(instance) != plan
    assert after["admission/0"] == every
    assert after["bandwidth"] == bandwidth.value(values)
