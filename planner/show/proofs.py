"""What ``verify`` says of an accepted plan: which rules hold, and what proves that each tier is best.

Nothing that is merely stated is called verified: a bound that no count gives rests on its engine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from models.documents.plan import PlanDocument
from models.units import first_of, plural
from planner.untrusted_text import safe

MAX_NAMED = 4
"""Tiers named in one line."""


def proofs(plan: PlanDocument, counted: Collection[str]) -> list[str]:
    """The lines. ``counted``: tiers that are best by counting alone."""
    tiers = plan.status.objectives
    rest = [tier for tier in tiers if tier.name not in counted]
    exact = [tier.name for tier in rest if tier.proven and tier.proof == "exact"]
    numerical = [tier.name for tier in rest if tier.proven and tier.proof == "numerical"]
    open_ = [tier.name for tier in rest if not tier.proven]
    gangs = plural(len(plan.spec.gangs), "gang")
    values = f"; the values of {plural(len(tiers), 'tier')} are as stated" if tiers else ""
    lines = (
        ("best by counting", [tier.name for tier in tiers if tier.name in counted], ""),
        (
            "best if the planner's formulation is right",
            exact,
            ": stated as proven in integer arithmetic (CP-SAT, or rounded duals)",
        ),
        (
            "best if HiGHS is right as well",
            numerical,
            ": stated as proven in floating point",
        ),
        ("not proven best", open_, ""),
    )
    supposed = plan.instance.what_if
    return [
        f"verified: {gangs} break no rule{values}",
        *([] if supposed is None else [f"a what-if {safe(supposed)}: it cannot be applied"]),
        *(f"{what}: {_listed(names)}{why}" for what, names, why in lines if names),
    ]


def _listed(names: Sequence[str]) -> str:
    shown = first_of([safe(name) for name in names], MAX_NAMED)
    return f"{plural(len(names), 'tier')} ({shown})"
