"""A plan without the statements that its judge refuses (a reason, a reservation, an expected start).

What is left is what it does: a placement, a figure or a tier that is refused refuses the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from models.documents.reason import UNSTATED
from models.documents.stated import STATEMENTS
from models.instance.instance import Instance
from models.instance.solution import GangDecision, Solution
from models.queues.delays import with_causes
from models.verify.violation import Violation

_FIELDS = {
    "spec.gangs[].expectedStart": "expected_start",
    "spec.gangs[].delayed": "delayed",
    "spec.gangs[].reserved": "reserved",
}
"""Of a decision, by the path of what it states."""


def without_refused(
    instance: Instance, solution: Solution, violations: Sequence[Violation]
) -> tuple[Solution, tuple[str, ...]] | None:
    """The solution without what is refused, and a warning for each; None if something else is refused.

    Of several statements that a violation may be about, the first: the next check says whether it was that.
    """
    refused = {(one.rule, one.gang): one for one in reversed(violations)}
    numbers = {"/".join(gang.key): i for i, gang in enumerate(instance.gangs)}
    said = []
    for rule, label in sorted(refused, key=lambda one: (one[0], one[1] or "")):
        found = _without(instance, solution, rule, numbers.get(label or ""))
        if found is None:
            return None
        solution, path = found
        said.append(_warning(refused[rule, label], path))
    return (solution, tuple(said)) if said else None


def _without(
    instance: Instance, solution: Solution, rule: str, index: int | None
) -> tuple[Solution, str] | None:
    """The solution without the first statement that the rule is about, and its path; None: there is none."""
    for path in STATEMENTS.get(rule, ()):
        if path.startswith("status."):
            if solution.one_at_a_time is not None:
                return replace(solution, one_at_a_time=None), path
        elif index is not None:
            decisions = list(solution.decisions)
            less = _less(decisions[index], path, held=instance.gangs[index].hold is not None)
            if less is not None:
                decisions[index] = less
                if path.endswith(".reserved"):  # who is before another holder says why it is none
                    decisions = list(with_causes(instance, decisions, (index,)))
                return replace(solution, decisions=tuple(decisions)), path
    return None


def _less(one: GangDecision, path: str, *, held: bool) -> GangDecision | None:
    """The decision without a statement; None if it does not make it."""
    if path in _FIELDS:
        name = _FIELDS[path]
        left_out: dict[str, Any] = {name: None}
        return None if getattr(one, name) is None else replace(one, **left_out)
    if one.reason is None or one.reason.bare:
        return None
    code = UNSTATED if one.decision == "wait" and not held else one.reason.code
    return replace(one, reason=replace(one.reason, code=code, bare=True))


def _warning(one: Violation, path: str) -> str:
    who = "" if one.gang is None else f"{one.gang}: "
    name = path.rpartition("].")[2].removeprefix("status.")
    return (
        f"{who}`{name}` is left out of the plan: the verifier refuses it ({one.message}); the plan itself is"
        " checked and usable; this is a bug of gangplan: please report it with the input"
    )
