"""Resources: for every node and resource, the requests of all pods <= allocatable.

It binds wherever a placed pod requests the resource; pods that stay may overfill a node by
themselves. Every pod takes one of ``pods``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.verify.changes import Change, NodeUse
from models.verify.facts import Node, Role
from models.verify.outcome import Outcome
from models.verify.rule import Judged, role_binds
from models.verify.violation import Violation

PODS = "pods"


def check(outcome: Outcome) -> Iterator[Violation]:
    for node, use in outcome.checked_uses:
        if use.comers:
            yield from _overfull(node, use, outcome.changes)


def left_of(node: Node, use: NodeUse, changes: Sequence[Change]) -> dict[str, int]:
    """What pods leave of every resource that the node states; negative where it is overfull."""
    found = dict(node.allocatable)
    for position, pod, _ in use.tenants if found else ():
        role = changes[position].gang.roles[pod.role]
        if PODS in found:
            found[PODS] -= 1
        for resource, amount in role.requests.items():
            if resource in found:
                found[resource] -= amount
    return found


def _requested(role: Role, resource: str) -> int:
    return 1 if resource == PODS else role.requests.get(resource, 0)


def _overfull(node: Node, use: NodeUse, changes: Sequence[Change]) -> Iterator[Violation]:
    for resource, allocatable in node.allocatable.items():
        total: int = 0
        placed_gangs: set[int] = set()
        for position, pod, placed in use.tenants:
            requested = _requested(changes[position].gang.roles[pod.role], resource)
            total += requested
            if placed and requested:
                placed_gangs.add(position)
        if total > allocatable:
            for position in sorted(placed_gangs):
                yield changes[position].violation(
                    "resources",
                    f"node {node.name}: pods request {float(total):g} of {resource}, "
                    f"{float(allocatable):g} is allocatable",
                )


RULE = Judged(
    check,
    {"resources": "every resource of every node holds"},
    on_empty=True,
    binds={"requests": role_binds(lambda role: role.requests)},
)
