"""What the judge can say of the best plan: tiers that are best by counting, and better plans that it builds.

Only for plans that break no rule. Where the plan calls a tier proven, a better plan is a violation;
elsewhere a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from models.verify.bounds.counting import Counts
from models.verify.bounds.refutation import Search, Witness
from models.verify.outcome import Outcome
from models.verify.tier_values import tiers
from models.verify.violation import Violation, printable, quoted

NOT_MAXIMAL = "NotMaximal"
BOUND_BEATEN = "BoundBeaten"


@dataclass(frozen=True, slots=True)
class Optimality:
    """``counted``: names of the tiers of which counting alone shows that no plan is better.

    ``refuted``: names of the tiers whose stated bound is wrong.
    """

    violations: tuple[Violation, ...]
    remarks: tuple[str, ...]
    counted: frozenset[str]
    refuted: frozenset[str] = frozenset()


def examine(
    outcome: Outcome,
    rules: Sequence[Callable[[Outcome], Iterable[Violation]]],
    *,
    count: bool = True,
) -> Optimality:
    """Count and search. ``rules``: of a feasible plan. ``count``: else ``counted`` stays empty.

    Counting finds no violation: it only says of which tiers no search can find any.
    """
    stated = outcome.case.status.objectives
    expected = outcome.once(tiers)
    search = Search(outcome, rules)
    denied = []
    for step in search.fitting():
        reason = outcome.case.gangs[step.gang].document.reason
        code = "" if reason is None else printable(reason.code)
        nodes = sorted({outcome.facts.nodes[p.node].name for p in step.pods[step.gang].values()})
        what = f"{code}: it fits beside the others, on {printable(', '.join(nodes))}"
        denied.append(outcome.changes[step.gang].violation("reason", what))
    for gang, holder in search.needless():
        what = f"it would fit although {printable(outcome.changes[holder].label)} stays"
        reason = outcome.case.gangs[gang].document.reason
        code = "" if reason is None else printable(reason.code)
        denied.append(outcome.changes[gang].violation("reason", f"{code}: {what}"))
    if denied:
        return Optimality(tuple(denied), (), frozenset())
    bounds = Counts(outcome).bounds(expected, search.required) if count else ()
    counted = {one.name for one, bound in zip(stated, bounds, strict=count) if bound == one.best}
    if len(counted) == len(stated):
        return Optimality((), (), frozenset(counted))
    violations, remarks, refuted = [], [], []
    for witness in search.witnesses():
        rule, what = _said(outcome, witness)
        if rule is None:
            remarks.append(f"{witness.label}: {what}")
        else:
            violations.append(Violation(rule, witness.label, what))
            refuted.append(stated[witness.tier].name)
    return Optimality(tuple(violations), tuple(remarks), frozenset(counted), frozenset(refuted))


def _said(outcome: Outcome, witness: Witness) -> tuple[str | None, str]:
    """(rule that the plan breaks, None: none; what the witness shows)."""
    stated = outcome.case.status.objectives[witness.tier]
    name, value = printable(stated.name), quoted(witness.value)
    sign = 1 if stated.sense == "max" else -1
    change = witness.step.what
    if stated.proof is not None and stated.bound == stated.best:
        what = f"{name}: says that {quoted(stated.best)} is proven best, but {change} gives {value}"
        return NOT_MAXIMAL, what
    if sign * witness.value > sign * stated.bound:
        return BOUND_BEATEN, f"{name}: bound {quoted(stated.bound)}, but {change} gives {value}"
    return None, f"{name}: {quoted(stated.best)} is not the best: {change} gives {value}"
