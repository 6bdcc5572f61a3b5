"""GPUs in ResourceSlices, by node, of the newest generation of each pool: whole ones, and MIG instances.

Instances of NVIDIA's driver exist, in place of their GPU, or are possible beside it: claims make them, and
the counters that they consume say which memory slices they take. Other partitions, IMEX channels and other
devices are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from models.mig import MAX_SLICES
from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, at, flag, mapping, number, objects, text, whole
from planner.read.kube.records import MAX_GPUS, Device, KubeObject, Objects

Value = TypeVar("Value")

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

MIG_DRIVER = "gpu.nvidia.com"
"""Its MIG instances: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu, ``deviceinfo.go``."""

PROFILE = r"[1-9][a-z0-9.+-]{0,38}[a-z0-9]"
"""Names of profiles of MIG instances."""

_PROFILE = re.compile(PROFILE)

_CLOSING = frozenset({"NoSchedule", "NoExecute"})
_BY_CEL = frozenset({"deviceClassName", "selectors"})

_BUS = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})[.:]([0-9a-f]{1,2})", re.IGNORECASE
)
_BUS_NAMES = ("resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID", "pciAddr")
_SLICE = re.compile(r"memory-slice-([0-9]{1,2})")
"""Names of the counters of memory slices: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu."""

_FIRST_NUMBER = re.compile(r"[0-9]{1,9}")


def is_gpu_driver(driver: str) -> bool:
    """Whether a driver provides GPUs: the known ones, and any in a domain ``gpu``."""
    return driver in _DRIVERS or driver.startswith("gpu.")


def resource_of(driver: str) -> str:
    """The resource name by which the same GPUs are requested without claims."""
    return _DRIVERS.get(driver, driver)


class NodeDevices(Struct, frozen=True):
    """Whole GPUs of one driver on one node, ascending by index.

    ``sick``: indices that the driver or an operator tainted. ``shared``: some allow several claims
    at once, or are partitioned. ``instances``: of GPUs that are partitioned (MIG), by name; ``partitioned``:
    indices of these GPUs; ``closed``: names of instances that are tainted. ``possible``: instances that
    claims can make of GPUs, by GPU, profile and slices. ``mig_mode``: indices of GPUs of which claims can
    have nothing else, as of an A100 in MIG mode.
    """

    driver: str
    devices: tuple[Device, ...]
    sick: tuple[int, ...] = ()
    shared: bool = False
    instances: tuple[Device, ...] = ()
    partitioned: tuple[int, ...] = ()
    closed: frozenset[str] = frozenset()
    possible: tuple[Device, ...] = ()
    mig_mode: tuple[int, ...] = ()


class _Found(Struct):
    """One device of a slice, before it is numbered. ``stated``: the index it states itself.

    ``parent``: the uuid of the GPU of a MIG instance, which has the index and the address of its GPU.
    ``counters``: the set of counters that it consumes, if memory slices are among them; empty for other
    forms of an instance that a claim makes.
    """

    device: Device
    stated: int | None
    bus: tuple[int, ...] | None
    sick: bool
    shared: bool
    parent: str | None = None
    counters: str | None = None


def read_slices(
    objects_: Objects, remarks: Remarks, *, possible: bool
) -> dict[str, tuple[NodeDevices, ...]]:
    """GPUs by node name, one entry per driver, sorted by driver.

    ``possible``: with the instances that claims can make of them, which are most devices where there are any;
    else with one for each GPU, which shows that it is there.
    """
    found: dict[tuple[str, str], list[_Found]] = {}
    partitioned: set[tuple[str, str]] = set()
    seen: set[tuple[str, str | None]] = set()
    rules = [
        mapping(one.tree, "spec", "deviceSelector")
        for one in objects_.of("DeviceTaintRule", GROUP)
        if text(one.tree, "spec", "taint", "effect") in _CLOSING
        # An older form selects by CEL. A field that is absent selects all.
        and _BY_CEL.isdisjoint(mapping(one.tree, "spec", "deviceSelector"))
    ]
    for (driver, pool), slices in sorted(_pools(objects_).items()):
        _check_complete(driver, pool, slices, remarks)
        taken: set[tuple[str, str]] = set()
        for one in slices:
            for node, tree in _devices(one):
                kind = _attribute(tree, driver, "type")
                instance = kind == "mig" and _is_instance(tree, driver)
                if instance and not possible and "consumesCounters" in _body(tree):
                    gpu = (node, _text(tree, driver, "parentUUID"))
                    instance = gpu not in seen
                    seen.add(gpu)
                if kind is not None and kind not in WHOLE and not instance:
                    if "partition" in str(kind):
                        partitioned.add((node, driver))
                    continue
                name = text(tree, "name")
                if name is None or (node, name) in taken:
                    remarks.add(one.where, "has a device without a name of its own; ignored")
                    continue
                taken.add((node, name))
                device = _found(tree, driver, pool, name, instance=instance)
                own = {"driver": driver, "pool": pool, "device": name}.items()
                device.sick |= any(
                    all(rule.get(field) in (None, value) for field, value in own) for rule in rules
                )
                found.setdefault((node, driver), []).append(device)
    result: dict[str, tuple[NodeDevices, ...]] = {}
    for node, driver in sorted({*found, *partitioned}):
        entry = _numbered(node, driver, found.get((node, driver), []), remarks)
        if (node, driver) in partitioned:
            entry = replace(entry, shared=True)
        result[node] = (*result.get(node, ()), entry)
    return result


def _pools(objects_: Objects) -> dict[tuple[str, str], list[KubeObject]]:
    pools: dict[tuple[str, str], tuple[int, list[KubeObject]]] = {}
    for one in objects_.of("ResourceSlice", GROUP):
        driver = text(one.tree, "spec", "driver")
        if driver is None or not is_gpu_driver(driver):
            continue
        name = text(one.tree, "spec", "pool", "name") or text(one.tree, "spec", "nodeName")
        key = (driver, name or one.name)
        generation = whole(one.tree, "spec", "pool", "generation") or 0
        newest, slices = pools.get(key, (-1, []))
        if generation > newest:
            pools[key] = (generation, [one])
        elif generation == newest:
            slices.append(one)
    return {key: slices for key, (_, slices) in pools.items()}


def _check_complete(driver: str, pool: str, slices: Sequence[KubeObject], remarks: Remarks) -> None:
    counts = [whole(one.tree, "spec", "pool", "resourceSliceCount") or 0 for one in slices]
    if max(counts, default=0) > len(slices):
        remarks.add(
            f"pool {pool} of {driver}",
            "some of its ResourceSlices are missing; only the devices in the input count",
            "record the cluster again when the driver has published all of them",
        )


def _devices(one: KubeObject) -> Iterator[tuple[str, Tree]]:
    """(node, device) of a slice; devices that belong to no single node are skipped."""
    own = text(one.tree, "spec", "nodeName")
    for tree in objects(one.tree, "spec", "devices"):
        node = own or text(tree, "nodeName") or text(tree, "basic", "nodeName")
        if node is not None:
            yield node, tree


def _body(tree: Tree) -> Tree:
    """The fields of a device: below ``basic`` in the beta versions of the API."""
    basic = at(tree, "basic")
    return basic if isinstance(basic, dict) else tree


def _attribute(tree: Tree, driver: str, *names: str) -> str | int | None:
    """The first of these attributes that is present; a plain name means one of the driver's own."""
    attributes = mapping(_body(tree), "attributes")
    for key in (one for name in names for one in (name, f"{driver}/{name}")):
        value = mapping(attributes, key)
        found: str | int | None = text(value, "string")
        found = whole(value, "int") if found is None else found
        if found is not None:
            return found
    return None


def _text(tree: Tree, driver: str, *names: str) -> str | None:
    value = _attribute(tree, driver, *names)
    return value if isinstance(value, str) else None


def _is_instance(tree: Tree, driver: str) -> bool:
    """Whether a MIG device exists, or may be made of its GPU by a claim for it alone."""
    if driver != MIG_DRIVER:
        return False
    profile = _text(tree, driver, "profile")
    return (
        profile is not None
        and _PROFILE.fullmatch(profile) is not None
        and bool(_text(tree, driver, "parentUUID"))
        and not flag(_body(tree), "allowMultipleAllocations")
    )


def _slices(tree: Tree) -> tuple[str, int] | None:
    """The set of counters that a device consumes, and a mask of its memory slices; None for other forms."""
    consumed = objects(_body(tree), "consumesCounters")
    if len(consumed) != 1:
        return None
    counters, own = mapping(consumed[0], "counters"), text(consumed[0], "counterSet")
    mask, names = _numbers(tuple(counters))
    ones = all(at(counters, name, "value") in (1, "1") for name in names)
    contiguous = mask and not mask & mask + (mask & -mask)
    return (own, mask) if own is not None and contiguous and ones else None


@lru_cache(maxsize=4096)
def _numbers(counters: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """A mask of the memory slices that counters of these names count, and their names."""
    found = [(int(one[1]), one[0]) for name in counters if (one := _SLICE.fullmatch(name))]
    if any(number >= MAX_SLICES for number, _ in found):
        return 0, ()
    return sum({1 << number for number, _ in found}), tuple(name for _, name in found)


def _found(tree: Tree, driver: str, pool: str, name: str, *, instance: bool) -> _Found:
    """A device; of an instance that a claim can make, its GPU says where it is, if that is a device too."""
    body = _body(tree)
    possible = instance and "consumesCounters" in body
    counters, slices = ("" if possible else None, 0)
    if possible or not instance:
        counters, slices = _slices(tree) or (counters, 0)
    device = Device(
        driver=driver,
        pool=pool,
        name=name,
        index=0,
        uuid=_text(tree, driver, "uuid"),
        product=_text(tree, driver, "productName", "model"),
        profile=_text(tree, driver, "profile") if instance else None,
        slices=slices,
    )
    index = _attribute(tree, driver, "parentIndex" if instance else "index")
    usable = isinstance(index, int) and 0 <= index < MAX_GPUS and not possible
    address = _BUS.fullmatch(_text(tree, driver, *_BUS_NAMES) or "")
    return _Found(
        device,
        stated=index if isinstance(index, int) and usable else None,
        # numbers that sort as nvidia-smi counts
        bus=tuple(int(part or "0", 16) for part in address.groups()) if address else None,
        sick=any(taint.get("effect") in _CLOSING for taint in objects(body, "taints")),
        shared=flag(body, "allowMultipleAllocations"),
        parent=_text(tree, driver, "parentUUID") if instance else None,
        counters=counters,
    )


def _numbered(node: str, driver: str, found: Sequence[_Found], remarks: Remarks) -> NodeDevices:
    """The devices with their indices: as stated, else by PCI address, else by name."""
    wholes = [one for one in found if one.parent is None]
    given_whole = {one.device.uuid: one for one in wholes if one.device.uuid}
    instances = [
        (one.parent, one)
        for one in found
        if one.parent is not None and one.parent not in given_whole and one.counters is None
    ]
    # Any instance shows where its GPU is among the others.
    known = dict(instances)
    bare = {
        one.parent: one
        for one in reversed(found)
        if one.counters and one.parent and one.parent not in {*given_whole, *known}
    }
    gpus = _indexed(node, driver, [*wholes, *known.values(), *bare.values()], remarks)
    indices = {one.parent: index for index, one in gpus if one.parent}
    numbered = [(index, one) for index, one in gpus if one.parent is None]
    places = {one.device.uuid: index for index, one in numbered}
    places |= {parent: indices[parent] for parent in bare}
    possible = [
        (replace(one.device, index=places[one.parent]), one)
        for one in found
        if (one.parent in given_whole and _is_of(one, given_whole[one.parent]))
        or (one.counters and one.parent in bare)
    ]
    parts = sorted(instances, key=lambda pair: (pair[1].device.name, pair[1].device.pool))
    return NodeDevices(
        driver=driver,
        devices=tuple(replace(one.device, index=index) for index, one in numbered),
        sick=tuple(index for index, one in numbered if one.sick),
        shared=any(one.shared for one in wholes),
        instances=tuple(replace(one.device, index=indices[parent]) for parent, one in parts),
        partitioned=tuple(sorted(indices[parent] for parent in known)),
        closed=frozenset(one.device.name for _, one in (*parts, *possible) if one.sick),
        possible=tuple(
            sorted(
                (device for device, _ in possible),
                key=lambda one: (one.index, one.profile, one.slices, one.pool, one.name),
            )
        ),
        mig_mode=tuple(sorted(indices[parent] for parent in bare)),
    )


def _is_of(instance: _Found, gpu: _Found) -> bool:
    """Whether the counters of an instance are among those that its GPU consumes as a whole."""
    same = instance.counters == gpu.counters
    return bool(instance.counters) and same and not instance.device.slices & ~gpu.device.slices


def _indexed(
    node: str, driver: str, found: Sequence[_Found], remarks: Remarks
) -> list[tuple[int, _Found]]:
    """One device of each GPU, ascending by the index of the GPU."""
    in_names = [_FIRST_NUMBER.search(one.device.name) for one in found]
    names = _each([None if one is None else number(one.group()) for one in in_names])
    buses = _each([one.bus for one in found])
    indices = _each([one.stated for one in found])
    if not indices and buses:
        rank = {bus: i for i, bus in enumerate(sorted(buses))}
        indices = [rank[bus] for bus in buses]
    elif not indices and names and max(names) < MAX_GPUS:
        indices = names
    elif not indices and found:
        what = (
            f"the devices of {driver} have neither index nor PCI address; they are numbered by name"
        )
        remarks.add(f"Node {node}", what)
        found = sorted(found, key=lambda one: (one.device.name, one.device.pool))
        indices = list(range(len(found)))
    return sorted(zip(indices, found, strict=True), key=lambda pair: pair[0])


def _each(values: Sequence[Value | None]) -> list[Value]:
    """The values if every device has one and no two the same, else none."""
    known = [value for value in values if value is not None]
    return known if len(set(known)) == len(values) else []
