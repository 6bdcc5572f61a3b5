"""Which device goes to which claim of a pod.

Promises: pure; what a claim holds of the pod's GPUs stays with it, the others are dealt in turn, so that
the same orders and claims give the same. Raises CannotEncode. Called by ``allocating``.

Allocating claims step by step: protected, allocated, reserved; and back.

Promises: every write names uid and version; each step is skipped where it is done, so that the same call
finishes what a crash left. Raises Answered and CannotEncode. Called by ``dra``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from models.apply.intents import MANAGER
from models.apply.orders import PodOrder
from models.apply.requests import Conflict, Done, Event, Gone, NoAnswer
from planner.cluster.api_paths import core, grouped
from planner.cluster.backends.base import bound_by_us
from planner.cluster.backends.dra_claims import (
    Claim,
    DeviceKey,
    Want,
    allocation,
    named_claims,
    protection,
    reservation,
    status_patch,
    unmarking,
    wants,
)
from planner.cluster.backends.dra_devices import VERSION, Devices, Holder
from planner.cluster.sending import event_of
from planner.cluster.transport import MERGE, Reply, Transport, Tree
from planner.read.kube.devices.slices import GROUP
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import objects, text
from planner.read.kube.records import Device


@dataclass(frozen=True, slots=True)
class Part:
    """A claim of the pod that is about GPUs, and the devices it is to hold."""

    claim: Claim
    chosen: tuple[tuple[Want, Device], ...]

    @property
    def keys(self) -> list[DeviceKey]:
        return [_key(device) for _, device in self.chosen]


def parts(devices: Devices, order: PodOrder, claims: Sequence[Claim], *, binds: bool) -> list[Part]:
    """Deal the GPUs of the order to the claims in turn; what one holds of them stays with it.

    ``binds``: no scheduler will allocate the claims that are about other devices.
    """
    asked = [(claim, wants(claim, devices.classes)) for claim in claims]
    if binds:
        for claim, found in asked:
            if not found and not claim.allocated:
                raise CannotEncode(f"only a scheduler can allocate claim {claim.name}")
    asked = [(claim, found) for claim, found in asked if found]
    if order.gpus is None:
        return []  # kube-scheduler allocates what the plan leaves open
    total = sum(want.count for _, found in asked for want in found)
    if total != len(order.gpus):
        raise CannotEncode(f"its claims ask for {total} GPUs, the plan gives {len(order.gpus)}")
    drivers = {want.driver for _, found in asked for want in found}
    if len(drivers) > 1:
        raise CannotEncode("its claims ask for GPUs of several drivers")
    given = devices.chosen(order.node, order.gpus, next(iter(drivers), None))
    standing = {
        claim.name: held
        for claim, found in asked
        if (held := _standing(claim, given)) and len(held) == sum(want.count for want in found)
    }
    kept = {_key(device) for held in standing.values() for device in held}
    rest = iter([device for device in given if _key(device) not in kept])
    return [
        Part(claim, tuple(_dealt(found, standing.get(claim.name) or rest)))
        for claim, found in asked
    ]


def _standing(claim: Claim, given: Sequence[Device]) -> list[Device]:
    """The devices of a claim's allocation, if all of them are the pod's; else none."""
    by_key = {_key(device): device for device in given}
    held = claim.held()
    return [by_key[key] for key in held] if all(key in by_key for key in held) else []


def _dealt(found: Sequence[Want], devices: Iterable[Device]) -> list[tuple[Want, Device]]:
    """The next devices, as many as each request wants; ``devices`` may go on for other claims."""
    wanted = [want for want in found for _ in range(want.count)]
    return list(zip(wanted, devices, strict=False))


def _key(device: Device) -> DeviceKey:
    return (device.driver, device.pool, device.name)


TRIES = 5
"""So often a pod's claims are read and written anew: their controller writes them, too."""

_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"
_STATUS = "status"
_NOT_FOUND = 404


class Answered(Exception):  # noqa: N818  # an event on its way up, not a fault
    """What the machine is to be told of the pod."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self.event = event


class NodeUsage(Answered):
    """A device is another claim's, or the pod's own by now: asking at once again does not change that."""


@dataclass(frozen=True, slots=True)
class User:
    """The pod whose claims these are. ``plan``: for the mark on them."""

    namespace: str
    name: str
    uid: str
    plan: str


def allocate(
    wire: Transport, devices: Devices, order: PodOrder, user: User, pod_tree: Tree
) -> Event:
    """Give a pod all its devices; Conflict and Lost where the same call may do later."""
    door = _Door(wire)
    binds = bound_by_us(order, pod_tree)
    answer: Event = Done()
    for _ in range(TRIES):
        claims = [_found(door, order, name) for name in _names(wire, order, pod_tree)]
        try:
            for part in parts(devices, order, claims, binds=binds):
                _give(door, devices, user, order.node, part)
        except Answered as answered:
            answer = answered.event
            if isinstance(answer, Conflict | NoAnswer) and not isinstance(answered, NodeUsage):
                continue  # read again: somebody wrote it meanwhile, or it was done after all
            raise
        return Done()
    return answer


def _found(door: _Door, order: PodOrder, name: str) -> Claim:
    claim = door.read(order.namespace, name)
    if claim is None:
        raise CannotEncode(f"claim {name} is not there")
    return claim


def release(wire: Transport, pod_tree: Tree) -> list[Holder]:
    """Take the devices back that ``allocate`` gave to a pod which was never started; the claims freed.

    The pod is read anew: one that is bound by now keeps its devices, and that is a Conflict.
    """
    if not objects(pod_tree, "spec", "resourceClaims"):
        return []
    namespace = text(pod_tree, "metadata", "namespace") or ""
    name, uid = (text(pod_tree, "metadata", field) or "" for field in ("name", "uid"))
    door = _Door(wire)
    tree = door.waiting(namespace, name, uid)
    return [
        (namespace, claim)
        for _, claim in named_claims(tree)
        if claim is not None and _freed(door, namespace, claim, uid)
    ]


def _freed(door: _Door, namespace: str, name: str, uid: str) -> bool:
    """Free one claim of ours; False if it is none, or others use it."""
    last = Answered(NoAnswer("the claim was not freed"))
    for _ in range(TRIES):
        claim = door.read(namespace, name)
        if claim is None or not claim.ours or claim.used_by_others(uid):
            return False
        try:
            if claim.allocated:
                claim = door.write(namespace, claim, _nothing(claim), _STATUS)
            door.write(namespace, claim, unmarking(claim))
        except Answered as answered:
            if not isinstance(answered.event, Conflict | NoAnswer):
                raise
            last = answered
            continue
        return True
    raise last


# ---- what goes where


def _names(wire: Transport, order: PodOrder, pod_tree: Tree) -> list[str]:
    """Names of the pod's claims; those made since the tree was read are looked up."""
    found = named_claims(pod_tree)
    if any(name is None for _, name in found):
        reply = wire.send("GET", core("pods", namespace=order.namespace, name=order.name))
        if not reply.ok:
            raise Answered(event_of(reply, lambda _: None))
        if text(reply.body, "metadata", "uid") != order.uid:
            raise Answered(Gone("another pod stands under its name"))
        found = named_claims(reply.body)
    for entry, name in found:
        if name is None:
            raise Answered(Conflict(f"its claim {entry} is not made yet"))
    return [name for _, name in found if name is not None]


# ---- one claim


def _give(door: _Door, devices: Devices, user: User, node: str, part: Part) -> None:
    """Bring one claim to where it holds its devices for the pod, whatever is done of that."""
    holder = (user.namespace, part.claim.name)
    claim = _cleared(door, devices, user, part)
    if not claim.allocated:
        devices.look_for_holders(door.wire, door.date)
        _check_free(door, devices, node, part, holder)
    if (guard := protection(claim, user.plan)) is not None:
        claim = door.write(user.namespace, claim, guard)
    status: Tree = {}
    if not claim.allocated:
        status["allocation"] = allocation(
            claim, part.chosen, devices.classes, node=node, stamp=door.stamp
        )
    if not claim.users:
        status["reservedFor"] = [reservation(user.name, user.uid)]
    if status:
        door.write(user.namespace, claim, status_patch(claim, status), _STATUS)
    devices.give(holder, part.keys)


def _cleared(door: _Door, devices: Devices, user: User, part: Part) -> Claim:
    """The claim, without devices that an earlier plan of ours gave it. Raises CannotEncode."""
    claim = part.claim
    if claim.going:
        raise CannotEncode(f"claim {claim.name} is being deleted")
    if claim.used_by_others(user.uid):
        raise CannotEncode(f"claim {claim.name} is used by other pods, too")
    if not claim.allocated or claim.held() == part.keys:
        return claim
    if not claim.ours:
        raise CannotEncode(f"claim {claim.name} holds other devices already")
    if not door.waiting(user.namespace, user.name, user.uid):
        raise Answered(Gone("another pod stands under its name"))
    claim = door.write(user.namespace, claim, _nothing(claim), _STATUS)
    devices.take((user.namespace, claim.name))
    return claim


def _check_free(door: _Door, devices: Devices, node: str, part: Part, own: Holder) -> None:
    """The API server lets two claims hold one device: this is the only check there is."""
    for _, device in part.chosen:
        rival = devices.holder(device)
        if rival is None or rival == own or _forsaken(door, devices, rival):
            continue
        devices.forget_holders()
        words = f"device {device.name} of node {node} is held by claim {'/'.join(rival)}"
        raise NodeUsage(Conflict(words))


def _forsaken(door: _Door, devices: Devices, rival: Holder) -> bool:
    """Whether every pod that a claim is reserved for is gone: its devices are about to be taken back.

    An evicted pod goes a moment before its devices do.
    """
    users = devices.users(rival)
    return bool(users) and all(door.gone(rival[0], user) for user in users)


def _nothing(claim: Claim) -> Tree:
    """The patch that gives a claim's devices back: both fields in one, or the server refuses."""
    return status_patch(claim, {"allocation": None, "reservedFor": None})


@dataclass(slots=True)
class _Door:
    """Reads and writes claims. ``date``: the server's clock at the last answer that told it."""

    wire: Transport
    date: float | None = None

    @property
    def stamp(self) -> str:
        """That clock as RFC 3339; any time will do where the server never told it."""
        return datetime.fromtimestamp(self.date or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def read(self, namespace: str, name: str) -> Claim | None:
        """The claim as it is now; None if there is none."""
        reply = self.wire.send("GET", _path(namespace, name))
        return None if reply.status == _NOT_FOUND else self._claim(reply)

    def waiting(self, namespace: str, name: str, uid: str) -> Tree:
        """The pod as it is now; {} if it is gone. Nobody takes devices from one that is bound."""
        reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
        if reply.status == _NOT_FOUND:
            return {}
        if not reply.ok:
            raise Answered(event_of(reply, lambda _: None))
        if text(reply.body, "metadata", "uid") != uid:
            return {}
        if text(reply.body, "spec", "nodeName") is not None:
            raise NodeUsage(Conflict("it is bound by now"))
        return reply.body

    def gone(self, namespace: str, user: Tree) -> bool:
        """Whether an entry of ``reservedFor`` is a pod that is not there any more; in doubt it is."""
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
            event = event_of(reply, lambda _: None)
            # Another claim under the name is no other pod: it is read again.
            raise Answered(Conflict(event.message) if isinstance(event, Gone) else event)
        self.date = self.date if reply.date is None else reply.date
        return Claim(reply.body)


def _path(namespace: str, name: str, sub: str = "") -> str:
    return grouped(GROUP, VERSION, "resourceclaims", namespace=namespace, name=name, sub=sub)
