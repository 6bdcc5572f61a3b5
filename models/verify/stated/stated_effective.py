"""What a plan states of its effective GPUs: the sum of GPUs x speed over the gangs that run whole.

Before and after are recomputed, by priority, too. What one gang after another would give is not in the
document: it is only checked to be possible at all, and to add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.documents.plan import PlanEffectiveGpus, PlanPriorityGpus
from models.verify.outcome import Outcome
from models.verify.standing import FULL_SPEED
from models.verify.violation import Violation

RULE = "effective-gpus"


def check(outcome: Outcome) -> Iterator[Violation]:
    stated = outcome.case.status.effective_gpus
    if stated is None:
        return
    unit = outcome.facts.gpu_unit
    most = FULL_SPEED * sum(change.gang.counts_at_min for change in outcome.changes)
    yield from _between("before", stated.before, *_before(outcome), unit)
    yield from _between("after", stated.after, outcome.effective, outcome.effective, unit)
    if stated.one_at_a_time is not None:
        # pods that stay may hold more than a node has, where its GPUs failed or were taken out
        installed = sum(node.gpus for node in outcome.facts.nodes)
        held = sum(change.running_gpus for change in outcome.changes)
        high = min(most, FULL_SPEED * (unit * installed + held))
        yield from _between("oneAtATime", stated.one_at_a_time, 0, high, unit)
    yield from _by_priority(outcome, stated)


def _by_priority(outcome: Outcome, stated: PlanEffectiveGpus) -> Iterator[Violation]:
    """Which priorities have more, and which fewer: where the plan has fewer in all, and nowhere else."""
    rows, alone = stated.by_priority, stated.one_at_a_time
    full = FULL_SPEED * outcome.facts.gpu_unit
    fewer = alone is not None and full * Fraction(repr(alone)) > outcome.effective
    if fewer and not rows:
        yield Violation(RULE, None, "status.effectiveGpus.byPriority: is not stated")
    elif rows and not fewer:
        what = "is stated of a plan that has no fewer"
        yield Violation(RULE, None, f"status.effectiveGpus.byPriority: {what}")
    elif rows:
        yield from _each_priority(outcome, rows, alone or 0.0)


def _each_priority(
    outcome: Outcome, rows: Sequence[PlanPriorityGpus], alone: float
) -> Iterator[Violation]:
    """``alone``: effective GPUs of one gang after another."""
    asked, after = Counter[int](), Counter[int]()
    for change, gpus in zip(outcome.changes, outcome.effective_by_gang, strict=True):
        asked[change.gang.stated_priority] += FULL_SPEED * change.gang.counts_at_min
        after[change.gang.stated_priority] += gpus
    priorities, unit = [row.priority for row in rows], outcome.facts.gpu_unit
    missing = {priority for priority, gpus in after.items() if gpus} - {*priorities}
    if missing or priorities != sorted({*priorities}, reverse=True):
        what = "must have every priority with effective GPUs once, the highest first"
        yield Violation(RULE, None, f"status.effectiveGpus.byPriority: {what}")
    for i, row in enumerate(rows):
        at, own = f"byPriority[{i}]", after[row.priority]
        yield from _between(f"{at}.after", row.after, own, own, unit)
        yield from _between(f"{at}.oneAtATime", row.one_at_a_time, 0, asked[row.priority], unit)
        if not own and not row.one_at_a_time:
            what = f"status.effectiveGpus.{at}: priority {row.priority} has none in either plan"
            yield Violation(RULE, None, what)
    if sum(Fraction(repr(row.one_at_a_time)) for row in rows) != Fraction(repr(alone)):
        what = "status.effectiveGpus.byPriority: oneAtATime does not add up to that of all"
        yield Violation(RULE, None, what)


def _before(outcome: Outcome) -> tuple[int, int]:
    """Least and most permille-GPU of the gangs that run whole before the plan."""
    least = most = 0
    for change, figures in zip(outcome.changes, outcome.figures, strict=True):
        if change.gang.running and not change.incomplete:
            low, high = outcome.speeds.before_plan(change, figures.share)
            least += change.gang.counts_at_min * low
            most += change.gang.counts_at_min * high
    return least, most


def _between(name: str, stated: float, low: int, high: int, unit: int) -> Iterator[Violation]:
    """``low``, ``high``: permille of what a GPU counts."""
    full = FULL_SPEED * unit
    says = full * Fraction(repr(stated))
    if low <= says <= high and says.denominator == 1:
        return
    is_ = (
        f"is {low / full:.12g}"
        if low == high
        else f"is from {low / full:.12g} to {high / full:.12g}"
    )
    digits = "three" if unit == 1 else "six"
    what = f"status.effectiveGpus.{name}: says {stated:.12g}, {is_}, with at most {digits} digits"
    yield Violation(RULE, None, what)
