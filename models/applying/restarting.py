"""Gangs whose pods are made anew: moved ones after their eviction, grown ones after their scaling.

Promises: a new pod counts only under the planned name, of the same controller, asking for the same;
unless all are there none is started. Called by ``machine``.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from models.applying.asking import Event, Request
from models.applying.desk import Desk, Squad
from models.applying.evicting import Leaving, remaining
from models.applying.orders import GangOrder, Orders, PodOrder
from models.applying.staleness import gang_moved
from models.applying.starting import start
from models.applying.verdicts import GangVerdict, Outcome

_NEXT = "its new pods are placed by the next plan"


def restart(
    desk: Desk, orders: Orders, gang: GangOrder, leaving: Leaving
) -> Generator[Request, Event, None]:
    """Start the new pods where the plan wants the gang, or leave them to the next plan."""
    if desk.limits.dry or remaining(desk, gang):
        return
    pods = _renewed(desk, gang, leaving)
    for after_s in desk.limits.waits():
        if len(pods) + _renamed(desk, gang, leaving) >= len(gang.starts):
            break
        yield from desk.look_around(after_s)
        pods = _renewed(desk, gang, leaving)
    if len(pods) < len(gang.starts):
        why = f"{len(pods)} of its {len(gang.starts)} pods are there again; {_NEXT}"
        desk.record(GangVerdict(gang.key, Outcome.stopped, orders.plan, why))
        return
    anew = replace(gang, starts=tuple(pods), stops=())
    moved = gang_moved(orders, anew, desk.view)
    if moved:
        why = f"{moved[0]}; {_NEXT}"
        desk.record(GangVerdict(gang.key, Outcome.stopped, orders.plan, why))
        return
    yield from desk.hold(f"gang {gang.namespace}/{gang.name}")
    yield from start(desk, Squad(gang.key, orders.plan, len(pods), tuple(pods)))


def restarted(desk: Desk, orders: Orders, gang: GangOrder) -> bool:
    """Whether the new pods of a gang were all started by this plan."""
    for order in gang.starts:
        seen = desk.view.pods.get(order.key)
        if seen is None or seen.intent is None or not seen.intent_is_ours:
            return False
        if seen.intent.plan != orders.plan or not desk.ways.started(seen):
            return False
    return bool(gang.starts)


def _renamed(desk: Desk, gang: GangOrder, leaving: Leaving) -> int:
    """New pods of its controllers under names that the plan does not know: those will not come."""
    owners = {leaving.owners.get(stop.key) for stop in gang.stops} - {None}
    planned = {order.key for order in gang.starts} | {stop.key for stop in gang.stops}
    return sum(
        pod.owner in owners and key not in planned and not desk.ways.started(pod)
        for key, pod in desk.view.pods.items()
    )


def _renewed(desk: Desk, gang: GangOrder, leaving: Leaving) -> list[PodOrder]:
    """The orders for which a pod is there now, with its uid."""
    old = {stop.uid for stop in gang.stops}
    found = []
    for order in gang.starts:
        seen = desk.view.pods.get(order.key)
        if seen is None or seen.uid in old or desk.ways.started(seen):
            continue
        if seen.terminating or seen.finished or seen.gpus != order.gpu_count:
            continue
        owner = leaving.owners.get(order.key, seen.owner)
        if owner == seen.owner:
            found.append(replace(order, uid=seen.uid, mode=None))
    return found
