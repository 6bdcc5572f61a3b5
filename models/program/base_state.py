"""What a search starts from: the plan without the gangs to decide about, and the options of these gangs.

The only place where a search is restricted to some gangs or nodes, or to gangs that must not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from models.hardware import bits
from models.instance.disruption_budgets import taken
from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.occupancy import Room, rooms
from models.instance.solution import GangDecision, PodPlacement, Reason, placed
from models.program.demand_builder import identity
from models.program.interruption import Question, check, never
from models.program.options import Choice, Effect, Option, choices_of, standing_gpus
from models.program.regions import RegionSet
from models.program.server_cases import (
    NodeUsage,
    NodeUsages,
    needs_cases,
    node_usages,
    usage_by_node,
)
from models.rules.demands import Demand
from models.rules.giving_way import Victims
from models.values.tier_values import known_masks


@dataclass(frozen=True, slots=True)
class Keeping:
    """A GPU (mask) of a node that stays shared while a pod of these roles, by gang, is there."""

    node: int
    gpu: int
    roles: frozenset[tuple[int, int]]


def keeping(
    instance: Instance, choices: Sequence[Choice], rooms: Sequence[Room]
) -> tuple[Keeping, ...]:
    """The GPUs that only pods share of which is decided whether they stay. ``rooms``: next to all others."""
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for choice in choices:
        roles = instance.gangs[choice.gang].roles
        standing = {(p.role, p.node) for p in instance.gangs[choice.gang].running_pods}
        for number, role in enumerate(roles):
            for n, mask in role.keeps:
                if not instance.schedulable(instance.cluster.nodes[n]):
                    continue  # nobody gets what is free there
                for gpu in bits(mask & ~rooms[n].kept) if (number, n) in standing else ():
                    found.setdefault((n, 1 << gpu), set()).add((choice.gang, number))
    return tuple(Keeping(n, gpu, frozenset(own)) for (n, gpu), own in sorted(found.items()))


@dataclass(frozen=True)
class PlacementRequests:
    """``demands``: of every option with pods to place; ``origin``: their (choice, option).

    ``keeping``: shared GPUs of which it is decided whether they stay so.
    """

    choices: tuple[Choice, ...]
    demands: tuple[Demand, ...]
    origin: tuple[tuple[int, int], ...]
    keeping: tuple[Keeping, ...] = ()

    def effect(self, number: int) -> Effect:
        """The effect of the option with that demand."""
        choice, position = self.origin[number]
        return self.choices[choice].options[position].effect


def collect_requests(
    choices: Sequence[Choice], kept: tuple[Keeping, ...] = ()
) -> PlacementRequests:
    origin = tuple(
        (number, position)
        for number, choice in enumerate(choices)
        for position, option in enumerate(choice.options)
        if option.demand.roles
    )
    demands = (choices[number].options[position].demand for number, position in origin)
    return PlacementRequests(tuple(choices), tuple(demands), origin, kept)


def victims(instance: Instance, choices: Sequence[Choice]) -> Victims:
    """The gangs that may be stopped or shrunk for others."""
    return Victims(instance, (choice.gang for choice in choices if choice.yields))


def classes(
    instance: Instance, requests: PlacementRequests, region_set: RegionSet
) -> list[list[tuple[int, Demand]]]:
    """Identical gangs, each class in the order in which its gangs start (priority, age, name).

    Gangs of different priorities are in different classes where a gang may be stopped for one of higher
    priority.
    """
    by_priority = bool(victims(instance, requests.choices))
    classes: dict[object, list[tuple[int, Demand]]] = {}
    for number, demand in enumerate(requests.demands):
        gang = instance.gangs[demand.gang]
        key = (
            identity(instance, demand),
            region_set.cpu_only_follow[number],
            None if demand.only_option else number,
            gang.priority if by_priority else None,
        )
        classes.setdefault(key, []).append((number, demand))

    def order(member: tuple[int, Demand]) -> tuple[int, int, int]:
        gang = instance.gangs[member[1].gang]
        return (-gang.priority, -instance.age(gang), member[1].gang)

    return [sorted(members, key=order) for members in classes.values()]


Pods = tuple[PodPlacement, ...]


@once
def base_decisions(instance: Instance) -> tuple[GangDecision, ...]:
    """The plan that changes nothing: running gangs stay as they are, the others wait.

    Held gangs have their reason already.
    """
    return tuple(base_decision(instance, index) for index in range(len(instance.gangs)))


def base_decision(instance: Instance, index: int) -> GangDecision:
    """The decision about a gang when nothing changes."""
    gang = instance.gangs[index]
    missing = len(gang.missing) if index in instance.incomplete else 0
    return unchanged(gang, instance.standing[index], missing)


def unchanged(gang: Gang, pods: Pods, missing: int) -> GangDecision:
    """The same, where it is known which pods of the gang run, and how many of a running one do not."""
    held = None if gang.hold is None else Reason.of(gang.hold.code, text=gang.hold.message)
    if not gang.running:
        return GangDecision("wait", (), held)
    reason = (held or Reason.of("Incomplete")) if missing else None
    return GangDecision("keep", pods, reason)


@dataclass(frozen=True)
class BaseState:
    """``base``: the plan in which every gang to decide about is away.

    ``rooms``, ``held``: room, and mask of GPUs known to be held, a node, next to the pods that stay under
    every option. ``moved``: gangs and GPUs that move in ``base``; ``evicted``: what its evictions take from
    each disruption budget.
    """

    requests: PlacementRequests
    base: tuple[GangDecision, ...]
    rooms: tuple[Room, ...]
    held: tuple[int, ...]
    node_usages: NodeUsages
    moved: tuple[int, int]
    evicted: Mapping[int, int]


def build_base_state(
    instance: Instance,
    *,
    base: tuple[GangDecision, ...] | None = None,
    only: frozenset[int] | None = None,
    immovable: frozenset[int] = frozenset(),
    interrupted: Question = never,
) -> BaseState:
    """``base``: decisions about the gangs that are not in ``only``; by default nothing changes for them.

    ``immovable``: gangs that must not move.
    """
    now = base_decisions(instance)
    base = base or now
    known = known_masks(instance, base)
    choices = choices_of(
        instance,
        known,
        rooms(instance, base),
        only=only,
        immovable=immovable,
        interrupted=interrupted,
    )
    check(interrupted)
    away, always = list(base), list(base)
    for choice in choices:
        away[choice.gang] = GangDecision("wait")
    if only is not None:
        choices = _still_free(instance, choices, now, away)
    for choice in choices:
        always[choice.gang] = GangDecision(
            "keep", placed(instance.gangs[choice.gang], choice.always)
        )
    moved = [
        standing_gpus(instance, index)
        for index, (old, new) in enumerate(zip(now, away, strict=True))
        if new is not old and new.pods and moves_pods(old.pods, new.pods)
    ]
    room = rooms(instance, always)
    kept = keeping(instance, choices, room)
    usages = _with_kept(_deciding(instance, node_usages(instance, choices), room), choices, kept)
    return BaseState(
        collect_requests(choices, kept),
        tuple(away),
        room,
        tuple(known_masks(instance, always)),
        usages,
        (len(moved), sum(moved)),
        taken(instance, away),
    )


def _deciding(instance: Instance, node_usages: NodeUsages, room: Sequence[Room]) -> NodeUsages:
    """Usages of nodes that may take pods, or whose GPU sets depend on who stays."""
    nodes = instance.cluster.nodes
    return {
        n: usages
        for n, usages in node_usages.items()
        if instance.schedulable(nodes[n]) or needs_cases(nodes[n], room[n], usages)
    }


def _with_kept(
    usages: NodeUsages, choices: Sequence[Choice], kept: Sequence[Keeping]
) -> NodeUsages:
    """With each of these GPUs as a choice of its own, after the others: whether it stays shared."""
    found = {n: dict(own) for n, own in usages.items()}
    for number, one in enumerate(kept, len(choices)):
        found.setdefault(one.node, {})[number] = (NodeUsage(one.gpu),)
    return dict(sorted(found.items()))


def _still_free(
    instance: Instance,
    choices: Sequence[Choice],
    now: Sequence[GangDecision],
    away: Sequence[GangDecision],
) -> tuple[Choice, ...]:
    """The choices without options whose pods stay where the base plan has placed others."""
    came = {
        pod.node
        for old, new in zip(now, away, strict=True)
        if new is not old and new.pods != old.pods
        for pod in set(new.pods) - set(old.pods)
    }
    if not came:
        return tuple(choices)
    left, held = rooms(instance, away), known_masks(instance, away)
    whole = [0] * len(held)
    for one in away:
        for pod in one.pods:
            whole[pod.node] |= pod.gpus or 0

    def free(option: Option) -> bool:
        here = usage_by_node(instance, option.demand.gang, option.demand.stays)
        roles = instance.gangs[option.demand.gang].roles
        kept = (
            roles[p.role].keeps_on(p.node) & whole[p.node]
            for p in option.demand.stays
            if p.node is not None
        )
        return not any(kept) and all(
            fits(left[n], held[n], what) for n, what in here.items() if n in came
        )

    return tuple(
        replace(choice, options=tuple(option for option in choice.options if free(option)))
        for choice in choices
    )


def fits(room: Room, held: int, left: NodeUsage) -> bool:
    """Whether pods may stay in the free room next to others that came. ``held``: GPUs known to be held."""
    free = (room.mask & ~left.known).bit_count() - room.unknown - left.blind
    spare = dict(room.left)
    enough = all(amount <= spare.get(name, amount) for name, amount in left.use)
    return not left.known & held and free >= 0 and enough


def moves_pods(old: Sequence[PodPlacement], new: Sequence[PodPlacement]) -> bool:
    """Whether a standing pod is on another node or other GPUs."""
    before = {(p.role, p.index): p for p in old}
    return any(before.get((p.role, p.index), p) != p for p in new)


def outcome(instance: Instance, index: int, pods: Sequence[PodPlacement]) -> GangDecision:
    """The decision that these pods imply for a gang (contract, section 5), without a reason."""
    gang = instance.gangs[index]
    after = tuple(sorted(pods, key=lambda p: (p.role, p.index)))
    if not gang.running:
        return GangDecision("place" if after else "wait", after)
    if not after:
        return GangDecision("preempt")
    before = instance.standing[index]
    if after == before:
        return base_decision(instance, index)
    if moves_pods(before, after):
        return GangDecision("move", after)
    dropped = {(p.role, p.index) for p in before} - {(p.role, p.index) for p in after}
    completes = index in instance.incomplete and not dropped
    return GangDecision("complete" if completes else "resize", after)
