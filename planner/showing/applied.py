"""What applying a plan did: a table for people, a document for programs.

Promises: pure; whatever the cluster wrote is made harmless by the cells. Called by ``planner.verbs.apply``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from models.applying.verdicts import GangVerdict, Outcome, Verdict
from planner.showing.table import Cell, Column, Table
from planner.showing.text import number

_STYLES = {
    Outcome.started: "good",
    Outcome.pending: "busy",
    Outcome.unchanged: "dim",
    Outcome.skipped: "warn",
    Outcome.partial: "bad",
    Outcome.halted: "warn",
    Outcome.stopped: "good",
    Outcome.withheld: "warn",
    Outcome.undone: "warn",
    Outcome.advised: "busy",
}

_DRY = {
    Outcome.started: "would start",
    Outcome.pending: "would start",
    Outcome.stopped: "would be stopped",
    Outcome.skipped: "would be skipped",
    Outcome.undone: "would be undone",
    Outcome.advised: "advice only",
}

_MEANS = {
    Outcome.pending: "the scheduler has not bound all of its pods yet",
    Outcome.withheld: "needs evictions: --allow-evictions",
    Outcome.halted: "the same command resumes it",
}


def verdict_table(verdict: Verdict, plan: str | None, *, dry: bool = False) -> Table:
    """One row a gang; ``plan``: ours, gangs of others name theirs; None: every gang names its own."""
    rows = tuple(
        (
            Cell("/".join(one.gang)),
            Cell(_DRY.get(one.outcome, one.outcome) if dry else one.outcome, _STYLES[one.outcome]),
            Cell(number(one.pods) if one.pods and not dry else "-"),
            Cell("" if one.plan == plan else one.plan),
            Cell(_why(one, dry=dry)),
        )
        for one in verdict.gangs
    )
    columns = (
        Column("GANG"),
        Column("OUTCOME"),
        Column("PODS", right=True),
        Column("OF PLAN", optional=True),
        Column("WHY", fold=True),
    )
    return Table(columns, rows).without_empty_columns()


def _why(one: GangVerdict, *, dry: bool) -> str:
    resizes = ", ".join(f"{r.role} from {r.before:,} to {r.after:,} pods" for r in one.resizes)
    why = one.why or ("" if dry and one.outcome in _DRY else _MEANS.get(one.outcome, ""))
    whole = "its PodGroup starts all or none" if one.atomic else ""
    return "; ".join(part for part in (resizes, why, whole) if part)


def undoing(one: GangVerdict) -> str:
    """What stands above the commands that undo a gang."""
    gang = "/".join(one.gang)
    if one.unsure:
        return f"gang {gang} may have been whole; if it cannot go on as it is, this undoes it:"
    return f"gang {gang} is partial; this undoes it:"


def counts(verdict: Verdict) -> dict[str, int]:
    """Gangs of each outcome that occurs, in the order of Outcome."""
    found = Counter(gang.outcome for gang in verdict.gangs)
    return {outcome.value: found[outcome] for outcome in Outcome if found[outcome]}


def counted(verdict: Verdict, *, dry: bool = False) -> str:
    """``3 started, 1 partial``; of a dry run ``3 would start``."""
    found: Counter[str] = Counter()
    for name, count in counts(verdict).items():
        found[_DRY.get(Outcome(name), name) if dry else name] += count
    return ", ".join(f"{count:,} {name}" for name, count in found.items()) or "nothing to do"


def document(
    verdict: Verdict, facts: Mapping[str, Any], undo: Callable[[GangVerdict], list[str]]
) -> dict[str, Any]:
    """The whole as data. ``undo``: the commands that undo a partial gang."""
    gangs = [
        {
            "namespace": one.gang[0],
            "name": one.gang[1],
            "outcome": one.outcome.value,
            "plan": one.plan,
            "why": one.why or None,
            "pods": one.pods,
            "atomic": one.atomic,
            "resizes": [
                {"role": r.role, "before": r.before, "after": r.after} for r in one.resizes
            ],
            "undo": undo(one),
        }
        for one in verdict.gangs
    ]
    return {
        **facts,
        "stop": verdict.stop,
        "writes": verdict.writes,
        "evicted": verdict.evicted,
        "gangs": gangs,
        "notes": list(verdict.notes),
    }
