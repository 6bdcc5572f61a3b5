"""GPUs that a claim wants and the back end ``dra`` can give: the same rules for planning and for applying."""

from __future__ import annotations

from msgspec import Struct

from planner.read.kube.devices.claims import Claims, DeviceClasses, Sort, means_part, only_type
from planner.read.kube.devices.slices import MIG_DRIVER
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import Tree, flag, mapping, objects, text, whole
from planner.read.kube.records import KubeObject

SHARED = "a resource claim for GPUs that several pods share, which gpuBackend dra cannot allocate"


class Want(Struct, frozen=True):
    """GPUs of one request of a claim. ``driver``: None if unknown. ``profile``: of MIG instances instead."""

    request: str
    count: int
    device_class: str
    driver: str | None
    profile: str | None = None


def wants(spec: Tree, classes: DeviceClasses) -> list[Want]:
    """GPUs and MIG instances that a claim of this spec requests; [] if it is for other devices.

    Raises CannotEncode if planned GPUs cannot satisfy it: what it does, as a sentence without its subject.
    """
    found: list[Want] = []
    others: list[str] = []
    for request in objects(spec, "devices", "requests"):
        want = _want(request, classes)
        if want is None:
            others.append(text(request, "name") or "")
        else:
            found.append(want)
    if found and others:
        raise CannotEncode("requests GPUs and other devices at once")
    if len({want.profile is None for want in found}) > 1:
        raise CannotEncode("requests GPUs and parts of GPUs at once")
    if found and objects(spec, "devices", "constraints"):
        raise CannotEncode("has constraints between its devices")
    return found


def _want(request: Tree, classes: DeviceClasses) -> Want | None:
    """One request; None if it is not for GPUs."""
    if objects(request, "firstAvailable"):
        raise CannotEncode("leaves a choice between devices (firstAvailable)")
    exactly = mapping(request, "exactly")
    name = text(exactly, "deviceClassName") or ""
    sort = classes.sort(name)
    if sort is Sort.PART:
        profile = None if flag(exactly, "adminAccess") else classes.profile(exactly)
        if profile is None:
            raise CannotEncode("requests parts of GPUs")
        return Want(text(request, "name") or "", 1, name, MIG_DRIVER, profile)
    if sort is not Sort.WHOLE or flag(exactly, "adminAccess"):
        return None
    expressions = [text(one, "cel", "expression") or "" for one in objects(exactly, "selectors")]
    if "capacity" in exactly or any(map(means_part, expressions)):
        raise CannotEncode("requests parts of GPUs")
    if not all(map(only_type, expressions)):
        raise CannotEncode("selects devices by conditions of its own")
    if text(exactly, "allocationMode") == "All":
        raise CannotEncode("requests all devices of a node")
    count = 1 if exactly.get("count") is None else whole(exactly, "count")
    if count is None or count < 1:
        raise CannotEncode("requests an invalid number of devices")
    return Want(text(request, "name") or "", count, name, classes.driver(name))


def unallocatable(pod: KubeObject, claims: Claims) -> list[str]:
    """Why the back end can never give a waiting pod its devices, in words: what the gang requires."""
    found: list[str] = []
    drivers = set()
    common = claims.of_group(pod)
    for entry, claim, spec in claims.requested(pod):
        try:
            wanted = wants(spec, claims.classes)
        except CannotEncode as error:
            found.append(f"a resource claim that {error}")
            continue
        drivers |= {want.driver for want in wanted}
        if wanted and (entry in common or (claim is not None and claims.users(claim) > 1)):
            found.append(SHARED)
    if len(drivers) > 1:
        found.append("resource claims for GPUs of several drivers")
    return found
