"""Making room: who has to go for a gang, evicting them within the limits, and waiting for the room.

Promises: nothing is evicted that is not allowed, not needed, or for a gang that could not start even
so; budgets are asked again, never forced. Called by ``machine``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, field, replace

from models.apply.live_state import LivePod, lacks, pods_at
from models.apply.orders import GangOrder, Key, Orders, PodOrder, PodStop
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.requests import (
    BlockedByBudget,
    Done,
    Event,
    Evict,
    Gone,
    Rejected,
    Request,
    Scale,
)
from models.apply.session import TRIES, ApplySession, Failure

Steps = Generator[Request, Event, Failure | None]


@dataclass(slots=True)
class Removals:
    """What goes, or has to: ``gone``: uids whose pods are gone or going; ``scaled``: gangs resized.

    ``owners``: (namespace, name) of a pod that was stopped to the uid of its controller.
    """

    gone: set[str] = field(default_factory=set)
    scaled: set[Key] = field(default_factory=set)
    owners: dict[Key, str | None] = field(default_factory=dict)


def here(session: ApplySession, stop: PodStop) -> LivePod | None:
    """The pod to stop, while it is there and takes room."""
    seen = session.view.pods.get(stop.key)
    return seen if seen is not None and seen.uid == stop.uid and not seen.finished else None


def remaining(session: ApplySession, gang: GangOrder) -> list[PodStop]:
    """Pods of the gang that have to go and are there."""
    return [stop for stop in gang.stops if here(session, stop) is not None]


def to_evict(session: ApplySession, gangs: Iterable[GangOrder]) -> list[PodStop]:
    """Pods of the gangs that nobody has told to go yet; of each those that tell it was whole last.

    Cut off in between, what is left of a gang is known for what it was.
    """
    found = []
    for gang in gangs:
        left = []
        for stop in gang.stops:
            seen = here(session, stop)
            if seen is not None and not seen.terminating:
                left.append(stop)
        found += sorted(left, key=lambda stop: _marked(session, stop))
    return found


def _marked(session: ApplySession, stop: PodStop) -> bool:
    seen = session.view.pods[stop.key]
    return seen.intent is not None and seen.intent_is_ours and seen.intent.whole


def victims(session: ApplySession, orders: Orders, gang: GangOrder) -> list[GangOrder]:
    """Gangs that stop so that this one can start, itself included where it moves; by key.

    Who moves needs its own new place, too: that is followed to the end.
    """
    stopping = {stop.uid: one for one in orders.gangs for stop in one.stops}
    found: dict[Key, GangOrder] = {}
    ahead = [gang]
    if gang.stops:
        found[gang.key] = gang
    while ahead:
        one = ahead.pop()
        short = {name for name, _ in lacks(session.view, one.starts, without=_own(one))}
        for pod in pods_at(session.view, sorted(short)):
            victim = stopping.get(pod.uid)
            if victim is None or victim.key in found:
                continue
            found[victim.key] = victim
            ahead.append(victim)
    return [found[key] for key in sorted(found)]


def _own(gang: GangOrder) -> set[str]:
    return {stop.uid for stop in gang.stops}


def make_room(
    session: ApplySession, orders: Orders, gang: GangOrder, leaving: Removals
) -> Generator[Request, Event, Failure | None]:
    """Stop whoever has to go for the gang, and wait until they are gone. Raises Halted."""
    leave = victims(session, orders, gang)
    limits = session.limits
    forbidden = _forbidden(session, to_evict(session, leave))
    if forbidden is not None:
        return forbidden
    ahead = _hopeless(session, leave, gang)
    if ahead is not None:
        return Failure(ahead)
    for one in leave:
        if one.decision == "resize":
            failed = yield from resize(session, one, leaving)
            if failed is not None:
                advice = GangVerdict(one.key, Outcome.advised, orders.plan, failed.why)
                session.record(replace(advice, resizes=one.resizes))
                return Failure(f"gang {one.namespace}/{one.name} keeps its room: {failed.why}")
    failed = yield from _evicted(
        session, [one for one in leave if one.decision != "resize"], leaving
    )
    if failed is not None or limits.dry:
        return failed
    return (yield from _freed(session, leave, gang))


def _forbidden(session: ApplySession, pods: Collection[PodStop]) -> Failure | None:
    limits = session.limits
    if pods and not limits.allow_evictions:
        return Failure(f"it needs {len(pods)} pods stopped: --allow-evictions")
    if session.evicted + len(pods) > limits.max_evictions and pods:
        rest = max(0, limits.max_evictions - session.evicted)
        return Failure(
            f"it needs {len(pods)} pods stopped, and {rest} more may be: --max-evictions"
        )
    return None


def stop_rest(session: ApplySession, gang: GangOrder, leaving: Removals) -> Steps:
    """Evict what is left of a gang that was stopped in part for another, which has its room by now."""
    forbidden = _forbidden(session, to_evict(session, [gang]))
    if forbidden is not None:
        return forbidden
    yield from session.hold(f"gang {gang.namespace}/{gang.name}")
    return (yield from _evicted(session, [gang], leaving))


def _hopeless(session: ApplySession, leave: Iterable[GangOrder], gang: GangOrder) -> str | None:
    """What would be in the way even when all have gone: then nobody is stopped."""
    gangs = {one.key: one for one in (*leave, gang)}
    going = {stop.uid for one in gangs.values() for stop in one.stops}
    for one in gangs.values():
        for name, what in lacks(session.view, one.starts, without=going):
            return f"node {name} {what}, whoever is stopped"
    return None


def _evicted(session: ApplySession, gangs: list[GangOrder], leaving: Removals) -> Steps:
    """Evict all their pods, asking again for those that a budget keeps."""
    for after_s in (None, *session.limits.waits()):
        if after_s is not None:
            yield from session.read_cluster(after_s)
        busy = None
        for gang in gangs:
            failed = yield from _evicted_once(session, gang, leaving)
            if failed is not None and not failed.transient:
                return failed
            busy = busy or failed
        if busy is None or session.limits.dry:
            return None
    return busy


def _evicted_once(session: ApplySession, gang: GangOrder, leaving: Removals) -> Steps:
    """Ask for every pod of the gang; for the marked ones only once no other is kept by a budget."""
    busy: Failure | None = None
    for stop in to_evict(session, [gang]):
        if busy is not None and _marked(session, stop):
            break
        leaving.owners[stop.key] = session.view.pods[stop.key].owner
        yield from session.pace(f"pod {stop.namespace}/{stop.name}", begun=False)
        failed = yield from evict(session, stop)
        if failed is not None and not failed.transient:
            return failed
        busy = busy or failed
    return busy


def evict(session: ApplySession, stop: PodStop) -> Steps:
    """Evict one pod; None if it goes or is gone, a passing failure if a budget keeps it for now."""
    who = f"pod {stop.namespace}/{stop.name}"
    order = _order(stop)
    last = ""
    for _ in range(TRIES):
        event = yield from session.ask(Evict(stop))
        match event:
            case Done():
                session.evicted += 1
                yield from _told_to_go(session, order)
                return None
            case BlockedByBudget(message):
                return Failure(f"{who} stays: {message}", transient=True)
            case Rejected(message):
                return Failure(f"{who} stays: {message}")
            case _:
                last = str(getattr(event, "message", ""))
        seen = yield from session.look(order)
        if seen is None or seen.terminating or seen.finished:
            # Lost on the way back: it may well have been our doing.
            session.evicted += not isinstance(event, Gone)
            return None
    return Failure(f"{who} stays: {last}", transient=True)


def _told_to_go(session: ApplySession, order: PodOrder) -> Generator[Request, Event, None]:
    if session.limits.dry:
        session.view.pods.pop(order.key, None)  # as if it were gone, so that the rest can be tried
    else:
        yield from session.look(order)


def _freed(session: ApplySession, leave: list[GangOrder], gang: GangOrder) -> Steps:
    """Wait until none of them is there and the gang has its room."""
    for after_s in (None, *session.limits.waits()):
        if after_s is not None:
            yield from session.read_cluster(after_s)
        left = [stop for one in leave for stop in remaining(session, one)]
        short = lacks(session.view, gang.starts, without=_own(gang))
        if not left and not short:
            return None
    if left:
        return Failure(f"pod {left[0].namespace}/{left[0].name} is not gone yet", transient=True)
    return Failure(f"node {short[0][0]} {short[0][1]}", transient=True)


def resize(session: ApplySession, gang: GangOrder, leaving: Removals) -> Steps:
    """Set the scale of every role that changes; Failed, not passing, where it has none."""
    if gang.key in leaving.scaled:
        return None
    for one in gang.resizes:
        member = _member(session, gang, one.role)
        if member is None:
            return Failure(f"no pod of role {one.role} is there")
        last: Failure | None = None
        for _ in range(TRIES):
            event = yield from session.ask(Scale(gang.key, one, member))
            match event:
                case Done():
                    last = None
                    break
                case Rejected(message) | Gone(message):
                    return Failure(message)
                case _:
                    last = Failure(str(getattr(event, "message", "")), transient=True)
        if last is not None:
            return last
    leaving.scaled.add(gang.key)
    session.evicted += len(to_evict(session, [gang]))
    for stop in gang.stops if session.limits.dry else ():
        session.view.pods.pop(stop.key, None)
    return None


def _member(session: ApplySession, gang: GangOrder, role: str) -> Key | None:
    """A pod of the role that is there: what it is owned by has the scale."""
    known = dict(gang.members).get(role)
    keys = [known, *(stop.key for stop in gang.stops if stop.role == role)]
    return next((key for key in keys if key is not None and key in session.view.pods), None)


def _order(stop: PodStop) -> PodOrder:
    return PodOrder(
        namespace=stop.namespace,
        name=stop.name,
        uid=stop.uid,
        role=stop.role,
        index=stop.index,
        node=stop.node,
        gpus=None,
        gpu_count=stop.gpu_count,
    )
