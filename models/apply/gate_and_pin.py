"""Gate and pin: pods wait at gangplan's scheduling gate, and start with a pin to their node in its place.

One patch a pod starts it; devices that the GPU back end gives are allocated before the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from models.apply.enforcer import PodBatch, Write, WritePlan
from models.apply.live_state import (
    STARTED,
    ClusterView,
    LiveNode,
    LivePod,
    PodClassifier,
    PodState,
    pod_of,
    usage,
)
from models.apply.plan_actions import PodStart
from models.apply.records import PodPlace
from models.apply.requests import AllocateDevices, Done, ReleaseDevices, Ungate

ALLOCATING = ("dra", "kai")
"""GPU back ends that write other objects for a pod before its gang starts."""


@dataclass(frozen=True, slots=True)
class GateAndPin:
    """``gate``, ``backend``: of the Policy."""

    gate: str
    backend: str

    @property
    def classifier(self) -> PodClassifier:
        return PodClassifier(self.gate)

    def state(self, view: ClusterView, order: PodStart) -> PodState:
        return self.classifier.state(pod_of(view, order), order.uid, order.node)

    def refusal(self, view: ClusterView, batch: PodBatch) -> str | None:
        for order in self._waiting(view, batch):
            if (pod := pod_of(view, order)) is None:
                continue
            if (why := unstartable(self.classifier, pod)) is not None:
                return f"pod {order.name} {why}"
            node = view.nodes.get(order.node)
            why = "the node does not exist" if node is None else unpinnable(pod, node)
            if why is not None:
                return f"pod {order.name} cannot be pinned to {order.node}: {why}"
        for order in batch.pods:
            if self.state(view, order) not in (PodState.waiting, *STARTED):
                return lost(view, order)
        return None

    def places(self, view: ClusterView, batch: PodBatch) -> tuple[PodPlace, ...]:
        before = view.records.get(batch.key)
        found = {} if before is None else {one.uid: one for one in before.pods}
        for order in batch.pods:
            pod, node = pod_of(view, order), view.nodes.get(order.node)
            kept = found.get(order.uid)
            record = "" if kept is None else kept.pin
            if pod is not None and node is not None and self.state(view, order) is PodState.waiting:
                record = pin_record(pod, pin(pod, node))
            found[order.uid] = PodPlace(
                order.name, order.uid, order.node, order.gpus or None, order.rank, record
            )
        return tuple(found.values())

    def plan(self, view: ClusterView, batch: PodBatch) -> WritePlan:
        waiting = self._waiting(view, batch)
        given = waiting if self.backend in ALLOCATING else ()
        return WritePlan(
            tuple(_allocated(order, self.classifier) for order in given),
            tuple(_ungated(order, self.classifier) for order in scarcest_first(view, waiting)),
        )

    def withdrawal(self, view: ClusterView, batch: PodBatch) -> tuple[Write, ...]:
        waiting = self._waiting(view, batch) if self.backend in ALLOCATING else ()
        return tuple(_released(order, self.classifier) for order in waiting)

    def _waiting(self, view: ClusterView, batch: PodBatch) -> list[PodStart]:
        return [order for order in batch.pods if self.state(view, order) is PodState.waiting]


def scarcest_first(view: ClusterView, orders: Iterable[PodStart]) -> list[PodStart]:
    """Pods on the node with the fewest GPUs left after them first, since a rival could fill it."""
    pods = list(orders)
    requested: dict[str, int] = {}
    for order in pods:
        requested[order.node] = requested.get(order.node, 0) + order.gpu_count
    used = usage(view, requested, without={order.uid for order in pods})
    left = {
        name: (view.nodes[name].gpus if name in view.nodes else 0) - used[name].gpus - gpus
        for name, gpus in requested.items()
    }
    return sorted(pods, key=lambda order: (left[order.node], order.node, order.key))


def lost(view: ClusterView, order: PodStart) -> str:
    """Why a pod that neither waits nor is started cannot be."""
    pod, what = pod_of(view, order), "is gone"
    if pod is not None:
        what = f"is bound to node {pod.node}" if pod.node else "is being deleted"
    return f"pod {order.name} {what}"


def unstartable(classifier: PodClassifier, pod: LivePod) -> str | None:
    """Why a pod that should still wait cannot be started."""
    why, others = classifier.over(pod), classifier.other_gates(pod)
    if why is None and others:
        return f"has the scheduling gate {others[0]} of another controller"
    return why


# ---- the writes


def _allocated(order: PodStart, classifier: PodClassifier) -> Write:
    """The pod has its devices, which only an answer shows."""

    def obstacle(view: ClusterView) -> str | None:
        pod = pod_of(view, order)
        return "is gone" if pod is None else unstartable(classifier, pod)

    return Write(
        f"pod {order.name}:",
        order,
        lambda view: AllocateDevices(order, view.pods[order.key]),
        lambda _: False,
        obstacle,
    )


def _released(order: PodStart, classifier: PodClassifier) -> Write:
    """A pod that has not started gives its devices back, or is gone."""

    def obstacle(view: ClusterView) -> str | None:
        pod = pod_of(view, order)
        return "was started" if pod is not None and classifier.started(pod) else None

    return Write(
        f"pod {order.name}:",
        order,
        lambda _: ReleaseDevices(*order.key),
        lambda view: pod_of(view, order) is None,
        obstacle,
    )


def _ungated(order: PodStart, classifier: PodClassifier) -> Write:
    """The pod has lost its gate and is pinned to its node: another client may ungate it, too."""

    def done(view: ClusterView) -> bool:
        pod, node = pod_of(view, order), view.nodes.get(order.node)
        if pod is None or node is None or classifier.gated(pod):
            return False
        pinned = unpinnable(pod, node) is None and not pin(pod, node)
        return pinned and pod.node in {None, node.name}

    def obstacle(view: ClusterView) -> str | None:
        pod, node = pod_of(view, order), view.nodes.get(order.node)
        why = "is gone" if pod is None else unstartable(classifier, pod)
        if why is not None or pod is None:
            return why
        if pod.start is None or node is None:
            return "is not recorded" if pod.start is None else f"lost node {order.node}"
        if unpinnable(pod, node) or pin_record(pod, pin(pod, node)) != pod.start.pod.pin:
            return "has other constraints than were recorded"
        return None

    def learn(view: ClusterView, answer: Done) -> None:
        seen = view.pods[order.key]
        pod = answer.pod or structs.replace(seen, gates=classifier.other_gates(seen))
        view.pods[pod.key] = pod

    return Write(
        f"pod {order.name}",
        order,
        lambda view: Ungate(order, view.pods[order.key]),
        done,
        obstacle,
        learn,
    )


# ---- the pin, which planner.read.kube.pods.pods takes off again when the pod is read

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
    """``PodPlace.pin`` of a pod. ``added``: what ``pin`` adds to its spec."""
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
