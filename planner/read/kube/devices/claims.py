"""GPUs requested and held through DRA: device classes, resource claims and their allocations.

A class is judged by its selectors, else by its name; CEL is never evaluated, only searched for drivers
and types, and compared with the forms that ask for one MIG profile. An allocation counts before what was
requested.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import Enum

import msgspec
from msgspec import Struct

from models.mig import board_named, resource_of
from planner.read.kube.devices.slices import GROUP, MIG_DRIVER, PROFILE, is_gpu_driver
from planner.read.kube.lookup import Tree, at, flag, mapping, objects, text, whole
from planner.read.kube.records import Device, KubeNode, KubeObject, Objects

FABRIC_DRIVER = "compute-domain.nvidia.com"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource by which every device class can be requested."""

_FABRIC_CLASS = re.compile(r"compute-domain[a-z0-9.-]*\.nvidia\.com")
_QUOTED_DOMAIN = re.compile(r"""["']([a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8})["']""")
_PART_TYPE = re.compile(r"""["']mig["']|\bprofile\b""", re.IGNORECASE)
_MAX_EXPRESSION = 10_000
_ONLY_TYPE = re.compile(r"device\.attributes\['gpu\.[^']*'\]\.type=='gpu'")
_MIG_CLASS = "mig.nvidia.com"
_ONLY_DRIVER = f"device.driver=='{MIG_DRIVER}'"
_ONLY_MIG = f"device.attributes['{MIG_DRIVER}'].type=='mig'"
_ONLY_PROFILE = re.compile(
    r"\s*device\.attributes\[(?:'gpu\.nvidia\.com'|\"gpu\.nvidia\.com\")\]\.profile"
    rf"\s*==\s*(?:'({PROFILE})'|\"({PROFILE})\")\s*"
)


def planned_profile(node: KubeNode, instance: Device) -> bool:
    """Whether a plan knows the profile of an instance: of those that claims make, its board has it."""
    board = board_named(node.board or "")
    return board is None or board.profile(instance.profile or "") is not None


_OWNER_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
_MAX_DEVICES = 100_000
_WAITING = (None, "Pending")
"""Phases of pods of which no container has started."""


class Sort(Enum):
    """What devices of a class are."""

    WHOLE = "whole GPUs"
    PART = "parts of GPUs"
    FABRIC = "channels of a fabric between nodes"
    OTHER = "something else"


def means_part(expression: str) -> bool:
    """Whether a CEL expression asks for a part of a GPU."""
    return len(expression) <= _MAX_EXPRESSION and _PART_TYPE.search(expression) is not None


def only_type(expression: str) -> bool:
    """Whether a CEL expression says only that the device is a GPU."""
    return _ONLY_TYPE.fullmatch(_compact(expression)) is not None


def _compact(expression: str) -> str:
    return "".join(expression.split()).replace('"', "'")


def is_part_name(device: str) -> bool:
    """Whether a device's name is that of a MIG partition."""
    return "mig" in re.split(r"[^a-z]+", device.lower())


class DeviceClasses:
    """Device classes of one input. ``drivers``: those known to have GPUs.

    ``extended_resources``: names by which classes can be requested without a claim.
    """

    def __init__(self, found: Objects, drivers: Collection[str]) -> None:
        self.input, self.drivers = found, drivers
        self._known: dict[str, tuple[Sort, str | None]] = {}
        self.extended_resources = {
            name: self.sort(one.name)
            for one in found.of("DeviceClass", GROUP)
            for name in _resource_names(one)
        }

    def sort(self, name: str) -> Sort:
        """What devices of the class are."""
        return self._class(name)[0]

    def driver(self, name: str) -> str | None:
        """The driver whose whole GPUs the class gives out; None if there is none, or none is known."""
        sort, driver = self._class(name)
        return driver if sort is Sort.WHOLE else None

    def profile(self, request: Tree) -> str | None:
        """The MIG profile of which a request asks one instance, and nothing else; None for other forms."""
        expressions = _expressions(request)
        found = _ONLY_PROFILE.fullmatch(expressions[0]) if len(expressions) == 1 else None
        plain = (
            text(request, "deviceClassName") == _MIG_CLASS
            and request.get("allocationMode") in (None, "ExactCount")
            and request.get("count") in (None, 1)
            and "capacity" not in request
        )
        made = self.input.named(GROUP, "DeviceClass", "", _MIG_CLASS)
        if plain and made is not None:  # it has to mean MIG instances of any kind
            joined = "&&".join(_compact(one) for one in _expressions(mapping(made.tree, "spec")))
            plain = set(joined.split("&&")) in ({_ONLY_MIG}, {_ONLY_DRIVER, _ONLY_MIG})
        return found[1] or found[2] if found is not None and plain else None

    def is_gpu_driver(self, driver: str) -> bool:
        return driver in self.drivers or is_gpu_driver(driver)

    def names_by_driver(self) -> dict[str, tuple[str, ...]]:
        """Extended resources that stand for whole GPUs, by their driver."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.input.of("DeviceClass", GROUP):
            driver = self.driver(one.name)
            if driver is not None:
                found[driver] = (*found.get(driver, ()), *_resource_names(one))
        return found

    def _class(self, name: str) -> tuple[Sort, str | None]:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> tuple[Sort, str | None]:
        """By the selectors of the class, else by its name."""
        found = self.input.named(GROUP, "DeviceClass", "", name)
        written = _expressions(mapping(found and found.tree, "spec"))
        expressions = [one for one in written if len(one) <= _MAX_EXPRESSION]
        domains = {domain for one in expressions for domain in _QUOTED_DOMAIN.findall(one)}
        fabric = FABRIC_DRIVER in domains or (not domains and _FABRIC_CLASS.fullmatch(name))
        if fabric:
            daemon = "daemon" in name or any("daemon" in one for one in expressions)
            return (Sort.OTHER if daemon else Sort.FABRIC), None
        drivers = [domain for domain in sorted(domains) if self.is_gpu_driver(domain)]
        part = is_part_name(name)
        if domains:
            part = part or any(map(means_part, expressions))
        else:
            driver = name.removeprefix("vfio.")
            drivers = [driver] if part or is_gpu_driver(driver) else []
        if not drivers:
            return Sort.OTHER, None
        return (Sort.PART if part else Sort.WHOLE), drivers[0]


def _expressions(tree: Tree) -> list[str]:
    return [text(one, "cel", "expression") or "" for one in objects(tree, "selectors")]


def _resource_names(device_class: KubeObject) -> tuple[str, ...]:
    named = text(device_class.tree, "spec", "extendedResourceName")
    return (IMPLICIT + device_class.name, *([named] if named else []))


class AllocatedGpu(Struct, frozen=True):
    """One GPU of an allocation. ``index``: None if no ResourceSlice names the device.

    ``key``: identifies the device; ``node``: where it is. ``shared``: other pods may hold it too,
    through the same claim or because it is a part of a GPU.
    """

    key: str
    node: str | None
    index: int | None
    shared: bool


class ClaimedGpus(Struct):
    """What the claims of one pod come to.

    ``gpus``: whole GPUs requested by claims without an allocation. ``held``: GPUs of allocations by
    key. ``driver``: of the GPUs, None if unknown. ``node``: where allocations tie the pod to.
    ``exclusive``: no other pod uses these claims. ``fabric``: an IMEX channel. ``part``: asks for
    parts of GPUs that are not planned; ``every``: for all GPUs of a node. ``missing``: claims that are not
    in the input. ``instances``: MIG instances that it requests or holds, by resource; ``given``: the
    devices that it holds of them; ``made``: those of them that its claims made of GPUs. ``problems``: what
    cannot be planned, in words.
    """

    gpus: int = 0
    held: dict[str, AllocatedGpu] = {}
    driver: str | None = None
    node: str | None = None
    exclusive: bool = True
    fabric: bool = False
    part: bool = False
    every: bool = False
    missing: int = 0
    instances: Counter[str] = msgspec.field(default_factory=Counter)
    given: set[str] = set()
    made: list[Device] = []
    problems: dict[str, None] = {}

    @property
    def allocated(self) -> bool:
        """Whether some of what it requests is allocated."""
        return bool(self.held or self.given)

    def add(self, requests: ClaimedGpus) -> None:
        """What one more claim without an allocation requests."""
        self.gpus = min(self.gpus + requests.gpus, _MAX_DEVICES)
        self.driver = self.driver or requests.driver
        self.fabric |= requests.fabric
        self.part |= requests.part
        self.every |= requests.every
        self.instances += requests.instances
        self.problems |= requests.problems

    @property
    def own(self) -> int:
        """GPUs that no other pod holds."""
        return sum(not one.shared for one in self.held.values())

    def __bool__(self) -> bool:
        return bool(self.held or self.gpus or self.every or self.missing)


_NO_CLAIMS = ClaimedGpus()


class Claims:
    """Resource claims of one input."""

    def __init__(self, found: Objects, nodes: Sequence[KubeNode]) -> None:
        self._input = found
        self._devices = {
            (one.driver, one.pool, one.name): (node, one)
            for node in nodes
            for one in (*node.devices, *node.instances, *node.possible)
        }
        drivers = frozenset(device.driver for node in nodes for device in node.devices)
        self.classes = DeviceClasses(found, drivers)
        # Whether some instances are planned that only claims give.
        self.give_instances = any(node.instances or node.possible for node in nodes)
        self._pools = {(driver, pool) for driver, pool, _ in self._devices}
        self._by_owner: dict[tuple[str, str, str], KubeObject] = {}
        for claim in found.of("ResourceClaim", GROUP):
            name = claim.annotations.get(_OWNER_POD_CLAIM)
            if name is not None and claim.owner is not None and claim.owner.uid:
                self._by_owner.setdefault((claim.namespace, claim.owner.uid, name), claim)
        self._requested: dict[KubeObject, ClaimedGpus] = {}
        self._users: Counter[KubeObject | None] | None = None
        self._channels = {
            (domain.namespace, name)
            for domain in found.of("ComputeDomain", "resource.nvidia.com")
            if (name := text(domain.tree, "spec", "channel", "resourceClaimTemplate", "name"))
        }

    def of(self, pod: KubeObject) -> ClaimedGpus:
        """What the pod requests and holds through its claims."""
        spec, status = mapping(pod.tree, "spec"), mapping(pod.tree, "status")
        if "resourceClaims" not in spec and "extendedResourceClaimStatus" not in status:
            return _NO_CLAIMS
        result = ClaimedGpus()
        for entry in _entries(pod):
            self._add_entry(pod, entry, result)
        extended = text(status, "extendedResourceClaimStatus", "resourceClaimName")
        if extended and (claim := self._named(pod.namespace, extended)):
            self._add_allocation(pod, claim, result)
        return result

    def users(self, claim: KubeObject) -> int:
        """How many unfinished pods use the claim."""
        if self._users is None:
            self._users = Counter(
                used
                for pod in self._input.of("Pod", "")
                if text(pod.tree, "status", "phase") not in ("Succeeded", "Failed")
                for used in {self.claim_of(pod, entry) for entry in _entries(pod)} - {None}
            )
        return self._users[claim]

    def requested(self, pod: KubeObject) -> Iterator[tuple[Tree, KubeObject | None, Tree]]:
        """(entry of the pod, claim, its spec); before it is created, None and the spec of its template."""
        for entry in _entries(pod):
            claim = self.claim_of(pod, entry)
            template = text(entry, "resourceClaimTemplateName") or ""
            made = self._input.named(GROUP, "ResourceClaimTemplate", pod.namespace, template)
            if claim is not None:
                yield entry, claim, mapping(claim.tree, "spec")
            elif made is not None:
                yield entry, None, mapping(made.tree, "spec", "spec")

    def of_group(self, pod: KubeObject) -> list[Tree]:
        """The entries of the pod's native PodGroup: pods with an equal one share the claim."""
        name = text(pod.tree, "spec", "schedulingGroup", "podGroupName") or ""
        group = self._input.named("scheduling.k8s.io", "PodGroup", pod.namespace, name)
        return [] if group is None else objects(group.tree, "spec", "resourceClaims")

    def _add_entry(self, pod: KubeObject, entry: Tree, result: ClaimedGpus) -> None:
        template = text(entry, "resourceClaimTemplateName")
        channel = template is not None and (pod.namespace, template) in self._channels
        result.fabric = result.fabric or channel
        claim = self.claim_of(pod, entry)
        if claim is not None and self._add_allocation(pod, claim, result):
            return
        if text(pod.tree, "spec", "nodeName") and text(pod.tree, "status", "phase") in _WAITING:
            return  # schedulers allocate before they bind: no kubelet starts a pod bound by hand
        made = claim or self._input.named(
            GROUP, "ResourceClaimTemplate", pod.namespace, template or ""
        )
        if made is None:
            result.missing += not channel
            return
        if made not in self._requested:  # read once for all its pods
            spec = mapping(made.tree, *(["spec"] if claim else ["spec", "spec"]))
            self._requested[made] = self._read_requests(spec)
        requests = self._requested[made]
        result.add(requests)
        shared = self.users(claim) > 1 if claim else entry in self.of_group(pod)
        if requests.instances and shared:
            result.problems["a resource claim for a part of a GPU that several pods share"] = None

    def claim_of(self, pod: KubeObject, entry: Tree) -> KubeObject | None:
        """The claim of an entry: named, stated in the status, or owned by the pod."""
        if (named := claim_name(pod.tree, entry)) is not None:
            return self._named(pod.namespace, named)
        return self._by_owner.get((pod.namespace, pod.uid or "", text(entry, "name") or ""))

    def _named(self, namespace: str, name: str) -> KubeObject | None:
        return self._input.named(GROUP, "ResourceClaim", namespace, name)

    def _add_allocation(self, pod: KubeObject, claim: KubeObject, result: ClaimedGpus) -> bool:
        """Count what is allocated; False if nothing is."""
        if not isinstance(at(claim.tree, "status", "allocation", "devices", "results"), list):
            return False
        users = objects(claim.tree, "status", "reservedFor")
        others = len(users) > 1 or not all(_is(user, pod) for user in users)
        results = objects(claim.tree, "status", "allocation", "devices", "results")
        gpus = [self._add_device(claim, entry, result, shared=others) for entry in results]
        if any(gpus):
            result.exclusive = result.exclusive and not others
            result.node = result.node or _node_of(claim, result)
        return True

    def _add_device(
        self, claim: KubeObject, entry: Tree, result: ClaimedGpus, *, shared: bool
    ) -> bool:
        """Count one device of an allocation; whether it is a GPU that is held."""
        driver = text(entry, "driver") or ""
        pool, device = text(entry, "pool") or "", text(entry, "device") or ""
        if driver == FABRIC_DRIVER:
            result.fabric = result.fabric or "daemon" not in device
            return False
        if not self.classes.is_gpu_driver(driver) or flag(entry, "adminAccess"):
            return False
        there, one = self._devices.get((driver, pool, device), (None, None))
        if there is not None and one is not None and one.profile is not None:
            if device not in result.given:
                result.given.add(device)
                result.made += [one] * (bool(one.slices) and one.index not in there.sick)
                if planned_profile(there, one) and one.index not in there.sick:
                    result.instances[resource_of(one.profile)] += 1
            result.node = result.node or there.name
            return True
        part = is_part_name(device) or "shareID" in entry or "consumedCapacity" in entry
        if part:
            result.part = True
            device = device.partition("-mig")[0]
            there, one = self._devices.get((driver, pool, device), (None, None))
            if one is None and (driver, pool) in self._pools:
                return True  # its GPU is partitioned for good: no slice offers it whole
        key = f"{driver}/{pool}/{device}" if device else f"{claim.subject}#{len(result.held)}"
        if key not in result.held:
            place: tuple[str | None, int | None]
            place = (None, None) if there is None or one is None else (there.name, one.index)
            result.held[key] = AllocatedGpu(key, place[0], place[1], shared or part)
            result.driver = result.driver or driver
        return True

    def _read_requests(self, spec: Tree) -> ClaimedGpus:
        result, gpus = ClaimedGpus(), False
        for request in objects(spec, "devices", "requests"):
            choices = objects(request, "firstAvailable")
            exactly = mapping(request, "exactly") if "exactly" in request else request
            profile = None if choices else self.classes.profile(exactly)
            if profile is not None and self.give_instances and not flag(exactly, "adminAccess"):
                result.instances[resource_of(profile)] += 1
                continue
            first, *others = [self._request(one, result) for one in choices or [exactly]]
            if any(other != first for other in others):
                result.problems["a choice between devices (firstAvailable)"] = None
            result.gpus = min(result.gpus + first, _MAX_DEVICES)
            gpus = gpus or first > 0
        if (gpus or result.instances) and objects(spec, "devices", "constraints"):
            result.problems["constraints between the devices of a claim"] = None
        return result

    def _request(self, request: Tree, result: ClaimedGpus) -> int:
        """Whole GPUs of one request without alternatives."""
        name = text(request, "deviceClassName") or ""
        sort = self.classes.sort(name)
        if sort is Sort.FABRIC or flag(request, "adminAccess"):
            result.fabric |= sort is Sort.FABRIC
            return 0  # who has access as an administrator looks at devices, and holds none
        if sort is Sort.OTHER:
            result.problems[f"devices of class {name}" if name else "devices of no class"] = None
            return 0
        expressions = _expressions(request)
        if sort is Sort.PART or "capacity" in request or any(map(means_part, expressions)):
            result.part = True
            return 0
        if not all(map(only_type, expressions)):
            result.problems["selectors on the devices of a claim"] = None
        result.driver = result.driver or self.classes.driver(name)
        if request.get("allocationMode") == "All":
            result.every = True
            return 0
        count = 1 if request.get("count") is None else whole(request, "count")
        if count is None or not 0 < count <= _MAX_DEVICES:
            result.problems["a number of devices that cannot be read"] = None
            return 1
        return count


def _entries(pod: KubeObject) -> list[Tree]:
    return objects(pod.tree, "spec", "resourceClaims")


def claim_name(pod: Tree, entry: Tree) -> str | None:
    """The claim of an entry, named or stated in the status; empty where none is needed, None: not known."""
    if (named := text(entry, "resourceClaimName")) is not None:
        return named
    name, stated = text(entry, "name"), objects(pod, "status", "resourceClaimStatuses")
    own = (one for one in stated if name is not None and one.get("name") == name)
    return next((text(one, "resourceClaimName") or "" for one in own), None)


def _node_of(claim: KubeObject, result: ClaimedGpus) -> str | None:
    for node in (held.node for held in result.held.values() if held.node is not None):
        return node
    for term in objects(claim.tree, "status", "allocation", "nodeSelector", "nodeSelectorTerms"):
        for entry in objects(term, "matchFields"):
            values = entry.get("values")
            if entry.get("key") == "metadata.name" and isinstance(values, list):
                return values[0] if len(values) == 1 and isinstance(values[0], str) else None
    return None


def _is(user: Tree, pod: KubeObject) -> bool:
    """Whether an entry of ``reservedFor`` is this pod: by uid where both have one, else by name."""
    uid = text(user, "uid")
    if uid is not None and pod.uid is not None:
        return uid == pod.uid
    return user.get("resource") == "pods" and user.get("name") == pod.name
