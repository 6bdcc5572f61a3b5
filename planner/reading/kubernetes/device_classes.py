"""What a DRA device class stands for: whole GPUs, parts of one, the fabric between nodes, or else.

Promises: decided from the class's selectors where it is in the input, else from its name; never
evaluates CEL, only looks for drivers and types in it. Called by ``claims``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from planner.reading.kubernetes.forms import KubeNode, KubeObject, Objects
from planner.reading.kubernetes.looking import mapping, objects, text

GROUP = "resource.k8s.io"
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
            sort = _by_name(name) if found is None else self._by_selectors(name, found)
            self._sorts[name] = sort
        return self._sorts[name]

    def is_gpu_driver(self, driver: str) -> bool:
        return driver in self.drivers or driver.startswith("gpu.")

    def _by_selectors(self, name: str, found: KubeObject) -> Sort:
        expressions = []
        for selector in objects(mapping(found.tree, "spec"), "selectors"):
            expression = text(selector, "cel", "expression")
            if expression is not None and len(expression) <= _LONGEST:
                expressions.append(expression)
        domains = {domain for one in expressions for domain in _QUOTED_DOMAIN.findall(one)}
        if FABRIC_DRIVER in domains:
            daemon = "daemon" in name or any("daemon" in one for one in expressions)
            return Sort.OTHER if daemon else Sort.FABRIC
        if any(self.is_gpu_driver(domain) for domain in domains):
            part = is_part_name(name) or any(means_part(one) for one in expressions)
            return Sort.PART if part else Sort.WHOLE
        return Sort.OTHER if domains else _by_name(name)


def _by_name(name: str) -> Sort:
    if _FABRIC_CLASS.fullmatch(name):
        return Sort.OTHER if "daemon" in name else Sort.FABRIC
    if is_part_name(name):
        return Sort.PART
    return Sort.WHOLE if name.startswith(("gpu.", "vfio.gpu.")) else Sort.OTHER
