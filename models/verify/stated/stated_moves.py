"""What a plan states of its moves.

Every gang that moves is in one set, and its GPUs are those it runs on. What a set bought is the
difference to a plan that is not in the document, so only its limits are checked:

- sum of w(bought) - sum of w(gangs not admitted) <= gpus <= sum of w(bought);
- bandwidth, effective GPUs, whole nodes and whole domains: at most what the plan has, at least that less
  all there is;
- gain = (gpus + bandwidth / 1000 + GPUs of the whole nodes) / GPUs moved, rounded down to thousandths; where
  the policy lists goodput, effective GPUs are stated and count in the place of gpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.documents.plan import PlanMoves
from models.verify.outcome import FreeNodes, Outcome
from models.verify.standing import FULL_SPEED
from models.verify.violation import Violation, quoted

BOUGHT = "bought"


def check(outcome: Outcome) -> Iterator[Violation]:
    stated = outcome.case.status.moves
    listed = Counter(name for one in stated for name in one.gangs)
    for change in outcome.changes:
        if change.moved and (found := listed[change.label]) != 1:
            times = f"is listed {found} times" if found else "is not listed"
            yield change.violation(BOUGHT, f"moves, but {times} in status.moves")
    if not stated:
        return
    possible = _Possible(outcome)
    for i, one in enumerate(stated):
        where = f"status.moves[{i}]"
        yield from _moved(one, where, outcome)
        yield from _bought(one, where, outcome, possible)
        yield from _gain(outcome, one, where)


def _moved(one: PlanMoves, where: str, outcome: Outcome) -> Iterator[Violation]:
    gpus, known, facts = 0, [], outcome.facts
    for name in one.gangs:
        change = outcome.by_label.get(name)
        if change is None or not change.moved:
            yield Violation(BOUGHT, None, f"{where}: {quoted(name)} does not move")
        else:
            gpus += change.running_gpus
            known.append(change.gang.key)
    if not one.gangs:
        yield Violation(BOUGHT, None, f"{where}: lists no gang")
    elif len(known) == len(one.gangs):
        if known != sorted(known):
            yield Violation("order", None, f"{where}.gangs: must be sorted by namespace and name")
        if one.gpus != facts.in_gpus(gpus):
            what = f"says {one.gpus} GPUs move, {facts.in_gpus(gpus)} do"
            yield Violation(BOUGHT, None, f"{where}: {what}")


class _Possible:
    """What the plan has and what there is at all: the limits of every difference."""

    def __init__(self, outcome: Outcome) -> None:
        self.by_speed = outcome.facts.counts_goodput
        self.unit = outcome.facts.gpu_unit
        gpus = [change.gang.counts_at_min for change in outcome.changes]
        admitted = [change.admitted for change in outcome.changes]
        self.out = sum(own for own, runs in zip(gpus, admitted, strict=True) if not runs)
        self.all_effective = FULL_SPEED * sum(gpus)
        self.effective = outcome.effective
        self.bandwidth = self.all_bandwidth = 0
        for change, figures in zip(outcome.changes, outcome.figures, strict=True):
            if change.gang.pattern == "none":
                continue
            self.all_bandwidth += 1000 * change.gang.w
            if change.admitted and figures.share is not None:
                self.bandwidth += change.gang.w * figures.share
        self.free = outcome.free

    def counted(self, gpus: float) -> Fraction:
        """What a plan states in GPUs, as it is counted."""
        return self.unit * Fraction(repr(gpus))


def _bought(
    one: PlanMoves, where: str, outcome: Outcome, possible: _Possible
) -> Iterator[Violation]:
    weight, known = 0, []
    for name in one.bought.gangs:
        change = outcome.by_label.get(name)
        if change is None or not change.admitted:
            yield Violation(BOUGHT, None, f"{where}.bought: {quoted(name)} is not admitted")
        elif change.gang.running and not (change.incomplete or change.gang.preemptible):
            yield Violation(BOUGHT, None, f"{where}.bought: {quoted(name)} runs in any plan")
        else:
            weight += change.gang.counts_at_min
            known.append(change.gang.key)
    if len(known) == len(one.bought.gangs):
        if known != sorted(set(known)):
            what = f"{where}.bought.gangs: must be sorted by namespace and name, once each"
            yield Violation("order", None, what)
        else:
            gpus = possible.counted(one.bought.gpus)
            yield from _between(gpus, weight - possible.out, weight, f"{where}.bought.gpus")
    yield from _effective_bought(one, where, possible)
    bandwidth = possible.counted(one.bought.bandwidth)
    least, most = possible.bandwidth - possible.all_bandwidth, possible.bandwidth
    yield from _between(bandwidth, least, most, f"{where}.bought.bandwidth")
    whole = possible.free
    nodes, all_nodes = whole.nodes.total(), whole.nodes_possible.total()
    for name, says, has, most in (
        ("wholeNodes", one.bought.whole_nodes, nodes, all_nodes),
        ("wholeDomains", one.bought.whole_domains, whole.domains, whole.domains_possible),
    ):
        yield from _between(says, has - most, has, f"{where}.bought.{name}")


def _effective_bought(one: PlanMoves, where: str, possible: _Possible) -> Iterator[Violation]:
    says, where = _effective(one, possible.unit), f"{where}.bought.effectiveGpus"
    if (says is not None) != possible.by_speed:
        what = "belongs to plans whose policy lists goodput, and to all of these"
        yield Violation(BOUGHT, None, f"{where}: {what}")
    elif says is not None:
        low, high = possible.effective - possible.all_effective, possible.effective
        if not (low <= says <= high and says.denominator == 1):
            full, digits = FULL_SPEED * possible.unit, "three" if possible.unit == 1 else "six"
            span = f"from {low / full:.12g} to {high / full:.12g}, with at most {digits} digits"
            what = f"says {one.bought.effective_gpus:.12g}, can only be {span}"
            yield Violation(BOUGHT, None, f"{where}: {what}")


def _effective(one: PlanMoves, unit: int) -> Fraction | None:
    """Effective GPUs bought, in permille of what a GPU counts."""
    stated = one.bought.effective_gpus
    return None if stated is None else FULL_SPEED * unit * Fraction(repr(stated))


def _between(says: int | Fraction, low: int, high: int, where: str) -> Iterator[Violation]:
    if not (low <= says <= high and says.denominator == 1):
        what = f"says {says}, can only be from {quoted(low)} to {quoted(high)}"
        yield Violation(BOUGHT, None, f"{where}: {what}")


def _gain(outcome: Outcome, one: PlanMoves, where: str) -> Iterator[Violation]:
    freed = _gpus_freed(outcome.free, one.bought.whole_nodes)
    effective, bandwidth = _effective(one, 1), Fraction(repr(one.bought.bandwidth))
    run = 1000 * Fraction(repr(one.bought.gpus)) if effective is None else effective
    low, high = (int((run + 1000 * n + bandwidth) // (one.gpus or 1)) for n in freed)
    gain = Fraction(repr(one.gain))
    if not (low <= gain * 1000 <= high and (gain * 1000).denominator == 1):
        span = f"{low / 1000:g}" if low == high else f"{low / 1000:g} to {high / 1000:g}"
        yield Violation(BOUGHT, None, f"{where}.gain: says {one.gain:g}, is {span}")
    least = outcome.facts.policy.moves.min_gain
    if least and gain < Fraction(int(least * 1000), 1000):  # gains are stated rounded down
        what = f"gains {one.gain:g} a GPU moved, at least {float(least):g} is required"
        yield Violation("moves", None, f"{where}: {what}")


def _gpus_freed(whole: FreeNodes, nodes: int) -> Sequence[int]:
    """Fewest and most GPUs of ``nodes`` whole nodes gained, over servers of every size."""
    ends = []
    for largest_first in (False, True):
        left = nodes
        gpus = 0
        # All that could be lost is lost, then regained from one end.
        for size in whole.nodes_possible:
            lost = whole.nodes_possible[size] - whole.nodes[size]
            left += lost
            gpus -= size * lost
        for size in sorted(whole.nodes_possible, reverse=largest_first):
            taken = max(0, min(left, whole.nodes_possible[size]))
            left -= taken
            gpus += size * taken
        ends.append(gpus)
    return ends
