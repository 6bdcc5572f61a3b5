"""Eligible nodes: a placed pod's node is usable, tolerated, selected, and of the role's model."""

from __future__ import annotations

from collections.abc import Iterator

from models.documents.gang import RoleDocument
from models.verify.eligibility import Known, faults
from models.verify.outcome import Outcome
from models.verify.rule import Judged, role_binds
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


def _tolerates_all(role: RoleDocument) -> bool:
    return any(
        one.operator == "Exists" and not one.key and not one.effect for one in role.tolerations
    )


RULE = Judged(
    check,
    {
        "schedulable": "cordons, readiness and the policy's node selector are respected",
        "taint": "taints are tolerated",
        "selector": "node selectors, affinities and the model of a role hold",
    },
    on_empty=True,
    binds={
        "selector": role_binds(lambda role: role.node_selector or role.node_affinity),
        "model": role_binds(lambda role: role.model),
        "tolerations": role_binds(lambda role: not _tolerates_all(role)),
    },
)
