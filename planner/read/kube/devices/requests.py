"""What a DRA device class stands for: whole GPUs, parts of one, the fabric between nodes, or else.

Promises: decided from the class's selectors where it is in the input, else from its name; never
evaluates CEL, only looks for drivers and types in it. Called by ``nodes`` and ``pods``.

How many GPUs a pod asks for, whole or in part, in any of the dialects that name resources.

Promises: a fraction is never taken for a whole GPU nor the other way round; one table says which
resource means what. Called by ``nodes`` and ``pods``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from planner.read.kube.devices.slices import GROUP, is_gpu_driver
from planner.read.kube.lookup import mapping, number, objects, text
from planner.read.kube.records import KubeNode, KubeObject, Objects

FABRIC_DRIVER = "compute-domain.nvidia.com"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every device class may be asked by."""

_FABRIC_CLASS = re.compile(r"compute-domain[a-z0-9.-]*\.nvidia\.com")
_QUOTED_DOMAIN = re.compile(r"""["']([a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8})["']""")
_PART_TYPE = re.compile(r"""["']mig["']|\bprofile\b""", re.IGNORECASE)
_LONGEST = 10_000


class Sort(Enum):
    """What devices of a class are."""

    WHOLE = "whole GPUs"
    PART = "parts of GPUs"
    FABRIC = "channels of a fabric between nodes"
    OTHER = "something else"


def gpu_drivers(nodes: Iterable[KubeNode]) -> frozenset[str]:
    """Drivers whose devices were found to be GPUs of nodes."""
    return frozenset(device.driver for node in nodes for device in node.devices)


def means_part(expression: str) -> bool:
    """Whether a CEL expression asks for a part of a GPU."""
    return len(expression) <= _LONGEST and _PART_TYPE.search(expression) is not None


@lru_cache(maxsize=1024)
def is_part_name(device: str) -> bool:
    """Whether a device's name is that of a MIG slice."""
    return "mig" in re.split(r"[^a-z]+", device.lower())


@dataclass(slots=True)
class DeviceClasses:
    """Device classes of one input. ``drivers``: those known to be of GPUs."""

    input: Objects
    drivers: frozenset[str]
    _sorts: dict[str, Sort] = field(default_factory=dict)
    _driver: dict[str, str] = field(default_factory=dict)
    extended_resources: dict[str, Sort] = field(default_factory=dict)
    """Extended resources by which device classes may be asked, with what they mean."""

    def __post_init__(self) -> None:
        for one in self.input.of("DeviceClass", GROUP):
            sort = self.sort(one.name)
            self.extended_resources[IMPLICIT + one.name] = sort
            if named := text(one.tree, "spec", "extendedResourceName"):
                self.extended_resources[named] = sort

    def sort(self, name: str) -> Sort:
        """What devices of the class are."""
        if name not in self._sorts:
            found = self.input.named(GROUP, "DeviceClass", "", name)
            drivers: list[str] = []
            if found is not None:
                sort = self._by_selectors(name, found, drivers)
            else:
                sort = _by_name(name)
                drivers.append(name.removeprefix("vfio."))
            self._sorts[name] = sort
            if sort is Sort.WHOLE and drivers:
                self._driver[name] = drivers[0]
        return self._sorts[name]

    def is_gpu_driver(self, driver: str) -> bool:
        return driver in self.drivers or is_gpu_driver(driver)

    def driver(self, name: str) -> str | None:
        """The driver whose GPUs the class gives out; None where it gives none, or nobody knows."""
        self.sort(name)
        return self._driver.get(name)

    def names_by_driver(self) -> dict[str, tuple[str, ...]]:
        """Extended resources by which whole GPUs may be asked without a claim, by their driver."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.input.of("DeviceClass", GROUP):
            driver = self.driver(one.name)
            if driver is not None:
                named = text(one.tree, "spec", "extendedResourceName")
                names = (IMPLICIT + one.name, *([named] if named else []))
                found[driver] = (*found.get(driver, ()), *names)
        return found

    def _by_selectors(self, name: str, found: KubeObject, drivers: list[str]) -> Sort:
        """What the class's selectors say; the GPU drivers they name are added to ``drivers``."""
        expressions = []
        for selector in objects(mapping(found.tree, "spec"), "selectors"):
            expression = text(selector, "cel", "expression")
            if expression is not None and len(expression) <= _LONGEST:
                expressions.append(expression)
        domains = {domain for one in expressions for domain in _QUOTED_DOMAIN.findall(one)}
        if FABRIC_DRIVER in domains:
            daemon = "daemon" in name or any("daemon" in one for one in expressions)
            return Sort.OTHER if daemon else Sort.FABRIC
        drivers.extend(domain for domain in sorted(domains) if self.is_gpu_driver(domain))
        if drivers:
            part = is_part_name(name) or any(means_part(one) for one in expressions)
            return Sort.PART if part else Sort.WHOLE
        if domains:
            return Sort.OTHER
        drivers.append(name.removeprefix("vfio."))
        return _by_name(name)


def _by_name(name: str) -> Sort:
    if _FABRIC_CLASS.fullmatch(name):
        return Sort.OTHER if "daemon" in name else Sort.FABRIC
    if is_part_name(name):
        return Sort.PART
    return Sort.WHOLE if is_gpu_driver(name.removeprefix("vfio.")) else Sort.OTHER


MOST = 100_000
"""Most GPUs of one pod: what the documents take."""

A_FRACTION = "a fraction of a GPU"
TWO_NAMES = "GPUs under two resource names"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-enable"
KAI_SCHEDULERS = ("kai-scheduler", "runai-scheduler")
KAI_FRACTION, KAI_MEMORY = "gpu-fraction", "gpu-memory"
KAI_DEVICES = "gpu-fraction-num-devices"

_HAMI_MEMORY = "nvidia.com/gpumem"
_HAMI_PERCENTS = ("nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
_SHARES = {
    # resource that asks for a share of a GPU -> the one that counts the GPUs it lies on
    "aliyun.com/gpu-mem": "aliyun.com/gpu-count",
    "aliyun.com/gpu-core.percentage": "aliyun.com/gpu-count",
    "volcano.sh/vgpu-memory": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory-percentage": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-cores": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-number": "volcano.sh/vgpu-number",
    "volcano.sh/gpu-memory": "volcano.sh/gpu-number",
}
KOORDINATOR = ("koordinator.sh/", "kubernetes.io/")
KOORDINATOR_PERCENTS = ("gpu", "gpu-core", "gpu-memory-ratio")
"""Koordinator's resources, now and of old: percents of GPUs, by cores and by memory."""

CUT_UP = re.compile(r"nvidia\.com/mig-.+|nvidia\.com/gpu\.shared|amd\.com/.+_nps[0-9]+")
"""Parts with resource names of their own: their GPUs are not among those offered whole."""

_TELLTALE = ("gpu", "mig-", "_nps")


@dataclass(frozen=True, slots=True)
class Asking:
    """GPUs a pod asks for by resource names and annotations, without DRA.

    ``gpus``: whole ones, under ``resource`` (None: several names). ``part``: asks for a
    part of a GPU; ``shares``: of so many GPUs, 0 if those are offered to nobody as whole ones.
    ``hived``: asks through HiveD, whose annotations alone say how many. ``kai``: shares as KAI
    writes them, in annotations.
    """

    gpus: int = 0
    resource: str | None = None
    part: bool = False
    shares: int = 0
    hived: bool = False
    kai: bool = False
    problems: tuple[str, ...] = ()


NONE = Asking()


def is_gpu_name(resource: str) -> bool:
    """Whether a resource is GPUs by its name: the documents keep those apart from the others."""
    return resource.endswith("/gpu")


def read_asking(
    amounts: Mapping[str, int],
    annotations: Mapping[str, str],
    gpu_resources: Collection[str],
    classes: Mapping[str, Sort],
) -> Asking:
    """GPUs asked by these requests (whole units) and annotations.

    ``gpu_resources``: names that mean whole GPUs, in order; ``classes``: extended resources that
    stand for DRA device classes.
    """
    whole = [(name, amounts[name]) for name in gpu_resources if name in amounts]
    others = [
        name
        for name in amounts
        if name not in gpu_resources and any(telltale in name for telltale in _TELLTALE)
    ]
    if others:
        special = _special(amounts, others, whole, classes)
        if special is not None:
            return special
    if whole:
        name, count = whole[0]
        problems = (TWO_NAMES,) if len(whole) > 1 else ()
        most = max(amount for _, amount in whole)
        return Asking(min(most, MOST), name if most == count else None, problems=problems)
    if HIVED in amounts:
        return Asking(hived=True, problems=("GPUs asked of HiveD",))
    if KAI_FRACTION in annotations or KAI_MEMORY in annotations:
        shares = _bounded(number(annotations.get(KAI_DEVICES)) or 1)
        return Asking(part=True, shares=shares, kai=True)
    return NONE


def _special(
    amounts: Mapping[str, int],
    others: list[str],
    whole: list[tuple[str, int]],
    classes: Mapping[str, Sort],
) -> Asking | None:
    """What the names that are no plain GPU names say; None if they say nothing of GPUs."""
    asked = whole[0][1] if whole else 0
    if _HAMI_MEMORY in amounts or any(
        name in amounts and amounts[name] < 100 * max(1, asked) for name in _HAMI_PERCENTS
    ):
        return Asking(part=True, shares=_bounded(asked or 1))
    for name, counter in _SHARES.items():
        if name in amounts:
            return Asking(part=True, shares=_bounded(amounts.get(counter, 1)))
    if not whole:
        for prefix in KOORDINATOR:
            if (found := _koordinator(amounts, prefix)) is not None:
                return found
    return _of_classes(amounts, others, classes, whole=bool(whole))


def _of_classes(
    amounts: Mapping[str, int], others: list[str], classes: Mapping[str, Sort], *, whole: bool
) -> Asking | None:
    """Device classes asked as extended resources, and parts with names of their own."""
    for name in others:
        if classes.get(name) is Sort.PART:
            return Asking(part=True, shares=_bounded(amounts[name]))
        if classes.get(name) is Sort.WHOLE and not whole:
            return Asking(min(amounts[name], MOST), name)
    if not whole and any(CUT_UP.fullmatch(name) for name in others):
        return Asking(part=True, shares=0)
    return None


def _koordinator(amounts: Mapping[str, int], prefix: str) -> Asking | None:
    """Percents of cores and of memory: equal hundreds are whole GPUs."""
    percents = [amounts[prefix + name] for name in KOORDINATOR_PERCENTS if prefix + name in amounts]
    bytes_ = prefix + "gpu-memory" in amounts
    if not percents and not bytes_:
        return None
    spread = amounts.get(prefix + "gpu-shared") or amounts.get(prefix + "gpu.shared") or 0
    most = max(percents, default=0)
    count = most // 100
    alike = count > 0 and all(percent == 100 * count for percent in percents)
    if alike and spread in (0, count):
        return Asking(min(count, MOST), prefix + "gpu")
    return Asking(part=True, shares=_bounded(spread or -(-most // 100) or 1))


def _bounded(shares: int) -> int:
    return max(1, min(shares, MOST))
