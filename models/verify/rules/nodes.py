"""Nodes: resources hold, and only nodes that may take a pod get it.

For every node n and resource r it limits: sum of requests of r over all pods on n <= allocatable[n, r],
wherever a pod placed there asks for r (staying pods alone may overfill); every pod takes one of ``pods``.
A placed pod's node is ready, not cordoned, ours, tolerated, selected, and of the model its role asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.hardware import slug
from models.verify.changes import Change, NodeUse, Usage
from models.verify.facts import Facts, Node, Role, Toleration
from models.verify.form import printable
from models.verify.gang_facts import suits
from models.verify.violation import Violation

PODS = "pods"
_ONE = Fraction(1)


def check(facts: Facts, changes: Sequence[Change], usage: Usage) -> Iterator[Violation]:
    for node, use in zip(facts.nodes, usage.nodes, strict=True):
        newcomers = sorted({(p, pod.role) for p, pod, placed in use.tenants if placed})
        if newcomers:
            yield from _resources(node, use, changes)
        for position, number in newcomers:
            change = changes[position]
            yield from _eligible(node, change.gang.roles[number], change)


def _asks(role: Role, resource: str) -> Fraction:
    return _ONE if resource == PODS else role.requests.get(resource, Fraction(0))


def _resources(node: Node, use: NodeUse, changes: Sequence[Change]) -> Iterator[Violation]:
    for resource, most in node.allocatable.items():
        asked = Fraction(0)
        guilty: set[int] = set()
        for position, pod, placed in use.tenants:
            asks = _asks(changes[position].gang.roles[pod.role], resource)
            asked += asks
            if placed and asks:
                guilty.add(position)
        if asked > most:
            for position in sorted(guilty):
                yield Violation(
                    "resources",
                    changes[position].label,
                    f"node {printable(node.name)}: {float(asked):g} of {printable(resource)} are asked for, "
                    f"{float(most):g} can be used",
                )


def _eligible(node: Node, role: Role, change: Change) -> Iterator[Violation]:
    where = f"role {printable(role.name)} on node {printable(node.name)}"
    if not node.usable:
        yield Violation(
            "schedulable", change.label, f"{where}: cordoned, not ready or not ours to use"
        )
    for key, value, effect in node.taints:
        if not any(_tolerates(t, key, value, effect) for t in role.tolerations):
            yield Violation(
                "taint", change.label, f"{where}: taint {printable(key)} is not tolerated"
            )
    for key, value in role.selector:
        if node.labels.get(key) != value:
            yield Violation(
                "selector", change.label, f"{where}: label {printable(key)} does not match"
            )
    if role.affinity and not suits(node, role.affinity):
        yield Violation("selector", change.label, f"{where}: its node affinity does not hold")
    if role.model is not None and not (
        node.model is not None and role.model in (slug(node.model.gpu), *node.model.slugs)
    ):
        yield Violation(
            "selector", change.label, f"{where}: is not of the model {printable(role.model)}"
        )


def _tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """Kubernetes' rule: no effect matches every effect, no key with Exists every taint."""
    if toleration.effect not in ("", effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", key)
    return toleration.key == key and toleration.value == value
