"""Who gives room to whom: the one rule that a search over parts of a plan may break unseen.

Promises: exact (contract 2.7: a gang is stopped, or shrunk without being movable, only if a higher one
puts a pod that does not stand there now on a node it gives room on). Called by ``ledger``.

Putting back what was taken for nothing, and names of GPUs that follow who stays.

Promises: a gang is put back only as it was, and only where the plan then obeys contract 2.1, 2.2, 2.9
and 2.10 on its nodes; ``unjustified`` names every gang that gives way with no higher one coming (2.7).
Called by ``reclaiming``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.instance import Instance
from models.occupancy import rooms
from models.program.base_state import base_decision
from models.solution import GangDecision
from models.tier_values import gang_value
from planner.search.free_space import Ground, Pods
from planner.search.greedy import place
from planner.search.trial import counts_of, wanted


def unlawful(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that give room on nodes to which no higher one comes, ascending."""
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
    """Nodes on which a gang gives room that it need not give."""
    gang = instance.gangs[index]
    if not gang.running or (decision.pods and gang.movable):
        return set()
    after = {(pod.role, pod.index) for pod in decision.pods}
    gone = (pod for pod in gang.standing if (pod.role, pod.index) not in after)
    return {pod.node for pod in gone if pod.node is not None}


def _arrivals(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """The highest priority that comes to each node."""
    highest: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        stood = {(pod.role, pod.index): pod.node for pod in gang.standing}
        for pod in decision.pods:
            if stood.get((pod.role, pod.index)) != pod.node:
                highest[pod.node] = max(highest.get(pod.node, gang.priority), gang.priority)
    return highest


def mended(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """The plan with gangs that give room to nobody put back as they were, where there still is room."""
    found = list(decisions)
    for index in unlawful(instance, decisions):
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
    """Whether the gang's pods fit where they stood beside what the plan puts there now."""
    gang = instance.gangs[index]
    here = {pod.node for pod in gang.standing if pod.node is not None}
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


def put_back(ground: Ground, gang: int, pods: Pods) -> bool:
    """Give the gang these pods again if they still fit; whether they did."""
    mark = ground.mark()
    nodes = {pod.node for pod in (*ground.pods[gang], *pods)}
    ground.set(gang, pods)
    if settle(ground, nodes):
        return True
    ground.undo(mark)
    return False


def relieve(ground: Ground) -> None:
    """Give back what gangs that stop, shrink or move gave, where those who took it fit elsewhere as well."""
    victims = [
        gang
        for gang, stood in enumerate(ground.stood)
        if stood and ground.decision(gang).decision in ("preempt", "resize", "move")
    ]
    for gang in sorted(victims, key=lambda g: (-len(ground.stood[g]), g)):
        mark = ground.mark()
        if not (put_back(ground, gang, ground.stood[gang]) or _swapped(ground, gang)):
            ground.undo(mark)


def _swapped(ground: Ground, gang: int) -> bool:
    """Put a gang back as it was and everybody placed on its nodes elsewhere; whether that worked."""
    nodes = {pod.node for pod in ground.stood[gang]}
    guests = {
        guest: ground.pods[guest]
        for n in sorted(nodes)
        for (guest, _, _), (_, stays) in ground.plots[n].tenants.items()
        if not stays and guest != gang
    }
    if any(ground.stood[guest] for guest in guests):
        return False  # it is here because it gave way itself, or is half new
    for guest in guests:
        ground.set(guest, ())
    if not put_back(ground, gang, ground.stood[gang]):
        return False
    order = sorted(guests, key=lambda g: (-len(guests[g]), g))
    if not all(restart(ground, guest, guests[guest]) for guest in order):
        return False
    gave = (g for g, pods in enumerate(ground.pods) if pods != ground.stood[g])
    return not unjustified(ground, gave)


def restart(ground: Ground, gang: int, before: Pods) -> bool:
    """Another place for the pods a gang gave away, so that it has as many as before."""
    counts = counts_of(ground.instance.gangs[gang], before)
    found = place(ground, wanted(ground.instance, gang, counts, ground.pods[gang]))
    if found is None:
        return False
    ground.set(gang, (*ground.pods[gang], *found))
    return settle(ground, {pod.node for pod in (*found, *before)})


def settle(ground: Ground, nodes: Iterable[int]) -> bool:
    """Name GPUs anew where a change of who stays asks for it; False if a node does not hold then."""
    for n in sorted(set(nodes)):
        for gang in ground.misnamed(n):
            if not _rename(ground, gang, n):
                return False
        if ground.misnamed(n) or not ground.lawful(n):
            return False
    return True


def _rename(ground: Ground, gang: int, n: int) -> bool:
    """The gang's pods placed on the node get GPUs as the node now has it."""
    spec = ground.instance.gangs[gang]
    here = {key for key, (_, stays) in ground.plots[n].tenants.items() if not stays}
    pods = ground.pods[gang]
    mine = [p for p in pods if (gang, p.role, p.index) in here and spec.roles[p.role].gpus]
    rest = [p for p in pods if p not in mine]
    ground.set(gang, rest)
    gpus = sum(spec.roles[p.role].gpus for p in mine)
    if gpus > ground.plots[n].free:
        return False
    pool = ground.pick(n, gpus)
    named = []
    for pod in mine:
        count = spec.roles[pod.role].gpus
        mask = None if pool is None else sum(1 << i for i in pool[:count])
        pool = None if pool is None else pool[count:]
        named.append(replace(pod, gpus=mask))
    ground.set(gang, (*rest, *named))
    if not ground.instance.min_share(spec):
        return True
    return gang_value(ground.instance, spec, ground.pods[gang], ground.known()).meets_min_share


def unjustified(ground: Ground, gangs: Iterable[int]) -> tuple[int, ...]:
    """Those of the gangs that stop, or shrink and are not movable, while no higher one comes for it."""
    found = []
    for index in gangs:
        left = {(p.role, p.index) for p in ground.pods[index]}
        gone = {p.node for p in ground.stood[index] if (p.role, p.index) not in left}
        if not gone or (left and ground.instance.gangs[index].movable):
            continue
        if not any(_comes(ground, index, n) for n in sorted(gone)):
            found.append(index)
    return tuple(found)


def _comes(ground: Ground, gang: int, n: int) -> bool:
    """Whether a gang above this one puts a pod on the node that does not stand there now."""
    gangs = ground.instance.gangs
    return any(
        gangs[other].priority > gangs[gang].priority and ground.arrives(other, pod)
        for (other, _, _), (pod, _) in ground.plots[n].tenants.items()
    )
