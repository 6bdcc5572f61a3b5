"""What a pod requests: amounts as the scheduler computes them. Sums are exact and rounded up once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from models.gpu_shares import SHARE
from models.units import MAX_AMOUNT
from planner.read.kube.lookup import Tree, amount, is_label_key, mapping, objects, text

_NANO = 10**9

CONTAINERS = "containers"
"""Among the unreadable resources: the containers are malformed."""

Amounts = dict[str, int]
"""Resource name to amount, in billionths of the unit people write: sums stay exact."""


OF_SPEC = (CONTAINERS, "initContainers", "resources", "overhead")
OF_STATUS = (
    "containerStatuses",
    "initContainerStatuses",
    "resources",
    "allocatedResources",
    "conditions",
    "resize",
)
"""All fields of a spec and a status that ``effective_requests`` reads."""


def effective_requests(pod: Tree) -> tuple[dict[str, int], tuple[str, ...]]:
    """The largest of what the pod needs while starting and while running, overhead included.

    Cpu in millicores, others in whole units, rounded up; zeros left out. And resources with a malformed
    amount, which counts as 0, or CONTAINERS.
    """
    spec, status = mapping(pod, "spec"), mapping(pod, "status")
    sums = _Sums(_resize_is_infeasible(status))
    if not _are_containers(spec.get(CONTAINERS)):
        sums.unreadable[CONTAINERS] = None
    total = Counter[str]()
    resized = _resized(status, "containerStatuses")
    for container in objects(spec, CONTAINERS):
        total.update(sums.container(container, resized))
    resized = _resized(status, "initContainerStatuses")
    stays, peak = Counter[str](), Counter[str]()
    for container in objects(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            stays.update(sums.container(container, resized))
        else:
            peak |= stays + Counter(sums.container(container, {}))
    total.update(stays)
    total |= peak
    if "resources" in spec:
        sums.apply_pod_level(total, spec, status)
    total.update(sums.amounts(mapping(spec, "overhead")))
    units = {name: _units(name, nano) for name, nano in total.items() if nano > 0}
    return units, tuple(sums.unreadable)


def container_amounts(pod: Tree, which: str = CONTAINERS) -> list[dict[str, int]]:
    """What each container requests, in whole units: a limit stands for a missing request."""
    found = (_Sums().container(one, {}) for one in objects(pod, "spec", which))
    return [{name: _units(name, nano) for name, nano in one.items()} for one in found]


class _Sums:
    """Reads the amounts of one pod. Resizes in place count unless they are ``infeasible``."""

    def __init__(self, infeasible: bool = False) -> None:  # noqa: FBT001, FBT002
        self.unreadable: dict[str, None] = {}
        self.infeasible = infeasible

    def container(self, container: Tree, resized: Mapping[str, Tree]) -> Amounts:
        """What one container requests: a limit stands for a missing request."""
        requests = self.amounts(mapping(container, "resources", "requests"))
        limits = mapping(container, "resources", "limits")
        requests |= self.amounts({n: limits[n] for n in limits if n not in requests})
        status = resized.get(text(container, "name") or "")
        if status is None:
            return requests
        now = self._held(status)
        return {**requests, **now} if self.infeasible else _larger(requests, now)

    def apply_pod_level(self, total: Amounts, spec: Tree, status: Tree) -> None:
        """Replace sums by pod-level requests, for the resources that may have them."""
        requests, now = self.amounts(mapping(spec, "resources", "requests")), self._held(status)
        for name, nano in requests.items():
            if _at_pod_level(name):
                actual = now.get(name, 0)
                total[name] = actual if self.infeasible and actual else max(nano, actual)
        for name, nano in self.amounts(mapping(spec, "resources", "limits")).items():
            if _at_pod_level(name) and name not in requests:
                total.setdefault(name, nano)

    def _held(self, status: Tree) -> Amounts:
        requests = self.amounts(mapping(status, "resources", "requests"))
        return _larger(requests, self.amounts(mapping(status, "allocatedResources")))

    def amounts(self, written: Tree) -> Amounts:
        found: Amounts = {}
        for name, value in written.items():
            if not isinstance(name, str):
                continue
            if (stated := amount(value)) is None:
                self.unreadable[name] = None
            else:
                found[name] = math.ceil(stated * _NANO)  # as Kubernetes rounds
        return found


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _are_containers(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(container, dict)
            and isinstance(own := container.get("resources") or {}, dict)
            and isinstance(own.get("requests") or {}, dict)
            and isinstance(own.get("limits") or {}, dict)
            for container in value
        )
    )


def _at_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _resized(status: Tree, which: str) -> dict[str, Tree]:
    """Container name to its status, of those that state what they hold now."""
    return {
        name: entry
        for entry in objects(status, which)
        if ("resources" in entry or "allocatedResources" in entry) and (name := text(entry, "name"))
    }


def _resize_is_infeasible(status: Tree) -> bool:
    """Whether a resize is pending that the node can never grant: it does not count."""
    if status.get("resize") == "Infeasible":  # before there were conditions
        return True
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in objects(status, "conditions")
    )


def _units(name: str, nano: int) -> int:
    size = _NANO // 1000 if name == "cpu" else _NANO
    return min(-(-nano // size), MAX_AMOUNT)


_GPU_WORDS = ("gpu", "mig-", "_nps")


def is_resource(name: str) -> bool:
    """Whether a plan can have a resource of this name that is none of ours."""
    return is_label_key(name) and not name.startswith(SHARE)


def is_gpu_name(resource: str) -> bool:
    """Whether a resource is GPUs by its name: the documents keep those apart."""
    return resource.endswith("/gpu")


@lru_cache(maxsize=4096)
def is_about_gpus(resource: str) -> bool:
    """Whether a resource is GPUs, or shares or partitions of them, by its name."""
    return any(word in resource for word in _GPU_WORDS)
