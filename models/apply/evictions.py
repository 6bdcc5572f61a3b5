"""Making room for a gang: choose the victims, evict or resize them within the limits, wait for the room.

Evicts only what is allowed and needed, and nothing for a gang that could not start afterwards, or whose
victims may not all go by their PodDisruptionBudgets. These are asked again, never overridden. Victims are
noted before the first of their pods goes, so that a later run knows if they were cut off half-way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from msgspec import structs

from models.apply.live_state import ClusterView, LivePod, pods_on, shortages
from models.apply.notes import EvictNote
from models.apply.plan_actions import GangActions, Key, PlanActions, PodStop, Resize
from models.apply.requests import (
    ApplyLimits,
    BlockedByBudget,
    Done,
    Evict,
    GangVerdict,
    Gone,
    NoAnswer,
    Outcome,
    Rejected,
    Scale,
    Steps,
    message_of,
)
from models.apply.session import TRIES, ApplySession, Failure
from models.units import plural


def remaining(session: ApplySession, gang: GangActions) -> list[PodStop]:
    """Pods that the plan stops of the gang and that still occupy room."""
    pods = ((stop, session.pod(stop)) for stop in gang.stops)
    return [stop for stop, pod in pods if pod is not None and not pod.finished]


def to_evict(session: ApplySession, gangs: Iterable[GangActions]) -> list[PodStop]:
    """Pods of the gangs that are not terminating yet."""
    pods = session.view.pods
    left = (stop for gang in gangs for stop in remaining(session, gang))
    return [stop for stop in left if not pods[stop.key].terminating]


def stopping(gang: Key, pods: Iterable[LivePod]) -> GangActions:
    """To stop these pods of a gang."""
    stops = [PodStop(*pod.key, pod.uid, "", 0, pod.node or "", pod.gpus) for pod in pods]
    return GangActions(*gang, "preempt", 0, stops=tuple(stops))


def victims(session: ApplySession, orders: PlanActions, gang: GangActions) -> list[GangActions]:
    """Gangs that have to stop before this one can start, itself included if it moves; by key.

    A victim that moves needs room in its new place, so its own victims are included.
    """
    stopped_by = {stop.uid: one for one in orders.gangs for stop in one.stops}
    found: dict[Key, GangActions] = {}
    if gang.stops:
        found[gang.key] = gang
    queue = [gang]
    while queue:
        one = queue.pop()
        short = {name for name, _ in shortages(session.view, one.starts, without=_stopped(one))}
        for pod in pods_on(session.view, sorted(short)):
            victim = stopped_by.get(pod.uid)
            if victim is not None and victim.key not in found:
                found[victim.key] = victim
                queue.append(victim)
    return [found[key] for key in sorted(found)]


def _stopped(gang: GangActions) -> set[str]:
    return {stop.uid for stop in gang.stops}


def make_room(session: ApplySession, orders: PlanActions, gang: GangActions) -> Steps[None]:
    """Stop the victims of the gang and wait until they are gone. Raises Failure, Halted."""
    leaving = victims(session, orders, gang)
    evicted = [one for one in leaving if one.decision != "resize"]
    _check_allowed(session, to_evict(session, leaving))
    _check_hope(session, leaving, gang)
    _check_budgets(session, to_evict(session, evicted))
    for one in leaving:
        if one.decision == "resize":
            try:
                yield from resize(session, one)
            except Failure as failure:
                advice = GangVerdict(one.key, Outcome.advised, orders.plan, failure.why)
                session.record(replace(advice, resizes=one.resizes))
                raise Failure(f"gang {one} cannot be resized: {failure.why}") from None
    stopped = [one for one in evicted if one.decision in ("preempt", "move")]
    yield from _note_stops(session, orders.plan, evicted, stopped)
    yield from _evict_gangs(session, evicted)
    if session.limits.dry:
        return
    if len(evicted) < len(leaving):
        yield from session.read_cluster()  # what went for a smaller scale, no answer says
    yield from _wait_for_room(session, leaving, gang)


def _check_allowed(
    session: ApplySession, pods: Collection[PodStop], *, allowed: bool = False
) -> None:
    limits, needed = session.limits, f"needs {plural(len(pods), 'eviction')}"
    if pods and not (allowed or limits.allow_evictions):
        raise Failure(f"{needed}: --allow-evictions")
    if pods and session.evicted + len(pods) > limits.max_evictions:
        raise Failure(f"{needed}: more than --max-evictions leaves")


def _check_budgets(session: ApplySession, pods: Collection[PodStop]) -> None:
    """Whether PodDisruptionBudgets let all of the pods go, if budgets can be read."""
    budgets = session.view.budgets
    if pods and budgets is not None:
        why = budgets.refusal(sorted(session.leaving.union(stop.key for stop in pods)))
        if why is not None:
            raise Failure(why)


def withheld_by_budgets(orders: PlanActions, view: ClusterView) -> dict[Key, str]:
    """Gangs whose victims may not all go by their budgets, and why; each after those before it."""
    session = ApplySession(view, ApplyLimits(dry=True))
    found = {}
    for gang in orders.gangs:
        leaving = [one for one in victims(session, orders, gang) if one.decision != "resize"]
        pods = to_evict(session, leaving)
        try:
            _check_budgets(session, pods)
            session.leaving.update(stop.key for stop in pods)
        except Failure as failure:
            if gang.starts:
                found[gang.key] = failure.why
    return found


def _note_stops(
    session: ApplySession,
    plan: str,
    gangs: Collection[GangActions],
    stopped: Collection[GangActions] = (),
) -> Steps[None]:
    """Note every gang that loses pods now, with all pods that it has.

    ``stopped``: those that make room for others, or move, which count as evicted once a pod is gone.
    """
    notes, now = session.view.notes, session.view.now
    for gang in gangs:
        counts = None
        if gang in stopped and now is not None:
            moved = gang.decision == "move"
            counts = EvictNote(gang.key, now, 1, moved, gang.submitted_at)
        pods = [*(stop.uid for stop in remaining(session, gang)), *gang.stays]
        if to_evict(session, [gang]) and (counts is not None or len(pods) > 1):
            notes = notes.with_stop(gang.key, plan, pods, counts)
    if not notes.fits:
        raise Failure("its victims have too many pods to note in the lock")
    if why := (yield from session.remember(notes)):
        raise Failure(f"cannot note it: {why}", transient=True)


def stop_rest(
    session: ApplySession, gang: GangActions, *, plan: str | None = None, allowed: bool = False
) -> Steps[None]:
    """Evict what is left of a gang. Raises Failure. ``allowed``: without --allow-evictions.

    ``plan``: of its record, which alone may not show what is left after a cut, so that it is noted.
    """
    pods = to_evict(session, [gang])
    _check_allowed(session, pods, allowed=allowed)
    _check_budgets(session, pods)
    yield from session.check_lock()
    if plan is not None:
        yield from _note_stops(session, plan, [gang])
    yield from _evict_gangs(session, [gang])


def _check_hope(session: ApplySession, leaving: Iterable[GangActions], gang: GangActions) -> None:
    """Whether something would still be missing after all evictions: then nothing is evicted."""
    gangs = {one.key: one for one in (*leaving, gang)}
    going = {stop.uid for one in gangs.values() for stop in one.stops}
    for one in gangs.values():
        for name, what in shortages(session.view, one.starts, without=going):
            raise Failure(f"node {name} {what}, even after all evictions")


def _evict_gangs(session: ApplySession, gangs: list[GangActions]) -> Steps[None]:
    """Evict all their pods; those that a budget blocks are asked for again."""
    blocked: Failure | None = None
    for after_s in (None, *session.limits.waits()):
        if after_s is not None:
            yield from session.read_cluster(after_s)
        blocked = None
        for stop in (stop for gang in gangs for stop in to_evict(session, [gang])):
            session.owners[stop.key] = session.view.pods[stop.key].owner
            yield from session.check_lock_sometimes()
            try:
                yield from _evict(session, stop)
            except Failure as failure:
                if not failure.transient:
                    raise
                blocked = blocked or failure
        if blocked is None or session.limits.dry:
            return
    if blocked is not None:
        raise blocked


def _evict(session: ApplySession, stop: PodStop) -> Steps[None]:
    """Evict one pod, unless it is gone. Raises Failure, a transient one if a budget blocks it."""
    what = f"pod {stop} cannot be evicted"
    last = ""
    for _ in range(TRIES):
        event = yield from session.send(Evict(stop))
        match event:
            case Done():
                session.evicted += 1
                session.leaving.add(stop.key)
                if session.limits.dry:
                    session.view.pods.pop(stop.key, None)  # as if gone, to try the remaining steps
                    return
                if (pod := session.pod(stop)) is not None:
                    # It goes, also if reading it again is refused or not answered.
                    session.view.pods[stop.key] = structs.replace(pod, terminating=True)
                yield from session.read_pod(stop)
                return
            case BlockedByBudget(message):
                raise Failure(f"{what}: {message}", transient=True)
            case Rejected(message):
                raise Failure(f"{what}: {message}")
        last = message_of(event)
        if isinstance(event, NoAnswer):
            session.leaving.add(stop.key)  # perhaps: reading it again may be refused
        pod = yield from session.read_pod(stop)
        if pod is None or pod.terminating or pod.finished:
            session.evicted += not isinstance(event, Gone)  # probably by the unanswered request
            session.leaving.add(stop.key)
            return
    raise Failure(f"{what}: {last}", transient=True)


def _wait_for_room(
    session: ApplySession, leaving: list[GangActions], gang: GangActions
) -> Steps[None]:
    """Wait until the stopped pods are gone and the gang has its room. Raises Failure."""
    for after_s in (None, *session.limits.waits()):
        if after_s is not None:
            yield from session.read_cluster(after_s)
        left = [stop for one in leaving for stop in remaining(session, one)]
        short = shortages(session.view, gang.starts, without=_stopped(gang))
        if not left and not short:
            return
        misled = {one.key: why for one in leaving if (why := _others_went(session, one))}
        if misled:
            session.others_went |= misled
            first = min(misled)
            raise Failure(f"gang {'/'.join(first)}: {misled[first]}")
    if left:
        raise Failure(f"pod {left[0]} is not gone yet", transient=True)
    raise Failure(f"node {short[0][0]} {short[0][1]}", transient=True)


def resize(session: ApplySession, gang: GangActions) -> Steps[None]:
    """Set the scale of every role that changes. Raises Failure, a permanent one without a scale field."""
    if gang.key in session.resized:
        return
    for one in gang.resizes:
        yield from _scale(session, gang, one)
    session.resized.add(gang.key)
    session.evicted += len(to_evict(session, [gang]))
    for stop in gang.stops if session.limits.dry else ():
        session.view.pods.pop(stop.key, None)


def _others_went(session: ApplySession, gang: GangActions) -> str:
    """What its controller removed in place of the planned pods; empty unless it is done with that.

    Pods that come and go around the request can change its choice. The gang runs on with those that stay.
    """
    for change in gang.resizes if gang.decision == "resize" else ():
        left = [stop for stop in remaining(session, gang) if stop.role == change.role]
        pods = [session.view.pods[stop.key] for stop in left]
        owners = {pod.owner for pod in pods if not pod.terminating} - {None}
        living = sum(pod.owner in owners and pod.stays for pod in session.view.pods.values())
        if owners and living <= change.after:
            return f"its controller removed another pod than {left[0].name}; the next plan goes on"
    return ""


def _scale(session: ApplySession, gang: GangActions, change: Resize) -> Steps[None]:
    going = tuple(stop for stop in gang.stops if stop.role == change.role)
    keys = [dict(gang.members).get(change.role), *(stop.key for stop in going)]
    member = next((key for key in keys if key is not None and key in session.view.pods), None)
    if member is None:
        raise Failure(f"no pod of role {change.role} exists")
    last = ""
    for _ in range(TRIES):
        event = yield from session.send(Scale(gang.key, change, member, going))
        match event:
            case Done():
                return
            case Rejected(message) | Gone(message):
                raise Failure(message)
        last = message_of(event)
    raise Failure(last, transient=True)
