"""Whether a gated pod can be tied to a node at all, by what the pod itself demands.

Promises: pure; asked before the first pod of a gang is started, so that none is started in vain.
Called by ``starting`` and by ``planner.cluster.pinning``, which does it.
"""

from __future__ import annotations

import json

from models.applying.seen import NodeSeen, PodSeen

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def unpinnable(pod: PodSeen, node: NodeSeen) -> str | None:
    """Why the pod's own constraints leave no way to the node; None if they leave one."""
    chosen = dict(pod.selector).get(HOSTNAME)
    if chosen is not None and chosen != dict(node.labels).get(HOSTNAME):
        return f"its node selector asks for {HOSTNAME}={chosen}"
    if node.hostname is None:
        terms = required_terms(pod)
        if terms and not any(map(can_match, terms)):
            return "its required node affinity matches no node"
    return None


def required_terms(pod: PodSeen) -> list[object]:
    """Terms of the pod's required node affinity, alternatives all; empty where it has none."""
    found: object = json.loads(pod.node_affinity)
    for part in (REQUIRED, "nodeSelectorTerms"):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def can_match(term: object) -> bool:
    """A term without requirements matches nothing, and must stay as it is."""
    return isinstance(term, dict) and bool(term.get("matchExpressions") or term.get("matchFields"))
