"""The GPU back end ``dra``: allocates ResourceClaims with the planned devices, as a scheduler would.

Every write carries uid and version, and a completed step is skipped, so that the same call completes what a
crash left. Errors become events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from models.apply.live_state import LivePod
from models.apply.plan_actions import PodStart
from models.apply.requests import Conflict, Done, Event, Gone, NoAnswer, Rejected
from models.apply.terms import MANAGER, PLAN
from planner.cluster.backends.base import Backend, fills_node
from planner.cluster.backends.dra_devices import (
    VERSION,
    DeviceKey,
    Devices,
    Holder,
    collide,
    held_by,
    key_of,
)
from planner.cluster.pages import DEVICES, NotServedError, ServedKind
from planner.cluster.transport import (
    MERGE,
    Reply,
    Right,
    Transport,
    Tree,
    core,
    grouped,
)
from planner.cluster.writes import event_of
from planner.errors import NotPermittedError, UnavailableError
from planner.read.kube.devices.claims import claim_name
from planner.read.kube.devices.slices import GROUP
from planner.read.kube.devices.wants import Want, wants
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.kinds import BY_RESOURCE
from planner.read.kube.lookup import at, items, mapping, objects, text
from planner.read.kube.records import Device
from planner.untrusted_text import one_line

FINALIZER = "resource.kubernetes.io/delete-protection"
"""With it Kubernetes frees the devices when the pod is gone; without it, never."""

TRIES = 5
"""Tries per pod: the claims' controller writes them, too."""

SLICES = BY_RESOURCE[DEVICES[0]]

_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"
_STATUS = "status"
_NOTHING: Tree = {"allocation": None, "reservedFor": None}
"""The status of a claim that is freed: the server requires both fields in one patch."""


class Dra(Backend):
    """Allocates claims in place of kube-scheduler."""

    name = "dra"
    note = (
        "ResourceClaims are allocated with the devices that the plan chose, and drivers give "
        "exactly those; the API server does not stop another scheduler from allocating one of them"
    )

    install = "install a DRA driver"

    def __init__(self) -> None:
        """Devices are read with the first pod."""
        self._devices: Devices | None = None

    def absent(self, wire: Transport) -> str | None:
        paths = (ServedKind(SLICES, one).path() for one in SLICES.versions)
        served = (wire.send("GET", f"{path}?limit=1").ok for path in paths)
        return None if any(served) else "this cluster does not serve ResourceSlices"

    def rights(self, namespace: str | None) -> list[Right]:
        """To allocate a claim: finalizer, allocation, reservation.

        The API server checks the last one without a namespace, so no tenant alone can grant it.
        """
        claim = Right("get", GROUP, "resourceclaims", namespace=namespace)
        patch = replace(claim, verb="patch")
        anywhere = replace(patch, subresource="binding", namespace=None)
        return [claim, patch, replace(patch, subresource="status"), anywhere]

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """None. A pod without claims can only take whole nodes."""
        claims = objects(pod_tree, "spec", "resourceClaims")
        if order.gpus and not claims and not fills_node(order, node_tree):
            raise CannotEncode("it requests GPUs without a ResourceClaim, so the node chooses")
        return {}

    def allocate(self, wire: Transport, order: PodStart, seen: LivePod, pod_tree: Tree) -> Event:
        """Allocate and reserve every claim of the pod for GPUs."""
        if not objects(pod_tree, "spec", "resourceClaims"):
            return Done()
        if text(pod_tree, "metadata", "uid") != order.uid:
            return Gone("another pod has its name")
        plan = order.uid if seen.start is None else seen.start.plan
        try:
            devices = self._devices = self._devices or Devices.read(wire)
            return _Allocating(wire, *order.key, order.uid, devices, order, plan).run(pod_tree)
        except _FAILURES as error:
            return _event(error)

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Deallocate the claims that gangplan allocated for the pod and that no other pod uses."""
        if not objects(pod_tree, "spec", "resourceClaims"):
            return Done()
        namespace, name, uid = (
            text(pod_tree, "metadata", one) or "" for one in ("namespace", "name", "uid")
        )
        claims = _Claims(wire, namespace, name, uid)
        try:
            freed = [one for _, one in named_claims(claims.waiting()) if one and claims.free(one)]
        except _FAILURES as error:
            return _event(error)
        if self._devices is not None:
            for claim in freed:
                self._devices.give((namespace, claim), ())
        return Done()


class ClaimEvent(Exception):  # noqa: N818  # an event, not a fault
    """The event for the machine. ``final``: an immediate retry does not help."""

    def __init__(self, event: Event, *, final: bool = False) -> None:
        super().__init__(event)
        self.event = event
        self.final = final or not isinstance(event, Conflict | NoAnswer)


_FAILURES = (ClaimEvent, CannotEncode, ValueError, NotPermittedError, UnavailableError)


def _event(error: Exception) -> Event:
    match error:
        case ClaimEvent(event=event):
            return event
        case NotServedError():
            return Rejected(f"this cluster does not serve {GROUP}/{VERSION}")
        case UnavailableError():
            return NoAnswer(one_line(str(error)))
        case _:
            return Rejected(one_line(str(error)))


# ---- claims


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. ``name``: also how messages call it."""

    tree: Tree

    @property
    def name(self) -> str:
        return text(self.tree, "metadata", "name") or ""

    @property
    def allocated(self) -> bool:
        return isinstance(at(self.tree, "status", "allocation"), dict)

    @property
    def ours(self) -> bool:
        """Whether gangplan allocated it or was about to."""
        return text(self.tree, "metadata", "annotations", PLAN) is not None

    @property
    def users(self) -> list[Tree]:
        """Entries of ``reservedFor``."""
        return objects(self.tree, "status", "reservedFor")

    def used_by_others(self, uid: str) -> bool:
        return any(text(user, "uid") != uid for user in self.users)

    def protection(self, plan: str) -> Tree:
        """Metadata to write before an allocation: finalizer and annotation; {} if not needed.

        A claim that another client allocated does not get our annotation.
        """
        metadata: Tree = {}
        finalizers = items(self.tree, "metadata", "finalizers")
        if FINALIZER not in finalizers:
            kept = (one for one in finalizers if isinstance(one, str))
            metadata["finalizers"] = [*kept, FINALIZER]
        if not self.ours and not self.allocated:
            metadata["annotations"] = {PLAN: plan}
        return metadata


def named_claims(pod_tree: Tree) -> list[tuple[str, str | None]]:
    """(entry, claim) of each claim that the pod uses; None: it is not created yet.

    Entries whose claims Kubernetes found unnecessary are left out.
    """
    entries = objects(pod_tree, "spec", "resourceClaims")
    found = ((text(one, "name") or "", claim_name(pod_tree, one)) for one in entries)
    return [(entry, name) for entry, name in found if name != ""]


@dataclass(slots=True)
class _Claims:
    """Reads and writes the claims of one pod. ``date``: the server's clock, of the last answer with one."""

    wire: Transport
    namespace: str
    pod: str
    uid: str
    date: float | None = field(default=None, init=False)

    def free(self, name: str) -> bool:
        """Free one claim that gangplan allocated; False for others, or if other pods use it."""
        last = ClaimEvent(NoAnswer("the claim was not freed"))
        for _ in range(TRIES):
            claim = self.read(name)
            if claim is None or not claim.ours or claim.used_by_others(self.uid):
                return False
            try:
                if claim.allocated:
                    claim = self.write(claim, status=_NOTHING)
                self.write(claim, annotations={PLAN: None})
            except ClaimEvent as answered:
                if answered.final:
                    raise
                last = answered
                continue
            return True
        raise last

    def read(self, name: str) -> Claim | None:
        """The claim as it is now, if it exists."""
        reply = self.wire.send("GET", self._path(name))
        return None if reply.status == 404 else self._claim(reply)

    def write(self, claim: Claim, status: Tree | None = None, **metadata: object) -> Claim:
        """The claim as it is after the patch of its status or metadata."""
        uid, version = (text(claim.tree, "metadata", one) for one in ("uid", "resourceVersion"))
        body: Tree = {"metadata": {"uid": uid, "resourceVersion": version, **metadata}}
        path = self._path(claim.name)
        if status is not None:
            body[_STATUS] = status
            path = self._path(claim.name, _STATUS)
        return self._claim(self.wire.send("PATCH", path + _QUERY, body, content_type=MERGE))

    def waiting(self) -> Tree:
        """The unbound pod as it is now; {} if it is gone. A bound pod keeps its devices."""
        reply = self._pod(self.pod)
        if not reply.ok and reply.status != 404:
            raise ClaimEvent(event_of(reply))
        if text(reply.body, "metadata", "uid") != self.uid:
            return {}
        if text(reply.body, "spec", "nodeName") is not None:
            raise ClaimEvent(Conflict("it is bound by now"), final=True)
        return reply.body

    def _pod(self, name: str, namespace: str = "") -> Reply:
        path = core("pods", namespace=namespace or self.namespace, name=name)
        return self.wire.send("GET", path)

    def _path(self, name: str, sub: str = "") -> str:
        space = self.namespace
        return grouped(GROUP, VERSION, "resourceclaims", namespace=space, name=name, sub=sub)

    def _claim(self, reply: Reply) -> Claim:
        if not reply.ok:
            event = event_of(reply)
            # Another claim with the name is read again.
            raise ClaimEvent(Conflict(event.message) if isinstance(event, Gone) else event)
        self.date = self.date if reply.date is None else reply.date
        return Claim(reply.body)


# ---- allocating claims: protect, allocate, reserve

Chosen = list[tuple[Want, Device]]
"""What a claim of the pod requests, and the devices it gets."""

Asked = tuple[Claim, list[Want]]
"""A claim, and the devices that it requests."""


@dataclass(slots=True)
class _Allocating(_Claims):
    """Gives one pod all its devices. ``plan``: written on the claims."""

    devices: Devices
    order: PodStart
    plan: str

    def run(self, pod_tree: Tree) -> Event:
        """Conflict and NoAnswer if a later call may succeed."""
        answer: Event = Done()
        for _ in range(TRIES):
            claims = [self._existing(name) for name in self._names(pod_tree)]
            try:
                for claim, chosen in self._dealt(claims):
                    self._give(claim, chosen)
            except ClaimEvent as answered:
                if answered.final:
                    raise
                answer = answered.event
                continue  # read again: another client wrote it, or it was done
            return Done()
        return answer

    def _names(self, pod_tree: Tree) -> list[str]:
        """Names of the pod's claims; those created since the pod was read are looked up."""
        found = named_claims(pod_tree)
        if any(name is None for _, name in found):
            reply = self._pod(self.pod)
            if not reply.ok:
                raise ClaimEvent(event_of(reply), final=True)
            if text(reply.body, "metadata", "uid") != self.uid:
                raise ClaimEvent(Gone("another pod has its name"))
            found = named_claims(reply.body)
        for entry, name in found:
            if name is None:
                raise ClaimEvent(Conflict(f"its claim {entry} is not created yet"))
        return [name for _, name in found if name is not None]

    def _existing(self, name: str) -> Claim:
        if (claim := self.read(name)) is None:
            raise CannotEncode(f"claim {name} does not exist")
        return claim

    def _dealt(self, claims: Iterable[Claim]) -> list[tuple[Claim, Chosen]]:
        """Distribute the GPUs of the order over the claims in order; a claim keeps those it holds.

        MIG instances that exist are any that are free, since those of a profile are alike; of those that
        claims make the order says which. Raises CannotEncode if planned GPUs cannot satisfy a claim.
        """
        whole, parts = list[Asked](), list[Asked]()
        for claim in claims:
            try:
                found = wants(mapping(claim.tree, "spec"), self.devices.classes)
            except CannotEncode as error:
                raise CannotEncode(f"claim {claim.name} {error}") from None
            if found:
                (whole if found[0].profile is None else parts).append((claim, found))
        dealt = self._wholes(whole)
        given = [device for _, chosen in dealt for _, device in chosen]
        return dealt + (self._instances(parts, given) if parts else [])

    def _wholes(self, asked: Sequence[Asked]) -> list[tuple[Claim, Chosen]]:
        """The GPUs of the plan for claims of whole GPUs."""
        gpus = self.order.gpus
        if gpus is None or not (asked or gpus):
            return []  # kube-scheduler allocates what the plan leaves open
        total = sum(want.count for _, found in asked for want in found)
        if total != len(gpus):
            raise CannotEncode(f"its claims request {total} GPUs, the plan gives {len(gpus)}")
        drivers = {want.driver for _, found in asked for want in found}
        if len(drivers) > 1:
            raise CannotEncode("its claims request GPUs of several drivers")
        given = self.devices.chosen(self.order.node, gpus, next(iter(drivers), None))
        kept = {
            claim.name: held
            for claim, found in asked
            if len(held := _kept_devices(claim, given)) == sum(want.count for want in found) > 0
        }
        kept_keys = {key_of(device) for held in kept.values() for device in held}
        rest = iter([device for device in given if key_of(device) not in kept_keys])
        return [(claim, _assign(found, kept.get(claim.name) or rest)) for claim, found in asked]

    def _instances(
        self, asked: Sequence[Asked], given: Sequence[Device]
    ) -> list[tuple[Claim, Chosen]]:
        """An instance of the node for each request of a profile: what the claim holds, else free ones.

        ``given``: whole GPUs that the pod gets.
        """
        node, devices = self.order.node, self.devices
        here = devices.instances(node, tainted=True)
        held: dict[str, list[Device]] = {}
        for claim, wanted in asked:
            kept = _kept_devices(claim, here)
            if kept and [one.profile for one in kept] == [want.profile for want in wanted]:
                held[claim.name] = kept
        if len(held) < len(asked):
            devices.read_holders(self.wire, self.date)
        used = [*given, *(one for kept in held.values() for one in kept)]
        here = devices.instances(node, tainted=False)
        planned = list(self.order.instances)
        for claim, wanted in asked:
            if claim.name in held:
                continue
            held[claim.name] = []
            for want in wanted:
                alike = [one for one in here if one.profile == want.profile]
                alike = [one for one in alike if not any(collide(one, other) for other in used)]
                alike = devices.in_order(node, alike, planned)
                if (one := next(self._free(alike, (self.namespace, claim.name)), None)) is None:
                    raise self._taken(
                        f"no {want.profile} of node {node} is free for claim {claim.name}"
                    )
                held[claim.name].append(one)
                used.append(one)
        return [
            (claim, list(zip(wanted, held[claim.name], strict=True))) for claim, wanted in asked
        ]

    def _free(self, alike: Sequence[Device], own: Holder) -> Iterator[Device]:
        """Instances that a claim may get: those it was about to get, unused ones, then abandoned ones."""
        holders = [(one, self.devices.holders(self.order.node, one)) for one in alike]
        yield from (one for one, found in holders if found == [own])
        yield from (one for one, found in holders if not found)
        for one, found in holders:
            rivals = [rival for rival in found if rival != own]
            if rivals and all(map(self._abandoned, rivals)):
                yield one

    def _give(self, claim: Claim, chosen: Chosen) -> None:
        """Complete the allocation of one claim, from whatever step it has reached."""
        holder, keys = (self.namespace, claim.name), [key_of(device) for _, device in chosen]
        claim = self._cleared(claim, keys)
        if not claim.allocated:
            self.devices.read_holders(self.wire, self.date)
            for _, device in chosen:
                self._check_free(device, holder)
        self.devices.give(holder, keys)
        if protection := claim.protection(self.plan):
            claim = self.write(claim, **protection)
        status: Tree = {}
        if not claim.allocated:
            status["allocation"] = self._allocation(claim, chosen)
        if not claim.users:
            status["reservedFor"] = [{"resource": "pods", "name": self.pod, "uid": self.uid}]
        if status:
            self.write(claim, status=status)

    def _cleared(self, claim: Claim, keys: list[DeviceKey]) -> Claim:
        """The claim without devices that an earlier plan allocated. Raises CannotEncode."""
        if at(claim.tree, "metadata", "deletionTimestamp") is not None:
            raise CannotEncode(f"claim {claim.name} is being deleted")
        if claim.used_by_others(self.uid):
            raise CannotEncode(f"claim {claim.name} is used by other pods")
        if not claim.allocated or held_by(claim.tree) == keys:
            return claim
        if not claim.ours:
            raise CannotEncode(f"claim {claim.name} holds other devices already")
        if not self.waiting():
            raise ClaimEvent(Gone("another pod has its name"))
        claim = self.write(claim, status=_NOTHING)
        self.devices.give((self.namespace, claim.name), ())
        return claim

    def _check_free(self, device: Device, own: Holder) -> None:
        """The only check of this kind: the API server lets two claims hold one device."""
        for rival in self.devices.holders(self.order.node, device):
            if rival != own and not self._abandoned(rival):
                where = f"device {device.name} of node {self.order.node}"
                raise self._taken(f"{where} is held by claim {'/'.join(rival)}")

    def _taken(self, words: str) -> ClaimEvent:
        self.devices.forget_holders()
        return ClaimEvent(Conflict(words), final=True)

    def _abandoned(self, rival: Holder) -> bool:
        """Whether every pod that a claim is reserved for is gone, so that its devices are freed soon."""
        users = self.devices.users(rival)
        return bool(users) and all(self._gone(rival[0], user) for user in users)

    def _gone(self, namespace: str, user: Tree) -> bool:
        """Whether an entry of ``reservedFor`` is a pod that no longer exists; False in doubt."""
        name, uid = text(user, "name"), text(user, "uid")
        if name is None or uid is None or text(user, "resource") != "pods":
            return False
        reply = self._pod(name, namespace)
        found = text(reply.body, "metadata", "uid")
        return reply.status == 404 or (reply.ok and found not in (None, uid))

    def _allocation(self, claim: Claim, chosen: Chosen) -> Tree:
        """``status.allocation``, with a time: kube-scheduler adds one where there is none, and is refused."""
        fields = ("request", "driver", "pool", "device")
        results = [dict(zip(fields, (w.request, *key_of(one)), strict=True)) for w, one in chosen]
        devices: Tree = {"results": results}
        if config := list(self._configuration(claim, dict.fromkeys(want for want, _ in chosen))):
            devices["config"] = config
        node = {"key": "metadata.name", "operator": "In", "values": [self.order.node]}
        at_s = datetime.fromtimestamp(self.date or 0, UTC)  # any time serves if it is unknown
        return {
            "devices": devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node]}]},
            "allocationTimestamp": at_s.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _configuration(self, claim: Claim, used: Iterable[Want]) -> Iterator[Tree]:
        """Driver settings: of the classes, then of the claim, which take precedence."""
        classes = self.devices.classes.input
        for want in used:
            found = classes.named("resource.k8s.io", "DeviceClass", "", want.device_class)
            for one in objects(None if found is None else found.tree, "spec", "config"):
                yield {"source": "FromClass", "requests": [want.request], **one}
        for one in objects(claim.tree, "spec", "devices", "config"):
            yield {"source": "FromClaim", **one}


def _kept_devices(claim: Claim, given: Sequence[Device]) -> list[Device]:
    """The devices of a claim's allocation if all of them are planned for the pod; else none."""
    by_key = {key_of(device): device for device in given}
    held = held_by(claim.tree)
    return [by_key[key] for key in held] if all(key in by_key for key in held) else []


def _assign(found: Sequence[Want], devices: Iterable[Device]) -> Chosen:
    """The next devices, as many as each request needs; ``devices`` may be a shared iterator."""
    wanted = [want for want in found for _ in range(want.count)]
    return list(zip(wanted, devices, strict=False))


BACKEND = Dra
