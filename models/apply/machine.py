"""The last look: whether what was started is there, bound, and alone on its GPUs; then the marks.

Promises: waits only for schedulers, and only so often; a gang that a rival broke is told with its pods.
Called by ``machine``.

The apply state machine: requests out, events in, a verdict at the end.

Promises: no I/O and no clock; gangs half-there are settled first; one gang's conflict stops no other;
wherever it is cut off, running it again gets to the same end. Called by ``planner.cluster.sending``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator

from models.apply.evictions import Leaving, make_room, remaining, resize, stop_rest, victims
from models.apply.gang_state import judged, told
from models.apply.live_state import View, lacks, overfull
from models.apply.orders import GangOrder, Key, Orders, PodOrder
from models.apply.outcomes import GangVerdict, Limits, Outcome, Verdict
from models.apply.pod_state import READY, STARTED, PodState
from models.apply.recovery import mark, recover
from models.apply.requests import Event, Request, Stop
from models.apply.session import Desk, Failed, Halted, Squad
from models.apply.staleness import gang_moved, stopping
from models.apply.starts import by_rank, restart, restarted, start, withdraw
from models.apply.undo import undo_partial


def finish(desk: Desk) -> Generator[Request, Event, None]:
    """Read again until all that was started is bound, or the rounds are over; judge; mark as whole."""
    if desk.limits.dry or not desk.squads:
        return
    yield from desk.look_around()
    for after_s in desk.limits.waits():
        if not any(
            desk.state(order) is PodState.ungated for squad in desk.squads for order in squad.pods
        ):
            break
        yield from desk.look_around(after_s)
    yield from settled(desk)


def settled(desk: Desk) -> Generator[Request, Event, None]:
    """Judge what was started in this run by what was just read, and mark what is whole."""
    full = overfull(desk.view, {order.node for squad in desk.squads for order in squad.pods})
    for squad in desk.squads:
        verdict = desk.record(judged(desk, squad, full))
        if verdict.outcome is Outcome.started:
            yield from mark(desk, squad)


__all__ = ["Limits", "applying", "recovering"]

Steps = Generator[Request, Event, None]
Machine = Generator[Request, Event, Verdict]


def recovering(view: View, limits: Limits) -> Machine:
    """Finish, take back or report what any plan left half-way, and nothing else."""
    desk = Desk(view, limits)
    return (yield from _to_the_end(desk, _recovered(desk)))


def applying(orders: Orders, view: View, limits: Limits) -> Machine:
    """Carry out a plan, after settling what other runs left half-way."""
    desk = Desk(view, limits)
    return (yield from _to_the_end(desk, _applied(desk, orders), orders))


def _to_the_end(desk: Desk, steps: Steps, orders: Orders | None = None) -> Machine:
    stop: Stop | None = None
    try:
        yield from steps
    except Halted as halted:
        stop = halted.stop
    for gang in orders.gangs if orders is not None and stop is not None else ():
        assert orders is not None
        if (orders.plan, gang.key) not in desk.verdicts:
            desk.record(GangVerdict(gang.key, Outcome.halted, orders.plan, "it was not begun"))
    return Verdict(
        gangs=tuple(sorted(desk.verdicts.values(), key=lambda one: (one.gang, one.plan))),
        stop=None if stop is None else stop.why,
        lock_lost=stop is not None and stop.lock,
        writes=desk.writes,
        evicted=desk.evicted,
        notes=tuple(desk.notes),
    )


def _recovered(desk: Desk) -> Steps:
    yield from recover(desk)
    yield from undo_partial(desk)
    yield from finish(desk)


def _applied(desk: Desk, orders: Orders) -> Steps:
    fresh = [gang for gang in orders.gangs if gang.starts and gang.decision != "move"]
    moving = [gang for gang in orders.gangs if gang.decision == "move"]
    ordered = frozenset(gang.key for gang in fresh)
    ending = frozenset(gang.key for gang in orders.gangs if gang.stops)
    yield from recover(desk, own=orders.plan, ordered=ordered, ending=ending)
    _begin_anew(desk, orders)
    yield from undo_partial(desk, but=ordered)
    later = []
    for gang in by_rank(fresh):
        if _needs_scale(gang) or _needs_room(desk, orders, gang):
            later.append(gang)
        else:
            yield from _begin(desk, orders, gang)
    leaving = Leaving()
    spared: dict[Key, str] = {}
    for gang in by_rank([*later, *moving]):
        yield from _with_room(desk, orders, gang, leaving, spared)
    for gang in by_rank([*moving, *filter(_needs_scale, later)]):
        if (orders.plan, gang.key) not in desk.verdicts:
            yield from restart(desk, orders, gang, leaving)
    yield from _rest_stopped(desk, orders, leaving, spared)
    if _completed(desk, orders, ordered):
        yield from recover(desk, own=orders.plan, ordered=ordered, ending=ending)
    yield from undo_partial(desk)
    yield from finish(desk)
    for gang in orders.gangs:
        if (orders.plan, gang.key) not in desk.verdicts:
            _left(desk, orders, gang, spared)


def _completed(desk: Desk, orders: Orders, ordered: Collection[Key]) -> bool:
    """Forget that gangs were partial for want of pods that this plan has started; whether any was."""
    found = [
        key
        for key, verdict in desk.verdicts.items()
        if key[0] != orders.plan and key[1] in ordered and verdict.outcome is Outcome.partial
    ]
    for key in found:
        del desk.verdicts[key]
    return bool(found)


def _rest_stopped(desk: Desk, orders: Orders, leaving: Leaving, spared: dict[Key, str]) -> Steps:
    """Stop what is left of gangs that a run was cut off from stopping."""
    for gang in orders.gangs:
        if gang.key not in spared and _in_part(desk, orders, gang):
            failed = yield from stop_rest(desk, gang, leaving)
            if failed is not None:
                spared[gang.key] = failed.why


def _in_part(desk: Desk, orders: Orders, gang: GangOrder) -> bool:
    """Whether a gang was stopped in part, before a run was cut off, and its room went to another."""
    if gang.decision != "preempt" or desk.limits.dry:
        return False
    left = {stop.uid for stop in remaining(desk, gang)}
    freed = {stop.node for stop in gang.stops if stop.uid not in left}
    started = (Outcome.started, Outcome.pending, Outcome.unchanged)
    return bool(left) and any(
        (verdict := desk.verdicts.get((orders.plan, other.key))) is not None
        and verdict.outcome in started
        and any(order.node in freed for order in other.starts)
        for other in orders.gangs
    )


def _begin_anew(desk: Desk, orders: Orders) -> None:
    """Forget verdicts on gangs of this plan whose intents were taken back: they get another try."""
    for key, verdict in list(desk.verdicts.items()):
        if key[0] == orders.plan and verdict.outcome is Outcome.skipped:
            del desk.verdicts[key]


def _needs_scale(gang: GangOrder) -> bool:
    return any(not order.uid for order in gang.starts)


def _needs_room(desk: Desk, orders: Orders, gang: GangOrder) -> bool:
    """Whether it has no room now, and would have some once others have stopped."""
    starts = _unstarted(desk, gang)
    freed = stopping(orders)
    return bool(lacks(desk.view, starts)) and not lacks(desk.view, starts, without=freed)


def _unstarted(desk: Desk, gang: GangOrder) -> list[PodOrder]:
    return [order for order in gang.starts if desk.state(order) in READY]


def _begin(desk: Desk, orders: Orders, gang: GangOrder) -> Steps:
    """Start one gang of the plan, unless it is started, or something it relied on moved."""
    if (orders.plan, gang.key) in desk.verdicts:
        return
    squad = Squad(gang.key, orders.plan, len(gang.starts), gang.starts)
    states = [desk.state(order) for order in gang.starts]
    if any(state in STARTED for state in states) and _ours(desk, squad):
        gone = sum(state not in STARTED for state in states)
        # What befalls a gang after it was whole is its own affair, and a later plan's.
        was_whole = any(
            (pod := desk.pod(o)) and pod.intent and pod.intent.whole for o in squad.pods
        )
        verdict = told(desk, squad) if gone or was_whole else judged(desk, squad)
        if verdict.outcome is Outcome.started:
            why = f"{gone} of its pods have gone since" if gone else ""
            verdict = GangVerdict(gang.key, Outcome.unchanged, orders.plan, why, verdict.pods)
        desk.record(verdict)
        return
    yield from desk.hold(squad.called)
    yield from _refreshed(desk)
    moved = _moved(desk, orders, gang)
    if moved:
        yield from withdraw(desk, squad, "; ".join(moved[:3]))
        return
    yield from start(desk, squad)


def _moved(
    desk: Desk, orders: Orders, gang: GangOrder, *, without: Collection[str] = ()
) -> list[str]:
    """What the gang relied on and is no longer so, nodes kept from other schedulers among it."""
    found = [str(one) for one in gang_moved(orders, gang, desk.view, without=without)]
    pods = [(order.node, desk.view.pods.get(order.key)) for order in gang.starts]
    bound = {node for node, pod in pods if pod is not None and desk.ways.binds(pod)}
    return found + [
        f"node {node} is open: {why}" for node, why in desk.limits.open_nodes if node in bound
    ]


def _refreshed(desk: Desk) -> Steps:
    """Read again where it is time; what is whole by then is marked, lest a later run take it for half."""
    if (yield from desk.refresh()) and not desk.limits.dry:
        yield from settled(desk)


def _ours(desk: Desk, squad: Squad) -> bool:
    """Whether every started pod of the squad was started by this plan."""
    for order in squad.pods:
        seen = desk.pod(order)
        if seen is None or desk.state(order) not in STARTED:
            continue
        if seen.intent is None or not seen.intent_is_ours or seen.intent.plan != squad.plan:
            return False
    return True


def _with_room(
    desk: Desk, orders: Orders, gang: GangOrder, leaving: Leaving, spared: dict[Key, str]
) -> Steps:
    """Make room for a gang, then start it; one that moves or grows is only made ready for that."""
    if (orders.plan, gang.key) in desk.verdicts:
        return
    if restarted(desk, orders, gang):
        desk.record(GangVerdict(gang.key, Outcome.unchanged, orders.plan, pods=len(gang.starts)))
        return
    yield from desk.hold(f"gang {gang.namespace}/{gang.name}")
    yield from _refreshed(desk)
    moved = _moved(desk, orders, gang, without=stopping(orders))
    leave = victims(desk, orders, gang)
    if moved:
        failed: Failed | None = Failed("; ".join(moved[:3]))
        outcome = Outcome.skipped
    else:
        failed = yield from make_room(desk, orders, gang, leaving)
        outcome = Outcome.withheld
        if failed is None and _needs_scale(gang):
            failed = yield from _grown(desk, gang, leaving)
            outcome = Outcome.advised
    if failed is not None:
        for one in leave:
            spared[one.key] = failed.why
        squad = Squad(gang.key, orders.plan, len(gang.starts), gang.starts)
        verdict = yield from withdraw(desk, squad, failed.why)
        if verdict.outcome is Outcome.skipped:
            resizes = gang.resizes if outcome is Outcome.advised else ()
            desk.record(GangVerdict(gang.key, outcome, orders.plan, failed.why, resizes=resizes))
    elif gang.decision != "move" and not _needs_scale(gang):
        yield from _begin(desk, orders, gang)


def _grown(
    desk: Desk, gang: GangOrder, leaving: Leaving
) -> Generator[Request, Event, Failed | None]:
    if not desk.limits.allow_evictions:
        return Failed("its controller's scale is only changed with --allow-evictions")
    return (yield from resize(desk, gang, leaving))


def _left(desk: Desk, orders: Orders, gang: GangOrder, spared: dict[Key, str]) -> None:
    """The verdict on a gang that only stops or shrinks."""
    left = remaining(desk, gang)
    going = [stop for stop in left if desk.view.pods[stop.key].terminating]
    why, outcome = "", Outcome.stopped
    if left and len(going) == len(left):
        why = f"{len(going)} of its pods are being deleted"
    elif left and gang.key in spared:
        why, outcome = spared[gang.key], Outcome.withheld
        if len(left) < len(gang.stops) or going:
            outcome = Outcome.halted
    elif left:
        why, outcome = "nobody needs its room any more", Outcome.unchanged
    pods = len(left) - len(going)
    resizes = gang.resizes if outcome is not Outcome.stopped else ()
    desk.record(GangVerdict(gang.key, outcome, orders.plan, why, pods, resizes=resizes))
