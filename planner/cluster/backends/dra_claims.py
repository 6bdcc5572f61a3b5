"""ResourceClaims and their devices: what a claim requests and holds, and which device is which GPU of a node.

Devices are numbered as in planning. Slices and classes are read once a run, all claims every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from models.apply.intents import PLAN
from models.apply.plan_actions import NewInstance
from models.mig import resource_of
from planner.cluster.pages import list_objects
from planner.cluster.transport import Transport, Tree, grouped
from planner.errors import NotPermittedError
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import DeviceClasses
from planner.read.kube.devices.slices import GROUP, NodeDevices, read_slices
from planner.read.kube.devices.wants import Want, wants
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import at, flag, items, mapping, objects, text
from planner.read.kube.objects import Gatherer
from planner.read.kube.records import Device

FINALIZER = "resource.kubernetes.io/delete-protection"
"""With it Kubernetes frees the devices when the pod is gone; without it, never."""

OWNER_ANNOTATION = PLAN
"""On a claim that gangplan allocates: the plan."""

DeviceKey = tuple[str, str, str]
"""(driver, pool, device): identifies a device in an allocation."""


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
        """Whether gangplan allocated it or was about to."""
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
    """(entry, claim) of each claim that the pod uses; None: it is not created yet.

    Entries whose claims Kubernetes found unnecessary are left out.
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


def claim_wants(claim: Claim, classes: DeviceClasses) -> list[Want]:
    """GPUs that the claim requests; [] if it is for other devices.

    Raises CannotEncode if planned GPUs cannot satisfy it.
    """
    try:
        return wants(mapping(claim.tree, "spec"), classes)
    except CannotEncode as error:
        raise CannotEncode(f"claim {claim.name} {error}") from None


def protection(claim: Claim, plan: str) -> Tree | None:
    """The patch before an allocation: finalizer and annotation; None if not needed.

    A claim that another client allocated does not get our annotation.
    """
    metadata: Tree = {}
    if FINALIZER not in claim.finalizers:
        metadata["finalizers"] = [*claim.finalizers, FINALIZER]
    if not claim.ours and not claim.allocated:
        metadata["annotations"] = {OWNER_ANNOTATION: plan}
    return _metadata_patch(claim, metadata) if metadata else None


def unmarking(claim: Claim) -> Tree:
    """The patch that removes our annotation."""
    return _metadata_patch(claim, {"annotations": {OWNER_ANNOTATION: None}})


def _metadata_patch(claim: Claim, metadata: Tree) -> Tree:
    return {"metadata": {"uid": claim.uid, "resourceVersion": claim.version, **metadata}}


def allocation(
    claim: Claim,
    chosen: Sequence[tuple[Want, Device]],
    classes: DeviceClasses,
    node: str,
    stamp: str,
) -> Tree:
    """``status.allocation``. ``stamp``: RFC 3339; without it kube-scheduler adds one, which is refused."""
    fields = ("request", "driver", "pool", "device")
    results = [dict(zip(fields, (w.request, *key_of(one)), strict=True)) for w, one in chosen]
    devices: Tree = {"results": results}
    if config := list(_configuration(claim, dict.fromkeys(w for w, _ in chosen), classes)):
        devices["config"] = config
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": devices,
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        "allocationTimestamp": stamp,
    }


def _configuration(claim: Claim, used: dict[Want, None], classes: DeviceClasses) -> Iterator[Tree]:
    """Driver settings: of the classes, then of the claim, which take precedence."""
    for want in used:
        found = classes.input.named("resource.k8s.io", "DeviceClass", "", want.device_class)
        for one in objects(None if found is None else found.tree, "spec", "config"):
            yield {"source": "FromClass", "requests": [want.request], **one}
    for one in objects(claim.tree, "spec", "devices", "config"):
        yield {"source": "FromClaim", **one}


def status_patch(claim: Claim, status: Tree) -> Tree:
    return {"metadata": {"uid": claim.uid, "resourceVersion": claim.version}, "status": status}


# ---- devices

VERSION = "v1"
"""The version of resource.k8s.io that is written; older ones are read only."""

CLAIMS = grouped(GROUP, VERSION, "resourceclaims")

FRESH_S = 5.0
"""Lifetime of a list of all claims, by the server's clock: each takes megabytes."""

Holder = tuple[str, str]
"""(namespace, name) of a claim."""


@dataclass(slots=True)
class Devices:
    """Known devices and their holders. ``by_node``: from ``read_slices``.

    ``_chosen``: MIG instances, and other devices of their GPUs, of claims that this run wrote to without an
    answer so far. A plan need not say which instance a pod gets, so these are given to no other claim,
    whatever a list says.
    """

    by_node: dict[str, tuple[NodeDevices, ...]]
    classes: DeviceClasses
    _held: dict[DeviceKey, Holder] = field(default_factory=dict)
    _chosen: dict[DeviceKey, Holder] = field(default_factory=dict)
    _users: dict[Holder, list[Tree]] = field(default_factory=dict)
    _read_at: float | None = None
    _over: dict[DeviceKey, tuple[DeviceKey, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, wire: Transport) -> Devices:
        """Slices and classes as they are now."""
        slices = list_objects(wire, grouped(GROUP, VERSION, "resourceslices"))
        try:
            classes = list_objects(wire, grouped(GROUP, VERSION, "deviceclasses"))
        except NotPermittedError:
            classes = []  # classes are then recognized by name, as in planning
        gatherer = Gatherer(Remarks())
        for kind, trees in (("ResourceSlice", slices), ("DeviceClass", classes)):
            version = f"{GROUP}/{VERSION}"
            gatherer.add({"kind": f"{kind}List", "apiVersion": version, "items": trees}, "")
        by_node = read_slices(gatherer.objects, Remarks(), possible=True)
        drivers = frozenset(one.driver for found in by_node.values() for one in found)
        return cls(by_node, DeviceClasses(gatherer.objects, drivers))

    def read_holders(self, wire: Transport, date: float | None) -> None:
        """Read the holders of devices, unless read less than FRESH_S ago. ``date``: the server's clock."""
        old = self._read_at is None or date is None or date - self._read_at >= FRESH_S
        if old:
            claims = {_holder(tree): Claim(tree) for tree in list_objects(wire, CLAIMS)}
            self._held = {key: name for name, claim in claims.items() for key in claim.held()}
            self._users = {name: claim.users for name, claim in claims.items() if claim.users}
            self._read_at = date

    def forget_holders(self) -> None:
        """Read the holders again before the next pod."""
        self._read_at = None

    def holders(self, node: str, device: Device) -> list[Holder]:
        """The claims that hold a device of a node, or others that take some of its memory slices."""
        keys = self._over.get(key_of(device))
        if keys is None:
            others = (
                other
                for own in self.by_node.get(node, ())
                for other in (*own.devices, *own.possible)
                if collide(device, other)
            )
            keys = tuple(dict.fromkeys((key_of(device), *map(key_of, others))))
            self._over[key_of(device)] = keys
        found = (self._held.get(key) or self._chosen.get(key) for key in keys)
        return list(dict.fromkeys(one for one in found if one is not None))

    def users(self, holder: Holder) -> list[Tree]:
        """Entries of ``reservedFor`` of a claim when it was listed."""
        return self._users.get(holder, [])

    def give(self, holder: Holder, devices: Iterable[DeviceKey]) -> None:
        """Record an allocation of ours."""
        self._chosen = {key: one for key, one in self._chosen.items() if one != holder}
        self._held |= dict.fromkeys(devices, holder)

    def take(self, holder: Holder) -> None:
        """Record that a claim was freed."""
        self._held = {key: one for key, one in self._held.items() if one != holder}
        self._chosen = {key: one for key, one in self._chosen.items() if one != holder}

    def choose(self, holder: Holder, devices: Iterable[Device]) -> None:
        """Record what a claim is about to get."""
        self._chosen |= {key_of(one): holder for one in devices if one.profile or one.slices}

    def instances(self, node: str, *, tainted: bool) -> list[Device]:
        """The MIG instances of a node, those that exist by name, with or without those that are tainted."""
        return [
            one
            for own in self.by_node.get(node, ())
            for one in (*own.instances, *own.possible)
            if tainted or one.name not in own.closed
        ]

    def in_order(
        self, node: str, alike: Sequence[Device], planned: list[NewInstance]
    ) -> list[Device]:
        """Of instances of one profile the one that the plan has next, else all in the order to try them.

        Where no plan says it, as after a crash, those that exist come first, then those of GPUs that have
        some, each as far back as it can be. ``planned``: what is left of it; the one taken is removed.
        """
        for place in planned:
            resource, gpu, slices = place
            found = [one for one in alike if (one.index, one.slices) == (gpu, slices)]
            if found and resource_of(found[0].profile or "") == resource:
                planned.remove(place)
                return found
        parted = {one.index for one in self.instances(node, tainted=True) if self._holds(one)}
        made = [one for one in alike if one.slices]
        made.sort(key=lambda one: (one.index not in parted, -one.start))
        return [*(one for one in alike if not one.slices), *made]

    def _holds(self, device: Device) -> bool:
        """Whether a claim holds exactly this device."""
        key = key_of(device)
        return key in self._held or key in self._chosen

    def chosen(self, node: str, gpus: Iterable[int], driver: str | None) -> list[Device]:
        """The devices for these GPUs of a node. Raises CannotEncode if one does not exist."""
        drivers = self.by_node.get(node, ())
        found = [one for one in drivers if driver in (None, one.driver)]
        if len(found) != 1:
            number = "no driver" if not found else "several drivers"
            raise CannotEncode(f"{number} for its claims published devices of node {node}")
        by_index = {device.index: device for device in found[0].devices}
        missing = [index for index in gpus if index not in by_index]
        if missing:
            raise CannotEncode(f"no device of node {node} is its GPU {missing[0]}")
        return [by_index[index] for index in gpus]


def key_of(device: Device) -> DeviceKey:
    return (device.driver, device.pool, device.name)


def collide(one: Device, other: Device) -> bool:
    """Whether only one of two devices of a node can be allocated."""
    same_gpu = (one.driver, one.index) == (other.driver, other.index)
    return key_of(one) == key_of(other) or (same_gpu and bool(one.slices & other.slices))


def _holder(tree: Tree) -> Holder:
    return (text(tree, "metadata", "namespace") or "", text(tree, "metadata", "name") or "")
