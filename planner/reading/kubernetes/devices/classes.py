"""What a DRA device class stands for: whole GPUs, parts of one, the fabric between nodes, or else.

Promises: decided from the class's selectors where it is in the input, else from its name; never
evaluates CEL, only looks for drivers and types in it. Called by ``nodes`` and ``pods``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from planner.reading.kubernetes.devices.slices import GROUP, is_gpu_driver
from planner.reading.kubernetes.forms import KubeNode, KubeObject, Objects
from planner.reading.kubernetes.looking import mapping, objects, text

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
