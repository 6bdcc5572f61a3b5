"""The search's front door: an Instance in, a Solution out, always within its budget.

Promises: a valid plan whatever happens after the start; ``stop`` ends it early with the best one.
Called by ``planner.planning``, tests and benchmarks.
"""

from __future__ import annotations

import threading
from importlib.metadata import version

from models.evaluating import Tier
from models.instance import Instance
from models.placement.formulation import base_decisions, formulate
from models.solution import Solution
from planner.solving.admitting import admit
from planner.solving.budget import Budget
from planner.solving.chunks import FUSED
from planner.solving.greedy import greedy
from planner.solving.improving import improve
from planner.solving.ledger import Ledger
from planner.solving.notes import notes_of
from planner.solving.progress import Progress, Silent
from planner.solving.reasons import with_reasons
from planner.solving.search import Search

LARGE = 6000
"""Above so many rows admission is decided on the admission program, the rest by improvement."""


def solve(
    instance: Instance, *, progress: Progress | None = None, stop: threading.Event | None = None,
    large: int = LARGE,
) -> Solution:
    """The best plan found within the policy's budget, with a bound for every tier."""
    tell = progress or Silent()
    budget = Budget(instance.policy.solve, stop or threading.Event())
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    formulation = formulate(instance)
    big = len(formulation.program.rows) > large
    first = admission_tiers(ledger.tiers)
    if big:
        admit(ledger, budget, tell, first)
        improve(ledger, budget, tell)
    Search(formulation, ledger, budget, tell, len(ledger.tiers), relaxing=big).run()
    decisions = with_reasons(instance, ledger.incumbent.decisions, budget)
    return Solution(
        decisions, ledger.results(), budget.stopped_by,
        f"OR-Tools {version('ortools')} (CP-SAT, HiGHS, GLOP)", budget.effort,
        notes_of(instance, decisions, exact=formulation.exact),
    )


def admission_tiers(tiers: tuple[Tier, ...]) -> int:
    """How many tiers, from the first, only ask which gangs start."""
    count = 0
    while count < len(tiers) and tiers[count].family in FUSED:
        count += 1
    return count
