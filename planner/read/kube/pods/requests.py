"""What a pod requests: amounts as the scheduler computes them, and whole GPUs or fractions of GPUs.

Sums are exact and rounded up once. A fraction is never taken for a whole GPU, nor a whole GPU for one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from models.gpu_shares import Part
from models.units import MAX_AMOUNT, InvalidValueError, quantity
from planner.read.kube.devices.claims import Sort
from planner.read.kube.lookup import Tree, mapping, number, objects, text

_NANO = 10**9
_MAX_QUANTITY = 100

CONTAINERS = "containers"
"""Among the unreadable resources: the containers are malformed."""

Amounts = dict[str, int]
"""Resource name to amount, in billionths of the unit people write: sums stay exact."""


class PodRequests(NamedTuple):
    """Effective requests: cpu in millicores, others in whole units, rounded up; zeros left out.

    ``unreadable``: resources with a malformed amount, which counts as 0, or CONTAINERS.
    """

    amounts: dict[str, int]
    unreadable: tuple[str, ...]


def effective_requests(pod: Tree) -> PodRequests:
    """The largest of what the pod needs while starting and while running, overhead included."""
    return _Sums(mapping(pod, "spec"), mapping(pod, "status")).result()


def container_amounts(pod: Tree, which: str = CONTAINERS) -> list[dict[str, int]]:
    """What each container requests, in whole units: a limit stands for a missing request."""
    sums = _Sums({}, {})
    found = (sums.container(one, {}) for one in objects(pod, "spec", which))
    return [{name: _units(name, nano) for name, nano in one.items()} for one in found]


def what_requests(pod: Tree) -> tuple[object, ...]:
    """Everything of a pod that ``effective_requests`` looks at."""
    spec, status = mapping(pod, "spec"), mapping(pod, "status")
    return (*map(spec.get, _OF_SPEC), *map(status.get, _OF_STATUS))


_OF_SPEC = ("containers", "initContainers", "resources", "overhead")
_OF_STATUS = (
    "containerStatuses",
    "initContainerStatuses",
    "resources",
    "allocatedResources",
    "conditions",
    "resize",
)


class _Sums:
    """The requests of one pod. Resizes in place count unless they are ``infeasible``."""

    def __init__(self, spec: Tree, status: Tree) -> None:
        self.spec = spec
        self.status = status
        self.unreadable: dict[str, None] = {}
        self.infeasible = _resize_is_infeasible(status)

    def result(self) -> PodRequests:
        if not _are_containers(self.spec.get(CONTAINERS)):
            self.unreadable[CONTAINERS] = None
        total = self.containers()
        if "resources" in self.spec:
            self.apply_pod_level(total)
        if "overhead" in self.spec:
            _add(total, self.amounts(self.spec, "overhead"))
        units = {name: _units(name, nano) for name, nano in total.items() if nano > 0}
        return PodRequests(units, tuple(self.unreadable))

    def containers(self) -> Amounts:
        """Sum of containers and restartable init containers, or the peak of the init sequence."""
        resized = _resized(self.status, "containerStatuses")
        total: Amounts = {}
        for container in objects(self.spec, "containers"):
            _add(total, self.container(container, resized))
        starting = objects(self.spec, "initContainers")
        if not starting:
            return total
        resized = _resized(self.status, "initContainerStatuses")
        before: Amounts = {}
        peak: Amounts = {}
        for container in starting:
            stays = container.get("restartPolicy") == "Always"
            own = self.container(container, resized if stays else {})
            if stays:
                _add(total, own)
                _add(before, own)
            # What a container does not request has been raised by those before it.
            for name, nano in own.items():
                needed = before[name] if stays else before.get(name, 0) + nano
                peak[name] = max(peak.get(name, 0), needed)
        _raise(total, peak)
        return total

    def container(self, container: Tree, resized: Mapping[str, Tree]) -> Amounts:
        """What one container requests: a limit stands for a missing request."""
        requests = self.amounts(container, "resources", "requests")
        for name, value in mapping(container, "resources", "limits").items():
            if name not in requests:
                requests |= self.amounts({"limit": {name: value}}, "limit")
        name_ = text(container, "name") if resized else None
        status = resized.get(name_) if name_ is not None else None
        if status is None:
            return requests
        now = self.amounts(status, "resources", "requests")
        _raise(now, self.amounts(status, "allocatedResources"))
        if self.infeasible:
            return {**requests, **now}
        _raise(requests, now)
        return requests

    def apply_pod_level(self, total: Amounts) -> None:
        """Replace sums by pod-level requests, for the resources that may have them."""
        requests = self.amounts(self.spec, "resources", "requests")
        now = self.amounts(self.status, "resources", "requests")
        _raise(now, self.amounts(self.status, "allocatedResources"))
        for name, nano in requests.items():
            if _at_pod_level(name):
                actual = now.get(name, 0)
                total[name] = actual if self.infeasible and actual else max(nano, actual)
        for name, nano in self.amounts(self.spec, "resources", "limits").items():
            if _at_pod_level(name) and name not in requests:
                total.setdefault(name, nano)

    def amounts(self, tree: Tree, *path: str) -> Amounts:
        found: Amounts = {}
        for name, value in mapping(tree, *path).items():
            if not isinstance(name, str):
                continue
            nano = _nano(value) if isinstance(value, str) else _unquoted(value)
            if nano is None:
                self.unreadable[name] = None
            else:
                found[name] = nano
        return found


def _are_containers(value: object) -> bool:
    """Whether a pod has containers, and the requests of each are where they belong."""
    if not isinstance(value, list) or not value:
        return False
    for container in value:
        if not isinstance(container, dict):
            return False
        resources = container.get("resources") or {}
        if not isinstance(resources, dict):
            return False
        for kind in ("requests", "limits"):
            if not isinstance(resources.get(kind) or {}, dict):
                return False
    return True


def _at_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _resized(status: Tree, which: str) -> dict[str, Tree]:
    """Container name to its status, of those that state what they hold now."""
    found = {}
    for entry in objects(status, which):
        if "resources" in entry or "allocatedResources" in entry:
            name = text(entry, "name")
            if name:
                found[name] = entry
    return found


def _resize_is_infeasible(status: Tree) -> bool:
    """Whether a resize is pending that the node can never grant: it does not count."""
    if status.get("resize") == "Infeasible":  # before there were conditions
        return True
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in objects(status, "conditions")
    )


@lru_cache(maxsize=8192)
def _nano(written: str) -> int | None:
    """Billionths, rounded up as Kubernetes does; None for what is not a quantity."""
    if len(written) > _MAX_QUANTITY:
        return None
    try:
        return math.ceil(quantity(written) * _NANO)
    except InvalidValueError:
        return None


def _unquoted(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * _NANO if 0 <= value <= MAX_AMOUNT else None
    return _nano(str(value)) if isinstance(value, float | Decimal) else None


def _units(name: str, nano: int) -> int:
    size = _NANO // 1000 if name == "cpu" else _NANO
    return min(-(-nano // size), MAX_AMOUNT)


def _add(total: Amounts, more: Amounts) -> None:
    for name, nano in more.items():
        total[name] = total.get(name, 0) + nano


def _raise(peak: Amounts, other: Amounts) -> None:
    for name, nano in other.items():
        if nano > peak.get(name, 0):
            peak[name] = nano


MAX_POD_GPUS = 100_000
"""Most GPUs of one pod: the limit of the documents."""

A_FRACTION = "a fraction of a GPU"
TWO_NAMES = "GPUs under two resource names"
UNREADABLE = "an amount that cannot be read"
NO_CLAIM = "a resource claim that is not in the input"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-enable"
KAI_FRACTION, KAI_MEMORY = "gpu-fraction", "gpu-memory"
KAI_DEVICES = "gpu-fraction-num-devices"

_HAMI_MEMORY = "nvidia.com/gpumem"
_HAMI_PERCENTS = ("nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
_SHARES = {
    # resource that requests a share of a GPU -> the one that counts the GPUs it lies on
    "aliyun.com/gpu-mem": "aliyun.com/gpu-count",
    "aliyun.com/gpu-core.percentage": "aliyun.com/gpu-count",
    "volcano.sh/vgpu-memory": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory-percentage": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-cores": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-number": "volcano.sh/vgpu-number",
    "volcano.sh/gpu-memory": "volcano.sh/gpu-number",
}
PART = "nvidia.com/gpu.part"
"""In plans alone: parts, all alike on a node, that are offered and requested under the name of whole GPUs."""

PARTITIONS = re.compile(r"nvidia\.com/mig-.+|nvidia\.com/gpu\.(shared|part)|amd\.com/.+_nps[0-9]+")
"""Parts of GPUs with resource names of their own: their GPUs are not among those offered whole.

All parts of one name are alike, so they are planned like any other resource that pods request.
"""

_GPU_WORDS = ("gpu", "mig-", "_nps")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs that a pod requests by resource names and annotations, without DRA.

    ``gpus``: whole ones, by ``resource`` (None: several names). ``fraction``: requests a part of a
    GPU, of so many GPUs (``shares``). ``hived``: HiveD's
    annotations say how many. ``kai``: a fraction in KAI's annotations. ``part``: the fraction as a plan has
    it, None where it is not planned.
    """

    gpus: int = 0
    resource: str | None = None
    fraction: bool = False
    shares: int = 0
    hived: bool = False
    kai: bool = False
    part: Part | None = None
    problems: tuple[str, ...] = ()


def is_gpu_name(resource: str) -> bool:
    """Whether a resource is GPUs by its name: the documents keep those apart."""
    return resource.endswith("/gpu")


@lru_cache(maxsize=4096)
def is_about_gpus(resource: str) -> bool:
    """Whether a resource is GPUs, or shares or partitions of them, by its name."""
    return any(word in resource for word in _GPU_WORDS)


def gpu_request(
    amounts: Mapping[str, int],
    annotations: Mapping[str, str],
    gpu_resources: Collection[str],
    classes: Mapping[str, Sort],
) -> GpuRequest:
    """GPUs in these requests (whole units) and annotations.

    ``gpu_resources``: names of whole GPUs, in order; ``classes``: extended resources that stand for
    DRA device classes.
    """
    whole = [(name, amounts[name]) for name in gpu_resources if name in amounts]
    others = [name for name in amounts if name not in gpu_resources and is_about_gpus(name)]
    if others:
        special = _special(amounts, others, whole, classes)
        if special is not None:
            return special
    if whole:
        name, first = whole[0]
        problems = (TWO_NAMES,) if len(whole) > 1 else ()
        most = max(amount for _, amount in whole)
        resource = name if most == first else None
        return GpuRequest(min(most, MAX_POD_GPUS), resource, problems=problems)
    if HIVED in amounts:
        return GpuRequest(hived=True, problems=("GPUs requested from HiveD",))
    if not annotations.keys().isdisjoint((KAI_FRACTION, KAI_MEMORY, KAI_DEVICES)):
        return _fraction(number(annotations.get(KAI_DEVICES)) or 1, kai=True)
    return GpuRequest()


def _special(
    amounts: Mapping[str, int],
    others: list[str],
    whole: list[tuple[str, int]],
    classes: Mapping[str, Sort],
) -> GpuRequest | None:
    """What names other than plain GPU names mean; None if they are not about GPUs."""
    gpus = whole[0][1] if whole else 0
    if _HAMI_MEMORY in amounts or any(
        name in amounts and amounts[name] < 100 * max(1, gpus) for name in _HAMI_PERCENTS
    ):
        return _fraction(gpus or 1)
    for name, counter in _SHARES.items():
        if name in amounts:
            return _fraction(amounts.get(counter, 1))
    for name in others:  # device classes requested as extended resources
        if classes.get(name) is Sort.PART:
            return _fraction(amounts[name])
        if classes.get(name) is Sort.WHOLE and not whole:
            return GpuRequest(min(amounts[name], MAX_POD_GPUS), name)
    return None


def _fraction(shares: int, *, kai: bool = False) -> GpuRequest:
    return GpuRequest(fraction=True, shares=max(1, min(shares, MAX_POD_GPUS)), kai=kai)
