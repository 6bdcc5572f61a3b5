"""The re-plan of an audit on tiny instances: equal to trying every plan, and figures that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from comparing import differences
from effort import examples
from tiny_busy import busy

from models.instance.instance import Instance
from models.program.base_state import base_decisions
from models.results.audit_figures import best_speeds, effective_bound, fixed_gangs
from models.results.plan import PlanWriter
from models.values.effective_gpus import gpus_at_speed
from models.values.tier_values import Evaluation
from models.verify.check import Judge
from planner.pipelines.adjustments import at_no_price
from planner.pipelines.audit import together
from planner.search.improve.regaining_moves import regaining_moves, with_few_restarts
from planner.search.solve import solve

KINDS = {
    "anything": (),
    "unknown": ("unknown_gpus", "sick_holders", "unknown_unhealthy", "overfull"),
    "sizes": ("elastic", "elastic_running", "incomplete", "launchers", "held"),
    "rules": ("required", "slices", "cordons", "taints", "selectors", "budgets"),
}


def free(instance: Instance) -> Instance:
    """Every gang that runs whole and is not held moves at no price."""
    running = {i for i, gang in enumerate(instance.gangs) if gang.running}
    return at_no_price(instance, running - fixed_gangs(instance).keys(), budgets=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_replan_equals_trying_every_plan(kind: str) -> None:
    found = {
        seed: differences(free(busy(seed, more=KINDS[kind])))
        for seed in range(3000, 3000 + examples(40, 3))
    }
    assert {seed: what for seed, what in found.items() if what} == {}


@pytest.mark.parametrize("seed", [3000, 7015])
def test_moves_that_gangs_allow_keep_their_disruption_budgets(seed: int) -> None:
    instance = busy(seed, more=("stragglers", "budgets", "movable", *KINDS["unknown"]))
    movable = {i for i, gang in enumerate(instance.gangs) if gang.running and gang.movable}
    allowed = at_no_price(instance, movable - fixed_gangs(instance).keys())
    assert differences(allowed) == differences(at_no_price(instance, ())) == []


@pytest.mark.parametrize("seed", range(3100, 3108))
def test_the_replan_is_never_worse_and_its_bound_holds(seed: int) -> None:
    instance = free(busy(seed, more=("movable", "elastic")))
    solution = solve(instance)
    before = Evaluation(instance, base_decisions(instance))
    after = Evaluation(instance, solution.decisions)
    running = [i for i, line in enumerate(before.lines) if line.decision.pods]
    assert all(after.decisions[i].pods for i in running)  # nobody is stopped
    assert {i: len(after.decisions[i].pods) for i in running if before.lines[i].admitted} == {
        i: len(before.decisions[i].pods) for i in running if before.lines[i].admitted
    }
    best = best_speeds(instance)
    bound = effective_bound(instance, solution, best)
    assert sum(gpus_at_speed(after)) <= bound
    assert all((line.speed or 0) <= best[i] for i, line in enumerate(after.lines) if line.admitted)


@pytest.mark.parametrize("seed", [3008, 3043, 3081, 3213, *range(3300, 3300 + examples(60, 4))])
def test_moves_keep_the_rules_alone_and_together(seed: int) -> None:
    """3008: all pods of unknown GPUs leave a server where a gang starts; the next three: one is completed."""
    instance = free(busy(seed, more=("unknown_gpus", "movable")))
    unmoved, replanned = solve(at_no_price(instance, ())), solve(instance)
    moves = regaining_moves(
        instance,
        unmoved.decisions,
        replanned.decisions,
        best_speeds(instance),
        lambda: False,
    )
    assert moves or seed >= 3300

    def value(chosen: Sequence[Any]) -> int:
        plan = together(instance, unmoved, chosen)
        texts = {"name": "x", "created_at": "2026-11-23T00:00:00Z", "generator": "x"}
        document = PlanWriter(instance).compose(plan, **texts)
        assert Judge().check(document, refute=False).violations == []
        return sum(gpus_at_speed(Evaluation(instance, plan.decisions)))

    for chosen in (*((one,) for one in moves), moves):
        assert value(chosen) - value(()) == sum(one.effective for one in chosen)
    few = with_few_restarts(instance, replanned.decisions, lambda: False)
    moved = [sum(one.decision == "move" for one in plan) for plan in (few, replanned.decisions)]
    assert moved[0] <= moved[1]
    after = [sum(gpus_at_speed(Evaluation(instance, p))) for p in (few, replanned.decisions)]
    assert after[0] >= after[1]
