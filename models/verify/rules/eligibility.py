"""Eligible nodes: a placed pod's node is usable, tolerated, selected, and of the role's model."""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.eligibility import Known, faults
from models.verify.outcome import Outcome
from models.verify.violation import Violation


def check(outcome: Outcome) -> Iterator[Violation]:
    known: Known = {}
    for node, use in zip(outcome.facts.nodes, outcome.usage.nodes, strict=True):
        known.clear()
        for position, number in sorted({(p, pod.role) for p, pod, placed in use.tenants if placed}):
            change = outcome.changes[position]
            role = change.gang.roles[number]
            for rule, what in faults(node, role, known):
                yield change.violation(rule, f"role {role.name} on node {node.name}: {what}")
