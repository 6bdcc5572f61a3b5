"""What a plan states of its effective GPUs: the sum of GPUs x speed over the gangs that run whole.

Before and after are recomputed. What one gang after another would give is not in the document: it is only
checked to be possible at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from models.verify.outcome import Outcome
from models.verify.speed import FULL_SPEED
from models.verify.violation import Violation

RULE = "effective-gpus"


def check(outcome: Outcome) -> Iterator[Violation]:
    stated = outcome.case.status.effective_gpus
    if stated is None:
        if outcome.case.status.unchecked:  # plans of older versions have none
            yield Violation(RULE, None, "status.effectiveGpus: is not stated")
        return
    most = FULL_SPEED * sum(change.gang.gpus_at_min for change in outcome.changes)
    yield from _between("before", stated.before, *_before(outcome))
    yield from _between("after", stated.after, outcome.effective, outcome.effective)
    if stated.one_at_a_time is not None:
        # pods that stay may hold more than a node has, where its GPUs failed or were taken out
        installed = sum(node.gpus for node in outcome.facts.nodes)
        held = sum(change.running_gpus for change in outcome.changes)
        high = min(most, FULL_SPEED * (installed + held))
        yield from _between("oneAtATime", stated.one_at_a_time, 0, high)


def _before(outcome: Outcome) -> tuple[int, int]:
    """Least and most permille-GPU of the gangs that run whole before the plan."""
    least = most = 0
    for change, figures in zip(outcome.changes, outcome.figures, strict=True):
        if change.gang.running and not change.incomplete:
            low, high = outcome.speeds.before_plan(change, figures.share)
            least += change.gang.gpus_at_min * low
            most += change.gang.gpus_at_min * high
    return least, most


def _between(name: str, stated: float, low: int, high: int) -> Iterator[Violation]:
    """``low``, ``high``: permille-GPU."""
    says = 1000 * Fraction(repr(stated))
    if low <= says <= high and says.denominator == 1:
        return
    is_ = (
        f"is {low / 1000:.12g}"
        if low == high
        else f"is from {low / 1000:.12g} to {high / 1000:.12g}"
    )
    what = f"status.effectiveGpus.{name}: says {stated:.12g}, {is_}, with at most three digits"
    yield Violation(RULE, None, what)
