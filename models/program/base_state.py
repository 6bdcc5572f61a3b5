"""What a search starts from: the plan without the gangs to decide about, and the options of these gangs.

The only place where a search is restricted to some gangs or nodes, or to gangs that must not move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.hardware import bits
from models.instance.cluster import Node
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance, once
from models.instance.occupancy import PODS, Room, rooms
from models.instance.solution import GangDecision, PodPlacement, Reason, placed
from models.program.demand_builder import identity
from models.program.linear_program import Question, check, never
from models.program.options import Choice, Effect, choices_of, indices_matter
from models.rules.demands import Demand
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
        gang = instance.gangs[choice.gang]
        standing = {(p.role, p.node) for p in gang.running_pods}
        for number, role in enumerate(gang.roles):
            for n, mask in role.keeps:
                if not instance.schedulable(instance.cluster.nodes[n]):
                    continue  # nobody gets what is free there
                for gpu in bits(mask & ~rooms[n].kept) if (number, n) in standing else ():
                    found.setdefault((n, 1 << gpu), set()).add((choice.gang, number))
    return tuple(Keeping(n, gpu, frozenset(own)) for (n, gpu), own in sorted(found.items()))


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What an option leaves on a node: known GPUs, the number of unknown ones, and resources."""

    known: int = 0
    blind: int = 0
    use: tuple[tuple[str, int], ...] = ()


NodeUsages = Mapping[int, Mapping[int, tuple[NodeUsage, ...]]]
"""By node and choice (its position among the choices): what each of its options leaves there."""


def node_usages(
    instance: Instance, choices: Sequence[Choice], rooms: Sequence[Room]
) -> dict[int, dict[int, tuple[NodeUsage, ...]]]:
    """Usages of nodes on which it is decided who stays: that may take pods, or whose sets depend on that."""
    found: dict[int, dict[int, tuple[NodeUsage, ...]]] = {}
    for number, choice in enumerate(choices):
        always = set(choice.always)
        by_node: dict[int, list[NodeUsage]] = {}
        for position, option in enumerate(choice.options):
            stays = [p for p in option.demand.stays if p not in always]
            here = usage_by_node(instance, choice.gang, stays)
            for n in {**by_node, **here}:
                row = by_node.setdefault(n, [NodeUsage()] * len(choice.options))
                row[position] = here.get(n, NodeUsage())
        for n, row in by_node.items():
            found.setdefault(n, {})[number] = tuple(row)
    nodes = instance.cluster.nodes
    return {
        n: usages
        for n, usages in found.items()
        if instance.schedulable(nodes[n]) or needs_cases(nodes[n], rooms[n], usages)
    }


def usage_by_node(
    instance: Instance, index: int, pods: Sequence[ExistingPod]
) -> dict[int, NodeUsage]:
    """What these pods of a gang hold, by node."""
    known, blind, use = Counter[int](), Counter[int](), dict[int, Counter[str]]()
    for pod in pods:
        assert pod.node is not None
        role = instance.gangs[index].roles[pod.role]
        if role.gpus and pod.gpus is None:
            blind[pod.node] += role.gpus
        elif role.gpus:
            known[pod.node] |= pod.gpus or 0
        own = use.setdefault(pod.node, Counter())
        for resource, amount in ((PODS, 1), *role.requests):
            own[resource] += amount
    return {
        n: NodeUsage(known[n], blind[n], tuple(sorted(amounts.items())))
        for n, amounts in use.items()
    }


def needs_cases(node: Node, room: Room, usages: Mapping[int, Sequence[NodeUsage]]) -> bool:
    """Whether the worth of the sets of the server differs between cases."""
    lefts = (left for options in usages.values() for left in options)
    differ = any(left.known if room.blind else left.blind for left in lefts)
    return differ and indices_matter(node)


@dataclass(frozen=True)
class BaseState:
    """``choices``: what is decided. ``base``: the plan in which every gang to decide about is away.

    ``rooms``, ``held``: room, and mask of GPUs known to be held, a node, next to the pods that stay under
    every option. ``keeping``: shared GPUs of which it is decided whether they stay so.
    """

    choices: tuple[Choice, ...]
    base: tuple[GangDecision, ...]
    rooms: tuple[Room, ...]
    held: tuple[int, ...]
    node_usages: NodeUsages
    keeping: tuple[Keeping, ...]

    @cached_property
    def origin(self) -> tuple[tuple[int, int], ...]:
        """(choice, option) of every option with pods to place."""
        return tuple(
            (number, position)
            for number, choice in enumerate(self.choices)
            for position, option in enumerate(choice.options)
            if option.demand.roles
        )

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        return tuple(self.choices[n].options[position].demand for n, position in self.origin)

    def effect(self, number: int) -> Effect:
        choice, position = self.origin[number]
        return self.choices[choice].options[position].effect


def classes(instance: Instance, state: BaseState) -> list[list[tuple[int, Demand]]]:
    """Identical gangs, each class in the order in which its gangs start (priority, age, name).

    Gangs of different priorities are in different classes where a gang may be stopped for one of higher
    priority, or where speeds count; there also gangs that are aged.
    """
    by_priority = instance.by_speed or any(choice.yields for choice in state.choices)
    classes: dict[object, list[tuple[int, Demand]]] = {}
    for number, demand in enumerate(state.demands):
        gang = instance.gangs[demand.gang]
        key = (
            identity(instance, demand),
            None if demand.only_option else number,
            gang.priority if by_priority else None,
            instance.age(gang) if instance.by_speed and instance.aged(gang) else None,
        )
        classes.setdefault(key, []).append((number, demand))

    def order(member: tuple[int, Demand]) -> tuple[int, int, int]:
        gang = instance.gangs[member[1].gang]
        return (-gang.priority, -instance.age(gang), member[1].gang)

    return [sorted(members, key=order) for members in classes.values()]


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


def unchanged(gang: Gang, pods: Sequence[PodPlacement], missing: int) -> GangDecision:
    """The same, where it is known which pods of the gang run, and how many of a running one do not."""
    held = None if gang.hold is None else Reason.of(gang.hold.code, text=gang.hold.message)
    if not gang.running:
        return GangDecision("wait", (), held)
    reason = (held or Reason.of("Incomplete")) if missing else None
    return GangDecision("keep", tuple(pods), reason)


def build_base_state(
    instance: Instance,
    *,
    base: tuple[GangDecision, ...] | None = None,
    only: frozenset[int] | None = None,
    immovable: frozenset[int] = frozenset(),
    interrupted: Question = never,
) -> BaseState:
    """``only``: the gangs to decide about, which wait; all gangs by default.

    ``base``: decisions about all gangs; by default nothing changes. ``immovable``: gangs that must not move.
    """
    base = base or base_decisions(instance)
    known, room = known_masks(instance, base), rooms(instance, base)
    choices = choices_of(
        instance, known, room, only=only, immovable=immovable, interrupted=interrupted
    )
    check(interrupted)
    away, always = list(base), list(base)
    for choice in choices:
        stay = placed(instance.gangs[choice.gang], choice.always)
        away[choice.gang], always[choice.gang] = GangDecision("wait"), GangDecision("keep", stay)
    room = rooms(instance, always)
    kept = keeping(instance, choices, room)
    usages = node_usages(instance, choices, room)
    for number, one in enumerate(kept, len(choices)):  # whether it stays shared is a choice, too
        usages.setdefault(one.node, {})[number] = (NodeUsage(one.gpu),)
    held = tuple(known_masks(instance, always))
    return BaseState(choices, tuple(away), room, held, dict(sorted(usages.items())), kept)


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
