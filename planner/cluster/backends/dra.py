"""The GPU back end ``dra``: allocates ResourceClaims with the planned devices, as a scheduler would.

Every write carries uid and version, and a completed step is skipped, so that the same call completes what a
crash left. Errors become events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from models.apply.intents import MANAGER
from models.apply.live_state import LivePod
from models.apply.plan_actions import PodStart
from models.apply.requests import Conflict, Done, Event, Gone, NoAnswer, Rejected
from planner.cluster.backends.base import Backend, fills_node
from planner.cluster.backends.dra_claims import (
    VERSION,
    Claim,
    DeviceKey,
    Devices,
    Holder,
    allocation,
    claim_wants,
    collide,
    key_of,
    named_claims,
    protection,
    status_patch,
    unmarking,
)
from planner.cluster.pages import NotServedError
from planner.cluster.transport import MERGE, Reply, Transport, Tree, core, grouped
from planner.cluster.writes import event_of
from planner.errors import NotPermittedError, UnavailableError
from planner.read.kube.devices.slices import GROUP
from planner.read.kube.devices.wants import Want
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import objects, text
from planner.read.kube.records import Device
from planner.untrusted_text import one_line

_ACCEPT = (
    r"^/apis/resource\.k8s\.io/v1/"
    r"(resourceslices|deviceclasses|resourceclaims|"
    r"namespaces/[a-z0-9.-]+/resourceclaims/[a-z0-9.-]+(/status)?)$"
)


class Dra(Backend):
    """Allocates claims in place of kube-scheduler."""

    name = "dra"
    accept: tuple[str, ...] = (_ACCEPT,)
    allocates = True

    def __init__(self) -> None:
        """Devices are read with the first pod."""
        self._devices: Devices | None = None

    def note(self) -> str:
        return (
            "ResourceClaims are allocated with the devices that the plan chose, and drivers give "
            "exactly those; the API server does not stop another scheduler from allocating one of them"
        )

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
        plan = order.uid if seen.intent is None else seen.intent.plan
        try:
            if self._devices is None:
                self._devices = Devices.read(wire)
            return allocate(wire, self._devices, order, plan, pod_tree)
        except (ClaimEvent, CannotEncode, ValueError, NotPermittedError, UnavailableError) as error:
            return _event(error)

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Deallocate the claims that gangplan allocated for the pod and that no other pod uses."""
        try:
            freed = release(wire, pod_tree)
        except (ClaimEvent, ValueError) as error:
            return _event(error)
        if self._devices is not None:
            for holder in freed:
                self._devices.take(holder)
        return Done()


def _event(error: Exception) -> Event:
    """The event that reports an error."""
    match error:
        case ClaimEvent(event=event):
            return event
        case NotServedError():
            return Rejected(f"this cluster does not serve {GROUP}/{VERSION}")
        case UnavailableError():
            return NoAnswer(one_line(str(error)))
        case _:
            return Rejected(one_line(str(error)))


# ---- allocating claims: protect, allocate, reserve


@dataclass(frozen=True, slots=True)
class Part:
    """A claim of the pod for GPUs, and the devices it gets."""

    claim: Claim
    chosen: tuple[tuple[Want, Device], ...]

    @property
    def keys(self) -> list[DeviceKey]:
        return [key_of(device) for _, device in self.chosen]


Asked = tuple[Claim, list[Want]]
"""A claim, and the devices that it requests."""


def parts(run: _Allocating, order: PodStart, claims: Sequence[Claim]) -> list[Part]:
    """Distribute the GPUs of the order over the claims in order; a claim keeps those it holds.

    MIG instances that exist are any that are free, since those of a profile are alike; of those that claims
    make the order says which.
    """
    asked = [(claim, claim_wants(claim, run.devices.classes)) for claim in claims]
    asked = [(claim, found) for claim, found in asked if found]
    whole = [(claim, found) for claim, found in asked if found[0].profile is None]
    of_parts = [(claim, found) for claim, found in asked if found[0].profile is not None]
    dealt = _wholes(run.devices, order, whole)
    if of_parts:
        given = [device for part in dealt for _, device in part.chosen]
        dealt += _instances(run, order, of_parts, given)
    return dealt


def _wholes(devices: Devices, order: PodStart, asked: Sequence[Asked]) -> list[Part]:
    """The GPUs of the plan for claims of whole GPUs."""
    if order.gpus is None or not (asked or order.gpus):
        return []  # kube-scheduler allocates what the plan leaves open
    total = sum(want.count for _, found in asked for want in found)
    if total != len(order.gpus):
        raise CannotEncode(f"its claims request {total} GPUs, the plan gives {len(order.gpus)}")
    drivers = {want.driver for _, found in asked for want in found}
    if len(drivers) > 1:
        raise CannotEncode("its claims request GPUs of several drivers")
    given = devices.chosen(order.node, order.gpus, next(iter(drivers), None))
    kept = {
        claim.name: held
        for claim, found in asked
        if (held := _kept_devices(claim, given)) and len(held) == sum(want.count for want in found)
    }
    kept_keys = {key_of(device) for held in kept.values() for device in held}
    rest = iter([device for device in given if key_of(device) not in kept_keys])
    return [
        Part(claim, tuple(_assign(found, kept.get(claim.name) or rest))) for claim, found in asked
    ]


def _instances(
    run: _Allocating, order: PodStart, asked: Sequence[Asked], given: Sequence[Device]
) -> list[Part]:
    """An instance of the node for each request of a profile: what the claim holds, else free ones.

    ``given``: whole GPUs that the pod gets.
    """
    here = run.devices.instances(order.node, tainted=True)
    held: dict[str, list[Device]] = {}
    for claim, wanted in asked:
        kept = _kept_devices(claim, here)
        if kept and [one.profile for one in kept] == [want.profile for want in wanted]:
            held[claim.name] = kept
    if len(held) < len(asked):
        run.devices.read_holders(run.wire, run.date)
    used = [*given, *(one for kept in held.values() for one in kept)]
    here = run.devices.instances(order.node, tainted=False)
    planned = list(order.instances)
    for claim, wanted in asked:
        if claim.name in held:
            continue
        held[claim.name] = []
        for want in wanted:
            alike = [one for one in here if one.profile == want.profile]
            alike = [one for one in alike if not any(collide(one, other) for other in used)]
            alike = run.devices.in_order(order.node, alike, planned)
            free = _free(run, order.node, alike, (order.namespace, claim.name))
            if (one := next(free, None)) is None:
                run.devices.forget_holders()
                words = f"no {want.profile} of node {order.node} is free for claim {claim.name}"
                raise DeviceTaken(Conflict(words))
            held[claim.name].append(one)
            used.append(one)
    return [
        Part(claim, tuple(zip(wanted, held[claim.name], strict=True))) for claim, wanted in asked
    ]


def _free(run: _Allocating, node: str, alike: Sequence[Device], own: Holder) -> Iterator[Device]:
    """Instances that a claim may get: those it was about to get, then unused ones, then abandoned ones."""
    holders = [(one, run.devices.holders(node, one)) for one in alike]
    yield from (one for one, found in holders if found == [own])
    yield from (one for one, found in holders if not found)
    for one, found in holders:
        rivals = [rival for rival in found if rival != own]
        if rivals and all(_abandoned(run, rival) for rival in rivals):
            yield one


def _kept_devices(claim: Claim, given: Sequence[Device]) -> list[Device]:
    """The devices of a claim's allocation if all of them are planned for the pod; else none."""
    by_key = {key_of(device): device for device in given}
    held = claim.held()
    return [by_key[key] for key in held] if all(key in by_key for key in held) else []


def _assign(found: Sequence[Want], devices: Iterable[Device]) -> list[tuple[Want, Device]]:
    """The next devices, as many as each request needs; ``devices`` may be a shared iterator."""
    wanted = [want for want in found for _ in range(want.count)]
    return list(zip(wanted, devices, strict=False))


TRIES = 5
"""Tries per pod: the claims' controller writes them, too."""

_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"
_STATUS = "status"
_NOT_FOUND = 404


class ClaimEvent(Exception):  # noqa: N818  # an event, not a fault
    """The event for the machine."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self.event = event


class DeviceTaken(ClaimEvent):
    """A device belongs to another claim, or the pod is bound: an immediate retry does not help."""


def allocate(
    wire: Transport, devices: Devices, order: PodStart, plan: str, pod_tree: Tree
) -> Event:
    """Give a pod all its devices; Conflict and NoAnswer if a later call may succeed.

    ``plan``: written on the claims.
    """
    run = _Allocating(wire, devices=devices)
    answer: Event = Done()
    for _ in range(TRIES):
        names = _names(wire, order, pod_tree)
        claims = [run.existing(order.namespace, name) for name in names]
        try:
            for part in parts(run, order, claims):
                _give(run, order, plan, part)
        except ClaimEvent as answered:
            answer = answered.event
            if isinstance(answer, Conflict | NoAnswer) and not isinstance(answered, DeviceTaken):
                continue  # read again: another client wrote it, or it was done
            raise
        return Done()
    return answer


def release(wire: Transport, pod_tree: Tree) -> list[Holder]:
    """Take back the devices of a pod that never started; the freed claims.

    The pod is read again: if it is bound by now it keeps its devices, and the event is a Conflict.
    """
    if not objects(pod_tree, "spec", "resourceClaims"):
        return []
    fields = ("namespace", "name", "uid")
    namespace, name, uid = (text(pod_tree, "metadata", field) or "" for field in fields)
    run = _Claims(wire)
    tree = run.waiting(namespace, name, uid)
    return [
        (namespace, claim)
        for _, claim in named_claims(tree)
        if claim is not None and _freed(run, namespace, claim, uid)
    ]


def _freed(run: _Claims, namespace: str, name: str, uid: str) -> bool:
    """Free one claim that gangplan allocated; False for others, or if other pods use it."""
    last = ClaimEvent(NoAnswer("the claim was not freed"))
    for _ in range(TRIES):
        claim = run.read(namespace, name)
        if claim is None or not claim.ours or claim.used_by_others(uid):
            return False
        try:
            if claim.allocated:
                claim = run.write(namespace, claim, _nothing(claim), _STATUS)
            run.write(namespace, claim, unmarking(claim))
        except ClaimEvent as answered:
            if not isinstance(answered.event, Conflict | NoAnswer):
                raise
            last = answered
            continue
        return True
    raise last


def _names(wire: Transport, order: PodStart, pod_tree: Tree) -> list[str]:
    """Names of the pod's claims; those created since the pod was read are looked up."""
    found = named_claims(pod_tree)
    if any(name is None for _, name in found):
        reply = wire.send("GET", core("pods", namespace=order.namespace, name=order.name))
        if not reply.ok:
            raise ClaimEvent(event_of(reply))
        if text(reply.body, "metadata", "uid") != order.uid:
            raise ClaimEvent(Gone("another pod has its name"))
        found = named_claims(reply.body)
    for entry, name in found:
        if name is None:
            raise ClaimEvent(Conflict(f"its claim {entry} is not created yet"))
    return [name for _, name in found if name is not None]


def _give(run: _Allocating, order: PodStart, plan: str, part: Part) -> None:
    """Complete the allocation of one claim, from whatever step it has reached."""
    node, holder = order.node, (order.namespace, part.claim.name)
    claim = _cleared(run, order, part)
    if not claim.allocated:
        run.devices.read_holders(run.wire, run.date)
        _check_free(run, node, part, holder)
        run.devices.choose(holder, (device for _, device in part.chosen))
    if (guard := protection(claim, plan)) is not None:
        claim = run.write(order.namespace, claim, guard)
    status: Tree = {}
    if not claim.allocated:
        stamp = run.stamp
        status["allocation"] = allocation(claim, part.chosen, run.devices.classes, node, stamp)
    if not claim.users:
        status["reservedFor"] = [{"resource": "pods", "name": order.name, "uid": order.uid}]
    if status:
        run.write(order.namespace, claim, status_patch(claim, status), _STATUS)
    run.devices.give(holder, part.keys)


def _cleared(run: _Allocating, user: PodStart, part: Part) -> Claim:
    """The claim without devices that an earlier plan allocated. Raises CannotEncode."""
    claim = part.claim
    if claim.going:
        raise CannotEncode(f"claim {claim.name} is being deleted")
    if claim.used_by_others(user.uid):
        raise CannotEncode(f"claim {claim.name} is used by other pods")
    if not claim.allocated or claim.held() == part.keys:
        return claim
    if not claim.ours:
        raise CannotEncode(f"claim {claim.name} holds other devices already")
    if not run.waiting(user.namespace, user.name, user.uid):
        raise ClaimEvent(Gone("another pod has its name"))
    claim = run.write(user.namespace, claim, _nothing(claim), _STATUS)
    run.devices.take((user.namespace, claim.name))
    return claim


def _check_free(run: _Allocating, node: str, part: Part, own: Holder) -> None:
    """The only check of this kind: the API server lets two claims hold one device."""
    for _, device in part.chosen:
        for rival in run.devices.holders(node, device):
            if rival == own or _abandoned(run, rival):
                continue
            run.devices.forget_holders()
            words = f"device {device.name} of node {node} is held by claim {'/'.join(rival)}"
            raise DeviceTaken(Conflict(words))


def _abandoned(run: _Allocating, rival: Holder) -> bool:
    """Whether every pod that a claim is reserved for is gone, so that its devices are freed soon."""
    users = run.devices.users(rival)
    return bool(users) and all(run.gone(rival[0], user) for user in users)


def _nothing(claim: Claim) -> Tree:
    """The patch that frees a claim's devices: the server requires both fields in one patch."""
    return status_patch(claim, {"allocation": None, "reservedFor": None})


@dataclass(slots=True)
class _Claims:
    """Reads and writes claims. ``date``: the server's clock, from the last answer with a date."""

    wire: Transport
    date: float | None = None

    @property
    def stamp(self) -> str:
        """The server's clock as RFC 3339; any time serves if it is unknown."""
        return datetime.fromtimestamp(self.date or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def read(self, namespace: str, name: str) -> Claim | None:
        """The claim as it is now, if it exists."""
        reply = self.wire.send("GET", _path(namespace, name))
        return None if reply.status == _NOT_FOUND else self._claim(reply)

    def existing(self, namespace: str, name: str) -> Claim:
        if (claim := self.read(namespace, name)) is None:
            raise CannotEncode(f"claim {name} does not exist")
        return claim

    def waiting(self, namespace: str, name: str, uid: str) -> Tree:
        """The unbound pod as it is now; {} if it is gone. A bound pod keeps its devices."""
        reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
        if reply.status == _NOT_FOUND:
            return {}
        if not reply.ok:
            raise ClaimEvent(event_of(reply))
        if text(reply.body, "metadata", "uid") != uid:
            return {}
        if text(reply.body, "spec", "nodeName") is not None:
            raise DeviceTaken(Conflict("it is bound by now"))
        return reply.body

    def gone(self, namespace: str, user: Tree) -> bool:
        """Whether an entry of ``reservedFor`` is a pod that no longer exists; False in doubt."""
        name, uid = text(user, "name"), text(user, "uid")
        if name is None or uid is None or text(user, "resource") != "pods":
            return False
        reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
        return reply.status == _NOT_FOUND or (
            reply.ok and text(reply.body, "metadata", "uid") not in (None, uid)
        )

    def write(self, namespace: str, claim: Claim, body: Tree, sub: str = "") -> Claim:
        """The claim as it is after the patch."""
        path = _path(namespace, claim.name, sub) + _QUERY
        return self._claim(self.wire.send("PATCH", path, body, content_type=MERGE))

    def _claim(self, reply: Reply) -> Claim:
        if not reply.ok:
            event = event_of(reply)
            # Another claim with the name is read again.
            raise ClaimEvent(Conflict(event.message) if isinstance(event, Gone) else event)
        self.date = self.date if reply.date is None else reply.date
        return Claim(reply.body)


@dataclass(slots=True)
class _Allocating(_Claims):
    """The same, with the devices that they get."""

    devices: Devices = field(kw_only=True)


def _path(namespace: str, name: str, sub: str = "") -> str:
    return grouped(GROUP, VERSION, "resourceclaims", namespace=namespace, name=name, sub=sub)
