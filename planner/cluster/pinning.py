"""What ties a gated pod to its node: the part of one patch that nothing but deleting the pod undoes.

Promises: pure; only what the API server lets be added to a gated pod; terms that match nothing stay
so. Raises CannotPin. Called by ``planner.cluster.sending``.
"""

from __future__ import annotations

import json

from models.applying.seen import NodeSeen, PodSeen
from planner.cluster.wire import Tree
from planner.reading.kubernetes.looking import items, mapping

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class CannotPin(ValueError):  # noqa: N818  # an answer, not a failure of ours
    """The pod's own constraints leave no way to the node."""


def pin(pod: PodSeen, node: NodeSeen) -> Tree:
    """Fields of ``spec`` for a patch: a hostname selector, else required affinity by name.

    Empty if the pod is tied to that node alone already.
    """
    chosen = dict(pod.selector).get(HOSTNAME)
    if chosen is not None and chosen != dict(node.labels).get(HOSTNAME):
        raise CannotPin(f"its node selector asks for {HOSTNAME}={chosen}")
    if node.hostname is not None:
        return {} if chosen is not None else {"nodeSelector": {HOSTNAME: node.hostname}}
    terms = _terms(pod.node_affinity, node.name)
    if terms is None:
        return {}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def _terms(written: str, node: str) -> list[object] | None:
    """Every term of the pod's own that can match, with the node's name added; None if all have it.

    Terms are alternatives, so each must name the node; a list of terms cannot grow.
    """
    ours = {"key": "metadata.name", "operator": "In", "values": [node]}
    old = items(
        mapping({"affinity": json.loads(written)}, "affinity", REQUIRED), "nodeSelectorTerms"
    )
    if not old:
        return [{"matchFields": [ours]}]
    if not any(map(_can_match, old)):
        raise CannotPin("its required node affinity matches no node")
    new = [_term(term, ours) if _can_match(term) else term for term in old]
    return None if new == old else new


def _can_match(term: object) -> bool:
    """A term without requirements matches nothing, and must stay as it is."""
    return isinstance(term, dict) and bool(term.get("matchExpressions") or term.get("matchFields"))


def _term(term: Tree, ours: Tree) -> Tree:
    """The term with our field added, after its own."""
    fields = items(term, "matchFields")
    return term if ours in fields else {**term, "matchFields": [*fields, ours]}
