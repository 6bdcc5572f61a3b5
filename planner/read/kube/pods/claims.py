"""What pods ask and hold through DRA: resource claims, their templates and allocations.

Promises: an allocation is believed before what was asked; a claim that cannot be found is said.
Called by ``pods``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from planner.read.kube.devices.requests import (
    FABRIC_DRIVER,
    DeviceClasses,
    Sort,
    gpu_drivers,
    is_part_name,
    means_part,
)
from planner.read.kube.devices.slices import GROUP
from planner.read.kube.lookup import Tree, at, flag, mapping, objects, text, whole
from planner.read.kube.records import KubeNode, KubeObject, Objects

_OWNER_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
_MOST_DEVICES = 100_000
_ONLY_TYPE = re.compile(r"device\.attributes\['gpu\.[^']*'\]\.type=='gpu'")


@dataclass(frozen=True, slots=True)
class Held:
    """One GPU of an allocation. ``index``: None where no node's slices name the device.

    ``key``: tells it from every other device; ``node``: where the device is. ``shared``: other pods
    may hold it too, through the same claim or because it is a part of a GPU.
    """

    key: str
    node: str | None
    index: int | None
    shared: bool


@dataclass(slots=True)
class Claimed:
    """What the claims of one pod come to.

    ``gpus``: whole GPUs asked by claims without an allocation. ``held``: GPUs of allocations,
    each once (``keys``).
    ``driver``: whose GPUs they are, None where nobody knows.
    ``node``: where allocations tie the pod to. ``exclusive``: no other pod uses these claims.
    ``part``: asks for parts of GPUs. ``every``: asks for all GPUs of a node. ``missing``: claims
    that are not in the input. ``problems``: what cannot be planned, in words.
    """

    gpus: int = 0
    held: list[Held] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    driver: str | None = None
    node: str | None = None
    exclusive: bool = True
    fabric: bool = False
    part: bool = False
    every: bool = False
    missing: int = 0
    problems: list[str] = field(default_factory=list)

    def problem(self, words: str) -> None:
        if words not in self.problems:
            self.problems.append(words)


NOTHING = Claimed()
"""What pods without claims hold; never changed."""


class Claims:
    """Resource claims of one input."""

    def __init__(self, found: Objects, nodes: Sequence[KubeNode]) -> None:
        self._input = found
        self.classes = DeviceClasses(found, gpu_drivers(nodes))
        self._devices = {
            (device.driver, device.pool, device.name): (node.name, device.index)
            for node in nodes
            for device in node.devices
        }
        self._pools = {(driver, pool) for driver, pool, _ in self._devices}
        self._owned = _owned(found.of("ResourceClaim", GROUP))
        self._channels = {
            (domain.namespace, name)
            for domain in found.of("ComputeDomain", "resource.nvidia.com")
            if (name := text(domain.tree, "spec", "channel", "resourceClaimTemplate", "name"))
        }

    def of(self, pod: KubeObject) -> Claimed:
        """What the pod asks and holds through its claims."""
        spec, status = mapping(pod.tree, "spec"), mapping(pod.tree, "status")
        if "resourceClaims" not in spec and "extendedResourceClaimStatus" not in status:
            return NOTHING
        result = Claimed()
        for entry in objects(spec, "resourceClaims"):
            self._entry(pod, entry, result)
        extended = text(status, "extendedResourceClaimStatus", "resourceClaimName")
        if extended and (claim := self._named(pod.namespace, extended)):
            self._claim(pod, claim, result, asked=False)
        return result

    def _entry(self, pod: KubeObject, entry: Tree, result: Claimed) -> None:
        template = text(entry, "resourceClaimTemplateName")
        if template is not None and (pod.namespace, template) in self._channels:
            result.fabric = True
        claim = self._resolved(pod, entry)
        if claim is not None:
            self._claim(pod, claim, result, asked=True)
            return
        if template is not None:
            made = self._input.named(GROUP, "ResourceClaimTemplate", pod.namespace, template)
            if made is not None:
                self._asked(mapping(made.tree, "spec", "spec"), result)
                return
            if (pod.namespace, template) in self._channels:
                return
        result.missing += 1

    def _resolved(self, pod: KubeObject, entry: Tree) -> KubeObject | None:
        """The claim of an entry: named, stated in the status, or owned by the pod."""
        named = text(entry, "resourceClaimName")
        if named is not None:
            return self._named(pod.namespace, named)
        name = text(entry, "name")
        for stated in objects(pod.tree, "status", "resourceClaimStatuses"):
            if name is not None and stated.get("name") == name:
                made = text(stated, "resourceClaimName")
                return self._named(pod.namespace, made) if made else None
        return self._owned.get((pod.uid, name)) if pod.uid and name else None

    def _named(self, namespace: str, name: str) -> KubeObject | None:
        return self._input.named(GROUP, "ResourceClaim", namespace, name)

    def _claim(self, pod: KubeObject, claim: KubeObject, result: Claimed, *, asked: bool) -> None:
        """Count what is allocated; where nothing is, what is asked."""
        results = at(claim.tree, "status", "allocation", "devices", "results")
        if not isinstance(results, list):
            if asked:
                self._asked(mapping(claim.tree, "spec"), result)
            return
        users = objects(claim.tree, "status", "reservedFor")
        others = len(users) > 1 or not all(_is(user, pod) for user in users)
        gpus = False
        for entry in objects(claim.tree, "status", "allocation", "devices", "results"):
            gpus |= self._allocated(claim, entry, result, shared=others)
        if gpus:
            result.exclusive = result.exclusive and not others
            result.node = result.node or self._where(claim, result)

    def _allocated(self, claim: KubeObject, entry: Tree, result: Claimed, *, shared: bool) -> bool:
        """Count one device of an allocation; whether it is a GPU that is held."""
        driver = text(entry, "driver") or ""
        if driver == FABRIC_DRIVER:
            result.fabric = result.fabric or "daemon" not in (text(entry, "device") or "")
            return False
        if not self.classes.is_gpu_driver(driver) or flag(entry, "adminAccess"):
            return False
        pool, device = text(entry, "pool") or "", text(entry, "device") or ""
        part = is_part_name(device) or "shareID" in entry or "consumedCapacity" in entry
        if part:
            result.part = True
            device = device.partition("-mig")[0]
        node, index = self._devices.get((driver, pool, device), (None, None))
        if part and index is None and (driver, pool) in self._pools:
            return True  # its GPU is cut up for good: no slice offers it whole, nothing to hold
        known = f"{driver}/{pool}/{device}" if device else f"{claim.subject}#{len(result.held)}"
        held = Held(known, node, index, shared or part)
        if held.key not in result.keys:
            result.keys.add(held.key)
            result.held.append(held)
            result.driver = result.driver or driver
        return True

    def _where(self, claim: KubeObject, result: Claimed) -> str | None:
        """The node an allocation ties its pods to."""
        for held in result.held:
            if held.node is not None:
                return held.node
        terms = objects(claim.tree, "status", "allocation", "nodeSelector", "nodeSelectorTerms")
        for term in terms:
            for entry in objects(term, "matchFields"):
                values = entry.get("values")
                if entry.get("key") == "metadata.name" and isinstance(values, list):
                    return values[0] if len(values) == 1 and isinstance(values[0], str) else None
        return None

    def _asked(self, spec: Tree, result: Claimed) -> None:
        """Count what a claim asks for, none of it being allocated yet."""
        gpus = False
        for request in objects(spec, "devices", "requests"):
            exactly = mapping(request, "exactly") if "exactly" in request else request
            choices = objects(request, "firstAvailable")
            if choices:
                first, *others = [self._request(choice, result) for choice in choices]
                if any(other != first for other in others):
                    result.problem("a choice between devices (firstAvailable)")
            else:
                first = self._request(exactly, result)
            result.gpus = min(result.gpus + first, _MOST_DEVICES)
            gpus = gpus or first > 0
        if gpus and objects(spec, "devices", "constraints"):
            result.problem("conditions between the devices of a claim")

    def _request(self, request: Tree, result: Claimed) -> int:
        """Whole GPUs of one request without alternatives."""
        name = text(request, "deviceClassName") or ""
        sort = self.classes.sort(name)
        if sort is Sort.FABRIC:
            result.fabric = True
        elif flag(request, "adminAccess"):
            pass  # looks at devices, holds none
        elif sort is Sort.OTHER:
            result.problem(f"devices of class {name}" if name else "devices of no class")
        else:
            chosen = list(_expressions(request))
            if sort is Sort.PART or "capacity" in request or any(map(means_part, chosen)):
                result.part = True
            else:
                if not all(only_type(expression) for expression in chosen):
                    result.problem("selectors on the devices of a claim")
                result.driver = result.driver or self.classes.driver(name)
                return _count(request, result)
        return 0


def _is(user: Tree, pod: KubeObject) -> bool:
    """Whether an entry of ``reservedFor`` is this pod: by uid where both have one, else by name."""
    uid = text(user, "uid")
    if uid is not None and pod.uid is not None:
        return uid == pod.uid
    return user.get("resource") == "pods" and user.get("name") == pod.name


def _count(request: Tree, result: Claimed) -> int:
    """How many devices a request asks for."""
    if request.get("allocationMode") == "All":
        result.every = True
        return 0
    if request.get("count") is None:
        return 1
    count = whole(request, "count")
    if count is None or not 0 < count <= _MOST_DEVICES:
        result.problem("a number of devices that cannot be read")
        return 1
    return count


def _expressions(request: Tree) -> Iterator[str]:
    for selector in objects(request, "selectors"):
        yield text(selector, "cel", "expression") or ""


def only_type(expression: str) -> bool:
    """Whether a selector says no more than that the device is a GPU."""
    compact = "".join(expression.split()).replace('"', "'")
    return _ONLY_TYPE.fullmatch(compact) is not None


def _owned(claims: Iterable[KubeObject]) -> dict[tuple[str, str], KubeObject]:
    """Claims made for pods, by the pod's uid and the name the pod calls them."""
    found: dict[tuple[str, str], KubeObject] = {}
    for claim in claims:
        name = claim.annotations.get(_OWNER_POD_CLAIM)
        if name is not None and claim.owner is not None and claim.owner.uid:
            found.setdefault((claim.owner.uid, name), claim)
    return found
