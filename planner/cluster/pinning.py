"""What ties a gated pod to its node: the part of one patch that nothing but deleting the pod undoes.

Promises: pure; only what the API server lets be added to a gated pod; terms that match nothing stay
so. Raises CannotPin. Called by ``planner.cluster.sending``.
"""

from __future__ import annotations

from models.applying.pinning import HOSTNAME, REQUIRED, can_match, required_terms, unpinnable
from models.applying.seen import NodeSeen, PodSeen
from planner.cluster.wire import Tree
from planner.reading.kubernetes.looking import items


class CannotPin(ValueError):  # noqa: N818  # an answer, not a failure of ours
    """The pod's own constraints leave no way to the node."""


def pin(pod: PodSeen, node: NodeSeen) -> Tree:
    """Fields of ``spec`` for a patch: a hostname selector, else required affinity by name.

    Empty if the pod is tied to that node alone already.
    """
    why = unpinnable(pod, node)
    if why is not None:
        raise CannotPin(why)
    if node.hostname is not None:
        chosen = HOSTNAME in dict(pod.selector)
        return {} if chosen else {"nodeSelector": {HOSTNAME: node.hostname}}
    terms = _terms(required_terms(pod), node.name)
    if terms is None:
        return {}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def _terms(old: list[object], node: str) -> list[object] | None:
    """Every term of the pod's own that can match, with the node's name added; None if all have it.

    Terms are alternatives, so each must name the node; a list of terms cannot grow.
    """
    ours = {"key": "metadata.name", "operator": "In", "values": [node]}
    if not old:
        return [{"matchFields": [ours]}]
    new = [
        _term(term, ours) if isinstance(term, dict) and can_match(term) else term for term in old
    ]
    return None if new == old else new


def _term(term: Tree, ours: Tree) -> Tree:
    """The term with our field added, after its own."""
    fields = items(term, "matchFields")
    return term if ours in fields else {**term, "matchFields": [*fields, ours]}
