"""The table of objective tiers; hundreds of them become one row a family.

Promises: pure, from a PlanView alone; a tier with a gap is always listed by itself.
Called by ``planner.showing.formats``.
"""

from __future__ import annotations

from planner.showing.planview import PlanView, TierView
from planner.showing.table import Cell, Column, Table
from planner.showing.text import number, percent, plural

MANY = 6
"""A family with more tiers (one a priority) is told in one row, unless ``wide``."""


def tiers(plan: PlanView, *, wide: bool) -> Table:
    """Tiers in order: value, bound, gap, proof; ``best`` where a tolerance gave some of it away."""
    objectives = plan.status.objectives
    families: dict[str, list[TierView]] = {}
    for tier in objectives:
        families.setdefault(tier.family, []).append(tier)
    rows: list[tuple[Cell, ...]] = []
    told: set[str] = set()
    for tier in objectives:
        family = families[tier.family]
        if wide or len(family) <= MANY:
            rows.append(_row(tier))
            continue
        if tier.family not in told:
            told.add(tier.family)
            rows.append(_family_row(tier.family, family))
        if not tier.proven:
            rows.append(_row(tier))
    notes = (
        ("tiers of one family in one row, those with a gap apart (-o wide lists all)",)
        if told
        else ()
    )
    differ = wide or any(tier.best != tier.value for tier in objectives)
    columns = (
        Column("TIER"),
        Column("SENSE"),
        Column("VALUE", right=True),
        Column("BEST", right=True),
        Column("BOUND", right=True),
        Column("GAP", right=True),
        Column("PROOF"),
    )
    table = Table(columns, tuple(rows), notes)
    return table if differ else table.of_columns([0, 1, 2, 4, 5, 6])


def _row(tier: TierView) -> tuple[Cell, ...]:
    return (
        Cell(tier.name),
        Cell(tier.sense, "dim"),
        Cell(number(tier.value)),
        Cell(number(tier.best)),
        Cell(number(tier.bound)),
        Cell(percent(tier.gap), "good" if tier.gap == 0 else "warn"),
        Cell(tier.proof or "-"),
    )


def _family_row(family: str, members: list[TierView]) -> tuple[Cell, ...]:
    """Values add up over priorities; bounds do not, so only a family proven whole states one."""
    proven = sum(tier.proven for tier in members)
    whole = proven == len(members)
    worst = max((tier.gap for tier in members if tier.gap is not None), default=None)
    proofs = {tier.proof for tier in members}
    proof = "numerical" if "numerical" in proofs else "exact"
    total = sum(tier.value for tier in members)
    best = sum(tier.best for tier in members)
    return (
        Cell(f"{family} ({plural(len(members), 'tier')})"),
        Cell(members[0].sense, "dim"),
        Cell(number(total)),
        Cell(number(best)),
        Cell(number(best) if whole else "-"),
        Cell(percent(worst), "good" if worst == 0 else "warn"),
        Cell(proof if whole else f"{proven} of {len(members)}"),
    )
