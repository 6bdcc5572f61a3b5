"""Why a start is later than an earlier plan said, and why a gang in front holds no reservation, in words."""

from __future__ import annotations

from models.documents.plan import PlanGang
from models.units import first_of, time_text

_SHOWN = 3
"""Names that are shown; the rest are counted."""

_CAUSES = {
    "Arrival": "{} came since, or may start first",
    "Failure": "{} out of order or gone",
    "Overrun": "{} longer than expected",
    "Input": "the input is another",
}
"""By cause, with what it names."""

_VERBS = {"Failure": ("is", "are"), "Overrun": ("runs", "run")}

_PASSED = {
    "NoStart": "no start was found for it within the horizon",
    "Promised": "the reservation of its priority was promised to a gang behind it by an earlier plan",
}


def delay(gang: PlanGang) -> str:
    """``promised 14:10 by an earlier plan; later, for x came since``; empty without a delay."""
    late = gang.delayed
    if late is None:
        return ""
    names = first_of(list(late.by), _SHOWN)
    if late.cause in _VERBS:
        names += f" {_VERBS[late.cause][len(late.by) > 1]}"
    later = "no start is reserved now" if gang.reserved is None else "later now"
    cause = _CAUSES[late.cause].format(names)
    return f"promised {time_text(late.promised)} by an earlier plan; {later}: {cause}"


def passed_over(gang: PlanGang) -> str:
    """Why a gang behind it holds a reservation and it does not; empty if none does."""
    return "" if gang.passed_over is None else _PASSED[gang.passed_over]
