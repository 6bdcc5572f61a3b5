"""The fields of live objects that applying a plan would change. Reads and writes nothing itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.apply.live_state import READY, ClusterView, LiveNode, LivePod, PodClassifier
from models.apply.pins import CannotPin, pin
from models.apply.plan_actions import GangActions, PlanActions, PodStart
from models.apply.session import PodBatch
from planner.cluster.backends.base import Backend
from planner.cluster.transport import Tree
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import texts

if TYPE_CHECKING:
    from planner.cluster.live_view import ClusterReader

Value = str | int | bool | list[str] | dict[str, Any] | None
"""Of a field, as in JSON; None if there is none."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field. ``object``: ``pod/NAMESPACE/NAME`` or ``gang/NAMESPACE/NAME``."""

    object: str
    field: str
    before: Value
    after: Value


def differences(
    orders: PlanActions, view: ClusterView, reader: ClusterReader, backend: Backend
) -> list[Difference]:
    """Every field that applying would change, evictions and sizes included, by object and field."""
    comparison = _Comparison(orders, view, reader, backend, PodClassifier(orders.gate))
    found = [one for gang in orders.gangs for one in comparison.gang(gang)]
    return sorted(found, key=lambda one: (one.object, one.field))


@dataclass(frozen=True, slots=True)
class _Comparison:
    orders: PlanActions
    view: ClusterView
    reader: ClusterReader
    backend: Backend
    classifier: PodClassifier

    def gang(self, gang: GangActions) -> Iterator[Difference]:
        for resize in gang.resizes:
            name = f"gang/{gang.namespace}/{gang.name}"
            yield Difference(name, f"roles.{resize.role}.pods", resize.before, resize.after)
        coming = {order.key for order in gang.starts}
        for stop in gang.stops:
            seen = self.view.pods.get(stop.key)
            if seen is None or seen.uid != stop.uid or seen.finished or stop.key in coming:
                continue
            yield Difference(_object(seen), "spec.nodeName", seen.node, None)
        for order in gang.starts:
            yield from self._pod(gang, order)

    def _pod(self, gang: GangActions, order: PodStart) -> Iterator[Difference]:
        seen = self.view.pods.get(order.key)
        name = f"pod/{order.namespace}/{order.name}"
        if seen is None or seen.node not in (None, order.node):
            now = None if seen is None else seen.node
            yield Difference(name, "spec.nodeName", now, order.node)
        if seen is None or seen.node is not None:
            return
        if order.uid and seen.uid != order.uid:
            yield Difference(name, "metadata.uid", seen.uid, order.uid)
            return
        if self.classifier.state(seen, seen.uid, order.node) not in READY:
            if seen.node is None:
                yield Difference(name, "spec.nodeName", None, order.node)
            return
        yield Difference(name, "spec.nodeName", None, order.node)
        yield from self._intent(gang, order, name)
        if self.classifier.gated(seen):
            left = [gate for gate in seen.gates if gate != self.orders.gate]
            yield Difference(name, "spec.schedulingGates", list(seen.gates), left)
            yield from _pin(seen, self.view.nodes.get(order.node), name)

    def _intent(self, gang: GangActions, order: PodStart, name: str) -> Iterator[Difference]:
        intent = PodBatch.of(self.orders.plan, gang).intent(order)
        tree: Tree = self.reader.pods.get(order.key, {})
        written = intent.annotations()
        try:
            node = self.reader.nodes.get(order.node, {})
            written |= self.backend.annotations(order, node, tree)
        except CannotEncode:
            pass  # the check of the back end reports it
        for part, new in (("labels", intent.labels()), ("annotations", written)):
            now = texts(tree, "metadata", part)
            for key, value in new.items():
                if now.get(key) != value:
                    yield Difference(name, f"metadata.{part}.{key}", now.get(key), value)


def _pin(seen: LivePod, node: LiveNode | None, name: str) -> Iterator[Difference]:
    if node is None:
        return
    try:
        added = pin(seen, node)
    except CannotPin:
        return  # the staleness check reports it
    for key, value in added.get("nodeSelector", {}).items():
        yield Difference(name, f"spec.nodeSelector.{key}", dict(seen.selector).get(key), value)
    if "affinity" in added:
        before = json.loads(seen.node_affinity)
        after = {**(before or {}), **added["affinity"]["nodeAffinity"]}
        yield Difference(name, "spec.affinity.nodeAffinity", before, after)


def _object(pod: LivePod) -> str:
    return f"pod/{pod.namespace}/{pod.name}"
