"""The preemption rule (2.7) on whole plans, and the repair of plans that break it.

A gang is stopped, or shrunk without being movable, only if a gang of higher priority puts a new pod
on a node that it gives up. A search over parts of a plan can break this rule unnoticed. A victim is
restored only as it was and only where the plan then obeys rules 2.1, 2.2, 2.9 and 2.10 on its
nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.instance import Instance
from models.occupancy import rooms
from models.program.base_state import base_decision
from models.program.demand_builder import remaining_demand
from models.solution import GangDecision
from models.tier_values import gang_value
from planner.search.free_space import FreeSpace, Pods
from planner.search.greedy import place
from planner.search.trial import counts_of


def unjustified_victims(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that give up space on nodes to which no gang of higher priority comes, ascending."""
    given = {
        index: nodes
        for index, decision in enumerate(decisions)
        if (nodes := _given(instance, index, decision))
    }
    if not given:
        return []
    highest = _arrivals(instance, decisions)
    return [
        index
        for index, nodes in given.items()
        if not any(
            highest.get(n, instance.gangs[index].priority) > instance.gangs[index].priority
            for n in nodes
        )
    ]


def _given(instance: Instance, index: int, decision: GangDecision) -> set[int]:
    """Nodes on which a gang gives up space under rule 2.7."""
    gang = instance.gangs[index]
    if not gang.running or (decision.pods and gang.movable):
        return set()
    after = {(pod.role, pod.index) for pod in decision.pods}
    gone = (pod for pod in gang.running_pods if (pod.role, pod.index) not in after)
    return {pod.node for pod in gone if pod.node is not None}


def _arrivals(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """The highest priority of the new pods on each node."""
    highest: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        original = {(pod.role, pod.index): pod.node for pod in gang.running_pods}
        for pod in decision.pods:
            if original.get((pod.role, pod.index)) != pod.node:
                highest[pod.node] = max(highest.get(pod.node, gang.priority), gang.priority)
    return highest


def restore_unjustified(
    instance: Instance, decisions: Sequence[GangDecision]
) -> tuple[GangDecision, ...]:
    """The plan with needless victims restored where there is still space."""
    found = list(decisions)
    for index in unjustified_victims(instance, decisions):
        back = base_decision(instance, index)
        trial = [*found[:index], back, *found[index + 1 :]]
        if _fits(instance, found, trial, index):
            found = trial
    return tuple(found)


def _fits(
    instance: Instance,
    before: Sequence[GangDecision],
    after: Sequence[GangDecision],
    index: int,
) -> bool:
    """Whether the gang's pods fit where they were, next to the pods the plan puts there."""
    gang = instance.gangs[index]
    here = {pod.node for pod in gang.running_pods if pod.node is not None}
    now, then = rooms(instance, before), rooms(instance, after)
    taken = {
        (pod.node, gpu)
        for other, decision in enumerate(before)
        if other != index
        for pod in decision.pods
        if pod.node in here and pod.gpus
        for gpu in range(pod.gpus.bit_length())
        if pod.gpus >> gpu & 1
    }
    own = (
        (pod.node, gpu)
        for pod in after[index].pods
        if pod.gpus
        for gpu in range(pod.gpus.bit_length())
        if pod.gpus >> gpu & 1
    )
    return not taken & set(own) and all(
        then[n].mask.bit_count() >= then[n].unknown
        and then[n].blind == now[n].blind
        and all(left >= 0 for _, left in then[n].left)
        for n in sorted(here)
    )


def put_back(space: FreeSpace, gang: int, pods: Pods) -> bool:
    """Give the gang these pods again if they still fit; returns whether they do."""
    mark = space.mark()
    nodes = {pod.node for pod in (*space.pods[gang], *pods)}
    space.set(gang, pods)
    if refresh_indices(space, nodes):
        return True
    space.undo(mark)
    return False


def restore_needless(space: FreeSpace) -> None:
    """Restore victims whose space is not needed, or whose guests also fit elsewhere."""
    victims = [
        gang
        for gang, original in enumerate(space.original)
        if original and space.decision(gang).decision in ("preempt", "resize", "move")
    ]
    for gang in sorted(victims, key=lambda g: (-len(space.original[g]), g)):
        mark = space.mark()
        if not (put_back(space, gang, space.original[gang]) or _swapped(space, gang)):
            space.undo(mark)


def _swapped(space: FreeSpace, gang: int) -> bool:
    """Restore a gang and place its guests elsewhere; returns whether that works."""
    nodes = {pod.node for pod in space.original[gang]}
    guests = {
        guest: space.pods[guest]
        for n in sorted(nodes)
        for (guest, _, _), (_, stays) in space.by_node[n].tenants.items()
        if not stays and guest != gang
    }
    if any(space.original[guest] for guest in guests):
        return False  # a guest that was moved itself, or is half new
    for guest in guests:
        space.set(guest, ())
    if not put_back(space, gang, space.original[gang]):
        return False
    order = sorted(guests, key=lambda g: (-len(guests[g]), g))
    if not all(place_again(space, guest, guests[guest]) for guest in order):
        return False
    gave = (g for g, pods in enumerate(space.pods) if pods != space.original[g])
    return not unjustified(space, gave)


def place_again(space: FreeSpace, gang: int, before: Pods) -> bool:
    """Place the pods that a gang gave up on other nodes; returns whether that works."""
    counts = counts_of(space.instance.gangs[gang], before)
    found = place(space, remaining_demand(space.instance, gang, counts, space.pods[gang]))
    if found is None:
        return False
    space.set(gang, (*space.pods[gang], *found))
    return refresh_indices(space, {pod.node for pod in (*found, *before)})


def refresh_indices(space: FreeSpace, nodes: Iterable[int]) -> bool:
    """Give pods new GPU indices where needed; False if a node is invalid then."""
    for n in sorted(set(nodes)):
        for gang in space.stale_indices(n):
            if not _rename(space, gang, n):
                return False
        if space.stale_indices(n) or not space.is_valid(n):
            return False
    return True


def _rename(space: FreeSpace, gang: int, n: int) -> bool:
    """New GPU indices for the gang's placed pods on a node."""
    spec = space.instance.gangs[gang]
    here = {key for key, (_, stays) in space.by_node[n].tenants.items() if not stays}
    pods = space.pods[gang]
    mine = [p for p in pods if (gang, p.role, p.index) in here and spec.roles[p.role].gpus]
    rest = [p for p in pods if p not in mine]
    space.set(gang, rest)
    gpus = sum(spec.roles[p.role].gpus for p in mine)
    if gpus > space.by_node[n].free:
        return False
    pool = space.pick(n, gpus)
    named = []
    for pod in mine:
        count = spec.roles[pod.role].gpus
        mask = None if pool is None else sum(1 << i for i in pool[:count])
        pool = None if pool is None else pool[count:]
        named.append(replace(pod, gpus=mask))
    space.set(gang, (*rest, *named))
    if not space.instance.min_share(spec):
        return True
    return gang_value(space.instance, spec, space.pods[gang], space.known()).meets_min_share


def unjustified(space: FreeSpace, gangs: Iterable[int]) -> tuple[int, ...]:
    """The gangs that stop, or shrink without being movable, although no higher gang needs it."""
    found = []
    for index in gangs:
        left = {(p.role, p.index) for p in space.pods[index]}
        gone = {p.node for p in space.original[index] if (p.role, p.index) not in left}
        if not gone or (left and space.instance.gangs[index].movable):
            continue
        if not any(_comes(space, index, n) for n in sorted(gone)):
            found.append(index)
    return tuple(found)


def _comes(space: FreeSpace, gang: int, n: int) -> bool:
    """Whether a gang of higher priority puts a new pod on the node."""
    gangs = space.instance.gangs
    return any(
        gangs[other].priority > gangs[gang].priority and space.is_new_on(other, pod)
        for (other, _, _), (pod, _) in space.by_node[n].tenants.items()
    )
