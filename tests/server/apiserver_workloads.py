"""Controllers that make pods from templates: Deployments, ReplicaSets and StatefulSets.

Which pods a ReplicaSet removes follows ``ActivePodsWithRanks`` of Kubernetes 1.36: those not bound, not
running, not ready, of lower deletion cost, youngest. A StatefulSet removes its highest ordinals.
"""

from __future__ import annotations

import hashlib
import json

from apiserver_kinds import POD, Kind, Place, RequestInfo, Tree
from apiserver_objects import Objects

COST = "controller.kubernetes.io/pod-deletion-cost"
_MANAGER = "kube-controller-manager"
_NOT_COPIED = "kubectl.kubernetes.io/last-applied-configuration"
_PHASES = ("Pending", "Unknown", "Running")


class Workloads:
    """``on``: they run by themselves after every write. Only objects with a pod template are theirs."""

    def __init__(self, objects: Objects) -> None:
        self.on = False
        self._objects = objects
        self._store = objects.store
        kinds = self._store.kinds
        self._deployment = kinds.named("Deployment")
        self._set = kinds.named("ReplicaSet")
        self._stateful = kinds.named("StatefulSet")
        self._made = 0

    def run(self) -> None:
        """Everything that is due."""
        for one in list(self._store.all(self._deployment)):
            if _has_template(one):
                self._deploy(one)
        for one in list(self._store.all(self._set)):
            if self._is_orphan(one):
                self._store.drop(self._set, one)
            elif _has_template(one):
                self._fill_set(one)
        for one in list(self._store.all(self._stateful)):
            if _has_template(one):
                self._fill_stateful(one)

    # ---- Deployments

    def _deploy(self, one: Tree) -> None:
        """One ReplicaSet for its template; those of earlier templates have no pods."""
        metadata, template = one["metadata"], one["spec"]["template"]
        wanted, digest = one["spec"].get("replicas", 1), _digest(template)
        name = f"{metadata['name']}-{digest}"
        notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != _NOT_COPIED}
        found = False
        for own in self._owned(self._set, metadata):
            current = own["metadata"]["name"] == name
            found = found or current
            self._kept(self._set, own, wanted if current else 0, notes if current else None)
        if not found:
            labels = (template["metadata"].get("labels") or {}) | {"pod-template-hash": digest}
            inner = template | {"metadata": template["metadata"] | {"labels": labels}}
            body = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "annotations": notes,
                    "ownerReferences": [_owner(one, "apps/v1", "Deployment")],
                },
                "spec": {
                    "replicas": wanted,
                    "selector": {"matchLabels": labels},
                    "template": inner,
                },
            }
            self._create(self._set, metadata["namespace"], body)

    def _kept(self, kind: Kind, one: Tree, replicas: int, notes: Tree | None) -> None:
        """With so many replicas and at least these annotations."""
        metadata, spec = one["metadata"], one["spec"]
        annotations = (metadata.get("annotations") or {}) | (notes or {})
        same = annotations == (metadata.get("annotations") or {})
        if spec.get("replicas") != replicas or not same:
            new = one | {"spec": spec | {"replicas": replicas}}
            new["metadata"] = metadata | ({"annotations": annotations} if annotations else {})
            self._store.keep(kind, new, manager=_MANAGER)

    # ---- ReplicaSets and StatefulSets

    def _fill_set(self, one: Tree) -> None:
        wanted, pods = one["spec"].get("replicas", 1), self._active(one)
        for _ in range(wanted - len(pods)):
            self._made += 1
            letters = hashlib.sha256(f"{one['metadata']['uid']}{self._made}".encode()).hexdigest()
            name = f"{one['metadata']['name']}-{letters[:5]}"
            self._make(one, "ReplicaSet", name, {})
        for pod in sorted(pods, key=_goes_first)[: max(0, len(pods) - wanted)]:
            self._objects.removed(POD, pod, None)

    def _fill_stateful(self, one: Tree) -> None:
        """With ``podManagementPolicy: OrderedReady`` a pod is made once those before it are ready."""
        spec, name = one["spec"], one["metadata"]["name"]
        first = (spec.get("ordinals") or {}).get("start", 0)
        ordinals = range(first, first + spec.get("replicas", 1))
        parallel = spec.get("podManagementPolicy") == "Parallel"
        there = {pod["metadata"]["name"]: pod for pod in self._owned(POD, one["metadata"])}
        for ordinal in ordinals:
            pod = there.get(f"{name}-{ordinal}")
            if pod is None:
                labels = {
                    "apps.kubernetes.io/pod-index": str(ordinal),
                    "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
                }
                self._make(one, "StatefulSet", f"{name}-{ordinal}", labels)
            if not parallel and (pod is None or not _is_ready(pod)):
                break
        for pod_name, pod in there.items():
            number = int(pod_name.rpartition("-")[2])
            if number not in ordinals and "deletionTimestamp" not in pod["metadata"]:
                self._objects.removed(POD, pod, None)

    def _active(self, one: Tree) -> list[Tree]:
        return [
            pod
            for pod in self._owned(POD, one["metadata"])
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def _make(self, one: Tree, kind: str, name: str, labels: Tree) -> None:
        template = one["spec"]["template"]
        metadata = {
            "name": name,
            "labels": (template["metadata"].get("labels") or {}) | labels,
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": [_owner(one, "apps/v1", kind)],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._create(POD, one["metadata"]["namespace"], body)

    def _create(self, kind: Kind, namespace: str, body: Tree) -> None:
        copied = json.loads(json.dumps(body))
        self._objects.create(Place(kind, namespace, "", ""), copied, RequestInfo(manager=_MANAGER))

    def _is_orphan(self, one: Tree) -> bool:
        """Whether the Deployment that made this ReplicaSet is gone."""
        made = {tree["metadata"]["uid"] for tree in self._store.all(self._deployment)}
        owners = one["metadata"].get("ownerReferences") or []
        return any(ref["kind"] == "Deployment" and ref["uid"] not in made for ref in owners)

    def _owned(self, kind: Kind, owner: Tree) -> list[Tree]:
        return [
            one
            for one in self._store.all(kind, owner["namespace"])
            if any(
                ref.get("controller") and ref["uid"] == owner["uid"]
                for ref in one["metadata"].get("ownerReferences") or []
            )
        ]


def _has_template(one: Tree) -> bool:
    return "deletionTimestamp" not in one["metadata"] and "template" in (one.get("spec") or {})


def _owner(one: Tree, api_version: str, kind: str) -> Tree:
    metadata = one["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"apiVersion": api_version, "kind": kind, "controller": True, **named}


def _digest(template: Tree) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _goes_first(pod: Tree) -> tuple[object, ...]:
    metadata = pod["metadata"]
    phase = pod["status"].get("phase", "Pending")
    cost = int((metadata.get("annotations") or {}).get(COST, "0"))
    younger_first = [-ord(letter) for letter in metadata["creationTimestamp"]]
    bound = bool(pod["spec"].get("nodeName"))
    return (bound, _PHASES.index(phase), _is_ready(pod), cost, younger_first, metadata["name"])


def _is_ready(pod: Tree) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
