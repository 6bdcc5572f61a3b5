"""Start gangs of several roles with rules between them: the full program of one finds what no trial does.

Nothing else changes, and nothing is proven. A trial places role after role, and the first may take the domain
that only the second one could have.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.formulation import formulate
from models.program.linear_program import Interrupted, Linear
from models.rules.registry import own_variables
from planner.search.budget import Budget
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal

SHARE = 0.05
"""Share of what is left of the budget for all of them."""

NODES = 200
"""Branch-and-bound nodes for one."""


def start_alone(
    instance: Instance, decisions: Sequence[GangDecision], budget: Budget
) -> tuple[GangDecision, ...]:
    """The plan with those of them that fit beside all others, by priority and age."""
    waiting = [
        index
        for index, (gang, one) in enumerate(zip(instance.gangs, decisions, strict=True))
        if one.decision == "wait" and gang.hold is None and _ruled(instance, gang)
    ]
    gangs, plan, over = instance.gangs, tuple(decisions), budget.used(SHARE)
    for index in sorted(waiting, key=lambda i: (-gangs[i].priority, -instance.age(gangs[i]), i)):
        if over() or budget.exhausted():
            break
        plan = _placed(instance, plan, index, budget) or plan
    return plan


def _ruled(instance: Instance, gang: Gang) -> bool:
    """Whether it has several roles, and rules about where these are."""
    held = any(role.required is not None for role in gang.roles)
    return len(gang.roles) > 1 and (held or own_variables(instance, gang))


def _placed(
    instance: Instance, plan: tuple[GangDecision, ...], index: int, budget: Budget
) -> tuple[GangDecision, ...] | None:
    """The plan with this gang; None if it finds no place."""
    try:
        program = formulate(
            instance, only=frozenset({index}), base=plan, interrupted=budget.exhausted
        )
    except Interrupted:
        return None
    (admits,) = program.model.variables.admits
    goal = Goal(Linear().add_all(admits), maximize=True)
    seconds = budget.seconds_left() * SHARE
    values = branch(program.program, goal, budget, nodes=NODES, seconds=seconds).values
    return program.decode(values) if values and goal.objective.value(values) else None
