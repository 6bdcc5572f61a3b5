"""The devices of a cluster as its drivers publish them: which one is GPU 3 of a node, and who holds it.

Promises: numbered exactly as planning numbers them; slices and classes are read once a run, all claims every
few seconds. Raises UnavailableError and NotPermittedError. Called by ``dra``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from planner.cluster.api_paths import grouped
from planner.cluster.backends.dra_claims import Claim, DeviceKey
from planner.cluster.pages import list_objects
from planner.cluster.transport import Transport, Tree
from planner.errors import NotPermittedError
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import DeviceClasses
from planner.read.kube.devices.slices import GROUP, NodeDevices, read_slices
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import text
from planner.read.kube.objects import Gatherer
from planner.read.kube.records import Device

VERSION = "v1"
"""The version of resource.k8s.io that is written; older ones are only read."""

CLAIMS = grouped(GROUP, VERSION, "resourceclaims")

FRESH_S = 5.0
"""So long, by the server's clock, a list of all claims is believed: each takes megabytes."""

Holder = tuple[str, str]
"""(namespace, name) of a claim."""


@dataclass(slots=True)
class Devices:
    """What one run knows of devices. ``by_node``: as ``read_slices`` gives them."""

    by_node: dict[str, tuple[NodeDevices, ...]]
    classes: DeviceClasses
    _held: dict[DeviceKey, Holder] = field(default_factory=dict)
    _users: dict[Holder, list[Tree]] = field(default_factory=dict)
    _read_at: float | None = None

    @classmethod
    def read(cls, wire: Transport) -> Devices:
        """Slices and classes as they are now."""
        slices = list_objects(wire, grouped(GROUP, VERSION, "resourceslices"))
        try:
            classes = list_objects(wire, grouped(GROUP, VERSION, "deviceclasses"))
        except NotPermittedError:
            classes = []  # they go by their names then, as in planning
        gatherer = Gatherer(Remarks())
        for kind, trees in (("ResourceSlice", slices), ("DeviceClass", classes)):
            version = f"{GROUP}/{VERSION}"
            gatherer.add({"kind": f"{kind}List", "apiVersion": version, "items": trees}, "")
        by_node = read_slices(gatherer.objects, Remarks())
        drivers = frozenset(one.driver for found in by_node.values() for one in found)
        return cls(by_node, DeviceClasses(gatherer.objects, drivers))

    def look_for_holders(self, wire: Transport, date: float | None) -> None:
        """Read who holds what, unless that was done less than FRESH_S ago.

        ``date``: the server's clock now, None if it does not say.
        """
        old = self._read_at is None or date is None or date - self._read_at >= FRESH_S
        if old:
            claims = {_holder(tree): Claim(tree) for tree in list_objects(wire, CLAIMS)}
            self._held = {key: name for name, claim in claims.items() for key in claim.held()}
            self._users = {name: claim.users for name, claim in claims.items() if claim.users}
            self._read_at = date

    def forget_holders(self) -> None:
        """Read them again before the next pod."""
        self._read_at = None

    def holder(self, device: Device) -> Holder | None:
        """The claim that holds a device."""
        return self._held.get((device.driver, device.pool, device.name))

    def users(self, holder: Holder) -> list[Tree]:
        """Entries of ``reservedFor`` of a claim when it was listed."""
        return self._users.get(holder, [])

    def give(self, holder: Holder, devices: Iterable[DeviceKey]) -> None:
        """Remember what we gave out since the claims were read."""
        self._held |= dict.fromkeys(devices, holder)

    def take(self, holder: Holder) -> None:
        """Remember that a claim holds nothing any more."""
        self._held = {key: one for key, one in self._held.items() if one != holder}

    def chosen(self, node: str, gpus: Iterable[int], driver: str | None) -> list[Device]:
        """The devices that are these GPUs of a node. Raises CannotEncode where one is not there."""
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


def _holder(tree: Tree) -> Holder:
    return (text(tree, "metadata", "namespace") or "", text(tree, "metadata", "name") or "")
