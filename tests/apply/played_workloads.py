"""Deployments, ReplicaSets and StatefulSets with a pod template, played on the test API server."""

from __future__ import annotations

import copy
import hashlib

from apiserver_controllers import owned, reference
from apiserver_kinds import POD, Kind, Place, Tree
from apiserver_objects import Objects, is_alive, is_ready

COST = "controller.kubernetes.io/pod-deletion-cost"


class Workloads:
    """``on``: they run after every write.

    Which pods a ReplicaSet removes follows ``ActivePodsWithRanks`` of Kubernetes 1.36: those not bound, not
    running, not ready, of lower deletion cost, youngest. A StatefulSet (``podManagementPolicy: Parallel``)
    removes its highest ordinals.
    """

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self._objects = objects
        self._made = 0

    def run(self) -> None:
        """Everything that is due."""
        for name, act in (
            ("Deployment", self._deploy),
            ("ReplicaSet", self._fill_set),
            ("StatefulSet", self._fill_stateful),
        ):
            for one in self._objects.all(self._objects.kinds.named(name)):
                if "template" in one["spec"]:
                    act(one)

    def _deploy(self, one: Tree) -> None:
        """One ReplicaSet for its template, which nobody changes."""
        metadata, template = one["metadata"], one["spec"]["template"]
        kind = self._objects.kinds.named("ReplicaSet")
        notes, scale = metadata.get("annotations") or {}, {"replicas": one["spec"]["replicas"]}
        for own in owned(self._objects, kind, one):
            about = own["metadata"] | {
                "annotations": own["metadata"].get("annotations", {}) | notes
            }
            new = own | {"metadata": about, "spec": own["spec"] | scale}
            if new != own:
                self._objects.keep(kind, new)
            return
        labels = template["metadata"].get("labels", {}) | {"pod-template-hash": "5d9c7b"}
        inner = template | {"metadata": template["metadata"] | {"labels": labels}}
        made = {"name": f"{metadata['name']}-5d9c7b", "labels": labels, "annotations": notes}
        spec = scale | {"selector": {"matchLabels": labels}, "template": inner}
        self._create(kind, one, {"metadata": made, "spec": spec})

    def _pods(self, one: Tree) -> list[Tree]:
        pods = owned(self._objects, POD, one)
        return [p for p in pods if "deletionTimestamp" not in p["metadata"] and is_alive(p)]

    def _fill_set(self, one: Tree) -> None:
        pods, wanted, metadata = self._pods(one), one["spec"]["replicas"], one["metadata"]
        for _ in range(wanted - len(pods)):
            self._made += 1
            letters = hashlib.sha256(f"{metadata['uid']}{self._made}".encode()).hexdigest()
            self._make(one, f"{metadata['name']}-{letters[:5]}", {})
        for pod in sorted(pods, key=_goes_first)[: max(0, len(pods) - wanted)]:
            self._objects.removed(POD, pod)

    def _fill_stateful(self, one: Tree) -> None:
        title, wanted = one["metadata"]["name"], one["spec"]["replicas"]
        there = {pod["metadata"]["name"] for pod in owned(self._objects, POD, one)}
        for ordinal in range(wanted):
            if (name := f"{title}-{ordinal}") not in there:
                labels = {"apps.kubernetes.io/pod-index": str(ordinal)}
                self._make(one, name, labels | {"statefulset.kubernetes.io/pod-name": name})
        for pod in self._pods(one):
            if int(pod["metadata"]["name"].rpartition("-")[2]) >= wanted:
                self._objects.removed(POD, pod)

    def _make(self, one: Tree, name: str, labels: Tree) -> None:
        template = one["spec"]["template"]
        about = {"labels": {}, "annotations": {}} | template["metadata"] | {"name": name}
        about |= {"labels": about["labels"] | labels}
        self._create(POD, one, {"metadata": about, "spec": template["spec"]})

    def _create(self, kind: Kind, owner: Tree, body: Tree) -> None:
        made = copy.deepcopy(body)
        made["metadata"]["ownerReferences"] = [reference(owner)]
        self._objects.create(Place(kind, owner["metadata"]["namespace"]), made)


def _goes_first(pod: Tree) -> tuple[object, ...]:
    metadata, bound = pod["metadata"], bool(pod["spec"].get("nodeName"))
    phase = ("Pending", "Unknown", "Running").index(pod["status"].get("phase", "Pending"))
    cost = int((metadata.get("annotations") or {}).get(COST, "0"))
    younger_first = [-ord(letter) for letter in metadata["creationTimestamp"]]
    return bound, phase, is_ready(pod), cost, younger_first, metadata["name"]
