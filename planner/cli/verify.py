"""``gangplan verify PLAN``: check everything a plan states, from its document alone."""

from __future__ import annotations

import shlex

from planner.cli.options import PlanArgument, verb
from planner.show.console import Console


@verb
def verify(
    console: Console,
    path: PlanArgument,
) -> None:
    """Check a saved plan by every rule and formula, without a solver."""
    from models.units import plural
    from planner.pipelines.plan import verify_file
    from planner.read import plan_files

    plan = verify_file(plan_files.read_bytes(path, console.stdin), path)
    console.event("verify_done", violations=0)
    gangs = plural(len(plan.spec.gangs), "gang")
    tiers = plural(len(plan.status.objectives), "tier")
    console.data(f"verified: {gangs} and {tiers} hold\n")
    if path != "-":
        console.next(f"{console.program} show {shlex.quote(path)}")
