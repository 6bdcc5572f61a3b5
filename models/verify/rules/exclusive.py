"""Exclusive: no pod with GPUs is placed or moved into a domain that an exclusive gang shares with another.

Both sides are bound. What stood together before the plan may stay together.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation

Tenants = dict[int, dict[int, bool]]
"""By domain, gangs (positions) with GPUs there, and whether one of their pods there is placed or moved."""


def check(outcome: Outcome) -> Iterator[Violation]:
    levels = {gang.exclusive for gang in outcome.facts.gangs if gang.exclusive is not None}
    for level in sorted(levels):
        for tenants in _tenants(outcome, level).values():
            yield from _shared(outcome, level, tenants)


def _tenants(outcome: Outcome, level: int) -> Tenants:
    found: Tenants = {}
    for node, use in zip(outcome.facts.nodes, outcome.usage.nodes, strict=True):
        for position, pod, placed in use.tenants:
            if outcome.changes[position].gang.roles[pod.role].gpus:
                there = found.setdefault(node.domain[level], {})
                there[position] = placed or there.get(position, False)
    return found


def _shared(outcome: Outcome, level: int, tenants: dict[int, bool]) -> Iterator[Violation]:
    """Exclusive gangs in one domain that share it with another, of which one comes."""
    coming = [position for position, comes in tenants.items() if comes]
    for position in sorted(tenants):
        change = outcome.changes[position]
        if change.gang.exclusive != level:
            continue
        others = tenants if tenants[position] else coming
        other = min((i for i in others if i != position), default=None)
        if other is not None:
            name = outcome.facts.level_name(level)
            label = outcome.changes[other].label
            yield change.violation(
                "exclusive", f"must have its {name} alone, is there with {label}"
            )


def _concerns(outcome: Outcome, gang: Gang) -> bool:
    return gang.exclusive is not None or any(
        change.gang.exclusive is not None
        and any(change.gang.held(pod) for pod in change.pods.values())
        for change in outcome.changes
    )


RULE = Judged(
    check,
    {"exclusive": "no GPU pod comes into a domain that an exclusive gang shares with another"},
    on_empty=True,
    codes={"Exclusive": _concerns},
    binds={"exclusive": lambda gang, _: gang.spec.topology.exclusive is not None},
)
