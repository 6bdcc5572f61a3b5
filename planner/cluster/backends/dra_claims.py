"""ResourceClaims as the API server shows them: what one asks, what it holds, how it is to hold more.

Promises: pure; a claim whose wishes a list of GPUs cannot answer raises CannotEncode, in words about the
claim. Called by ``dra``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.apply.intents import PLAN
from planner.cluster.transport import Tree
from planner.read.kube.devices.claims import DeviceClasses, Sort, means_part, only_type
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import at, flag, items, mapping, objects, text, whole
from planner.read.kube.records import Device

FINALIZER = "resource.kubernetes.io/delete-protection"
"""With it Kubernetes takes the devices back when the pod is gone; without it, never."""

OWNER_ANNOTATION = PLAN
"""On a claim: that we are the one who allocates it, and by which plan. Never on others' claims."""

DeviceKey = tuple[str, str, str]
"""(driver, pool, device): what an allocation calls a device."""


@dataclass(frozen=True, slots=True)
class Want:
    """GPUs that one request of a claim asks for. ``driver``: None where nobody knows whose."""

    request: str
    count: int
    device_class: str
    driver: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. ``name``: also how messages call it."""

    tree: Tree

    @property
    def name(self) -> str:
        return text(self.tree, "metadata", "name") or ""

    @property
    def uid(self) -> str:
        return text(self.tree, "metadata", "uid") or ""

    @property
    def version(self) -> str:
        return text(self.tree, "metadata", "resourceVersion") or ""

    @property
    def allocated(self) -> bool:
        return isinstance(at(self.tree, "status", "allocation"), dict)

    @property
    def going(self) -> bool:
        """Whether it is being deleted."""
        return at(self.tree, "metadata", "deletionTimestamp") is not None

    @property
    def ours(self) -> bool:
        """Whether its allocation is one that we wrote, or were about to write."""
        return text(self.tree, "metadata", "annotations", OWNER_ANNOTATION) is not None

    @property
    def finalizers(self) -> list[str]:
        found = items(self.tree, "metadata", "finalizers")
        return [one for one in found if isinstance(one, str)]

    @property
    def users(self) -> list[Tree]:
        """Entries of ``reservedFor``."""
        return objects(self.tree, "status", "reservedFor")

    def used_by_others(self, uid: str) -> bool:
        return any(text(user, "uid") != uid for user in self.users)

    def held(self) -> list[DeviceKey]:
        """Devices of its allocation, in its order."""
        return [
            (text(one, "driver") or "", text(one, "pool") or "", text(one, "device") or "")
            for one in objects(self.tree, "status", "allocation", "devices", "results")
            if not flag(one, "adminAccess")
        ]


def named_claims(pod_tree: Tree) -> list[tuple[str, str | None]]:
    """(entry, claim) of each claim that the pod uses; None: it is not made yet.

    An entry whose claim Kubernetes found not to be needed is left out.
    """
    made = {
        text(one, "name"): text(one, "resourceClaimName")
        for one in objects(pod_tree, "status", "resourceClaimStatuses")
    }
    found: list[tuple[str, str | None]] = []
    for entry in objects(pod_tree, "spec", "resourceClaims"):
        name = text(entry, "name") or ""
        direct = text(entry, "resourceClaimName")
        if direct is not None:
            found.append((name, direct))
        elif name not in made:
            found.append((name, None))
        elif made[name] is not None:
            found.append((name, made[name]))
    return found


def wants(claim: Claim, classes: DeviceClasses) -> list[Want]:
    """GPUs that the claim asks for, by request; [] if it is about something else than GPUs.

    Raises CannotEncode where chosen GPUs cannot be what it asks for.
    """
    found: list[Want] = []
    others: list[str] = []
    for request in objects(claim.tree, "spec", "devices", "requests"):
        want = _want(claim, request, classes)
        if want is None:
            others.append(text(request, "name") or "")
        else:
            found.append(want)
    if found and others:
        raise CannotEncode(f"claim {claim.name} asks for GPUs and for other devices at once")
    if found and objects(claim.tree, "spec", "devices", "constraints"):
        raise CannotEncode(f"claim {claim.name} sets conditions between its devices")
    return found


def _want(claim: Claim, request: Tree, classes: DeviceClasses) -> Want | None:
    """One request; None if it is not about GPUs."""
    if objects(request, "firstAvailable"):
        raise CannotEncode(f"claim {claim.name} leaves a choice between devices (firstAvailable)")
    exactly = mapping(request, "exactly")
    name = text(exactly, "deviceClassName") or ""
    sort = classes.sort(name)
    if sort is Sort.PART:
        raise CannotEncode(f"claim {claim.name} asks for parts of GPUs")
    if sort is not Sort.WHOLE or flag(exactly, "adminAccess"):
        return None
    expressions = [text(one, "cel", "expression") or "" for one in objects(exactly, "selectors")]
    if "capacity" in exactly or any(map(means_part, expressions)):
        raise CannotEncode(f"claim {claim.name} asks for parts of GPUs")
    if not all(map(only_type, expressions)):
        raise CannotEncode(f"claim {claim.name} selects devices by conditions of its own")
    if text(exactly, "allocationMode") == "All":
        raise CannotEncode(f"claim {claim.name} asks for all devices of a node")
    count = 1 if exactly.get("count") is None else whole(exactly, "count")
    if count is None or count < 1:
        raise CannotEncode(f"claim {claim.name} asks for a number of devices nobody can read")
    return Want(text(request, "name") or "", count, name, classes.driver(name))


def protection(claim: Claim, plan: str) -> Tree | None:
    """The patch that comes before an allocation; None if it was made already.

    A claim that somebody else allocated gets no mark of ours.
    """
    metadata: Tree = {}
    if FINALIZER not in claim.finalizers:
        metadata["finalizers"] = [*claim.finalizers, FINALIZER]
    if not claim.ours and not claim.allocated:
        metadata["annotations"] = {OWNER_ANNOTATION: plan}
    return _metadata_patch(claim, metadata) if metadata else None


def unmarking(claim: Claim) -> Tree:
    """The patch that says we are not the one who allocates the claim any more."""
    return _metadata_patch(claim, {"annotations": {OWNER_ANNOTATION: None}})


def _metadata_patch(claim: Claim, metadata: Tree) -> Tree:
    return {"metadata": {"uid": claim.uid, "resourceVersion": claim.version, **metadata}}


def allocation(  # what the objects of the API call these
    claim: Claim,
    chosen: Sequence[tuple[Want, Device]],
    classes: DeviceClasses,
    *,
    node: str,
    stamp: str,
) -> Tree:
    """``status.allocation``: the devices, the node they are on, and when.

    ``stamp``: RFC 3339. Without it kube-scheduler adds its own, which the server then refuses.
    """
    devices: Tree = {
        "results": [
            {
                "request": want.request,
                "driver": device.driver,
                "pool": device.pool,
                "device": device.name,
            }
            for want, device in chosen
        ]
    }
    if config := list(_configuration(claim, dict.fromkeys(w for w, _ in chosen), classes)):
        devices["config"] = config
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": devices,
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        "allocationTimestamp": stamp,
    }


def _configuration(claim: Claim, used: dict[Want, None], classes: DeviceClasses) -> Iterator[Tree]:
    """Settings for the driver: those of the classes, then the claim's own, which go before them."""
    for want in used:
        found = classes.input.named("resource.k8s.io", "DeviceClass", "", want.device_class)
        for one in objects(None if found is None else found.tree, "spec", "config"):
            yield {"source": "FromClass", "requests": [want.request], **one}
    for one in objects(claim.tree, "spec", "devices", "config"):
        yield {"source": "FromClaim", **one}


def reservation(name: str, uid: str) -> Tree:
    """The entry of ``reservedFor`` for a pod."""
    return {"resource": "pods", "name": name, "uid": uid}


def status_patch(claim: Claim, status: Tree) -> Tree:
    return {"metadata": {"uid": claim.uid, "resourceVersion": claim.version}, "status": status}
