"""GPUs as dynamic resource allocation describes them: the devices in ResourceSlices, by node.

Promises: whole GPUs only, of the newest generation of each pool; partitions, IMEX channels and other
devices are passed over; what is odd becomes a remark. Called by ``nodes`` and ``pods``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, at, flag, mapping, number, objects, text, whole
from planner.read.kube.records import Device, KubeObject, Objects

GROUP = "resource.k8s.io"

_DRIVERS = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.resource.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "gpu.intel.com/i915",
    "gaudi.intel.com": "habana.ai/gaudi",
}

WHOLE = frozenset({"gpu", "amdgpu"})
"""Values of the attribute ``type`` that mean a whole GPU; a driver without it has nothing else."""

_SHUT = frozenset({"NoSchedule", "NoExecute"})
_MOST_INDICES = 1024

_BUS = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})[.:]([0-9a-f]{1,2})", re.IGNORECASE
)
_FIRST_NUMBER = re.compile(r"[0-9]{1,9}")


def is_gpu_driver(driver: str) -> bool:
    """Whether a driver gives out GPUs: the known ones, and any in a domain ``gpu``."""
    return driver in _DRIVERS or driver.startswith("gpu.")


def resource_of(driver: str) -> str:
    """The resource name under which the same GPUs are asked for without claims."""
    return _DRIVERS.get(driver, driver)


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """Whole GPUs of one driver on one node, ascending by index.

    ``sick``: indices of those its driver or an operator has tainted. ``shared``: whether some are
    given to several claims at once, or cut into partitions.
    """

    driver: str
    devices: tuple[Device, ...]
    sick: tuple[int, ...] = ()
    shared: bool = False


@dataclass(slots=True)
class _Found:
    """One device of a slice, before its index is known. ``said``: the index it states itself."""

    device: Device
    said: int | None
    bus: tuple[int, ...] | None
    sick: bool
    shared: bool


@dataclass(slots=True)
class _Pool:
    """The slices of the newest generation of a pool."""

    generation: int = -1
    slices: list[KubeObject] = field(default_factory=list)


def read_slices(objects_: Objects, remarks: Remarks) -> dict[str, tuple[NodeDevices, ...]]:
    """GPUs by node name, a tuple entry a driver, drivers in order of their names."""
    found: dict[tuple[str, str], list[_Found]] = {}
    parted: set[tuple[str, str]] = set()
    rules = _taint_rules(objects_)
    for (driver, pool), kept in sorted(_pools(objects_).items()):
        _check_whole(driver, pool, kept, remarks)
        taken: set[tuple[str, str]] = set()
        for one in kept.slices:
            for node, tree in _devices(one):
                if _kind(tree, driver) not in WHOLE:
                    if "partition" in _kind(tree, driver):
                        parted.add((node, driver))
                    continue
                name = text(tree, "name")
                if name is None or (node, name) in taken:
                    remarks.add(one.where, "has a device without a name of its own; it is left out")
                    continue
                taken.add((node, name))
                one_found = _found(tree, driver, pool, name)
                one_found.sick |= any(_about(rule, driver, pool, name) for rule in rules)
                found.setdefault((node, driver), []).append(one_found)
    result: dict[str, tuple[NodeDevices, ...]] = {}
    for node, driver in sorted({*found, *parted}):
        entry = _numbered(node, driver, found.get((node, driver), []), remarks)
        if (node, driver) in parted:
            entry = replace(entry, shared=True)
        result[node] = (*result.get(node, ()), entry)
    return result


def _pools(objects_: Objects) -> dict[tuple[str, str], _Pool]:
    """Pools of GPU drivers by driver and name."""
    pools: dict[tuple[str, str], _Pool] = {}
    for one in objects_.of("ResourceSlice", GROUP):
        driver = text(one.tree, "spec", "driver")
        if driver is None or not is_gpu_driver(driver):
            continue
        node = text(one.tree, "spec", "nodeName")
        pool = pools.setdefault(
            (driver, text(one.tree, "spec", "pool", "name") or node or one.name), _Pool()
        )
        generation = whole(one.tree, "spec", "pool", "generation") or 0
        if generation > pool.generation:
            pool.generation, pool.slices = generation, [one]
        elif generation == pool.generation:
            pool.slices.append(one)
    return pools


def _taint_rules(objects_: Objects) -> list[Tree]:
    """Device selectors of an operator's DeviceTaintRules that shut devices."""
    return [
        mapping(one.tree, "spec", "deviceSelector")
        for one in objects_.of("DeviceTaintRule", GROUP)
        if text(one.tree, "spec", "taint", "effect") in _SHUT
    ]


def _about(rule: Tree, driver: str, pool: str, device: str) -> bool:
    """Whether a rule is about the device: what it leaves open it is about all of."""
    if "deviceClassName" in rule or "selectors" in rule:
        return False  # an older form, about devices that only an expression tells
    own = (("driver", driver), ("pool", pool), ("device", device))
    return all(rule.get(name) in (None, value) for name, value in own)


def _check_whole(driver: str, name: str, pool: _Pool, remarks: Remarks) -> None:
    wanted = max(whole(one.tree, "spec", "pool", "resourceSliceCount") or 0 for one in pool.slices)
    if wanted > len(pool.slices):
        remarks.add(
            f"pool {name} of {driver}",
            "some of its ResourceSlices are missing; only the devices that are there count",
            "record the cluster again when the driver has published all of them",
        )


def _devices(one: KubeObject) -> Iterator[tuple[str, Tree]]:
    """(node, device) of a slice; devices that belong to no one node are passed over."""
    own = text(one.tree, "spec", "nodeName")
    for tree in objects(one.tree, "spec", "devices"):
        node = own or text(tree, "nodeName") or text(tree, "basic", "nodeName")
        if node is not None:
            yield node, tree


def _body(tree: Tree) -> Tree:
    """What a device says of itself: under ``basic`` in the beta versions of the API."""
    basic = at(tree, "basic")
    return basic if isinstance(basic, dict) else tree


def _attribute(tree: Tree, driver: str, *names: str) -> str | int | None:
    """The first of these attributes that is there; a plain name means one of the driver's own."""
    attributes = mapping(_body(tree), "attributes")
    for name in names:
        for key in (name, f"{driver}/{name}"):
            value = mapping(attributes, key)
            found = text(value, "string")
            if found is None:
                found_number = whole(value, "int")
                if found_number is not None:
                    return found_number
            else:
                return found
    return None


def _text(tree: Tree, driver: str, *names: str) -> str | None:
    value = _attribute(tree, driver, *names)
    return value if isinstance(value, str) else None


def _number(tree: Tree, driver: str, *names: str) -> int | None:
    """A small non-negative attribute."""
    value = _attribute(tree, driver, *names)
    return value if isinstance(value, int) and 0 <= value < _MOST_INDICES else None


def _kind(tree: Tree, driver: str) -> str:
    """The attribute ``type``; ``gpu`` where the driver knows nothing but GPUs."""
    kind = _attribute(tree, driver, "type")
    return "gpu" if kind is None else str(kind)


def _found(tree: Tree, driver: str, pool: str, name: str) -> _Found:
    bus = _text(tree, driver, "resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID", "pciAddr")
    device = Device(
        driver=driver,
        pool=pool,
        name=name,
        index=0,
        uuid=_text(tree, driver, "uuid"),
        product=_text(tree, driver, "productName", "model"),
        pcie_root=_text(tree, driver, "resource.kubernetes.io/pcieRoot", "pcieRoot"),
        numa=_number(tree, driver, "resource.kubernetes.io/numaNode", "numaNode", "numa"),
    )
    body = _body(tree)
    tainted = any(taint.get("effect") in _SHUT for taint in objects(body, "taints"))
    shared = flag(body, "allowMultipleAllocations")
    return _Found(device, _number(tree, driver, "index"), _bus(bus), tainted, shared)


def _bus(written: str | None) -> tuple[int, ...] | None:
    """A PCI address as numbers that sort as nvidia-smi counts."""
    found = None if written is None else _BUS.fullmatch(written)
    return None if found is None else tuple(int(part or "0", 16) for part in found.groups())


def _numbered(node: str, driver: str, found: Sequence[_Found], remarks: Remarks) -> NodeDevices:
    """The devices with their indices: as they state them, else by PCI address, else by name."""
    said = [one.said for one in found]
    buses = [one.bus for one in found]
    names = [_number_in(one.device.name) for one in found]
    if _usable(said):
        indices = [index for index in said if index is not None]
    elif _usable(buses):
        rank = {bus: i for i, bus in enumerate(sorted(bus for bus in buses if bus is not None))}
        indices = [rank[bus] for bus in buses if bus is not None]
    elif _usable(names) and all(index is not None and index < _MOST_INDICES for index in names):
        indices = [index for index in names if index is not None]
    else:
        remarks.add(
            f"Node {node}",
            f"the devices of {driver} say neither index nor PCI address; they count by their names",
        )
        found = sorted(found, key=lambda one: (one.device.name, one.device.pool))
        indices = list(range(len(found)))
    numbered = sorted(zip(indices, found, strict=True), key=lambda pair: pair[0])
    return NodeDevices(
        driver=driver,
        devices=tuple(replace(one.device, index=index) for index, one in numbered),
        sick=tuple(index for index, one in numbered if one.sick),
        shared=any(one.shared for one in found),
    )


def _number_in(name: str) -> int | None:
    found = _FIRST_NUMBER.search(name)
    return None if found is None else number(found.group())


def _usable(values: Sequence[object]) -> bool:
    """Whether every device has a value and no two the same."""
    return None not in values and len(set(values)) == len(values)
