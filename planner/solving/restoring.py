"""Putting back what was taken for nothing, and names of GPUs that follow who stays.

Promises: a gang is put back only as it was, and only where the plan then obeys contract 2.1, 2.2, 2.9
and 2.10 on its nodes; ``unjustified`` names every gang that gives way with no higher one coming (2.7).
Called by ``reclaiming``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from models.evaluating import gang_value
from planner.solving.greedy import place
from planner.solving.ground import Ground, Pods
from planner.solving.wanting import counts_of, wanted


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
