"""Rule 2.18: nodes are reserved for gangs that wait, and others come there only if they give way in time.

What is held for whom stands in ``Instance.reserved``; ``planner.search.promises.reservations`` chooses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.instance.gang import Gang, Role, turn
from models.instance.instance import Instance, once, once_each
from models.instance.run_times import min_run_time
from models.instance.solution import (
    GangDecision,
    PodPlacement,
    QueuePlace,
    Reserved,
    standing_of,
)
from models.queues.queue_shares import within_guarantee

LEAST_OVERDUE_S = 60
"""A gang that is past its expected end runs at least so much longer."""

LEAST_RUN_S = 600
"""A gang that has to be stopped for a holder comes only if it can run for so long before."""

LAST_TIME = 32_503_679_999
"""The last second of the year 2999: no document names a later time."""


def queue_place(instance: Instance, gang: Gang) -> QueuePlace:
    """Its place in the queue, the one order for all who wait.

    Gangs within the guarantee of a queue come first; then higher priority, older, undated ones last, name.
    """
    priority, undated, submitted, _ = turn(gang.priority, gang.queued_at, gang.name)
    borrows = not within_guarantee(instance, gang)
    return borrows, priority, undated, submitted, gang.namespace, gang.name


def expected_end(instance: Instance, index: int, decision: GangDecision) -> int | None:
    """When a gang that has pods after the plan should end, by now or later; None where nobody knows."""
    gang, duration = instance.gangs[index], instance.gangs[index].expected_duration_s
    if duration is None:
        return None
    if decision.decision in ("place", "complete", "move"):
        return instance.now + duration
    if gang.started_at is None or index in instance.incomplete:
        return None
    return gang.started_at + duration


def end_of(instance: Instance, index: int, decision: GangDecision) -> int | None:
    """When it is taken to end, None for never; one that is overdue: as late again as it is late now."""
    end, now = expected_end(instance, index, decision), instance.now
    if end is None or end > now or decision.decision in ("place", "complete", "move"):
        return end
    return now + max(LEAST_OVERDUE_S, now - end)


def yields(instance: Instance, gang: Gang, place: QueuePlace) -> bool:
    """Whether the gang may be stopped for a holder at this place of the queue, once it ran long enough.

    What is within a guarantee does not give way to a holder that borrows.
    """
    lower = gang.preemptible and -gang.priority > place[1]
    return lower and not (place[0] and within_guarantee(instance, gang))


def may_come(instance: Instance, gang: Gang, place: QueuePlace, seconds: int) -> bool:
    """Whether a gang that gives way may place pods on nodes of a holder that starts in so many seconds.

    ``place``: of the holder in the queue.
    """
    in_time = gang.expected_duration_s is not None and gang.expected_duration_s <= seconds
    least = max(LEAST_RUN_S, min_run_time(instance, gang))
    return in_time or (yields(instance, gang, place) and seconds >= least)


def holder(instance: Instance, one: Reserved) -> tuple[int, str | None]:
    """The priority of which a holder is one of ``perPriority``, and for whom: None for all, else a namespace.

    In whose way gangs of its own namespace run is one for that namespace: it would keep others from the
    reservation that they need.
    """
    namespace, there = one.gang[0], instance.once(_namespaces)
    blocked = any(namespace in there.get(node, ()) for node in one.nodes)
    return -one.place[1], namespace if blocked else None


def _namespaces(instance: Instance) -> dict[int, set[str]]:
    """The namespaces whose gangs run on each node."""
    found: dict[int, set[str]] = {}
    for gang in instance.gangs:
        for pod in standing_of(gang):
            found.setdefault(pod.node, set()).add(gang.namespace)
    return found


@once
def due(instance: Instance) -> frozenset[tuple[str, str]]:
    """Keys of the gangs that have to start in this plan, wherever they find a place: their turn has come."""
    return frozenset(one.gang for one in instance.reserved if one.start <= instance.now)


def left_waiting(instance: Instance, pods: Sequence[Sequence[PodPlacement]]) -> list[int]:
    """Gangs that have to start and do not, ascending. ``pods``: of every gang."""
    keys = due(instance)
    if not keys:
        return []
    return [i for i, gang in enumerate(instance.gangs) if gang.key in keys and not pods[i]]


def open_nodes(instance: Instance, gang: Gang, role: Role) -> frozenset[int]:
    """The eligible nodes of a role without those that are reserved for others."""
    eligible = instance.eligible_nodes(role)
    if not instance.reserved:
        return eligible
    closing = tuple(i for i, one in enumerate(instance.reserved) if closes(instance, one, gang))
    if not closing:
        return eligible
    return _without_reserved(instance, eligible, closing)


@once_each
def _without_reserved(
    instance: Instance, nodes: frozenset[int], closing: tuple[int, ...]
) -> frozenset[int]:
    return nodes.difference(*(instance.reserved[i].nodes for i in closing))


def closes(instance: Instance, one: Reserved, gang: Gang) -> bool:
    """Whether nodes that are held for another gang are closed to this one."""
    if not one.nodes or gang.key == one.gang or gang.key in one.beside:
        return False
    if may_come(instance, gang, one.place, one.start - instance.now):
        return False
    return not goes_first(instance, one, gang)


def goes_first(instance: Instance, one: Reserved, gang: Gang) -> bool:
    """Whether the gang goes before the holder: it is within a guarantee, and that one borrows.

    A gang that is due has a place elsewhere.
    """
    if gang.running or not one.place[0] or gang.key in due(instance):
        return False
    return within_guarantee(instance, gang)


def overtaken(instance: Instance, gang: Gang) -> frozenset[int]:
    """Nodes to which the gang may come only because it goes before the holder, who then starts later."""
    ahead = (
        one.nodes
        for one in instance.reserved
        if one.nodes and goes_first(instance, one, gang)
        if not may_come(instance, gang, one.place, one.start - instance.now)
    )
    return frozenset[int]().union(*ahead)


def arrivals(gang: Gang, pods: Sequence[PodPlacement]) -> frozenset[PodPlacement]:
    """Those of its pods after the plan that are placed or moved by it."""
    return frozenset(pods).difference(standing_of(gang))


def trespassing(instance: Instance, pods: Sequence[Sequence[PodPlacement]]) -> list[int]:
    """Gangs with a new pod on a node that is closed to them, ascending. ``pods``: of every gang."""
    if not instance.reserved:
        return []
    found = []
    for index, (gang, own) in enumerate(zip(instance.gangs, pods, strict=True)):
        there = {pod.node for pod in own}
        closed = [
            one.nodes
            for one in instance.reserved
            if not there.isdisjoint(one.nodes) and closes(instance, one, gang)
        ]
        if closed:
            new = {pod.node for pod in arrivals(gang, own)}
            if any(not new.isdisjoint(nodes) for nodes in closed):
                found.append(index)
    return found
