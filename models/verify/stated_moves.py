"""What is stated of the moves against what follows from the plan.

Every gang that moves is in one set, and its GPUs are those it stands on. What a set bought is a difference
to a plan that is not in the document: it cannot be derived, so it is held to what it can be at all:

- sum of w(bought) - sum of w(gangs not admitted) <= gpus <= sum of w(bought);
- no more bandwidth, whole nodes or whole domains than the plan has, no less lost than there could be;
- gain = (gpus + bandwidth / 1000 + GPUs of the whole nodes) / GPUs moved, rounded down to thousandths.

Called by ``judging``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.verify.changes import Change
from models.verify.form import shown
from models.verify.outcome import Outlook, Wholeness
from models.verify.statement import StatedSet
from models.verify.violation import Violation

BOUGHT = "bought"


def check(outlook: Outlook) -> Iterator[Violation]:
    stated = outlook.case.status.moves
    by_name = {"/".join(change.gang.key): change for change in outlook.changes}
    listed = Counter(name for one in stated for name in one.gangs)
    for name, change in by_name.items():
        if change.moved and listed[name] != 1:
            times = f"is named {listed[name]} times" if listed[name] else "is not named"
            yield Violation(BOUGHT, change.label, f"moves, but {times} in status.moves")
    possible = _Possible(outlook)
    for i, one in enumerate(stated):
        where = f"status.moves[{i}]"
        yield from _moved(one, where, by_name)
        yield from _bought(one, where, by_name, possible)
        yield from _gain(outlook, one, where)


def _moved(one: StatedSet, where: str, by_name: dict[str, Change]) -> Iterator[Violation]:
    gpus = 0
    known = []
    for name in one.gangs:
        change = by_name.get(name)
        if change is None or not change.moved:
            yield Violation(BOUGHT, None, f"{where}: {shown(name)} does not move")
        else:
            gpus += change.gpus_standing
            known.append(change.gang.key)
    if not one.gangs:
        yield Violation(BOUGHT, None, f"{where}: names no gang")
    elif len(known) == len(one.gangs):
        if known != sorted(known):
            yield Violation("order", None, f"{where}.gangs: must be sorted by namespace and name")
        if one.moved != gpus:
            yield Violation(BOUGHT, None, f"{where}: says {one.moved} GPUs move, {gpus} do")


class _Possible:
    """What the plan has, and what it could lack: the ends between which every difference lies."""

    def __init__(self, outlook: Outlook) -> None:
        self.out = sum(change.gang.w for change in outlook.changes if not change.admitted)
        self.bandwidth = 0
        self.all_bandwidth = 0
        for change, figures in zip(outlook.changes, outlook.figures, strict=True):
            if change.gang.pattern == "none":
                continue
            self.all_bandwidth += 1000 * change.gang.w
            if change.admitted and figures.share is not None:
                self.bandwidth += change.gang.w * figures.share
        self.wholeness = outlook.wholeness


def _bought(
    one: StatedSet, where: str, by_name: dict[str, Change], possible: _Possible
) -> Iterator[Violation]:
    weight = 0
    known = []
    for name in one.bought:
        change = by_name.get(name)
        if change is None or not change.admitted:
            yield Violation(BOUGHT, None, f"{where}.bought: {shown(name)} is not admitted")
        elif _stays_in_any_plan(change):
            yield Violation(BOUGHT, None, f"{where}.bought: {shown(name)} runs in any plan")
        else:
            weight += change.gang.w
            known.append(change.gang.key)
    if len(known) == len(one.bought):
        if known != sorted(set(known)):
            yield Violation(
                "order",
                None,
                f"{where}.bought.gangs: must be sorted by namespace and name, once each",
            )
        else:
            yield from _between(one.gpus, weight - possible.out, weight, f"{where}.bought.gpus")
    whole = possible.wholeness
    nodes, all_nodes = whole.nodes.total(), whole.nodes_possible.total()
    for name, says, has, most in (
        ("bandwidth", one.bandwidth, possible.bandwidth, possible.all_bandwidth),
        ("wholeNodes", one.nodes, nodes, all_nodes),
        ("wholeDomains", one.domains, whole.domains, whole.domains_possible),
    ):
        yield from _between(says, has - most, has, f"{where}.bought.{name}")


def _stays_in_any_plan(change: Change) -> bool:
    """It runs whole and nothing allows it to stop: it is admitted whatever moves."""
    gang = change.gang
    return gang.running and not change.incomplete and not gang.preemptible


def _between(says: int, low: int, high: int, where: str) -> Iterator[Violation]:
    if not low <= says <= high:
        yield Violation(
            BOUGHT, None, f"{where}: says {says}, can only be from {shown(low)} to {shown(high)}"
        )


def _gain(outlook: Outlook, one: StatedSet, where: str) -> Iterator[Violation]:
    freed = _gpus_freed(outlook.wholeness, one.nodes)
    low, high = ((1000 * (one.gpus + gpus) + one.bandwidth) // max(1, one.moved) for gpus in freed)
    if not (low <= one.gain * 1000 <= high and (one.gain * 1000).denominator == 1):
        span = f"{low / 1000:g}" if low == high else f"{low / 1000:g} to {high / 1000:g}"
        yield Violation(BOUGHT, None, f"{where}.gain: says {float(one.gain):g}, is {span}")
    least = outlook.facts.policy.moves.least_gain
    if least and one.gain < _rounded_down(least):
        yield Violation(
            "moves",
            None,
            f"{where}: gains {float(one.gain):g} a GPU moved, at least {float(least):g} is asked for",
        )


def _rounded_down(least: Fraction) -> Fraction:
    """Gains are stated in thousandths: one that just reaches the least may be stated below it."""
    return Fraction(int(least * 1000), 1000)


def _gpus_freed(whole: Wholeness, nodes: int) -> Sequence[int]:
    """Fewest and most GPUs of so many whole nodes gained, over servers of every size."""
    ends = []
    for largest_first in (False, True):
        left = nodes
        gpus = 0
        # Everything that could be lost is lost, then regained from one end on.
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
