"""The apply state machine, which decides the order of requests: yields requests, receives events.

No I/O and no clock. Gangs that an earlier run left incomplete come first; a conflict stops only the gang it
concerns; wherever a run is cut off, the next one reaches the same end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from models.apply.enforcer import PodBatch
from models.apply.evictions import make_room, remaining, resize, victims
from models.apply.live_state import (
    STARTED,
    ClusterView,
    LivePod,
    PodClassifier,
    PodState,
    shortages,
)
from models.apply.on_request import request_for
from models.apply.plan_actions import GangActions, Key, PlanActions, PodStart
from models.apply.recovery import (
    evict_partial,
    note_stuck_nodes,
    ordered_starts,
    recover,
    settle_cut_gangs,
)
from models.apply.request_steps import report_waiting, settle_requests, start_on_request
from models.apply.requests import ApplyLimits, GangVerdict, Halt, Outcome, Steps, Verdict
from models.apply.session import ApplySession, Failure, Halted, Lanes
from models.apply.staleness import gang_changes, stopped_uids
from models.apply.starts import judge, mark_whole, start, started_verdict, withdraw

Machine = Steps[Verdict]


def recover_gangs(view: ClusterView, limits: ApplyLimits) -> Machine:
    """Complete, withdraw or report gangs that any plan left incomplete, and nothing else."""
    session = ApplySession(view, limits)

    def steps() -> Steps[None]:
        yield from settle_requests(session)
        yield from recover(session)
        yield from evict_partial(session)
        yield from _finish(session)
        yield from note_stuck_nodes(session)

    return (yield from _to_verdict(session, steps()))


def apply_plan(orders: PlanActions, view: ClusterView, limits: ApplyLimits) -> Machine:
    """Apply a plan, after recovering incomplete gangs."""
    session = ApplySession(view, limits)
    steps = _PlanRun(session, orders).steps()
    return (yield from _to_verdict(session, steps, orders))


def _to_verdict(
    session: ApplySession, steps: Steps[None], orders: PlanActions | None = None
) -> Machine:
    halt: Halt | None = None
    try:
        yield from steps
    except Halted as halted:
        halt = halted.halt
        if orders is not None:
            for gang in orders.gangs:
                if (orders.plan, gang.key) not in session.verdicts:
                    why = "not started"
                    session.record(GangVerdict(gang.key, Outcome.halted, orders.plan, why))
    return Verdict(
        gangs=tuple(sorted(session.verdicts.values(), key=lambda one: (one.gang, one.plan))),
        stop=None if halt is None else halt.why,
        writes=session.writes,
        evicted=session.evicted,
    )


def _finish(session: ApplySession) -> Steps[None]:
    """Wait until all started pods are bound or the time is over; then judge and mark the gangs."""
    if session.limits.dry or not session.started:
        return

    def unbound() -> bool:
        orders = (order for batch in session.started for order in batch.pods)
        return any(session.state(order) is PodState.ungated for order in orders)

    waits = tuple(session.limits.waits())
    if not waits or not unbound():  # else kube-scheduler needs a moment anyway
        yield from session.read_cluster()
    for after_s in waits:
        if not unbound():
            break
        yield from session.read_cluster(after_s)
    yield from _judge_started(session)


def _judge_started(session: ApplySession) -> Steps[None]:
    """Judge the gangs started in this run by the last reading, and mark those that are whole."""
    judged = [(batch, session.record(judge(session, batch))) for batch in session.started]
    whole = [batch for batch, verdict in judged if verdict.outcome is Outcome.started]
    yield from mark_whole(session, whole)


def by_rank(gangs: Iterable[GangActions]) -> list[GangActions]:
    """Higher priority first, then the longest waiting, then by name."""

    def rank(gang: GangActions) -> tuple[int, bool, int, Key]:
        since = gang.submitted_at
        return (-gang.priority, since is None, since or 0, gang.key)

    return sorted(gangs, key=rank)


@dataclass(frozen=True, slots=True)
class _PlanRun:
    """One plan under way. ``kept``: gangs that are not evicted after all, and why."""

    session: ApplySession
    orders: PlanActions
    kept: dict[Key, str] = field(default_factory=dict)

    def steps(self) -> Steps[None]:
        """Recover, start what fits, then what needs evictions, then what controllers recreate."""
        session, orders = self.session, self.orders
        fresh = [gang for gang in orders.gangs if gang.starts and gang.decision != "move"]
        moving = [gang for gang in orders.gangs if gang.decision == "move"]
        ordered = ordered_starts(orders)
        yield from settle_requests(session)
        yield from recover(session, orders)
        self._forget_skipped()
        yield from evict_partial(session, but=ordered)
        later = yield from self._start_all(by_rank(fresh))
        for gang in by_rank([*later, *moving]):
            yield from self._make_room_and_start(gang)
        for gang in by_rank([*moving, *(gang for gang in later if gang.grows)]):
            if not self._has_verdict(gang):
                yield from start_recreated(session, orders, gang)
        if self._forget_completed(ordered):
            yield from recover(session, orders)
        yield from evict_partial(session)
        yield from _finish(session)
        for gang in orders.gangs:
            if not self._has_verdict(gang):
                self._record_stopped(gang)
        yield from settle_cut_gangs(session, orders)
        yield from report_waiting(session, orders)
        yield from note_stuck_nodes(session)

    def _start_all(self, gangs: Iterable[GangActions]) -> Steps[list[GangActions]]:
        """Start gangs side by side; those that need evictions or pods to be created are left."""
        left = []
        lanes = Lanes(self.session)
        try:
            for gang in gangs:
                if gang.grows or self._needs_evictions(gang):
                    left.append(gang)
                else:
                    yield from self._begin(gang, lanes)
            yield from lanes.finish()
        except Halted as halted:
            yield from lanes.end(halted)
        return left

    def _has_verdict(self, gang: GangActions) -> bool:
        return (self.orders.plan, gang.key) in self.session.verdicts

    def _forget_skipped(self) -> None:
        """Drop verdicts on gangs of this plan whose starts were withdrawn: they are tried again."""
        verdicts = self.session.verdicts
        for key, verdict in list(verdicts.items()):
            if key[0] == self.orders.plan and verdict.outcome is Outcome.skipped:
                del verdicts[key]

    def _forget_completed(self, ordered: Collection[Key]) -> bool:
        """Drop "partial" verdicts of other plans on gangs whose missing pods this plan has started."""
        verdicts = self.session.verdicts
        incomplete = [key for key, one in verdicts.items() if one.outcome is Outcome.partial]
        found = [key for key in incomplete if key[0] != self.orders.plan and key[1] in ordered]
        for key in found:
            del verdicts[key]
        return bool(found)

    def _needs_evictions(self, gang: GangActions) -> bool:
        """Whether it does not fit now, but will once other gangs have stopped."""
        view = self.session.view
        waiting = [order for order in gang.starts if self.session.state(order) is PodState.waiting]
        freed = stopped_uids(self.orders)
        return bool(shortages(view, waiting)) and not shortages(view, waiting, without=freed)

    def _begin(self, gang: GangActions, lanes: Lanes) -> Steps[None]:
        """Begin one gang, unless it is started or a fact it relies on changed."""
        session = self.session
        if self._has_verdict(gang):
            return
        if gang.on_request:  # no other pods may be on the way to its nodes
            yield from lanes.finish()
            request = request_for(session.view, gang.starts[0])
            answered = request is not None and request.plan == self.orders.plan
            if not answered and (changed := self._changes(gang)):
                yield from withdraw(session, PodBatch.of(self.orders.plan, gang), changed)
            else:
                yield from session.check_lock()
                yield from start_on_request(session, self.orders, gang)
            return
        batch = PodBatch.of(self.orders.plan, gang)
        states = [session.state(order) for order in gang.starts]
        begun = any(state in STARTED for state in states)
        # Pods that have finished may be all that started of it: then the others still wait.
        if (
            begun
            and not any(state is PodState.waiting for state in states)
            and self._started_here(batch)
        ):
            session.record(self._unchanged(batch, sum(one not in STARTED for one in states)))
            return
        yield from lanes.free_one()
        yield from session.check_lock()
        yield from self._refresh()
        changed = self._changes(gang, beside=lanes.pods)
        if changed and not lanes.empty:
            yield from lanes.finish()
            changed = self._changes(gang)
        if changed:
            yield from withdraw(session, batch, changed)
        else:
            yield from lanes.add(batch.pods, start(session, batch))

    def _unchanged(self, batch: PodBatch, gone: int) -> GangVerdict:
        """Verdict on a gang that this plan started earlier. ``gone``: pods it has lost since."""
        session = self.session
        # What happens to a gang after it was whole is up to its controller and later plans.
        record = session.view.records.get(batch.key)
        was_whole = record is not None and record.whole
        verdict = (started_verdict if gone or was_whole else judge)(session, batch)
        if verdict.outcome is not Outcome.started:
            return verdict
        why = f"{gone} of its pods are gone since" if gone else ""
        return GangVerdict(batch.gang, Outcome.unchanged, batch.plan, why, verdict.pods)

    def _started_here(self, batch: PodBatch) -> bool:
        """Whether every started pod of the batch was started by this plan."""
        started = [order for order in batch.pods if self.session.state(order) in STARTED]
        pods = map(self.session.pod, started)
        return all(pod is None or pod.carries(batch.plan) for pod in pods)

    def _refresh(self) -> Steps[None]:
        """Read again if it is time, and mark whole gangs, lest a later run takes them for partial."""
        if (yield from self.session.refresh()) and not self.session.limits.dry:
            yield from _judge_started(self.session)

    def _changes(
        self, gang: GangActions, *, without: Collection[str] = (), beside: Iterable[PodStart] = ()
    ) -> str:
        """Facts of the plan that no longer hold, the first ones."""
        view = self.session.view
        changed = gang_changes(self.orders, gang, view, without=without, beside=beside)
        return "; ".join(str(one) for one in changed[:3])

    def _make_room_and_start(self, gang: GangActions) -> Steps[None]:
        """Make room for a gang, then start it; the pods of a gang that moves or grows come later."""
        session, orders = self.session, self.orders
        if self._has_verdict(gang):
            return
        if is_restarted(session, orders, gang):
            pods = len(gang.starts)
            session.record(GangVerdict(gang.key, Outcome.unchanged, orders.plan, pods=pods))
            return
        yield from session.check_lock()
        yield from self._refresh()
        changed = self._changes(gang, without=stopped_uids(orders))
        leaving = victims(session, orders, gang)
        outcome = Outcome.skipped
        try:
            if changed:
                raise Failure(changed)  # noqa: TRY301  # as what follows
            outcome = Outcome.withheld
            yield from make_room(session, orders, gang)
            outcome = Outcome.advised
            if gang.grows:
                yield from self._grow(gang)
        except Failure as failure:
            why = failure.why
            self.kept.update((victim.key, why) for victim in leaving)
            verdict = yield from withdraw(session, PodBatch.of(orders.plan, gang), why)
            if verdict.outcome is Outcome.skipped:
                resizes = gang.resizes if outcome is Outcome.advised else ()
                session.record(GangVerdict(gang.key, outcome, orders.plan, why, resizes=resizes))
        else:
            if gang.decision != "move" and not gang.grows:
                yield from self._start_all([gang])

    def _grow(self, gang: GangActions) -> Steps[None]:
        if not self.session.limits.allow_evictions:
            raise Failure("resizing needs --allow-evictions")
        try:
            yield from resize(self.session, gang)
        except Failure:
            # A gang that moves has stopped by now, and starts again with the pods that come back.
            if gang.decision != "move":
                raise

    def _record_stopped(self, gang: GangActions) -> None:
        left = remaining(self.session, gang)
        going = [stop for stop in left if self.session.view.pods[stop.key].terminating]
        done = Outcome.resized if gang.decision == "resize" else Outcome.stopped
        why, outcome = "", done
        if left and len(going) == len(left):
            why = f"{len(going)} of its pods are being deleted"
        elif gang.key in self.session.others_went:
            why = self.session.others_went[gang.key]
        elif left and gang.key in self.kept:
            why, outcome = self.kept[gang.key], Outcome.withheld
            if len(left) < len(gang.stops) or going or gang.key in self.session.resized:
                outcome = Outcome.halted
        elif left:
            why, outcome = "no gang needs its room any more", Outcome.unchanged
        pods, plan = len(left) - len(going), self.orders.plan
        resizes = gang.resizes if outcome is not Outcome.stopped else ()
        self.session.record(GangVerdict(gang.key, outcome, plan, why, pods, resizes=resizes))


def start_recreated(session: ApplySession, orders: PlanActions, gang: GangActions) -> Steps[None]:
    """Start the new pods of a gang that moves or grows as planned, or leave them to the next plan.

    A new pod counts only under the planned name, with the same controller and GPU count.
    """
    if session.limits.dry or remaining(session, gang):
        return
    pods = _recreated(session, orders, gang)
    for after_s in session.limits.waits():
        if len(pods) + _renamed(session, gang) >= len(gang.starts):
            break
        yield from session.read_cluster(after_s)
        pods = _recreated(session, orders, gang)
    why = ""
    if len(pods) < len(gang.starts):
        made = "created" if gang.grows else "recreated"
        why = f"its controller has {made} {len(pods)} of {len(gang.starts)} pods"
    elif found := gang_changes(orders, replace(gang, starts=tuple(pods), stops=()), session.view):
        why = str(found[0])
    if why:
        why = f"{why}; the next plan places its new pods"
        outcome = Outcome.resized if gang.grows else Outcome.stopped
        session.record(GangVerdict(gang.key, outcome, orders.plan, why, resizes=gang.resizes))
        return
    yield from session.check_lock()
    yield from start(session, PodBatch(gang.key, orders.plan, len(pods), tuple(pods)))


def is_restarted(session: ApplySession, orders: PlanActions, gang: GangActions) -> bool:
    """Whether this plan has started all new pods of the gang."""
    pods = [pod for _, pod in _made(session, orders, gang)]
    started = session.classifier.started
    return bool(pods) and all(
        pod is not None and pod.carries(orders.plan) and started(pod) for pod in pods
    )


def _renamed(session: ApplySession, gang: GangActions) -> int:
    """New pods of the same controllers under names that the plan does not know."""
    owners = {session.owners.get(stop.key) for stop in gang.stops} - {None}
    planned = {order.key for order in gang.starts} | {stop.key for stop in gang.stops}
    return sum(
        pod.owner in owners and key not in planned and not session.classifier.started(pod)
        for key, pod in session.view.pods.items()
    )


def _made(
    session: ApplySession, orders: PlanActions, gang: GangActions
) -> list[tuple[PodStart, LivePod | None]]:
    """Each order with its pod: that of the planned name, else a new one of the controller that grows."""
    pods = session.view.pods
    owners = {pods[key].owner for _, key in gang.members if key in pods} - {None}
    made = [
        pod
        for pod in pods.values()
        if pod.owner in owners and pod.uid not in gang.known and _may_be(orders, pod)
    ]
    new = iter(sorted(made, key=lambda pod: (len(pod.name), pod.name)))
    return [
        (order, next(new, None) if not order.uid and order.key not in pods else pods.get(order.key))
        for order in gang.starts
    ]


def _may_be(orders: PlanActions, pod: LivePod) -> bool:
    """Whether a pod that the plan does not know can be one that it made a controller create."""
    waits = pod.start is None and not PodClassifier(orders.gate).started(pod)
    return pod.stays and (waits or pod.carries(orders.plan))


def _recreated(session: ApplySession, orders: PlanActions, gang: GangActions) -> list[PodStart]:
    old = {stop.uid for stop in gang.stops}
    found = []
    for order, pod in _made(session, orders, gang):
        if pod is None or pod.uid in old or session.classifier.started(pod):
            continue
        same = session.owners.get(order.key, pod.owner) == pod.owner
        if pod.stays and pod.gpus == order.gpu_count and same:
            found.append(replace(order, name=pod.name, uid=pod.uid))
    return found
