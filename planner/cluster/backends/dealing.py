"""Which device goes to which claim of a pod.

Promises: pure; what a claim holds of the pod's GPUs stays with it, the others are dealt in turn, so that
the same orders and claims give the same. Raises CannotCarry. Called by ``allocating``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from models.applying.orders import PodOrder
from planner.cluster.backends.base import CannotCarry
from planner.cluster.backends.claiming import Claim, DeviceKey, Want, wants
from planner.cluster.backends.devices import Devices
from planner.reading.kubernetes.forms import Device


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
                raise CannotCarry(f"only a scheduler can allocate claim {claim.name}")
    asked = [(claim, found) for claim, found in asked if found]
    if order.gpus is None:
        return []  # kube-scheduler allocates what the plan leaves open
    total = sum(want.count for _, found in asked for want in found)
    if total != len(order.gpus):
        raise CannotCarry(f"its claims ask for {total} GPUs, the plan gives {len(order.gpus)}")
    drivers = {want.driver for _, found in asked for want in found}
    if len(drivers) > 1:
        raise CannotCarry("its claims ask for GPUs of several drivers")
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
