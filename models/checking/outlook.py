"""Everything that follows from a case: changes, usage, bandwidth and spread of every gang, once.

Promises: derived from facts and planned pods alone, computed lazily and kept.
Shared by the rules, the tiers and the comparison with what is stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from models.checking.ages import Ages
from models.checking.bandwidth import Pricing, Speed
from models.checking.changes import Arrivals, Change, arrivals_of
from models.checking.documents import Case
from models.checking.facts import Facts
from models.checking.usage import Usage, usage_of
from models.checking.wholeness import Wholeness, wholeness


@dataclass(frozen=True, slots=True)
class Figures:
    """What a plan must state of one gang; None where it has no pods (or too few GPUs)."""

    bandwidth: int | None
    share: int | None
    domains: dict[str, int] | None


class Outlook:
    """One plan, worked out. ``changes[i]`` and ``speeds[i]`` belong to ``facts.gangs[i]``."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.facts: Facts = case.facts
        self.changes = tuple(
            Change(gang, stated.label, stated.pods)
            for gang, stated in zip(case.facts.gangs, case.gangs, strict=True)
        )

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals_of(self.changes)

    @cached_property
    def ages(self) -> Ages:
        return Ages(self.facts)

    @cached_property
    def wholeness(self) -> Wholeness:
        return wholeness(self.facts, self.usage)

    @cached_property
    def usage(self) -> Usage:
        return usage_of(self.facts, self.changes)

    @cached_property
    def speeds(self) -> tuple[Speed, ...]:
        pricing = Pricing(self.facts, self.usage)
        return tuple(pricing.speed(change) for change in self.changes)

    @cached_property
    def domains(self) -> tuple[tuple[int, ...], ...]:
        """Domains used by all pods of a gang, at every level, the node level last; () without pods."""
        found = []
        for change in self.changes:
            places = [self.facts.nodes[pod.node].domain for pod in change.pods.values()]
            found.append(tuple(len(set(column)) for column in zip(*places, strict=True)))
        return tuple(found)

    @cached_property
    def figures(self) -> tuple[Figures, ...]:
        names = [self.facts.level_name(level) for level in range(self.facts.node_level + 1)]
        return tuple(
            Figures(speed.MBps, speed.share, dict(zip(names, used, strict=True)) if used else None)
            for speed, used in zip(self.speeds, self.domains, strict=True)
        )
