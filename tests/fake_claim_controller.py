"""The resource-claim controller: claims from templates, and claims that are given back.

Promises: as measured: a claim for each pod that asks for one of a template, gated or not; reservedFor
follows the pods, and the finalizer decides whether the allocation goes too. Called by
``fake_controllers``.
"""

from __future__ import annotations

from fake_asking import Asking
from fake_devices import FINALIZER, claims_of
from fake_kinds import CLAIM, POD, TEMPLATE, Place
from fake_objects import Objects
from fake_trees import Tree

_MANAGER = "kube-controller-manager"


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
                self._objects.create(place, body, Asking(manager=_MANAGER))
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
