"""Gate and pin: pods wait at gangplan's scheduling gate, and start with a pin to their node in its place.

With a plain GPU back end pods get their intent in the patch that starts them; the first ones then carry a
record of the others, from which a later run completes the gang. Else all intents are written first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from models.apply.enforcer import PodBatch, Sender, Write, WritePlan
from models.apply.intents import MAX_RECORD_CHARS, Intent, Member, record_of
from models.apply.live_state import (
    READY,
    STARTED,
    ClusterView,
    LiveNode,
    LivePod,
    PodClassifier,
    PodState,
    pod_of,
    usage,
)
from models.apply.plan_actions import Key, PodStart
from models.apply.requests import AllocateDevices, Done, RemoveIntent, Request, Ungate, WriteIntent

PLAIN_BACKENDS = ("annotation", "none")
"""GPU back ends for which no pod of a gang can turn out to be impossible after others have started."""

RECORDS = 3
"""Pods of a gang with the record of the others, so that it is lost only with all of these."""


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
            if self.state(view, order) not in (*READY, *STARTED):
                return lost(view, order)
        return None

    def plan(self, view: ClusterView, batch: PodBatch) -> WritePlan:
        waiting = self._waiting(view, batch)
        carried = self._carried_intents(view, batch, waiting)
        prepare: list[Write] = []
        for order in () if carried else waiting:
            pod, intent = pod_of(view, order), batch.intent(order)
            if pod is not None and pod.intent is not None:
                # Remove it first: equal fields that another client wrote would stay owned by it.
                prepare.append(_Removed(order, self.classifier, pod.intent.plan, intent))
            prepare.append(_Intended(order, self.classifier, intent))
        if self.backend == "dra":
            prepare += [_Allocated(order, self.classifier) for order in waiting]
        start = (
            _Ungated(order, self.classifier, batch.intent(order), carried.get(order.key))
            for order in scarcest_first(view, waiting)
        )
        return WritePlan(tuple(prepare), tuple(start))

    def withdrawal(self, view: ClusterView, batch: PodBatch) -> tuple[Write, ...]:
        waiting = self._waiting(view, batch)
        return tuple(_Removed(order, self.classifier, batch.plan) for order in waiting)

    def _waiting(self, view: ClusterView, batch: PodBatch) -> list[PodStart]:
        return [order for order in batch.pods if self.state(view, order) in READY]

    def _carried_intents(
        self, view: ClusterView, batch: PodBatch, waiting: Collection[PodStart]
    ) -> dict[Key, Intent]:
        """Intents to write in the same patches that start the pods; empty if they are written before.

        That is for pods that one patch starts: with a plain back end, and without an intent yet.
        The first RECORDS to start carry the record of the others.
        """
        pods = [pod_of(view, order) for order in waiting]
        plain = all(pod is not None and pod.intent is None for pod in pods)
        if self.backend not in PLAIN_BACKENDS or not plain:
            return {}
        carried = {order.key: batch.intent(order) for order in waiting}
        members = {
            order.key: Member(order.name, order.uid, order.node, order.gpus or None, order.rank)
            for order in waiting
        }
        if len(record_of(members.values())) > MAX_RECORD_CHARS:
            return {}
        for order in scarcest_first(view, waiting)[:RECORDS]:
            others = tuple(member for key, member in members.items() if key != order.key)
            carried[order.key] = replace(carried[order.key], members=others)
        return carried


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


@dataclass(slots=True)
class _PodWrite:
    """A write to a pod of a batch."""

    order: PodStart
    classifier: PodClassifier

    @property
    def what(self) -> str:
        return f"pod {self.order.name}"

    def obstacle(self, view: ClusterView) -> str | None:
        pod = pod_of(view, self.order)
        return "is gone" if pod is None else self.hindrance(pod)

    def hindrance(self, pod: LivePod) -> str | None:
        """Why the pod that is there must not be written."""
        return unstartable(self.classifier, pod)

    def learn(self, view: ClusterView, answer: Done) -> None:
        pod = self.assumed(view.pods[self.order.key]) if answer.pod is None else answer.pod
        view.pods[pod.key] = pod

    def assumed(self, pod: LivePod) -> LivePod:
        """The pod after a success that does not show it."""
        return pod

    def look(self, sender: Sender) -> Generator[Request, Any, object]:
        return sender.read_pod(self.order)


@dataclass(slots=True)
class _Intended(_PodWrite):
    """The pod carries the intent."""

    intent: Intent

    def done(self, view: ClusterView) -> bool:
        pod = pod_of(view, self.order)
        return pod is not None and self.intent.matches(pod.intent) and pod.intent_is_ours

    def request(self, view: ClusterView) -> Request:
        return WriteIntent(self.order, self.intent, view.pods[self.order.key].version)

    def assumed(self, pod: LivePod) -> LivePod:
        return replace(pod, intent=self.intent, intent_is_ours=True)


@dataclass(slots=True)
class _Removed(_PodWrite):
    """The pod carries no intent of the plan, or is gone. ``but``: an intent of ours that may stay."""

    plan: str
    but: Intent | None = None

    def done(self, view: ClusterView) -> bool:
        pod = pod_of(view, self.order)
        if pod is None or pod.intent is None or pod.intent.plan != self.plan:
            return True
        return self.but is not None and pod.intent_is_ours and self.but.matches(pod.intent)

    def request(self, view: ClusterView) -> Request:
        pod = view.pods[self.order.key]
        return RemoveIntent(pod.namespace, pod.name, pod.uid, pod.version)

    def hindrance(self, pod: LivePod) -> str | None:
        return "was started" if self.classifier.started(pod) else None

    def assumed(self, pod: LivePod) -> LivePod:
        return replace(pod, intent=None, intent_is_ours=False, held_at=None)


@dataclass(slots=True)
class _Allocated(_PodWrite):
    """The pod has its devices, which it does not show: only an answer tells."""

    allocated: bool = field(default=False, init=False)

    @property
    def what(self) -> str:
        return f"pod {self.order.name}:"

    def done(self, view: ClusterView) -> bool:
        del view
        return self.allocated

    def request(self, view: ClusterView) -> Request:
        return AllocateDevices(self.order, view.pods[self.order.key])

    def learn(self, view: ClusterView, answer: Done) -> None:
        del view, answer
        self.allocated = True


@dataclass(slots=True)
class _Ungated(_PodWrite):
    """The pod has lost its gate and is pinned. ``carried``: the intent that it gets in the same patch."""

    intent: Intent
    carried: Intent | None

    def done(self, view: ClusterView) -> bool:
        pod = pod_of(view, self.order)
        if pod is None:
            return False
        ours = self.carried is None or (self.carried.matches(pod.intent) and pod.intent_is_ours)
        return ours and not self.classifier.gated(pod) and pod.node in {None, self.order.node}

    def request(self, view: ClusterView) -> Request:
        return Ungate(self.order, view.pods[self.order.key], intent=self.carried)

    def hindrance(self, pod: LivePod) -> str | None:
        """It changed since its intent was written, or decided."""
        why = unstartable(self.classifier, pod)
        if why is not None:
            return why
        if self.carried is not None:
            return None if pod.intent is None else "was given another intent"
        return None if self.intent.matches(pod.intent) else "lost its intent"

    def assumed(self, pod: LivePod) -> LivePod:
        carried = self.carried
        intended = pod if carried is None else replace(pod, intent=carried, intent_is_ours=True)
        return replace(intended, gates=self.classifier.other_gates(pod))


@dataclass(slots=True)
class Marked(_PodWrite):
    """The pod tells that its gang is whole. ``intent``: that says so, with terms if it has none."""

    intent: Intent

    def done(self, view: ClusterView) -> bool:
        pod = pod_of(view, self.order)
        return pod is not None and pod.intent is not None and pod.intent.whole

    def request(self, view: ClusterView) -> Request:
        pod = view.pods[self.order.key]
        return WriteIntent(self.order, self._mark(pod), pod.version)

    def hindrance(self, pod: LivePod) -> str | None:
        return None if self.classifier.started(pod) else "is not started"

    def assumed(self, pod: LivePod) -> LivePod:
        return replace(pod, intent=self._mark(pod))

    def _mark(self, pod: LivePod) -> Intent:
        whole = self.intent
        return whole if pod.intent is None else replace(whole, terms=pod.intent.terms)


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
