"""What a pod takes of its node, as Kubernetes computes it.

Promises: exact sums (rounded once, upwards); init containers, restartable ones, overhead, pod-level
resources and in-place resizes count as the scheduler counts them. Called by ``pods``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from models.units import MAX_AMOUNT, InvalidValueError, quantity
from planner.read.kube.lookup import Tree, mapping, objects, text

_NANO = 10**9
_POD_LEVEL = ("cpu", "memory")
_LONGEST = 100

CONTAINERS = "containers"
"""Stands among the unreadable resources for all of them."""

Amounts = dict[str, int]
"""Resource name to amount, in billionths of the unit people write: sums stay exact."""


@dataclass(slots=True)
class Asked:
    """Effective requests: cpu in millicores, others in whole units, rounded up; zeros left out.

    ``unreadable``: resources with an amount that is no quantity, or CONTAINERS where these are no
    containers at all; what could be read is counted.
    """

    amounts: dict[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


def effective_requests(pod: Tree) -> Asked:
    """The largest of what the pod needs while starting and while running, overhead included."""
    spec, status = mapping(pod, "spec"), mapping(pod, "status")
    unreadable: dict[str, None] = {}
    if not _are_containers(spec.get(CONTAINERS)):
        unreadable[CONTAINERS] = None
    infeasible = _infeasible(status)
    total = _containers(spec, status, unreadable, infeasible=infeasible)
    if "resources" in spec:
        _pod_level(total, spec, status, unreadable, infeasible=infeasible)
    if "overhead" in spec:
        _add(total, _amounts(mapping(spec, "overhead"), unreadable))
    units = {name: _units(name, nano) for name, nano in total.items() if nano > 0}
    return Asked(units, tuple(unreadable))


def _are_containers(value: object) -> bool:
    """Whether a pod has containers, and what each asks is written where it belongs."""
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


def _containers(
    spec: Tree, status: Tree, unreadable: dict[str, None], *, infeasible: bool
) -> Amounts:
    """Sum of containers and restartable init containers, or the peak of the init sequence."""
    resized = _resized(status, "containerStatuses")
    total: Amounts = {}
    for container in objects(spec, "containers"):
        _add(total, _container(container, resized, unreadable, infeasible=infeasible))
    starting = objects(spec, "initContainers")
    if not starting:
        return total
    resized = _resized(status, "initContainerStatuses")
    before: Amounts = {}
    peak: Amounts = {}
    for container in starting:
        if container.get("restartPolicy") == "Always":
            own = _container(container, resized, unreadable, infeasible=infeasible)
            _add(total, own)
            _add(before, own)
            _raise(peak, before)
        else:
            own = _container(container, {}, unreadable, infeasible=False)
            _add(own, before)
            _raise(peak, own)
    _raise(total, peak)
    return total


def _pod_level(
    total: Amounts, spec: Tree, status: Tree, unreadable: dict[str, None], *, infeasible: bool
) -> None:
    """Replace sums by what the pod as a whole asks, for the resources that may be asked so."""
    requests = _amounts(mapping(spec, "resources", "requests"), unreadable)
    actual = _amounts(mapping(status, "resources", "requests"), unreadable)
    granted = _amounts(mapping(status, "allocatedResources"), unreadable)
    for name, nano in requests.items():
        if _at_pod_level(name):
            now = max(actual.get(name, 0), granted.get(name, 0))
            total[name] = now if infeasible and now else max(nano, now)
    for name, nano in _amounts(mapping(spec, "resources", "limits"), unreadable).items():
        if _at_pod_level(name) and name not in requests:
            total.setdefault(name, nano)


def _at_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _container(
    container: Tree, resized: Mapping[str, Tree], unreadable: dict[str, None], *, infeasible: bool
) -> Amounts:
    """What one container asks: a limit stands for a missing request; resizes in place count."""
    resources = mapping(container, "resources")
    asked = _amounts(mapping(resources, "requests"), unreadable)
    if limits := mapping(resources, "limits"):
        missing = {name: value for name, value in limits.items() if name not in asked}
        if missing:
            asked |= _amounts(missing, unreadable)
    known = resized.get(name) if resized and (name := text(container, "name")) else None
    if known is None:
        return asked
    now = _amounts(mapping(known, "resources", "requests"), unreadable)
    _raise(now, _amounts(mapping(known, "allocatedResources"), unreadable))
    if infeasible:
        return {**asked, **now}
    _raise(asked, now)
    return asked


def _resized(status: Tree, which: str) -> dict[str, Tree]:
    """Container name to its status, of those that state what they hold now."""
    found = {}
    for entry in objects(status, which):
        if ("resources" in entry or "allocatedResources" in entry) and (
            name := text(entry, "name")
        ):
            found[name] = entry
    return found


def _infeasible(status: Tree) -> bool:
    """Whether a resize was asked that the node can never grant: then it is not counted."""
    if status.get("resize") == "Infeasible":  # how it was said before conditions were
        return True
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in objects(status, "conditions")
    )


def _amounts(tree: Tree, unreadable: dict[str, None]) -> Amounts:
    found: Amounts = {}
    for name, value in tree.items():
        if not isinstance(name, str):
            continue
        nano = _nano(value) if isinstance(value, str) else _number(value)
        if nano is None:
            unreadable[name] = None
        else:
            found[name] = nano
    return found


@lru_cache(maxsize=8192)
def _nano(written: str) -> int | None:
    """Billionths, rounded up as Kubernetes does; None where it is no quantity."""
    if len(written) > _LONGEST:
        return None
    try:
        return math.ceil(quantity(written) * _NANO)
    except InvalidValueError:
        return None


def _number(value: object) -> int | None:
    """The same for a number that was written without quotes."""
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
