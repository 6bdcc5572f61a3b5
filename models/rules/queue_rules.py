"""What queues, and gangs that come first, ask of all others: limits, cells, turns, reservations."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.queue import AMOUNTS, Amount
from models.queues.cells import Reach, breaks_cells, cells_by_model, without_places
from models.queues.queue_order import behind, overtaking, place_in_line
from models.queues.queue_shares import QueueCounts, Refusal, queue_of, shares, within_guarantee
from models.queues.reservations import closes, left_waiting, trespassing
from models.queues.reserved_quotas import barred, claims, crowding
from models.rules.declaration import Asked, Declaration, Pods, Requirement, Space, dropping
from models.values.tier_values import Evaluation


def _out_of_turn(instance: Instance) -> Instance:
    return replace(
        instance, queues=tuple(replace(queue, strict=False) for queue in instance.queues)
    )


def _queue_order(instance: Instance, pods: Sequence[Pods], gang: int) -> Iterator[Asked[Instance]]:
    before = behind(instance, pods, gang)
    if before is not None:
        yield Asked("/".join(instance.gangs[before].key), _out_of_turn)


QUEUE_ORDER = Requirement(
    "queueOrder",
    "waits before it in a strict queue",
    of_all=_queue_order,
    drop=_out_of_turn,
    code="QueueOrder",
    operator=True,
)


def _reserved(instance: Instance, _pods: Sequence[Pods], gang: int) -> Iterator[Asked[Instance]]:
    for one in instance.reserved:
        if closes(instance, one, instance.gangs[gang]):
            others = tuple(other for other in instance.reserved if other.gang != one.gang)
            yield Asked("/".join(one.gang), dropping(reserved=others))


RESERVATION = Requirement(
    "reservation",
    "nodes are reserved for {}",
    of_all=_reserved,
    drop=lambda instance: replace(instance, reserved=()),
    code="Reserved",
    operator=True,
)


def _without_barred(instance: Instance, gang: Gang, _role: Role) -> frozenset[int] | None:
    """No node where a holder needs what the gang would hold in its queue."""
    return frozenset() if gang.key in barred(instance) else None


def _claimed(instance: Instance, gang: Gang) -> Hashable:
    """Holders that need what the gang would hold in its queue."""
    known = claims(instance)
    return tuple(gang.key in instance.once(_members)[number] for number in range(len(known)))


def _members(instance: Instance) -> list[frozenset[tuple[str, str]]]:
    gangs = instance.gangs
    return [frozenset(gangs[i].key for i in claim.members) for claim in claims(instance)]


# Limits, guarantees, cells


def _without_cells(instance: Instance) -> Instance:
    return replace(instance, queues=without_places(instance.queues), shares=None)


def _cells(instance: Instance, _pods: Sequence[Pods], gang: int) -> Iterator[Asked[Instance]]:
    if shares(instance) is not None and any(q.cells or q.pins for q in instance.queues):
        yield Asked(instance.gangs[gang].queue or "", _without_cells)


CELLS = Requirement(
    "cells",
    "cells of queues must stay reachable",
    of_all=_cells,
    drop=_without_cells,
    code="Quota",
    operator=True,
    on_empty=True,
)


def _without_limits(instance: Instance) -> Instance:
    """Without limits and guarantees; what cells promise stays with the cells."""
    nothing: dict[str, Any] = dict.fromkeys(AMOUNTS, Amount())
    queues = tuple(replace(queue, **nothing, borrowing=True) for queue in instance.queues)
    return replace(instance, queues=queues, shares=None)


def _limits(instance: Instance, _pods: Sequence[Pods], gang: int) -> Iterator[Asked[Instance]]:
    if shares(instance) is not None:
        yield Asked(instance.gangs[gang].queue or "", _without_limits)


QUEUE = Requirement(
    "queue",
    "limits and guarantees of queues leave it too few GPUs",
    of_all=_limits,
    drop=_without_limits,
    code="Quota",
    operator=True,
    on_empty=True,
)


def _queue_key(instance: Instance, gang: Gang) -> Hashable:
    known = shares(instance)
    if known is None:
        return None
    within = within_guarantee(instance, gang)
    return (
        known.number(gang.queue),
        gang.preemptible,
        gang.firm,
        gang.unmanaged,
        within,
        place_in_line(instance, gang),
    )


def _exceeds_queues(plan: Evaluation) -> bool:
    """Whether a limit or a guarantee of a queue does not hold."""
    known = shares(plan.instance)
    if known is None:
        return False
    counts = QueueCounts(plan.instance, known, plan.queue_use)
    return next(counts.broken(), None) is not None


def _beyond_queues(space: Space) -> list[int]:
    """A gang that has to go back so that limits and guarantees of queues hold: the lowest that helps."""
    counts, gangs = space.queues, space.instance.gangs
    first = None if counts is None else next(counts.broken(), None)
    if counts is None or first is None:
        return []
    queues = queue_of(space.instance)
    changed = [
        gang
        for gang, pods in enumerate(space.pods)
        if pods != space.original[gang]
        and (
            (first.kept or gangs[gang].firm)
            if first.queue is None
            else (gangs[gang].firm or not first.firm)
            and first.queue in counts.shares.path(queues[gang])
        )
    ]
    changed.sort(key=lambda gang: (gangs[gang].priority, -gang))
    return next(([gang] for gang in changed if _relieves(space, counts, gang, first)), changed[:1])


def _relieves(space: Space, counts: QueueCounts, gang: int, broken: Refusal) -> bool:
    """Whether less is held in the queue, or promised, if the gang goes back."""

    def excess() -> tuple[int, int]:
        queue, gpu, kept, firm = broken
        if queue is None:
            return counts.promised(gpu, kept=kept) - counts.beyond(gpu, kept=kept), 0
        if firm:
            return counts.firm[gpu][queue], 0
        return counts.taken(queue, gpu), counts.held[gpu][queue]

    before, mark = excess(), space.mark()
    space.set(gang, space.original[gang])
    relieved = excess() < before  # one of them falls, and none grows
    space.undo(mark)
    return relieved


def _in_cells(space: Space) -> list[int]:
    """Gangs that have to go back so that the cells of queues stay reachable, the lowest that come."""
    if space.reach is None or space.reach.keep():
        return []
    gangs = space.instance.gangs
    new = {
        g: own for g, gang in enumerate(gangs) if gang.firm_on_gpus and (own := space.new_pods(g))
    }
    reach = Reach(space.instance)
    for gang, pods in enumerate(space.pods):
        reach.add(gang, set(pods) - set(new.get(gang, ())))
    found = []
    for gang in sorted(new, key=lambda g: (-gangs[g].priority, g)):
        reach.add(gang, new[gang])
        if not reach.keep():
            reach.add(gang, new[gang], -1)
            found.append(gang)
    return found[::-1]


def user_of_cells(instance: Instance, gang: Gang) -> Hashable:
    """Gangs for which the cells of queues are alike."""
    by_model = cells_by_model(instance)
    return tuple(cells.row(gang) for cells in by_model) if by_model and gang.firm_on_gpus else ()


DECLARED = (
    Declaration("order of queues", (QUEUE_ORDER,), breaking=overtaking),
    Declaration("reservations", (RESERVATION,), breaking=trespassing),
    Declaration(
        "reservations in queues", eligible=_without_barred, gang_key=_claimed, breaking=crowding
    ),
    Declaration(
        "starts in turn",
        breaking=left_waiting,
        back=lambda _: [],
    ),
    Declaration(
        "queues",
        (CELLS, QUEUE),
        gang_key=_queue_key,
        broken=_exceeds_queues,
        back=_beyond_queues,
        admits=lambda space, gang, pods: space.keeps_queue_rules(gang, pods),
    ),
    Declaration(
        "cells",
        gang_key=user_of_cells,
        broken=lambda plan: breaks_cells(plan.instance, [one.pods for one in plan.decisions]),
        back=_in_cells,
        elsewhere=True,
    ),
)
