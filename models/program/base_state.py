"""The options that have pods to place, flat, and which of them are identical.

Promises: one demand an option, in choice order; identical gangs together, in the order in which they go.
Called by ``formulation`` and ``pooled``.

What is given and what is to be decided: the plan without the gangs that are decided about.

Promises: rooms beside what stays in any case, the options of every other gang, and what these leave
on the nodes; the one place where a search is held to some gangs, nodes or to gangs that must not move.
Called by ``formulation`` and ``pooled``; its ``base_decisions`` by every search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.gang import ExistingPod
from models.instance import Instance
from models.occupancy import Room, rooms
from models.program.demand_builder import identity
from models.program.demands import Demand
from models.program.options import Choice, Effect, Option, choices_of, standing_gpus
from models.program.regions import Pools
from models.program.server_cases import Contents, Left, contents_of, left_by, told_apart
from models.solution import GangDecision, PodPlacement, Reason
from models.tier_values import known_masks


@dataclass(frozen=True)
class Asked:
    """``demands``: of every option with pods to place; ``origin``: their (choice, option)."""

    choices: tuple[Choice, ...]
    demands: tuple[Demand, ...]
    origin: tuple[tuple[int, int], ...]

    def effect(self, number: int) -> Effect:
        """What the option of that demand does to its gang."""
        choice, position = self.origin[number]
        return self.choices[choice].options[position].effect


def asked(choices: Sequence[Choice], within: frozenset[int] | None = None) -> Asked:
    """``within``: nodes that pods may be placed on."""
    origin = tuple(
        (number, position)
        for number, choice in enumerate(choices)
        for position, option in enumerate(choice.options)
        if option.demand.roles
    )
    demands = (choices[number].options[position].demand for number, position in origin)
    held = (d if within is None else d.within(within) for d in demands)
    return Asked(tuple(choices), tuple(held), origin)


def may_stop(choices: Sequence[Choice]) -> bool:
    """Whether any gang may be stopped or shrunk for a higher one that comes to its nodes."""
    return any(
        not choice.must or any(option.effect.gives for option in choice.options)
        for choice in choices
        if choice.stop.gives
    )


def yielding(instance: Instance, choices: Sequence[Choice]) -> int | None:
    """Priority of the least gang that may be stopped or shrunk for a higher one; None if there is none."""
    own = (c for c in choices if not c.must or any(o.effect.gives for o in c.options))
    return min((instance.gangs[c.gang].priority for c in own if c.stop.gives), default=None)


def classes(
    instance: Instance, asks: Asked, pools: Pools, *, planned: bool = True
) -> list[list[tuple[int, Demand]]]:
    """Identical gangs together, each class in the order (priority, age, name) in which they go.

    ``planned``: gangs that an earlier plan placed are by themselves. Those of unlike priority are apart
    where it matters who comes to a node: for whom it is given up.
    """
    apart = may_stop(asks.choices)
    classes: dict[object, list[tuple[int, Demand]]] = {}
    for number, demand in enumerate(asks.demands):
        gang = instance.gangs[demand.gang]
        key = (
            identity(instance, demand, planned=planned),
            pools.riding[number],
            None if demand.sole else number,
            gang.priority if apart else None,
        )
        classes.setdefault(key, []).append((number, demand))

    def order(member: tuple[int, Demand]) -> tuple[int, int, int]:
        gang = instance.gangs[member[1].gang]
        return (-gang.priority, -instance.age(gang), member[1].gang)

    return [sorted(members, key=order) for members in classes.values()]


Pods = tuple[PodPlacement, ...]


def base_decisions(instance: Instance) -> tuple[GangDecision, ...]:
    """The plan that changes nothing: running gangs kept as they are, the others wait.

    Held gangs have their reason already: no plan does more for them.
    """
    return tuple(base_decision(instance, index) for index in range(len(instance.gangs)))


def base_decision(instance: Instance, index: int) -> GangDecision:
    """What becomes of a gang when nothing changes."""
    gang = instance.gangs[index]
    held = None if gang.hold is None else Reason(gang.hold.code, gang.hold.message)
    if not gang.running:
        return GangDecision("wait", (), held)
    reason = None
    if gang.missing():
        reason = held or Reason("Incomplete", f"{len(gang.missing())} of its pods are missing")
    return GangDecision("keep", placed(instance, index, gang.running_pods), reason)


@dataclass(frozen=True)
class Ground:
    """What is to be decided, and what is given: ``base`` has every gang that is decided about away.

    ``rooms``, ``held``: room, and GPUs known held, a node, beside all pods that stay whatever is chosen.
    ``moved``: gangs and GPUs moved in ``base``.
    """

    asks: Asked
    base: tuple[GangDecision, ...]
    rooms: tuple[Room, ...]
    held: tuple[int, ...]
    contents: Contents
    moved: tuple[int, int]


def ground_of(
    instance: Instance,
    *,
    base: tuple[GangDecision, ...] | None = None,
    only: frozenset[int] | None = None,
    within: frozenset[int] | None = None,
    still: frozenset[int] = frozenset(),
) -> Ground:
    """``base``: what becomes of the gangs that are not in ``only``; by default nothing changes for them.

    ``within``: nodes on which pods may be placed. ``still``: gangs that must not move.
    """
    now = base_decisions(instance)
    base = base or now
    known = known_masks(instance, base)
    choices = choices_of(instance, known, rooms(instance, base), only=only, still=still)
    away, always = list(base), list(base)
    for choice in choices:
        away[choice.gang] = GangDecision("wait")
    if only is not None:
        choices = _beside(instance, choices, now, away)
    for choice in choices:
        always[choice.gang] = GangDecision("keep", placed(instance, choice.gang, choice.always))
    moved = [
        standing_gpus(instance, index)
        for index, (old, new) in enumerate(zip(now, away, strict=True))
        if moves_pods(old.pods, new.pods)
    ]
    room = rooms(instance, always)
    return Ground(
        asked(choices, within),
        tuple(away),
        room,
        tuple(known_masks(instance, always)),
        _deciding(instance, contents_of(instance, choices), room),
        (len(moved), sum(moved)),
    )


def _deciding(instance: Instance, contents: Contents, room: Sequence[Room]) -> Contents:
    """Those of nodes that may take pods, or where who stays tells what the others are worth."""
    nodes = instance.cluster.nodes
    return {
        n: content
        for n, content in contents.items()
        if instance.schedulable(nodes[n]) or told_apart(nodes[n], room[n], content)
    }


def _beside(
    instance: Instance,
    choices: Sequence[Choice],
    now: Sequence[GangDecision],
    away: Sequence[GangDecision],
) -> tuple[Choice, ...]:
    """The choices without options whose pods stay where what is given has put others since."""
    came = {
        pod.node
        for old, new in zip(now, away, strict=True)
        if new.pods != old.pods
        for pod in set(new.pods) - set(old.pods)
    }
    if not came:
        return tuple(choices)
    left, held = rooms(instance, away), known_masks(instance, away)

    def free(option: Option) -> bool:
        here = left_by(instance, option.demand.gang, option.demand.stays)
        return all(fits(left[n], held[n], what) for n, what in here.items() if n in came)

    return tuple(
        replace(choice, options=tuple(option for option in choice.options if free(option)))
        for choice in choices
    )


def fits(room: Room, held: int, left: Left) -> bool:
    """Whether pods may stay in what is free beside others that came. ``held``: GPUs known to be held."""
    free = (room.mask & ~left.known).bit_count() - room.unknown - left.blind
    spare = dict(room.left)
    enough = all(amount <= spare.get(name, amount) for name, amount in left.use)
    return not left.known & held and free >= 0 and enough


def moves_pods(old: Sequence[PodPlacement], new: Sequence[PodPlacement]) -> bool:
    """Whether a pod that stood is elsewhere, or on other GPUs."""
    before = {(p.role, p.index): p for p in old}
    return any(before.get((p.role, p.index), p) != p for p in new)


def placed(instance: Instance, index: int, pods: Sequence[ExistingPod]) -> Pods:
    """Standing pods as the plan writes them."""
    roles = instance.gangs[index].roles
    return tuple(
        PodPlacement(p.role, p.index, p.node, p.gpus if roles[p.role].gpus else 0)
        for p in sorted(pods, key=lambda p: (p.role, p.index))
        if p.node is not None
    )


def outcome(instance: Instance, index: int, pods: Sequence[PodPlacement]) -> GangDecision:
    """The decision that these pods make of a gang (contract, section 5). Reasons come later."""
    gang = instance.gangs[index]
    after = tuple(sorted(pods, key=lambda p: (p.role, p.index)))
    if not gang.running:
        return GangDecision("place" if after else "wait", after)
    if not after:
        return GangDecision("preempt")
    before = placed(instance, index, gang.running_pods)
    if after == before:
        return base_decision(instance, index)
    if moves_pods(before, after):
        return GangDecision("move", after)
    dropped = {(p.role, p.index) for p in before} - {(p.role, p.index) for p in after}
    completes = index in instance.incomplete and not dropped
    return GangDecision("complete" if completes else "resize", after)
