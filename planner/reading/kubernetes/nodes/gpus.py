"""What a node says about its GPUs: which resource they are, how many are built in, whether shared.

Promises: figures nobody can believe are passed over with a remark, never used. Called by ``nodes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.reading.kubernetes.devices.asking import CUT_UP, KOORDINATOR, KOORDINATOR_PERCENTS
from planner.reading.kubernetes.devices.slices import NodeDevices, resource_of
from planner.reading.kubernetes.forms import Device, KubeObject
from planner.reading.kubernetes.looking import number, objects, text, whole
from planner.reading.kubernetes.nodes.facts import ACK, AMD, MOST_GPUS, NVIDIA, PRODUCT, Told
from planner.reading.kubernetes.nodes.sharing import WORDS, behind, why_shared
from planner.reading.remarks import Remarks

_SAME = (NVIDIA, ACK)
"""Names that the same GPUs go by on one node, where their numbers agree."""

_COUNT = "nvidia.com/gpu.count"
_COUNTS = {
    _COUNT: NVIDIA,
    "gpu.nvidia.com/count": NVIDIA,
    "cloud.google.com/gke-accelerator-count": NVIDIA,
    "aliyun.accelerator/nvidia_count": NVIDIA,
    "karpenter.k8s.aws/instance-gpu-count": None,
}
"""Labels that count the GPUs built in, and the resource they are about (None: of any maker)."""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """As in ``KubeNode``. ``resource`` None: a node without GPUs."""

    resource: str | None = None
    gpus: int = 0
    installed: int = 0
    devices: tuple[Device, ...] = ()
    asked_by: tuple[str, ...] = ()
    shared: str | None = None
    sick: tuple[int, ...] = ()


def node_gpus(told: Told, resources: Sequence[str], remarks: Remarks) -> NodeGpus:
    """Everything about the GPUs of one node; ``resources``: names that mean whole GPUs."""
    where = told.node.where
    resource = _resource(told, resources, remarks)
    devices = _devices(told, resource, remarks)
    minors = _minors(told.health)
    labels = list(_labels(told.node, resource, resources, remarks))
    if resource is None:
        if devices is not None:
            # Where only claims give its GPUs out, pods that ask by a resource cannot go there.
            common = resource_of(devices.driver)
            by_name = common in told.extended.get(devices.driver, ())
            named = by_name or devices.driver in told.doubled
            resource = common if named else devices.driver
        elif labels:
            resource = NVIDIA if NVIDIA in resources else resources[0]
        else:
            return NodeGpus()
    capacity = _believed(told.capacity.get(resource), where, remarks) or 0
    gpus = _allocatable(told, resource, devices, remarks)
    if told.cards is not None and resource_of(resource) == NVIDIA:
        # What the node advertises are shares of these.
        capacity, gpus = told.cards.count, told.cards.count - len(told.cards.sick)
    shared = why_shared(told, resource, devices, remarks)
    seen = (len(devices.devices) if devices is not None else 0, len(minors), *labels)
    if shared is None:
        installed = max(capacity, gpus, *seen)
        if gpus < installed:
            cut = any(CUT_UP.fullmatch(name) and amount for name, amount in told.others.items())
            why = "are cut up, and none of their parts is given" if cut else "count as sick"
            remarks.add(where, f"offers fewer GPUs than it has; the others {why}")
    else:
        remarks.add(where, f"{WORDS[shared]}; none of them is given")
        installed = max(*seen, behind(told, capacity or gpus))
    return NodeGpus(
        resource=resource,
        gpus=gpus,
        installed=installed,
        devices=devices.devices if devices is not None else (),
        asked_by=tuple(dict.fromkeys(_asked_by(told, resource, devices))),
        shared=shared,
        sick=_sick(minors, devices, told),
    )


def _resource(told: Told, resources: Sequence[str], remarks: Remarks) -> str | None:
    """The resource its GPUs go by: of several, the one with the most; ties in the order given."""
    named = [name for name in resources if name in told.capacity or name in told.allocatable]
    if not named:
        return None
    most = {name: max(told.capacity.get(name, 0), told.allocatable.get(name, 0)) for name in named}
    counted = {name: amount for name, amount in most.items() if amount}
    twice = len(set(counted.values())) == 1 and counted.keys() <= {*_SAME}
    if len(counted) > 1 and not twice:
        remarks.add(
            told.node.where,
            "offers GPUs under several resource names; only the one with the most counts",
            "list the one that counts under kubernetes.gpuResources in the Policy",
        )
    return max(named, key=lambda name: most[name])


def _asked_by(told: Told, resource: str, devices: NodeDevices | None) -> Iterator[str]:
    """Names by which pods may ask for its GPUs: resources, and the driver of claims."""
    offered = told.allocatable.get(resource)
    if offered is not None:
        yield resource
        if resource in _SAME:
            yield from (one for one in _SAME if told.allocatable.get(one) == offered)
    yield from (
        prefix + "gpu"
        for prefix in KOORDINATOR
        if any(prefix + name in told.others for name in KOORDINATOR_PERCENTS)
    )
    if devices is not None:
        yield devices.driver
        yield from told.extended.get(devices.driver, ())


def _devices(told: Told, resource: str | None, remarks: Remarks) -> NodeDevices | None:
    """The devices that are this resource's GPUs, else the driver with the most of them."""
    if not told.slices:
        return None
    same = [one for one in told.slices if resource_of(one.driver) == resource]
    if same:
        return max(same, key=lambda one: len(one.devices))
    if resource not in (None, NVIDIA, AMD):  # an own name says nothing about the maker
        return max(told.slices, key=lambda one: len(one.devices))
    if resource is not None:
        return None
    if len(told.slices) > 1:
        remarks.add(
            told.node.where, "several drivers have GPUs on it; only the one with the most counts"
        )
    return max(told.slices, key=lambda one: len(one.devices))


def _believed(count: int | None, where: str, remarks: Remarks) -> int | None:
    if count is not None and count > MOST_GPUS:
        remarks.add(where, f"tells of more than {MOST_GPUS:,} GPUs; nobody believes that figure")
        return None
    return count


def _allocatable(told: Told, resource: str, devices: NodeDevices | None, remarks: Remarks) -> int:
    """GPUs that pods may ask for: by the resource where the node has it, else by its devices."""
    where = told.node.where
    if resource not in told.capacity and resource not in told.allocatable:
        if devices is None or devices.driver in told.doubled:
            return 0
        return len(devices.devices) - len(devices.sick)
    gpus = _believed(told.allocatable.get(resource), where, remarks) or 0
    capacity = told.capacity.get(resource)
    if capacity is not None and gpus > capacity:
        remarks.add(where, "offers more GPUs than its capacity; only the capacity counts")
        return capacity
    return gpus


def _labels(
    node: KubeObject, resource: str | None, resources: Sequence[str], remarks: Remarks
) -> Iterator[int]:
    """Credible counts of the GPUs built in, from labels that are about this resource."""
    parted = "-MIG-" in node.labels.get(PRODUCT, "")
    for key, about in _COUNTS.items():
        if key not in node.labels or (parted and key == _COUNT):
            continue  # with the strategy `single` the partitions are counted here
        if about is not None and resource in {AMD, "habana.ai/gaudi"}:
            continue
        if resource is None and about is not None and about not in resources:
            continue
        count = number(node.labels[key])
        if count is None or count > MOST_GPUS:
            remarks.add(node.where, f"its label {key} is no believable count; it is ignored")
        elif count:
            yield count


def _minors(health: KubeObject | None) -> dict[int, bool]:
    """Health by index of the GPUs a Koordinator Device lists."""
    found: dict[int, bool] = {}
    for device in objects(None if health is None else health.tree, "spec", "devices"):
        minor = whole(device, "minor")
        if text(device, "type") == "gpu" and minor is not None and 0 <= minor < MOST_GPUS:
            found[minor] = found.get(minor, True) and device.get("health") is not False
    return found


def _sick(minors: Mapping[int, bool], devices: NodeDevices | None, told: Told) -> tuple[int, ...]:
    unhealthy = {minor for minor, healthy in minors.items() if not healthy}
    unhealthy |= {*(told.cards.sick if told.cards is not None else ())}
    return tuple(sorted(unhealthy.union(devices.sick if devices is not None else ())))
