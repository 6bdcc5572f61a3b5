"""Rule 2.18 in queues: what they may hold and promise when a reservation begins is left to its holder.

A gang that the plan starts, and that would hold GPUs then that the holder needs, has to wait. What runs
before the plan is counted as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.hardware import slug
from models.instance.disruption_budgets import guards
from models.instance.instance import Instance, once
from models.instance.queue import Gpu
from models.instance.run_times import stoppable_from
from models.instance.solution import GangDecision, PodPlacement, Reserved, standing_of
from models.queues.queue_shares import QueueCounts, gpus_held, queue_of, shares
from models.queues.reservations import due, end_of, goes_first, queue_place, yields

Pods = Sequence[Sequence[PodPlacement]]
"""Of every gang."""


@dataclass(frozen=True)
class Claim:
    """What one holder needs of the queues when its reservation begins.

    ``counts``: what it and those gangs hold then that run now. ``members``: gangs that do not run and would
    hold GPUs then if they started, with the GPUs that they ask for, in the order of the queue.
    """

    one: Reserved
    counts: QueueCounts
    members: Mapping[int, int]

    def exceeded(self, index: int, gpus: Mapping[Gpu, int]) -> bool:
        """Whether one more gang with so many GPUs would leave the holder too few."""
        return self.counts.refusal(index, gpus) is not None


def claims(instance: Instance) -> tuple[Claim, ...]:
    """Of every holder that waits."""
    if not instance.reserved or shares(instance) is None:
        return ()
    return instance.once(_claims)


def _claims(instance: Instance) -> tuple[Claim, ...]:
    known, position = shares(instance), {gang.key: i for i, gang in enumerate(instance.gangs)}
    assert known is not None, "see claims"
    found = []
    for one in instance.reserved:
        holder = position[one.gang]
        if one.start <= instance.now or not one.pods:
            continue
        counts = QueueCounts(instance, known)
        for index, gang in enumerate(instance.gangs):
            if gang.running and holds_then(instance, index, one, comes=False):
                counts.add(index, standing_of(gang))
        if not counts.allow(holder, one.pods):
            continue  # it cannot start then, whoever waits
        counts.add(holder, one.pods)
        waiting = (
            index
            for index, gang in enumerate(instance.gangs)
            if index != holder and not gang.running and gang.hold is None
            if not goes_first(instance, one, gang)
            if holds_then(instance, index, one, comes=True)
        )
        ordered = sorted(waiting, key=lambda i: queue_place(instance, instance.gangs[i]))
        found.append(Claim(one, counts, {i: instance.gangs[i].least_units for i in ordered}))
    return tuple(found)


def holds_then(instance: Instance, index: int, one: Reserved, *, comes: bool) -> bool:
    """Whether a gang has GPUs when a reservation begins: it has not ended, and is not stopped for the holder.

    ``comes``: it is placed by the plan; otherwise it goes on as it runs.
    """
    gang = instance.gangs[index]
    end = end_of(instance, index, GangDecision("place" if comes else "keep"))
    if end is not None and end <= one.start:
        return False
    if not comes and index in guards(instance).fixed:
        return True
    stopped = yields(instance, gang, one.place)
    return not stopped or stoppable_from(instance, index, comes=comes) > one.start


def crowding(instance: Instance, pods: Pods) -> list[int]:
    """Gangs that have to wait so that holders can start in their queues, ascending."""
    found = set[int]()
    for claim in claims(instance):
        added, first = list[int](), due(instance)
        members = [i for i in claim.members if pods[i]]
        for index in sorted(members, key=lambda i: instance.gangs[i].key not in first):
            held = gpus_held(instance, instance.gangs[index], pods[index])
            if instance.gangs[index].key not in first and claim.exceeded(index, held):
                found.add(index)
            else:
                claim.counts.add(index, pods[index])
                added.append(index)
        for index in added:
            claim.counts.add(index, pods[index], -1)
    return sorted(found)


def claims_beside(instance: Instance, pods: Pods) -> list[Claim]:
    """What holders that wait in a plan need, with what gangs hold then that start, or change, in it."""
    if not claims(instance):
        return []
    waiting = {gang.key for gang, own in zip(instance.gangs, pods, strict=True) if not own}
    found = [claim for claim in _claims(instance) if claim.one.gang in waiting]
    changed = [
        (index, standing_of(gang))
        for index, (gang, own) in enumerate(zip(instance.gangs, pods, strict=True))
        if gang.running and len(own) != len(gang.running_pods)
    ]
    for claim in found:
        for index in claim.members:
            claim.counts.add(index, pods[index])
        for index, before in changed:
            if holds_then(instance, index, claim.one, comes=False):
                claim.counts.add(index, before, -1)
                claim.counts.add(index, pods[index])
    return found


def hindered(instance: Instance, beside: Sequence[Claim], index: int) -> list[Reserved]:
    """Reservations of which the holder could not start then if this gang, which waits, started, too."""
    return [
        claim.one
        for claim in beside
        if index in claim.members and claim.exceeded(index, _least(instance, claim.members[index]))
    ]


@once
def barred(instance: Instance) -> frozenset[tuple[str, str]]:
    """Keys of gangs that wait for a holder, whatever starts beside those that have to."""
    first, gangs = due(instance), instance.gangs
    return frozenset(
        gangs[index].key
        for claim in claims(instance)
        for index, gpus in claim.members.items()
        if gangs[index].key not in first and claim.exceeded(index, _least(instance, gpus))
    )


def _least(instance: Instance, gpus: int) -> dict[Gpu, int]:
    """GPUs by model of a gang that may not have fewer, wherever it starts."""
    models = instance.once(_models)
    return {None: gpus} | (dict.fromkeys(models, gpus) if len(models) == 1 else {})


def _models(instance: Instance) -> frozenset[str]:
    return frozenset(slug(n.model.gpu) for n in instance.cluster.nodes if n.model is not None)


def sums(instance: Instance) -> Iterator[tuple[Mapping[int, int], int]]:
    """(gangs with their GPUs, the most that these hold together): where limits of queues leave so many.

    Gangs that wait in any case are not among them. GPUs of all models together count.
    """
    first, closed = due(instance), barred(instance)
    for claim in claims(instance):
        for queue, firm, left in _left(claim):
            path = claim.counts.shares.path
            own = {
                instance.gangs[i].key: (i, gpus)
                for i, gpus in claim.members.items()
                if queue in path(queue_of(instance)[i]) and (instance.gangs[i].firm or not firm)
            }
            rest = left - sum(gpus for key, (_, gpus) in own.items() if key in first)
            free = {i: gpus for key, (i, gpus) in own.items() if key not in first | closed}
            if sum(free.values()) > rest:
                yield free, max(0, rest)


def _left(claim: Claim) -> Iterator[tuple[int, bool, int]]:
    """(queue, whether for firm gangs alone, GPUs that a limit of it leaves beside the holder)."""
    counts, known = claim.counts, claim.counts.shares
    for firm, of_model, held in (
        (False, known.most, counts.held),
        (True, known.most_firm, counts.firm),
    ):
        if None in of_model and None in held:
            for queue, most in enumerate(of_model[None]):
                if most is not None:
                    yield queue, firm, most - held[None][queue]
