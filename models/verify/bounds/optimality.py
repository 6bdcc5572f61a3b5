"""Better plans that the judge builds from a plan that breaks no rule.

Where the plan calls a tier proven, a better plan is a violation; elsewhere a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from models.verify.bounds.refutation import Search, Witness
from models.verify.outcome import Outcome
from models.verify.violation import Violation, printable, quoted

NOT_MAXIMAL = "NotMaximal"
BOUND_BEATEN = "BoundBeaten"


@dataclass(frozen=True, slots=True)
class Optimality:
    """``refuted``: names of the tiers whose stated bound is wrong."""

    violations: tuple[Violation, ...]
    remarks: tuple[str, ...] = ()
    refuted: frozenset[str] = frozenset()


def examine(
    outcome: Outcome, rules: Sequence[Callable[[Outcome], Iterable[Violation]]]
) -> Optimality:
    """Search for better plans. ``rules``: of a feasible plan."""
    stated = outcome.case.status.objectives
    search = Search(outcome, rules)
    denied = []
    for step in search.fitting():
        reason = outcome.case.gangs[step.gang].document.reason
        code = "" if reason is None else printable(reason.code)
        nodes = sorted({outcome.facts.nodes[p.node].name for p in step.pods[step.gang].values()})
        what = f"{code}: it fits beside the others, on {printable(', '.join(nodes))}"
        denied.append(outcome.changes[step.gang].violation("reason", what))
    if denied:
        return Optimality(tuple(denied))
    violations, remarks, refuted = [], [], []
    for witness in search.witnesses():
        rule, what = _said(outcome, witness)
        if rule is None:
            remarks.append(f"{witness.label}: {what}")
        else:
            violations.append(Violation(rule, witness.label, what))
            refuted.append(stated[witness.tier].name)
    return Optimality(tuple(violations), tuple(remarks), frozenset(refuted))


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
