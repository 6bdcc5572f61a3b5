"""What controllers do: pods made again, garbage, taints, claims of templates, budgets, pods of templates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from apiserver_kinds import BUDGET, CLAIM, NODE, POD, Kind, Place, RequestInfo, Tree
from apiserver_objects import Objects, is_alive, is_ready
from apiserver_store import Store
from kube_arithmetic import labels_of, selects

FINALIZER = "resource.kubernetes.io/delete-protection"
COST = "controller.kubernetes.io/pod-deletion-cost"
_MANAGER = "kube-controller-manager"
_TAINTS = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
_OWNERS = {"Job", "StatefulSet", "ReplicaSet", "Deployment", "DaemonSet"}


class Controllers:
    """``on``: they run by themselves after every write."""

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self._objects = objects
        self._store = objects.store
        self._births: list[tuple[Kind, Tree, dict[str, Tree]]] = []
        self._orphaned: list[str] = []
        objects.store.listeners.append(self._changed)

    def recreate(self, kind: Kind, owner: Tree) -> dict[str, Tree]:
        """From now on the pods of this owner come back when they go; how each will be asked for."""
        births = {p["metadata"]["name"]: _as_born(p) for p in owned(self._store, POD, owner)}
        self._births.append((kind, owner, births))
        return births

    def run(self) -> None:
        """Everything that is due."""
        for kind, owner, births in self._births:
            self._again(kind, owner, births)
        orphaned, self._orphaned = self._orphaned, []
        for pod in list(self._store.all(POD)) if orphaned else ():
            metadata = pod["metadata"]
            if controller(pod).get("uid") in orphaned and "deletionTimestamp" not in metadata:
                self._objects.removed(POD, pod)
        for node in list(self._store.all(NODE)):
            self._taint(node)
        self._give_back()
        for budget in list(self._store.all(BUDGET)):
            status = _budget_status(self._store, budget)
            if status != budget.get("status"):
                new = budget | {"status": status}
                self._store.keep(BUDGET, new, manager=_MANAGER, sub="status")

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if new is None and old is not None and kind.name in _OWNERS:
            self._orphaned.append(old["metadata"]["uid"])

    def _again(self, kind: Kind, owner: Tree, births: dict[str, Tree]) -> None:
        """Make pods that went once more, unless their owner is gone or wants fewer."""
        space, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
        tree = self._store.get(kind, space, name)
        if tree is None or tree["metadata"]["uid"] != owner["metadata"]["uid"]:
            return
        there = {pod["metadata"]["name"] for pod in owned(self._store, POD, tree)}
        gone = [born for title, born in births.items() if title not in there]
        for born in gone[: max(0, tree["spec"]["parallelism"] - len(there))]:
            self._objects.create(Place(POD, space), born, RequestInfo(manager=_MANAGER))

    def _taint(self, node: Tree) -> None:
        """What the node lifecycle controller writes on cordoned nodes, and on those not ready."""
        conditions = (node.get("status") or {}).get("conditions") or []
        unready = any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)
        holds = dict(zip(_TAINTS, (bool(node["spec"].get("unschedulable")), unready), strict=True))
        before = node["spec"].get("taints") or []
        after = [
            one for one in before if one["effect"] != "NoSchedule" or holds.get(one["key"], True)
        ]
        present = {one["key"] for one in after if one["effect"] == "NoSchedule"}
        after += [
            {"key": key, "effect": "NoSchedule", "timeAdded": self._store.now()}
            for key in _TAINTS
            if holds[key] and key not in present
        ]
        if after != before:
            spec = {key: value for key, value in node["spec"].items() if key != "taints"}
            spec |= {"taints": after} if after else {}
            self._store.keep(NODE, node | {"spec": spec}, manager=_MANAGER)

    def _give_back(self) -> None:
        """reservedFor follows the pods; a claim with the finalizer loses its allocation with them."""
        alive = {pod["metadata"]["uid"]: pod for pod in self._store.all(POD) if is_alive(pod)}
        for claim in list(self._store.all(CLAIM)):
            metadata, status = claim["metadata"], dict(claim.get("status") or {})
            if not status.get("allocation"):
                continue
            before = status.get("reservedFor") or []
            after = [one for one in before if one.get("uid") in alive]
            for uid, pod in alive.items():
                words, bound = pod["metadata"], pod["spec"].get("nodeName")
                holder = {"resource": "pods", "name": words["name"], "uid": uid}
                mine = words["namespace"] == metadata["namespace"]
                if bound and mine and metadata["name"] in claims_of(pod) and holder not in after:
                    after.append(holder)
            if after == before:
                continue
            status["reservedFor"] = after
            finalizers = metadata.get("finalizers") or []
            if not after:
                del status["reservedFor"]
                if FINALIZER in finalizers:
                    del status["allocation"]
                    finalizers = [one for one in finalizers if one != FINALIZER]
            new = claim | {"metadata": metadata | {"finalizers": finalizers}, "status": status}
            self._objects.kept(CLAIM, claim, new, manager=_MANAGER, sub="status")


def controller(tree: Tree) -> Tree:
    """The reference to its controller; {} without one."""
    owners = tree["metadata"].get("ownerReferences") or []
    return next((one for one in owners if one.get("controller")), {})


def owned(store: Store, kind: Kind, owner: Tree) -> Iterator[Tree]:
    metadata = owner["metadata"]
    for one in store.all(kind, metadata["namespace"]):
        if controller(one).get("uid") == metadata["uid"]:
            yield one


def claims_of(pod: Tree) -> list[str | None]:
    """Names of the pod's claims; None for one of a template that is not made yet."""
    made = {
        one["name"]: one["resourceClaimName"]
        for one in pod["status"].get("resourceClaimStatuses") or []
    }
    return [
        one.get("resourceClaimName") or made.get(one["name"])
        for one in pod["spec"].get("resourceClaims") or []
    ]


def _as_born(pod: Tree) -> Tree:
    """What to post to make it again: neither where it ran nor what was written on it since."""
    keys = ("name", "namespace", "labels", "annotations", "ownerReferences")
    kept = {key: pod["metadata"][key] for key in keys if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": kept, "spec": spec}


def reference(one: Tree) -> Tree:
    named = {"name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
    api = {"apiVersion": one["apiVersion"], "kind": one["kind"]}
    return {**api, **named, "controller": True, "blockOwnerDeletion": True}


# ---- disruption budgets


def _budget_status(store: Store, budget: Tree) -> Tree:
    """As kube-controller-manager 1.36.2 writes it."""
    pods = [
        pod
        for pod in store.all(POD, budget["metadata"]["namespace"])
        if selects(budget["spec"]["selector"], labels_of(pod))
    ]
    before = budget.get("status") or {}
    desired = budget["spec"].get("minAvailable")
    if not isinstance(desired, int):  # shares need the scale of the controllers, and Jobs have none
        said = "jobs.batch does not implement the scale subresource"
        failed = _allowance(store, before, "SyncFailed", "False", said)
        kept = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0} | before
        return kept | {"disruptionsAllowed": 0, "conditions": [failed]}
    staying = {p["metadata"]["name"]: p for p in pods if "deletionTimestamp" not in p["metadata"]}
    disrupted = {k: v for k, v in before.get("disruptedPods", {}).items() if k in staying}
    healthy = sum(is_ready(pod) for name, pod in staying.items() if name not in disrupted)
    allowed = max(0, healthy - desired) if pods else 0
    words = ("SufficientPods", "True") if allowed else ("InsufficientPods", "False")
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        **({"disruptedPods": disrupted} if disrupted else {}),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": len(pods),
        "conditions": [_allowance(store, before, *words, "")],
    }


def _allowance(store: Store, before: Tree, reason: str, status: str, said: str) -> Tree:
    found = {"type": "DisruptionAllowed", "status": status, "reason": reason, "message": said}
    for one in before.get("conditions") or []:
        if (one["status"], one["reason"]) == (status, reason):
            return found | {"lastTransitionTime": one["lastTransitionTime"]}
    return found | {"lastTransitionTime": store.now()}


# ---- Deployments, ReplicaSets and StatefulSets


class Workloads:
    """``on``: they run by themselves after every write. Only objects with a pod template are theirs.

    Which pods a ReplicaSet removes follows ``ActivePodsWithRanks`` of Kubernetes 1.36: those not bound, not
    running, not ready, of lower deletion cost, youngest. A StatefulSet removes its highest ordinals.
    """

    def __init__(self, objects: Objects) -> None:
        self.on = False
        self._objects = objects
        self._store = objects.store
        named = self._store.kinds.named
        self._deployment, self._set, self._stateful = map(
            named, ("Deployment", "ReplicaSet", "StatefulSet")
        )
        self._made = 0

    def run(self) -> None:
        """Everything that is due."""
        for one in list(self._store.all(self._deployment)):
            self._deploy(one)
        alive = {one["metadata"]["uid"] for one in self._store.all(self._deployment)}
        for one in list(self._store.all(self._set)):
            owner = controller(one)
            if owner.get("kind") == "Deployment" and owner["uid"] not in alive:
                self._store.drop(self._set, one)
            elif "template" in one["spec"]:
                self._fill_set(one)
        for one in list(self._store.all(self._stateful)):
            if "template" in one["spec"]:
                self._fill_stateful(one)

    def _deploy(self, one: Tree) -> None:
        """One ReplicaSet for its template, which nobody changes."""
        metadata, template = one["metadata"], one["spec"].get("template")
        if template is None:
            return
        notes, scale = metadata.get("annotations") or {}, {"replicas": one["spec"]["replicas"]}
        for own in owned(self._store, self._set, one):
            before = own["metadata"]
            annotations = before.get("annotations", {}) | notes
            new = own | {"metadata": before | {"annotations": annotations}}
            new["spec"] = own["spec"] | scale
            if new != own:
                self._store.keep(self._set, new, manager=_MANAGER)
            return
        labels = template["metadata"].get("labels", {}) | {"pod-template-hash": "5d9c7b"}
        inner = template | {"metadata": template["metadata"] | {"labels": labels}}
        made = {"name": f"{metadata['name']}-5d9c7b", "labels": labels, "annotations": notes}
        spec = scale | {"selector": {"matchLabels": labels}, "template": inner}
        self._create(self._set, one, {"metadata": made, "spec": spec})

    def _fill_set(self, one: Tree) -> None:
        pods = [
            pod
            for pod in owned(self._store, POD, one)
            if "deletionTimestamp" not in pod["metadata"] and is_alive(pod)
        ]
        wanted, metadata = one["spec"]["replicas"], one["metadata"]
        for _ in range(wanted - len(pods)):
            self._made += 1
            letters = hashlib.sha256(f"{metadata['uid']}{self._made}".encode()).hexdigest()
            self._make(one, f"{metadata['name']}-{letters[:5]}", {})
        for pod in sorted(pods, key=_goes_first)[: max(0, len(pods) - wanted)]:
            self._objects.removed(POD, pod)

    def _fill_stateful(self, one: Tree) -> None:
        """As with ``podManagementPolicy: Parallel``."""
        metadata, wanted = one["metadata"], one["spec"]["replicas"]
        there = {pod["metadata"]["name"]: pod for pod in owned(self._store, POD, one)}
        for ordinal in range(wanted):
            name = f"{metadata['name']}-{ordinal}"
            if name not in there:
                labels = {"apps.kubernetes.io/pod-index": str(ordinal)}
                labels["statefulset.kubernetes.io/pod-name"] = name
                self._make(one, name, labels)
        for name, pod in there.items():
            gone = "deletionTimestamp" in pod["metadata"]
            if int(name.rpartition("-")[2]) >= wanted and not gone:
                self._objects.removed(POD, pod)

    def _make(self, one: Tree, name: str, labels: Tree) -> None:
        template = one["spec"]["template"]
        of = template["metadata"]
        metadata = {"name": name, "labels": of.get("labels", {}) | labels}
        metadata["annotations"] = dict(of.get("annotations") or {})
        self._create(POD, one, {"metadata": metadata, "spec": template["spec"]})

    def _create(self, kind: Kind, owner: Tree, body: Tree) -> None:
        body["metadata"]["ownerReferences"] = [reference(owner)]
        copied = json.loads(json.dumps(body))
        place = Place(kind, owner["metadata"]["namespace"])
        self._objects.create(place, copied, RequestInfo(manager=_MANAGER))


def _goes_first(pod: Tree) -> tuple[object, ...]:
    metadata = pod["metadata"]
    phase = ("Pending", "Unknown", "Running").index(pod["status"].get("phase", "Pending"))
    cost = int((metadata.get("annotations") or {}).get(COST, "0"))
    younger_first = [-ord(letter) for letter in metadata["creationTimestamp"]]
    bound = bool(pod["spec"].get("nodeName"))
    return (bound, phase, is_ready(pod), cost, younger_first, metadata["name"])
