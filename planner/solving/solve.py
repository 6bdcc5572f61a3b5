"""The search's front door: an Instance in, a Solution out, always within its budget.

Promises: a valid plan whatever happens after the start; ``stop`` ends it early with the best one.
Called by ``planner.planning``, tests and benchmarks.
"""

from __future__ import annotations

import threading
from importlib.metadata import version

from models.instance import Instance
from models.placement.formulation import base_decisions, formulate
from models.solution import Solution
from planner.solving.budget import Budget
from planner.solving.greedy import greedy
from planner.solving.notes import notes_of
from planner.solving.progress import Progress, Silent
from planner.solving.reasons import with_reasons
from planner.solving.search import Search


def solve(
    instance: Instance, *, progress: Progress | None = None, stop: threading.Event | None = None
) -> Solution:
    """The best plan found within the policy's budget, with a bound for every tier."""
    budget = Budget(instance.policy.solve, stop or threading.Event())
    start = greedy(instance, base_decisions(instance))
    formulation = formulate(instance)
    search = Search(instance, formulation, start, budget, progress or Silent())
    search.run()
    decisions = with_reasons(instance, search.incumbent.decisions, budget)
    return Solution(
        decisions, search.results(), budget.stopped_by,
        f"OR-Tools {version('ortools')} (CP-SAT, HiGHS, GLOP)", budget.effort,
        notes_of(instance, decisions, exact=formulation.exact),
    )
