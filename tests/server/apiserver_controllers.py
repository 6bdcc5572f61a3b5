"""Controllers that recreate pods, collect garbage, taint nodes and make ResourceClaims."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from apiserver_disruption import DisruptionController
from apiserver_kinds import CLAIM, NODE, POD, POD_GROUP, TEMPLATE, Kind, Place, RequestInfo, Tree
from apiserver_objects import PROTECTION, Objects
from apiserver_scheduler import FINALIZER, claims_of

_MANAGER = "kube-controller-manager"
_CORDONED = "node.kubernetes.io/unschedulable"
_UNREADY = "node.kubernetes.io/not-ready"
_OWNERS = {"Job", "StatefulSet", "ReplicaSet", "Deployment", "DaemonSet"}


@dataclass(slots=True)
class Owner:
    """A controller and the pods it makes. ``same_names``: a pod comes back under its own name."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    same_names: bool = True
    births: dict[str, Tree] = field(default_factory=dict)
    """By ordinal name: the pod as it was asked for."""


class Controllers:
    """``on``: they run by themselves after every write."""

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self._objects = objects
        self._store = objects.store
        self._owners: dict[str, Owner] = {}
        self._gone: list[tuple[str, Tree]] = []
        self._sizes: dict[str, Tree] = {}
        self._left: list[Tree] = []
        self._orphaned: list[str] = []
        self._nodes: list[str] = []
        self._claims = False
        self._devices = ClaimController(objects)
        self._budgets = DisruptionController(objects)
        self._made = 0
        objects.store.listeners.append(self._changed)

    def recreate(self, kind: Kind, owner: Tree, *, same_names: bool = True) -> Owner:
        """From now on the pods of this owner come back when they go."""
        metadata = owner["metadata"]
        found = Owner(
            kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"], same_names
        )
        self._owners[found.uid] = found
        for pod in self._store.all(POD, found.namespace):
            if _controller(pod) == found.uid:
                found.births[pod["metadata"]["name"]] = _as_born(pod)
        return found

    def run(self) -> None:
        """Everything that is due."""
        gone, self._gone = self._gone, []
        for uid, pod in gone:
            self._again(self._owners[uid], pod)
        sizes, self._sizes = self._sizes, {}
        for uid, tree in sizes.items():
            self._resized(self._owners[uid], tree)
        left, self._left = self._left, []
        for pod in left:
            self._release(pod)
        orphaned, self._orphaned = self._orphaned, []
        for uid in orphaned:
            self._collected(uid)
        nodes, self._nodes = self._nodes, []
        for name in nodes:
            self._tainted(name)
        if self._claims:
            self._claims = False
            self._devices.run()
        self._budgets.run()

    def _again(self, owner: Owner, pod: Tree) -> None:
        """Make a pod that went once more, unless its owner is gone or wants fewer."""
        tree = self._store.get(owner.kind, owner.namespace, owner.name)
        if tree is None or tree["metadata"]["uid"] != owner.uid:
            return
        name = pod["metadata"]["name"]
        born = owner.births.pop(name, None) or _as_born(pod)
        wanted = _wanted(owner.kind, tree)
        standing = sum(
            1 for one in self._store.all(POD, owner.namespace) if _controller(one) == owner.uid
        )
        if wanted is not None and standing >= wanted:
            return
        if not owner.same_names:
            self._made += 1
            stem = re.sub(r"-again\d+$", "", name)
            name = f"{stem}-again{self._made}"
        self._make(owner, name, born)

    def _make(self, owner: Owner, name: str, born: Tree) -> None:
        place = Place(POD, owner.namespace, "", "")
        metadata = born["metadata"] | {"name": name}
        owner.births[name] = born
        self._objects.create(place, born | {"metadata": metadata}, RequestInfo(manager=_MANAGER))

    def _resized(self, owner: Owner, tree: Tree) -> None:
        """Fewer replicas: the highest numbers go. More: made as the first was."""
        wanted = _wanted(owner.kind, tree)
        if wanted is None:
            return
        mine = [
            pod
            for pod in self._store.all(POD, owner.namespace)
            if _controller(pod) == owner.uid and "deletionTimestamp" not in pod["metadata"]
        ]
        mine.sort(key=lambda pod: _number(pod["metadata"]["name"]))
        for pod in mine[wanted:]:
            self._objects.removed(POD, pod, None)
        if mine and len(mine) < wanted:
            born = _as_born(mine[0])
            taken = {pod["metadata"]["name"] for pod in mine}
            stem = re.sub(r"\d+$", "", mine[0]["metadata"]["name"])
            names = (f"{stem}{number}" for number in range(wanted + len(mine)))
            free = [name for name in names if name not in taken]
            for name in free[: wanted - len(mine)]:
                self._make(owner, name, born)

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if kind == POD:
            tree = new or old
            assert tree is not None
            if "resourceClaims" in tree["spec"]:
                self._claims = True
            owner = self._owners.get(_controller(tree) or "")
            if owner is not None and new is None and old is not None:
                self._gone.append((owner.uid, old))
            elif owner is not None and old is None and new is not None:
                owner.births.setdefault(new["metadata"]["name"], _as_born(new))
        elif kind in (CLAIM, TEMPLATE):
            self._claims = True
        elif kind == NODE and new is not None:
            self._nodes.append(new["metadata"]["name"])
        elif new is None and old is not None and kind.name in _OWNERS:
            self._orphaned.append(old["metadata"]["uid"])
        elif new is not None and new["metadata"]["uid"] in self._owners:
            self._sizes[new["metadata"]["uid"]] = new
        if kind == POD and new is None and old is not None and "schedulingGroup" in old["spec"]:
            self._left.append(old)

    def _collected(self, uid: str) -> None:
        """What the garbage collector does with the pods of an owner that is gone."""
        for pod in list(self._store.all(POD)):
            if _controller(pod) == uid and "deletionTimestamp" not in pod["metadata"]:
                self._objects.removed(POD, pod, None)

    def _tainted(self, name: str) -> None:
        """What the node lifecycle controller writes on cordoned nodes, and on those not ready."""
        node = self._store.get(NODE, "", name)
        if node is None:
            return
        conditions = (node.get("status") or {}).get("conditions") or []
        unready = any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)
        wanted = {_CORDONED: bool(node["spec"].get("unschedulable")), _UNREADY: unready}
        before = node["spec"].get("taints") or []
        after = [
            one for one in before if one["effect"] != "NoSchedule" or wanted.get(one["key"], True)
        ]
        present = {one["key"] for one in after if one["effect"] == "NoSchedule"}
        after += [
            {"key": key, "effect": "NoSchedule", "timeAdded": self._store.now()}
            for key, holds in wanted.items()
            if holds and key not in present
        ]
        if after != before:
            spec = {key: value for key, value in node["spec"].items() if key != "taints"}
            spec |= {"taints": after} if after else {}
            self._store.keep(NODE, node | {"spec": spec}, manager=_MANAGER)

    def _release(self, pod: Tree) -> None:
        """A group that is being deleted goes with its last pod."""
        name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        group = self._store.get(POD_GROUP, pod["metadata"]["namespace"], name) if name else None
        if group is None or "deletionTimestamp" not in group["metadata"]:
            return
        left = [one for one in group["metadata"].get("finalizers") or [] if one != PROTECTION]
        new = group | {"metadata": group["metadata"] | {"finalizers": left}}
        self._objects.kept(POD_GROUP, group, _copied(new), manager=_MANAGER)


def _controller(pod: Tree) -> str | None:
    for one in pod["metadata"].get("ownerReferences") or []:
        if one.get("controller"):
            return str(one["uid"])
    return None


def _as_born(pod: Tree) -> Tree:
    """What to post to make it again: neither where it ran nor what was pinned or written on it since."""
    metadata = pod["metadata"]
    kept = {
        key: metadata[key]
        for key in ("name", "namespace", "labels", "annotations", "ownerReferences")
        if key in metadata
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": kept, "spec": spec}


def _wanted(kind: Kind, owner: Tree) -> int | None:
    spec = owner.get("spec") or {}
    found = spec.get("parallelism") if kind.name == "Job" else spec.get("replicas")
    return found if isinstance(found, int) else None


def _number(name: str) -> tuple[int, str]:
    found = re.search(r"(\d+)$", name)
    return (int(found[1]) if found else -1, name)


def _copied(tree: Tree) -> Tree:
    return tree | {"metadata": dict(tree["metadata"])}


class ClaimController:
    """``run`` does all that is due."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store
        self._made = 0

    def run(self) -> None:
        """Claims for pods that ask for them, and back from pods that are gone."""
        self._from_templates()
        self._given_back()

    def _from_templates(self) -> None:
        """A claim for each pod that asks for one of a template, gated or not."""
        for pod in list(self._store.all(POD)):
            asks = [
                one
                for one in pod["spec"].get("resourceClaims") or []
                if "resourceClaimTemplateName" in one
            ]
            made = list(pod["status"].get("resourceClaimStatuses") or [])
            missing = [one for one in asks if one["name"] not in {has["name"] for has in made}]
            for one in missing:
                metadata = pod["metadata"]
                template = self._store.get(
                    TEMPLATE, metadata["namespace"], one["resourceClaimTemplateName"]
                )
                if template is None:
                    continue
                self._made += 1
                name = f"{metadata['name']}-{one['name']}-{self._made:05x}"
                body = _claim_from(template, name, pod)
                place = Place(CLAIM, metadata["namespace"], "", "")
                self._objects.create(place, body, RequestInfo(manager=_MANAGER))
                made.append({"name": one["name"], "resourceClaimName": name})
            if missing:
                status = pod["status"] | {"resourceClaimStatuses": made}
                self._store.keep(POD, pod | {"status": status}, manager=_MANAGER, sub="status")

    def _given_back(self) -> None:
        """reservedFor follows the pods; a claim with the finalizer loses its allocation with them."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.all(POD)}
        users: dict[tuple[str, str], list[Tree]] = {}
        for pod in pods.values():
            if pod["spec"].get("nodeName") and _lives(pod):
                for name in claims_of(pod):
                    if name:
                        users.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
        for claim in list(self._store.all(CLAIM)):
            metadata = claim["metadata"]
            if (claim.get("status") or {}).get("allocation"):
                bound = users.get((metadata["namespace"], metadata["name"]), [])
                self._reserved(claim, pods, bound)

    def _reserved(self, claim: Tree, pods: dict[str, Tree], bound: list[Tree]) -> None:
        """Let the claim be reserved for pods that live, and for those that are bound with it."""
        metadata, status = claim["metadata"], dict(claim["status"])
        before = status.get("reservedFor") or []
        after = [one for one in before if _lives(pods.get(one.get("uid", "")))]
        for pod in bound:
            words = pod["metadata"]
            holder = {"resource": "pods", "name": words["name"], "uid": words["uid"]}
            if holder not in after:
                after.append(holder)
        if after == before:
            return
        finalizers = metadata.get("finalizers") or []
        if after:
            status["reservedFor"] = after
        else:
            status.pop("reservedFor", None)
            if FINALIZER in finalizers:
                status.pop("allocation")
                finalizers = [one for one in finalizers if one != FINALIZER]
        new = claim | {"metadata": metadata | {"finalizers": finalizers}, "status": status}
        self._objects.kept(CLAIM, claim, new, manager=_MANAGER, sub="status")


def _lives(pod: Tree | None) -> bool:
    return pod is not None and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _claim_from(template: Tree, name: str, pod: Tree) -> Tree:
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": template["spec"]["spec"],
    }
