"""The devices of ResourceClaims: which is which GPU of a node, and which claims hold them.

Devices are numbered as in planning. Slices and classes are read once a run, all claims every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.apply.plan_actions import NewInstance
from models.mig import resource_of
from planner.cluster.pages import list_objects
from planner.cluster.transport import Transport, Tree, grouped
from planner.errors import NotPermittedError
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import DeviceClasses
from planner.read.kube.devices.slices import GROUP, NodeDevices, read_slices
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import flag, objects, text
from planner.read.kube.objects import Gatherer
from planner.read.kube.records import Device

VERSION = "v1"
"""The version of resource.k8s.io that is written; older ones are read only."""

FRESH_S = 5.0
"""Lifetime of a list of all claims, by the server's clock: each takes megabytes."""

DeviceKey = tuple[str, str, str]
"""(driver, pool, device): identifies a device in an allocation."""

Holder = tuple[str, str]
"""(namespace, name) of a claim."""


def key_of(device: Device) -> DeviceKey:
    return (device.driver, device.pool, device.name)


def held_by(claim: Tree) -> list[DeviceKey]:
    """Devices of a claim's allocation, in its order."""
    return [
        (text(one, "driver") or "", text(one, "pool") or "", text(one, "device") or "")
        for one in objects(claim, "status", "allocation", "devices", "results")
        if not flag(one, "adminAccess")
    ]


def collide(one: Device, other: Device) -> bool:
    """Whether only one of two devices of a node can be allocated."""
    same_gpu = (one.driver, one.index) == (other.driver, other.index)
    return key_of(one) == key_of(other) or (same_gpu and bool(one.slices & other.slices))


@dataclass(slots=True)
class Devices:
    """Known devices and their holders. ``by_node``: from ``read_slices``.

    ``_given``: what claims got in this run, or were about to get in a write without an answer so far. No
    other claim gets these, whatever a list says.
    """

    by_node: dict[str, tuple[NodeDevices, ...]]
    classes: DeviceClasses
    _held: dict[DeviceKey, Holder] = field(default_factory=dict)
    _given: dict[DeviceKey, Holder] = field(default_factory=dict)
    _users: dict[Holder, list[Tree]] = field(default_factory=dict)
    _read_at: float | None = None
    _over: dict[DeviceKey, tuple[DeviceKey, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, wire: Transport) -> Devices:
        """Slices and classes as they are now."""
        gatherer = Gatherer(Remarks())
        for kind, plural in (("ResourceSlice", "resourceslices"), ("DeviceClass", "deviceclasses")):
            try:
                trees = list_objects(wire, grouped(GROUP, VERSION, plural))
            except NotPermittedError:
                if kind == "ResourceSlice":
                    raise
                trees = []  # classes are then recognized by name, as in planning
            version = f"{GROUP}/{VERSION}"
            gatherer.add({"kind": f"{kind}List", "apiVersion": version, "items": trees}, "")
        by_node = read_slices(gatherer.objects, Remarks(), possible=True)
        drivers = frozenset(one.driver for found in by_node.values() for one in found)
        return cls(by_node, DeviceClasses(gatherer.objects, drivers))

    def read_holders(self, wire: Transport, date: float | None) -> None:
        """Read the holders of devices, unless read less than FRESH_S ago. ``date``: the server's clock."""
        if self._read_at is None or date is None or date - self._read_at >= FRESH_S:
            claims = {
                (
                    text(tree, "metadata", "namespace") or "",
                    text(tree, "metadata", "name") or "",
                ): tree
                for tree in list_objects(wire, grouped(GROUP, VERSION, "resourceclaims"))
            }
            self._held = {key: name for name, claim in claims.items() for key in held_by(claim)}
            self._users = {
                name: objects(one, "status", "reservedFor") for name, one in claims.items()
            }
            self._given = {key: name for key, name in self._given.items() if name in claims}
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
        found = (self._held.get(key) or self._given.get(key) for key in keys)
        return list(dict.fromkeys(one for one in found if one is not None))

    def users(self, holder: Holder) -> list[Tree]:
        """Entries of ``reservedFor`` of a claim when it was listed."""
        return self._users.get(holder, [])

    def give(self, holder: Holder, devices: Iterable[DeviceKey]) -> None:
        """Record what a claim gets in place of what it had; nothing where it is freed."""
        self._held, self._given = (
            {key: one for key, one in known.items() if one != holder}
            for known in (self._held, self._given)
        )
        self._given |= dict.fromkeys(devices, holder)

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
        taken = self._held.keys() | self._given.keys()
        here = self.instances(node, tainted=True)
        parted = {one.index for one in here if key_of(one) in taken}
        made = [one for one in alike if one.slices]
        made.sort(key=lambda one: (one.index not in parted, -one.start))
        return [*(one for one in alike if not one.slices), *made]

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
