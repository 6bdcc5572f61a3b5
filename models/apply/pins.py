"""The pin that ties a gated pod to its planned node, as its own constraints allow.

``planner.read.kube.pods.pods`` takes it off again when the pod is read.
"""

from __future__ import annotations

import json
from typing import Any

from models.apply.live_state import LiveNode, LivePod

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class CannotPin(ValueError):  # noqa: N818  # an answer, not a failure of ours
    """The pod's own constraints exclude the node."""


def pin(pod: LivePod, node: LiveNode) -> dict[str, Any]:
    """Fields of ``spec`` that pin a gated pod: a hostname selector, else node affinity by name.

    The API server only accepts additions to a gated pod. Empty if the pod is limited to that node already.
    """
    why = unpinnable(pod, node)
    if why is not None:
        raise CannotPin(why)
    if node.hostname is not None:
        selected = HOSTNAME in dict(pod.selector)
        return {} if selected else {"nodeSelector": {HOSTNAME: node.hostname}}
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    old = required_terms(pod)
    # Terms are alternatives, and none may be added: each that can match has to name the node.
    terms = [
        _with_field(term, field) if isinstance(term, dict) and can_match(term) else term
        for term in old
    ] or [{"matchFields": [field]}]
    if terms == old:
        return {}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def pin_record(pod: LivePod, added: dict[str, Any]) -> str:
    """``Intent.pin`` of a pod. ``added``: what ``pin`` adds to its spec."""
    if "affinity" not in added:
        return "hostname" if added else "none"
    terms = added["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    old = required_terms(pod) or [None]
    changed = [i for i, pair in enumerate(zip(old, terms, strict=True)) if pair[0] != pair[1]]
    return f"terms {' '.join(map(str, changed))}"


def _with_field(term: dict[str, Any], field: dict[str, Any]) -> dict[str, Any]:
    found = term.get("matchFields")
    fields = found if isinstance(found, list) else []
    return term if field in fields else {**term, "matchFields": [*fields, field]}


def unpinnable(pod: LivePod, node: LiveNode) -> str | None:
    """Why the pod's own constraints exclude the node."""
    selected = dict(pod.selector).get(HOSTNAME)
    if selected is not None and selected != dict(node.labels).get(HOSTNAME):
        return f"its node selector requires {HOSTNAME}={selected}"
    if node.hostname is None:
        terms = required_terms(pod)
        if terms and not any(map(can_match, terms)):
            return "its required node affinity matches no node"
    return None


def required_terms(pod: LivePod) -> list[object]:
    """Terms (alternatives) of the pod's required node affinity."""
    found: object = json.loads(pod.node_affinity)
    for part in (REQUIRED, "nodeSelectorTerms"):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def can_match(term: object) -> bool:
    """A term without requirements matches no node."""
    return isinstance(term, dict) and bool(term.get("matchExpressions") or term.get("matchFields"))
