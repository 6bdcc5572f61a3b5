"""The judge: finds every difference between a plan and what follows from its own instance.

It uses no solver and none of the planner's rules, rates or values. A broken document gives
violations, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from models.documents.plan import PlanDocument
from models.documents.stated import Unchecked, unchecked
from models.verify import judged_rules as table
from models.verify import what_if
from models.verify.adaptor import InstanceReading, check_digests, read_case, read_instance_alone
from models.verify.bounds import examine
from models.verify.instance_facts import MAX_FAULTS
from models.verify.judged_rules import ordered
from models.verify.outcome import Outcome
from models.verify.standing import Figures
from models.verify.stated import (
    stated_effective,
    stated_gangs,
    stated_moves,
    stated_queues,
    stated_reasons,
    stated_reservations,
    stated_tiers,
    stated_unable,
    stated_unchecked,
)
from models.verify.tier_values import tiers
from models.verify.violation import Violation, printable

Check = Callable[[Outcome], Iterable[Violation]]

STATED: tuple[Check, ...] = (
    stated_gangs.check,
    stated_gangs.check_ranks,
    stated_reasons.check,
    stated_reservations.check,
    stated_reservations.check_delays,
    stated_reservations.check_starts,
    stated_moves.check,
    stated_tiers.check,
    stated_effective.check,
    stated_queues.check,
    stated_unable.check,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``violations``: [] if there is none. ``document``: the plan as read, None if its form is broken.

    ``remarks``: better plans where the plan claims no proof, and places that it did not find.
    ``unchecked``: what the plan states and nobody checked. Both only of plans without a violation.
    ``refuted``: tiers whose stated bound is wrong, where that is all that is wrong with the plan.
    """

    violations: list[Violation]
    document: PlanDocument | None
    remarks: tuple[str, ...] = ()
    refuted: frozenset[str] = frozenset()
    unchecked: tuple[Unchecked, ...] = ()


class Judge:
    """Checks plans; of plans with one ``instance``, the same unchanged object, reads that once."""

    def __init__(self) -> None:
        self._instance: InstanceReading | None = None

    def expect(self, instance: object) -> None:
        """Read the ``instance`` of plans to come, so that their checks are shorter."""
        self._instance = read_instance_alone(instance)
        if self._instance is not None and not self._instance.faults:
            _ = self._instance.digest, self._instance.standing.kept

    def check(
        self, plan: object, document: PlanDocument | None = None, *, refute: bool = True
    ) -> Verdict:
        """All violations of a plan. A broken document is checked for form alone.

        ``plan``: the JSON document, of which the digests are taken; ``document``: the same as the
        document type, if it has been read already. ``refute``: whether better plans are looked for.
        """
        reading = read_case(plan, document, self._instance)
        self._instance = reading.instance or self._instance
        if reading.case is None or reading.instance is None:
            return Verdict(ordered(reading.faults), reading.document)
        supposed = reading.instance.document
        if supposed.changes is not None:
            wrong = islice(what_if.wrong(supposed, supposed.changes), MAX_FAULTS)
            found = [
                Violation("what-if", None, f"instance.whatIf: {printable(what)}") for what in wrong
            ]
            if found:
                return Verdict(ordered([*reading.faults, *found]), reading.document)
        outcome = Outcome(reading.case)
        status = reading.case.status
        unknown = unchecked(cast(dict[str, Any], plan))
        found = [
            *reading.faults,
            *check_digests(plan, reading.instance, status),
            *stated_unchecked.check(status.unchecked, unknown),
        ]
        rules = [rule.check for rule in table.RULES]
        for check in (*rules, *STATED):
            found += check(outcome)
        if found:
            return Verdict(ordered(found), reading.document)
        if not refute:
            return Verdict([], reading.document, unchecked=unknown)
        found, better, refuted = examine(outcome, rules)
        if found:
            return Verdict(ordered(found), reading.document, refuted=refuted)
        remarks = (*better, *stated_unable.overlooked(outcome))
        return Verdict([], reading.document, remarks, unchecked=unknown)

    def derived(
        self, plan: object
    ) -> tuple[dict[str, int], dict[tuple[str, str], Figures], list[dict[str, Any]]]:
        """What a plan must state, from its own instance and its pods.

        Value of every tier by name, in order; figures by (namespace, name) of every gang;
        ``status.queues``. Raises ValueError on a broken document.
        """
        reading = read_case(plan, None, self._instance)
        self._instance = reading.instance or self._instance
        if reading.case is None:
            raise ValueError("; ".join(fault.message for fault in reading.faults[:3]))
        outcome = Outcome(reading.case)
        gangs = (gang.key for gang in outcome.facts.gangs)
        found = {tier.name: tier.value for tier in tiers(outcome)}
        return found, dict(zip(gangs, outcome.figures, strict=True)), stated_queues.derived(outcome)


def check(plan: object, document: PlanDocument | None = None) -> list[Violation]:
    """All violations of one plan, as ``Judge.check`` finds them."""
    return Judge().check(plan, document).violations


def derive(plan: object) -> dict[str, int]:
    """Value of every tier by name, in order. Raises ValueError on a broken document."""
    return Judge().derived(plan)[0]
