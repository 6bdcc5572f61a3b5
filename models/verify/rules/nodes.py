"""Where pods may be: on nodes that accept them, and that have the resources which they request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.verify.changes import Change, NodeUse
from models.verify.eligibility import Known, faults
from models.verify.facts import Node
from models.verify.outcome import Outcome
from models.verify.rule import Judged, role_binds
from models.verify.violation import Violation


def _eligible(outcome: Outcome) -> Iterator[Violation]:
    known: Known = {}
    for node, use in zip(outcome.facts.nodes, outcome.usage.nodes, strict=True):
        known.clear()
        for position, number in sorted({(p, pod.role) for p, pod, placed in use.tenants if placed}):
            change = outcome.changes[position]
            role = change.gang.roles[number]
            for rule, what in faults(node, role, known):
                yield change.violation(rule, f"role {role.name} on node {node.name}: {what}")


ELIGIBILITY = Judged(
    _eligible,
    {
        "schedulable": "cordons, readiness and the policy's node selector are respected",
        "taint": "taints are tolerated",
        "selector": "node selectors, affinities and the model of a role hold",
    },
    on_empty=True,
    binds={
        "selector": role_binds(lambda role: role.node_selector or role.node_affinity),
        "model": role_binds(lambda role: role.model),
        "tolerations": role_binds(
            lambda role: all(t.operator != "Exists" or t.key or t.effect for t in role.tolerations)
        ),
    },
)


PODS = "pods"


def _fit(outcome: Outcome) -> Iterator[Violation]:
    """Resources: for every node and resource, the requests of all pods <= allocatable.

    It binds wherever a placed pod requests the resource; pods that stay may overfill a node by
    themselves. Every pod takes one of ``pods``.
    """
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


def _overfull(node: Node, use: NodeUse, changes: Sequence[Change]) -> Iterator[Violation]:
    for resource, allocatable in node.allocatable.items():
        total: int = 0
        placed_gangs: set[int] = set()
        for position, pod, placed in use.tenants:
            requests = changes[position].gang.roles[pod.role].requests
            requested = 1 if resource == PODS else requests.get(resource, 0)
            total += requested
            if placed and requested:
                placed_gangs.add(position)
        if total > allocatable:
            for position in sorted(placed_gangs):
                what = f"node {node.name}: pods request {float(total):g} of {resource}"
                what += f", {float(allocatable):g} is allocatable"
                yield changes[position].violation("resources", what)


RESOURCES = Judged(
    _fit,
    {"resources": "every resource of every node holds"},
    on_empty=True,
    binds={"requests": role_binds(lambda role: role.requests)},
)
