"""What a node tells of its GPUs before anything is made of it, and the names this is told under.

Promises: data only. Built by ``nodes``; read by ``node_gpus`` and ``sharing``.

Whether the GPUs of a node are given whole, and how many are behind the shares it advertises.

Promises: what cannot be understood counts as shared, so that nothing of it is given. Called by
``node_gpus``.

What a node says about its GPUs: which resource they are, how many are built in, whether shared.

Promises: figures nobody can believe are passed over with a remark, never used. Called by ``nodes``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.read.findings import Remarks
from planner.read.kube.devices.requests import CUT_UP, KOORDINATOR, KOORDINATOR_PERCENTS
from planner.read.kube.devices.slices import NodeDevices, resource_of
from planner.read.kube.lookup import number, objects, text, whole
from planner.read.kube.records import Device, KubeObject

if TYPE_CHECKING:
    from planner.read.kube.dialects.hami import Cards

MOST_GPUS = 1024
"""Most GPUs of one server; more is a mistake, or shares counted as GPUs."""

NVIDIA, AMD, ACK = "nvidia.com/gpu", "amd.com/gpu", "aliyun.com/gpu"

PRODUCT = "nvidia.com/gpu.product"
ACK_MODE = "ack.node.gpu.schedule"


@dataclass(frozen=True, slots=True)
class Told:
    """What is known about one node. ``capacity``, ``allocatable``: of the GPU resources it names.

    ``others``: allocatable of everything else. ``health``: its Koordinator Device, if any.
    ``extended``: resource names by which a driver's GPUs may be asked without a claim. ``doubled``:
    drivers beside which some node offers the same GPUs by a resource: the resource counts then.
    ``cards``: those that HAMi registered, where it is told which of them to give.
    """

    node: KubeObject
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    others: Mapping[str, int]
    slices: Sequence[NodeDevices]
    health: KubeObject | None
    extended: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubled: Collection[str] = ()
    cards: Cards | None = None


_HAMI = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")
_ACK_SHARES = ("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage")
_ACK_COUNT = "aliyun.com/gpu-count"
_GKE_PART = "cloud.google.com/gke-gpu-partition-size"
_GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
_AMD_PART = "amd.com/gpu.compute-memory-partition"

_SLICE = re.compile(r"(?:^|[^0-9])([1-7])g\.[0-9]+gb")

WORDS = {
    "MIG": "its GPUs are partitioned (MIG)",
    "time-sliced": "its GPUs are time-sliced",
    "fractional": "its GPUs are given in fractions",
}


def why_shared(
    told: Told, resource: str, devices: NodeDevices | None, remarks: Remarks
) -> str | None:
    """Why its GPUs are not given whole; None if they are."""
    labels = told.node.labels
    if resource_of(resource) == AMD:
        parted = not labels.get(_AMD_PART, "spx").lower().startswith("spx")
    else:
        parted = _migged(labels)
    if parted:
        return "MIG"
    if devices is not None and devices.shared:
        return "fractional"
    if _time_sliced(labels):
        return "time-sliced"
    if told.cards is None and any(key in told.node.annotations for key in _HAMI):
        return "fractional"
    return _ack(told, remarks)


def _time_sliced(labels: Mapping[str, str]) -> bool:
    sharing = labels.get("nvidia.com/gpu.sharing-strategy") or "none"
    on_gke = labels.get(_GKE_SHARING) or "none"
    replicas = number(labels.get("nvidia.com/gpu.replicas")) or 1
    shared = labels.get(PRODUCT, "").endswith("-SHARED")
    return shared or replicas > 1 or sharing != "none" or on_gke.lower() != "none"


def _migged(labels: Mapping[str, str]) -> bool:
    """Whether the GPUs it names are partitions. `mixed` names partitions by names of their own."""
    product = labels.get(PRODUCT)
    if product is not None and "-MIG-" in product:
        return True
    if labels.get(_GKE_PART):
        return True
    config = labels.get("nvidia.com/mig.config", "all-disabled")
    strategy = labels.get("nvidia.com/mig.strategy")
    if config == "all-disabled" or strategy == "mixed":
        return False
    # The product tells once the change is through, but with the strategy `none` it never does.
    done = product is not None and labels.get("nvidia.com/mig.config.state") == "success"
    return not (done and strategy != "none") and _SLICE.search(config) is not None


def _ack(told: Told, remarks: Remarks) -> str | None:
    """Sharing as ACK labels it, or as its share resources show it."""
    mode = told.node.labels.get(ACK_MODE, "default")
    if mode in {"share", "cgpu"} or any(told.others.get(name) for name in _ACK_SHARES):
        return "fractional"
    if mode == "mps":
        return "time-sliced"
    if mode not in {"default", "topology", ""}:
        remarks.add(told.node.where, f"its label {ACK_MODE} has an unknown value")
        return "fractional"
    return None


def behind(told: Told, advertised: int) -> int:
    """Physical GPUs behind the shares a node advertises, where no label counts them: at least."""
    labels, annotations = told.node.labels, told.node.annotations
    registered = max(_registered(annotations.get(key)) for key in _HAMI)
    counted = max(registered, min(MOST_GPUS, told.others.get(_ACK_COUNT, 0)))
    if counted or not advertised:
        return counted
    part = _SLICE.search(
        f"{labels.get(PRODUCT, '')} {labels.get(_GKE_PART, '')}"
        f" {labels.get('nvidia.com/mig.config', '')}"
    )
    parts = 1 if part is None else 7 // int(part.group(1))
    for key in ("nvidia.com/gpu.replicas", _GKE_CLIENTS):
        parts *= max(1, number(labels.get(key)) or 1)
    return -(-advertised // parts)


def _registered(written: str | None) -> int:
    """GPUs in HAMi's list: JSON, or entries that end with a colon."""
    if written is None:
        return 0
    if written.lstrip().startswith("["):
        try:
            found = json.loads(written)
        except (ValueError, RecursionError):
            return 0
        return min(MOST_GPUS, sum(isinstance(one, dict) for one in found))
    return min(MOST_GPUS, sum("," in entry for entry in written.split(":")))


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
