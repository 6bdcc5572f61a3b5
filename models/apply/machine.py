"""The last look: whether what was started is there, bound, and alone on its GPUs; then the marks.

Promises: waits only for schedulers, and only so often; a gang that a rival broke is told with its pods.
Called by ``machine``.

The apply state machine: requests out, events in, a verdict at the end.

Promises: no I/O and no clock; gangs half-there are settled first; one gang's conflict stops no other;
wherever it is cut off, running it again gets to the same end. Called by ``planner.cluster.sending``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator

from models.apply.evictions import Removals, make_room, remaining, resize, stop_rest, victims
from models.apply.gang_state import judged, told
from models.apply.live_state import ClusterView, lacks, overfull
from models.apply.orders import GangOrder, Key, Orders, PodOrder
from models.apply.outcomes import ApplyLimits, GangVerdict, Outcome, Verdict
from models.apply.pod_state import READY, STARTED, PodState
from models.apply.recovery import mark, recover
from models.apply.requests import Event, Halt, Request
from models.apply.session import ApplySession, Failure, Halted, PodBatch
from models.apply.staleness import gang_moved, stopping
from models.apply.starts import by_rank, restart, restarted, start, withdraw
from models.apply.undo import undo_partial


def finish(session: ApplySession) -> Generator[Request, Event, None]:
    """Read again until all that was started is bound, or the rounds are over; judge; mark as whole."""
    if session.limits.dry or not session.batches:
        return
    yield from session.read_cluster()
    for after_s in session.limits.waits():
        if not any(
            session.state(order) is PodState.ungated
            for batch in session.batches
            for order in batch.pods
        ):
            break
        yield from session.read_cluster(after_s)
    yield from settled(session)


def settled(session: ApplySession) -> Generator[Request, Event, None]:
    """Judge what was started in this run by what was just read, and mark what is whole."""
    full = overfull(session.view, {order.node for batch in session.batches for order in batch.pods})
    for batch in session.batches:
        verdict = session.record(judged(session, batch, full))
        if verdict.outcome is Outcome.started:
            yield from mark(session, batch)


Steps = Generator[Request, Event, None]
Machine = Generator[Request, Event, Verdict]


def recovering(view: ClusterView, limits: ApplyLimits) -> Machine:
    """Finish, take back or report what any plan left half-way, and nothing else."""
    session = ApplySession(view, limits)
    return (yield from _to_the_end(session, _recovered(session)))


def applying(orders: Orders, view: ClusterView, limits: ApplyLimits) -> Machine:
    """Carry out a plan, after settling what other runs left half-way."""
    session = ApplySession(view, limits)
    return (yield from _to_the_end(session, _applied(session, orders), orders))


def _to_the_end(session: ApplySession, steps: Steps, orders: Orders | None = None) -> Machine:
    stop: Halt | None = None
    try:
        yield from steps
    except Halted as halted:
        stop = halted.stop
    for gang in orders.gangs if orders is not None and stop is not None else ():
        assert orders is not None
        if (orders.plan, gang.key) not in session.verdicts:
            session.record(GangVerdict(gang.key, Outcome.halted, orders.plan, "it was not begun"))
    return Verdict(
        gangs=tuple(sorted(session.verdicts.values(), key=lambda one: (one.gang, one.plan))),
        stop=None if stop is None else stop.why,
        lock_lost=stop is not None and stop.lock,
        writes=session.writes,
        evicted=session.evicted,
        notes=tuple(session.notes),
    )


def _recovered(session: ApplySession) -> Steps:
    yield from recover(session)
    yield from undo_partial(session)
    yield from finish(session)


def _applied(session: ApplySession, orders: Orders) -> Steps:
    fresh = [gang for gang in orders.gangs if gang.starts and gang.decision != "move"]
    moving = [gang for gang in orders.gangs if gang.decision == "move"]
    ordered = frozenset(gang.key for gang in fresh)
    ending = frozenset(gang.key for gang in orders.gangs if gang.stops)
    yield from recover(session, own=orders.plan, ordered=ordered, ending=ending)
    _begin_anew(session, orders)
    yield from undo_partial(session, but=ordered)
    later = []
    for gang in by_rank(fresh):
        if _needs_scale(gang) or _needs_room(session, orders, gang):
            later.append(gang)
        else:
            yield from _begin(session, orders, gang)
    leaving = Removals()
    spared: dict[Key, str] = {}
    for gang in by_rank([*later, *moving]):
        yield from _with_room(session, orders, gang, leaving, spared)
    for gang in by_rank([*moving, *filter(_needs_scale, later)]):
        if (orders.plan, gang.key) not in session.verdicts:
            yield from restart(session, orders, gang, leaving)
    yield from _rest_stopped(session, orders, leaving, spared)
    if _completed(session, orders, ordered):
        yield from recover(session, own=orders.plan, ordered=ordered, ending=ending)
    yield from undo_partial(session)
    yield from finish(session)
    for gang in orders.gangs:
        if (orders.plan, gang.key) not in session.verdicts:
            _left(session, orders, gang, spared)


def _completed(session: ApplySession, orders: Orders, ordered: Collection[Key]) -> bool:
    """Forget that gangs were partial for want of pods that this plan has started; whether any was."""
    found = [
        key
        for key, verdict in session.verdicts.items()
        if key[0] != orders.plan and key[1] in ordered and verdict.outcome is Outcome.partial
    ]
    for key in found:
        del session.verdicts[key]
    return bool(found)


def _rest_stopped(
    session: ApplySession, orders: Orders, leaving: Removals, spared: dict[Key, str]
) -> Steps:
    """Stop what is left of gangs that a run was cut off from stopping."""
    for gang in orders.gangs:
        if gang.key not in spared and _in_part(session, orders, gang):
            failed = yield from stop_rest(session, gang, leaving)
            if failed is not None:
                spared[gang.key] = failed.why


def _in_part(session: ApplySession, orders: Orders, gang: GangOrder) -> bool:
    """Whether a gang was stopped in part, before a run was cut off, and its room went to another."""
    if gang.decision != "preempt" or session.limits.dry:
        return False
    left = {stop.uid for stop in remaining(session, gang)}
    freed = {stop.node for stop in gang.stops if stop.uid not in left}
    started = (Outcome.started, Outcome.pending, Outcome.unchanged)
    return bool(left) and any(
        (verdict := session.verdicts.get((orders.plan, other.key))) is not None
        and verdict.outcome in started
        and any(order.node in freed for order in other.starts)
        for other in orders.gangs
    )


def _begin_anew(session: ApplySession, orders: Orders) -> None:
    """Forget verdicts on gangs of this plan whose intents were taken back: they get another try."""
    for key, verdict in list(session.verdicts.items()):
        if key[0] == orders.plan and verdict.outcome is Outcome.skipped:
            del session.verdicts[key]


def _needs_scale(gang: GangOrder) -> bool:
    return any(not order.uid for order in gang.starts)


def _needs_room(session: ApplySession, orders: Orders, gang: GangOrder) -> bool:
    """Whether it has no room now, and would have some once others have stopped."""
    starts = _unstarted(session, gang)
    freed = stopping(orders)
    return bool(lacks(session.view, starts)) and not lacks(session.view, starts, without=freed)


def _unstarted(session: ApplySession, gang: GangOrder) -> list[PodOrder]:
    return [order for order in gang.starts if session.state(order) in READY]


def _begin(session: ApplySession, orders: Orders, gang: GangOrder) -> Steps:
    """Start one gang of the plan, unless it is started, or something it relied on moved."""
    if (orders.plan, gang.key) in session.verdicts:
        return
    batch = PodBatch(gang.key, orders.plan, len(gang.starts), gang.starts)
    states = [session.state(order) for order in gang.starts]
    if any(state in STARTED for state in states) and _ours(session, batch):
        gone = sum(state not in STARTED for state in states)
        # What befalls a gang after it was whole is its own affair, and a later plan's.
        was_whole = any(
            (pod := session.pod(o)) and pod.intent and pod.intent.whole for o in batch.pods
        )
        verdict = told(session, batch) if gone or was_whole else judged(session, batch)
        if verdict.outcome is Outcome.started:
            why = f"{gone} of its pods have gone since" if gone else ""
            verdict = GangVerdict(gang.key, Outcome.unchanged, orders.plan, why, verdict.pods)
        session.record(verdict)
        return
    yield from session.hold(batch.called)
    yield from _refreshed(session)
    moved = _moved(session, orders, gang)
    if moved:
        yield from withdraw(session, batch, "; ".join(moved[:3]))
        return
    yield from start(session, batch)


def _moved(
    session: ApplySession, orders: Orders, gang: GangOrder, *, without: Collection[str] = ()
) -> list[str]:
    """What the gang relied on and is no longer so, nodes kept from other schedulers among it."""
    found = [str(one) for one in gang_moved(orders, gang, session.view, without=without)]
    pods = [(order.node, session.view.pods.get(order.key)) for order in gang.starts]
    bound = {node for node, pod in pods if pod is not None and session.classifier.binds(pod)}
    return found + [
        f"node {node} is open: {why}" for node, why in session.limits.open_nodes if node in bound
    ]


def _refreshed(session: ApplySession) -> Steps:
    """Read again where it is time; what is whole by then is marked, lest a later run take it for half."""
    if (yield from session.refresh()) and not session.limits.dry:
        yield from settled(session)


def _ours(session: ApplySession, batch: PodBatch) -> bool:
    """Whether every started pod of the squad was started by this plan."""
    for order in batch.pods:
        seen = session.pod(order)
        if seen is None or session.state(order) not in STARTED:
            continue
        if seen.intent is None or not seen.intent_is_ours or seen.intent.plan != batch.plan:
            return False
    return True


def _with_room(
    session: ApplySession,
    orders: Orders,
    gang: GangOrder,
    leaving: Removals,
    spared: dict[Key, str],
) -> Steps:
    """Make room for a gang, then start it; one that moves or grows is only made ready for that."""
    if (orders.plan, gang.key) in session.verdicts:
        return
    if restarted(session, orders, gang):
        session.record(GangVerdict(gang.key, Outcome.unchanged, orders.plan, pods=len(gang.starts)))
        return
    yield from session.hold(f"gang {gang.namespace}/{gang.name}")
    yield from _refreshed(session)
    moved = _moved(session, orders, gang, without=stopping(orders))
    leave = victims(session, orders, gang)
    if moved:
        failed: Failure | None = Failure("; ".join(moved[:3]))
        outcome = Outcome.skipped
    else:
        failed = yield from make_room(session, orders, gang, leaving)
        outcome = Outcome.withheld
        if failed is None and _needs_scale(gang):
            failed = yield from _grown(session, gang, leaving)
            outcome = Outcome.advised
    if failed is not None:
        for one in leave:
            spared[one.key] = failed.why
        batch = PodBatch(gang.key, orders.plan, len(gang.starts), gang.starts)
        verdict = yield from withdraw(session, batch, failed.why)
        if verdict.outcome is Outcome.skipped:
            resizes = gang.resizes if outcome is Outcome.advised else ()
            session.record(GangVerdict(gang.key, outcome, orders.plan, failed.why, resizes=resizes))
    elif gang.decision != "move" and not _needs_scale(gang):
        yield from _begin(session, orders, gang)


def _grown(
    session: ApplySession, gang: GangOrder, leaving: Removals
) -> Generator[Request, Event, Failure | None]:
    if not session.limits.allow_evictions:
        return Failure("its controller's scale is only changed with --allow-evictions")
    return (yield from resize(session, gang, leaving))


def _left(session: ApplySession, orders: Orders, gang: GangOrder, spared: dict[Key, str]) -> None:
    """The verdict on a gang that only stops or shrinks."""
    left = remaining(session, gang)
    going = [stop for stop in left if session.view.pods[stop.key].terminating]
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
    session.record(GangVerdict(gang.key, outcome, orders.plan, why, pods, resizes=resizes))
