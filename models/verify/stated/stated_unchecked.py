"""What a plan lists as not checked: nothing that it states and the judge does not check may be missing.

A newer version may check less or list more; that is no difference. A plan may leave the list out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from models.documents.plan import PlanUnchecked
from models.documents.stated import Unchecked
from models.verify.violation import Violation, printable

RULE = "unchecked"


def check(stated: Sequence[PlanUnchecked], found: Collection[Unchecked]) -> Iterator[Violation]:
    """``found``: what the judge does not check of the plan."""
    if not stated:
        return
    listed: dict[str, set[str] | None] = {}
    for one in stated:
        if not one.codes:
            listed[one.field] = None
        elif (known := listed.setdefault(one.field, set())) is not None:
            known.update(one.codes)
    for own in found:
        codes = listed.get(own.field, set())
        if own.field not in listed or (codes is not None and not codes.issuperset(own.codes)):
            of = f" of {printable(', '.join(own.codes))}" if own.codes else ""
            what = f"{printable(own.field)}{of} is not checked, and not listed: {own.why}"
            yield Violation(RULE, None, f"status.unchecked: {what}")
