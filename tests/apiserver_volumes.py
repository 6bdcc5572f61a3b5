"""Volumes as kube-scheduler, the controllers of volumes and a provisioner treat them."""

from __future__ import annotations

from apiserver_kinds import (
    POD,
    STORAGE_CLASS,
    VOLUME,
    VOLUME_CLAIM,
    Kind,
    Place,
    RequestInfo,
    Tree,
)
from apiserver_objects import Objects
from apiserver_selectors import selects

SELECTED = "volume.kubernetes.io/selected-node"
DEFAULT = "storageclass.kubernetes.io/is-default-class"
LOCAL = "kubernetes.io/no-provisioner"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
_MANAGER = "kube-controller-manager"
_UNITS = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4}


def claim_names(pod: Tree) -> list[str]:
    found = []
    for one in pod["spec"].get("volumes") or []:
        if "persistentVolumeClaim" in one:
            found.append(one["persistentVolumeClaim"]["claimName"])
        elif "ephemeral" in one:
            found.append(f"{pod['metadata']['name']}-{one['name']}")
    return found


class Volumes:
    """``provisions``: provisioners make the volumes that they are asked for."""

    def __init__(self, objects: Objects) -> None:
        self.provisions = True
        self._objects = objects
        self._store = objects.store
        self._due = False
        self._made = 0
        objects.store.listeners.append(self._changed)

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        tree = new or old or {}
        if kind in (VOLUME, VOLUME_CLAIM, STORAGE_CLASS) or (
            kind == POD and "volumes" in tree["spec"]
        ):
            self._due = True

    # ---- kube-scheduler

    def misfit(self, pod: Tree, node: Tree) -> str | None:
        """Why the pod's volumes keep it off the node."""
        taken: set[str] = set()
        for name in claim_names(pod):
            claim = self._store.get(VOLUME_CLAIM, pod["metadata"]["namespace"], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if why := self._misfit_of(claim, node, taken):
                return why
        return None

    def _misfit_of(self, claim: Tree, node: Tree, taken: set[str]) -> str | None:
        found = self._volume_of(claim)
        if claim["spec"].get("volumeName"):
            bound = claim["status"].get("phase") == "Bound" and found is not None
            if not bound or found is None:
                return IMMEDIATE
            return None if _reaches(found, node) else CONFLICT
        offered = self._class_of(claim)
        if offered is None or offered.get("volumeBindingMode") != "WaitForFirstConsumer":
            return IMMEDIATE
        chosen = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if chosen is None and (free := self._smallest(claim, node, taken)) is not None:
            taken.add(free["metadata"]["name"])
            return None
        if offered["provisioner"] == LOCAL or chosen not in (None, node["metadata"]["name"]):
            return NO_VOLUME
        return None if _allowed(offered, node) else NO_VOLUME

    def reserve(self, pod: Tree, node: Tree) -> bool:
        """Give the pod volumes of the node, or ask for them; whether it has all."""
        whole = True
        for name in claim_names(pod):
            claim = self._store.get(VOLUME_CLAIM, pod["metadata"]["namespace"], name)
            assert claim is not None
            if claim["spec"].get("volumeName"):
                continue
            chosen = (claim["metadata"].get("annotations") or {}).get(SELECTED)
            free = None if chosen else self._smallest(claim, node, set())
            if free is not None:
                self._bind(claim, free, manager="kube-scheduler")
                continue
            whole = False
            if chosen is None:
                notes = (claim["metadata"].get("annotations") or {}) | {
                    SELECTED: node["metadata"]["name"]
                }
                new = claim | {"metadata": claim["metadata"] | {"annotations": notes}}
                self._store.keep(VOLUME_CLAIM, new, manager="kube-scheduler")
        return whole

    # ---- controllers

    def run(self) -> None:
        """Everything that is due."""
        if not self._due:
            return
        self._due = False
        self._make_ephemeral()
        for volume in list(self._store.all(VOLUME)):
            if not (volume.get("status") or {}).get("phase"):
                new = volume | {"status": {"phase": "Available"}}
                self._store.keep(VOLUME, new, manager=_MANAGER, sub="status")
        for claim in list(self._store.all(VOLUME_CLAIM)):
            self._run_claim(claim)

    def _make_ephemeral(self) -> None:
        """A claim for each ephemeral volume, of gated pods, too."""
        for pod in list(self._store.all(POD)):
            metadata = pod["metadata"]
            for one in pod["spec"].get("volumes") or []:
                name = f"{metadata['name']}-{one['name']}"
                known = self._store.get(VOLUME_CLAIM, metadata["namespace"], name)
                if "ephemeral" not in one or known is not None:
                    continue
                owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
                owner |= {key: metadata[key] for key in ("name", "uid")}
                body = {
                    "metadata": {"name": name, "ownerReferences": [owner]},
                    "spec": one["ephemeral"]["volumeClaimTemplate"]["spec"],
                }
                place = Place(VOLUME_CLAIM, metadata["namespace"], "", "")
                self._objects.create(place, body, RequestInfo(manager=_MANAGER))

    def _run_claim(self, claim: Tree) -> None:
        if not (claim.get("status") or {}).get("phase"):
            claim = self._store.keep(
                VOLUME_CLAIM,
                claim | {"status": {"phase": "Pending"}},
                manager=_MANAGER,
                sub="status",
            )
        if claim["status"]["phase"] != "Pending" or "deletionTimestamp" in claim["metadata"]:
            return
        volume, offered = self._volume_of(claim), self._class_of(claim)
        chosen = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if volume is not None:
            self._bind(claim, volume, manager=_MANAGER)
        elif claim["spec"].get("volumeName") or offered is None or (not chosen and _late(offered)):
            return
        elif (free := self._smallest(claim, None, set())) is not None:
            self._bind(claim, free, manager=_MANAGER)
        elif offered["provisioner"] != LOCAL and self.provisions:
            self._bind(claim, self._provisioned(claim, chosen), manager="provisioner")

    def _provisioned(self, claim: Tree, node: str | None) -> Tree:
        """A volume that only the selected node reaches, as of LVM."""
        self._made += 1
        spec = claim["spec"]
        body: Tree = {
            "metadata": {"name": f"pvc-{self._made:05x}"},
            "spec": {
                "capacity": dict(spec["resources"]["requests"]),
                "accessModes": spec["accessModes"],
                "storageClassName": spec.get("storageClassName"),
            },
        }
        if node is not None:
            term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            body["spec"]["nodeAffinity"] = {"required": terms}
        info = RequestInfo(manager="provisioner")
        return self._objects.create(Place(VOLUME, "", "", ""), body, info)

    def _bind(self, claim: Tree, volume: Tree, *, manager: str) -> None:
        about = claim["metadata"]
        reference = {key: about[key] for key in ("namespace", "name", "uid")}
        self._store.keep(
            VOLUME,
            volume
            | {"spec": volume["spec"] | {"claimRef": reference}, "status": {"phase": "Bound"}},
            manager=manager,
        )
        spec = claim["spec"] | {"volumeName": volume["metadata"]["name"]}
        new = claim | {"spec": spec, "status": {"phase": "Bound"}}
        self._store.keep(VOLUME_CLAIM, new, manager=manager)

    # ---- what fits

    def _class_of(self, claim: Tree) -> Tree | None:
        name = claim["spec"].get("storageClassName")
        if name is None:
            for one in self._store.all(STORAGE_CLASS):
                if (one["metadata"].get("annotations") or {}).get(DEFAULT) == "true":
                    return one
        return self._store.get(STORAGE_CLASS, "", name) if name else None

    def _volume_of(self, claim: Tree) -> Tree | None:
        """That of its name, or the one that is reserved for it."""
        about = claim["metadata"]
        named = claim["spec"].get("volumeName")
        for volume in self._store.all(VOLUME):
            reference = volume["spec"].get("claimRef") or {}
            if named is not None and volume["metadata"]["name"] != named:
                continue
            if reference.get("uid") not in (None, about["uid"]):
                continue
            whose = (reference.get("namespace"), reference.get("name"))
            if whose == (about["namespace"], about["name"]) or (named and not reference):
                return volume
        return None

    def _smallest(self, claim: Tree, node: Tree | None, taken: set[str]) -> Tree | None:
        """The smallest available volume that fits, of those the node reaches."""
        spec = claim["spec"]
        wanted = _bytes(spec["resources"]["requests"]["storage"])
        offered = self._class_of(claim)
        fits = [
            (_bytes(volume["spec"]["capacity"]["storage"]), volume["metadata"]["name"], volume)
            for volume in self._store.all(VOLUME)
            if volume["spec"].get("storageClassName")
            == (offered or {}).get("metadata", {}).get("name")
            and (volume.get("status") or {}).get("phase") == "Available"
            and not volume["spec"].get("claimRef")
            and set(spec["accessModes"]) <= set(volume["spec"]["accessModes"])
            and (node is None or _reaches(volume, node))
            and volume["metadata"]["name"] not in taken
        ]
        return min((one for one in fits if one[0] >= wanted), default=(0, "", None))[2]


def _late(offered: Tree) -> bool:
    return bool(offered.get("volumeBindingMode") == "WaitForFirstConsumer")


def _reaches(volume: Tree, node: Tree) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or selects(required, node)


def _allowed(offered: Tree, node: Tree) -> bool:
    labels = node["metadata"].get("labels") or {}
    terms = offered.get("allowedTopologies") or []
    return not terms or any(
        all(labels.get(one["key"]) in one["values"] for one in term["matchLabelExpressions"])
        for term in terms
    )


def _bytes(quantity: str) -> int:
    unit = quantity[-2:]
    return int(quantity[:-2]) * _UNITS[unit] if unit in _UNITS else int(quantity)
