"""Gangs that an earlier run left incomplete, found from the records of their starts and its notes alone.

They are completed, withdrawn if nothing started, or reported as partial, and with ``evict_partial`` evicted.
A record goes once the last of its pods is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from models.apply.enforcer import PodBatch, Write, recorded
from models.apply.evictions import stop_rest, stopping
from models.apply.live_state import (
    RUNNING,
    STARTED,
    ClusterView,
    LivePod,
    PodClassifier,
    PodState,
)
from models.apply.notes import RunNotes, StopNote, shortened
from models.apply.plan_actions import Key, PlanActions, PodStart
from models.apply.records import StartRecord
from models.apply.requests import GangVerdict, Outcome, PodId, Steps, pod_ids
from models.apply.session import ApplySession, Failure
from models.apply.starts import (
    incomplete_verdict,
    mark_whole,
    obstacle,
    overdue_pods,
    send_records,
    start,
    stuck_reason,
    verdict_for,
    withdraw,
)


@dataclass(frozen=True, slots=True)
class RecordedGang:
    """A gang as the record of a start and its pods have it. ``whole``: it was once.

    ``replaced``: pods that later plans started in place of lost ones.
    """

    batch: PodBatch
    states: tuple[tuple[PodStart, PodState], ...]
    whole: bool
    replaced: int = 0

    def in_state(self, states: Collection[PodState]) -> tuple[PodStart, ...]:
        return tuple(order for order, state in self.states if state in states)

    @property
    def waiting(self) -> tuple[PodStart, ...]:
        return self.in_state((PodState.waiting,))

    @property
    def running(self) -> tuple[PodStart, ...]:
        return self.in_state((*RUNNING, PodState.misplaced))

    @property
    def missing(self) -> int:
        """Pods that cannot be started any more and have not finished."""
        present = self.in_state((*STARTED, PodState.waiting, PodState.misplaced))
        return max(0, self.batch.size - len(present) - self.replaced)

    @property
    def partial(self) -> bool:
        """Whether some pods run, others are not started, and the gang never was whole."""
        if self.whole and not self.waiting:
            return False
        return bool(self.running) and bool(self.waiting or self.missing)

    @property
    def to_mark(self) -> bool:
        """Whether all of its pods have started, and its record does not say so."""
        if self.whole or self.batch.size < 2 or self.partial or not self.running:
            return False
        return not (self.replaced or self.in_state((PodState.ungated,)))

    @property
    def over(self) -> bool:
        """Whether none of its pods will run any more."""
        return not self.in_state(
            (PodState.waiting, *RUNNING, PodState.misplaced, PodState.terminating)
        )


def recorded_gangs(view: ClusterView, classifier: PodClassifier) -> Iterator[RecordedGang]:
    """Every gang with a record, by gang, then plan."""
    by_gang: dict[Key, list[RecordedGang]] = defaultdict(list)
    for _, record in sorted(view.records.items(), key=lambda one: one[0]):
        batch = _batch_of(view, record)
        states = tuple(
            (order, classifier.state(view.pods.get(order.key), order.uid, order.node))
            for order in batch.pods
        )
        by_gang[record.gang].append(RecordedGang(batch, states, record.whole))
    for groups in by_gang.values():
        for group in groups:
            # other plans run pods in place of lost ones: never more at once than are missing
            replaced = sum(
                len(other.in_state(RUNNING))
                for other in groups
                if other.batch.plan != group.batch.plan and other.batch.size <= group.missing
            )
            yield replace(group, replaced=replaced)


def _batch_of(view: ClusterView, record: StartRecord) -> PodBatch:
    """The pods of a record as orders; what a pod requests that is gone is not known, nor needed."""
    orders = []
    for name, uid, node, indices, rank, _ in record.pods:
        key = record.gang[0], name
        pod = view.pods.get(key)
        gpus, requests = (0, ()) if pod is None or pod.uid != uid else (pod.gpus, pod.requests)
        terms = record.terms
        orders.append(PodStart(*key, uid, "", 0, node, indices, gpus, requests, rank, terms))
    return PodBatch(record.gang, record.plan, len(record.pods), tuple(orders))


def ordered_starts(orders: PlanActions) -> frozenset[Key]:
    """Gangs that the plan starts; only records show by which pods a gang grows, or moves."""
    fresh = (gang for gang in orders.gangs if gang.starts and gang.decision != "move")
    return frozenset(gang.key for gang in fresh if not gang.grows)


_NO_PLAN = PlanActions("", "", 0, "", "", (), ())


def recover(session: ApplySession, orders: PlanActions = _NO_PLAN) -> Steps[None]:
    """Complete, withdraw or report every gang that is neither untouched nor whole.

    ``orders``: of a plan. Its gangs that have not begun are left to the caller, and pods that it stops are
    meant to be missing.
    """
    own, ordered = orders.plan, ordered_starts(orders)
    ending = {gang.key for gang in orders.gangs if gang.stops}
    waited = [one for one in recorded_gangs(session.view, session.classifier) if one.waiting]
    for group in waited:
        batch = group.batch
        if group.running or batch.plan != own or batch.gang not in ordered:
            yield from session.check_lock(begun=bool(group.running))
            yield from _complete(session, group)
    done = {one.batch.key for one in waited}
    over, unmarked = list[Write](), list[PodBatch]()
    # Only now: pods that were just started may stand for those that other pods of their gang have lost.
    for group in list(recorded_gangs(session.view, session.classifier)):
        batch = group.batch
        if batch.key in done:
            continue
        if group.over and batch.plan != own:
            over.append(recorded(batch.key, session.view.records[batch.key], None))
        elif group.partial and (batch.plan == own or batch.gang not in ending):
            session.record(_partial_verdict(session, group, _incomplete_reason(group)))
        elif not group.partial and _is_sound(session, group, own) and group.to_mark:
            unmarked.append(batch)
    yield from mark_whole(session, unmarked)
    yield from send_records(session, over)


def _is_sound(session: ApplySession, group: RecordedGang, own: str) -> bool:
    """Whether nothing indicates that a gang whose pods are all started will not run; else it is reported."""
    if why := stuck_group_reason(session, group):
        session.record(_partial_verdict(session, group, why))
        return False
    # One which an earlier run left pending or found stuck is whole now.
    healed = group.batch.plan != own and (group.to_mark or _was_stuck(session, group))
    if healed and not session.limits.dry:
        why = "its pods are all bound now"
        session.record(verdict_for(session, group.batch, Outcome.started, why))
    return True


def stuck_group_reason(session: ApplySession, group: RecordedGang) -> str:
    """Why a gang whose pods are all started will not run; empty if nothing indicates that.

    Once it was whole and bound, later changes of its nodes are not the plan's concern.
    """
    if group.waiting or not group.running:
        return ""
    if group.whole and not group.in_state((PodState.ungated,)):
        return ""
    return stuck_reason(session, group.batch)


def _was_stuck(session: ApplySession, group: RecordedGang) -> bool:
    """Whether an earlier run found pods of it pending too long that are bound now."""
    nodes = {one.node for one in session.view.notes.avoid if one.gang == group.batch.gang}
    return any(order.node in nodes for order in group.in_state((PodState.bound,)))


def note_stuck_nodes(session: ApplySession) -> Steps[None]:
    """Note every node on which pods stay pending, or a gang is barred: the next plans avoid it for them."""
    now, notes = session.view.now, session.view.notes
    pending = any(
        pod.node is None and pod.start is not None and session.classifier.started(pod)
        for pod in session.view.pods.values()
    )
    if now is None or session.limits.dry or not (pending or notes.avoid or session.barred):
        return
    stuck, healed = set(session.barred), set()
    for group in recorded_gangs(session.view, session.classifier):
        orders = overdue_pods(session, group.batch)
        stuck |= {(group.batch.gang, order.node) for order in orders}
        if not orders and _was_stuck(session, group):
            healed.add(group.batch.gang)
    if stuck or healed:
        notes = notes.without_avoided(healed - {gang for gang, _ in stuck})
        # If that fails, the next run that finds them pending tries it again.
        yield from session.remember(notes.with_avoided(sorted(stuck), now))


def _complete(session: ApplySession, group: RecordedGang) -> Steps[None]:
    if group.missing or group.in_state((PodState.misplaced,)):
        why = _incomplete_reason(group)
    else:
        why = obstacle(session, list(group.waiting))
    # Pods of other plans may have replaced those that are gone.
    batch = replace(group.batch, pods=group.in_state((PodState.waiting, *STARTED)))
    if not why:
        yield from start(session, batch)
    elif group.running:
        session.record(_partial_verdict(session, group, why))
    else:
        yield from withdraw(session, batch, why)


def _incomplete_reason(group: RecordedGang) -> str:
    misplaced = group.in_state((PodState.misplaced,))
    if misplaced:
        return f"pod {misplaced[0].name} is bound to another node than planned"
    started, size = len(group.running), group.batch.size
    return f"started {started} of its {size} pods; gone: {group.missing}"


def _partial_verdict(session: ApplySession, group: RecordedGang, why: str) -> GangVerdict:
    verdict = incomplete_verdict(session, group.batch, Failure(why))
    return replace(verdict, undo=pod_ids(group.running))


# ---- evicting partial gangs


def evict_partial(session: ApplySession, *, but: Collection[Key] = ()) -> Steps[None]:
    """Evict the started pods of partial gangs, if allowed, and withdraw the others."""
    yield from note_stuck_nodes(session)
    if not session.limits.evict_partial:
        return
    for verdict in sorted(session.verdicts.values(), key=lambda one: (one.gang, one.plan)):
        if verdict.outcome is Outcome.partial and verdict.gang not in but:
            try:
                yield from _undo(session, verdict)
            except Failure as failure:
                session.record(replace(verdict, why=f"{verdict.why}; {failure.why}"))


def _undo(session: ApplySession, verdict: GangVerdict) -> Steps[None]:
    found = ((session.view.pods.get((space, name)), uid) for space, name, uid in verdict.undo)
    pods = [pod for pod, uid in found if pod is not None and pod.uid == uid]
    for pod in pods:
        if not pod.carries(verdict.plan):
            raise Failure(f"pod {pod.name} is not recorded as started by this plan")
    yield from stop_rest(session, stopping(verdict.gang, pods), plan=verdict.plan, allowed=True)
    record = session.view.records.get((verdict.gang, verdict.plan))
    if record is None:
        return
    withdrawn = yield from withdraw(session, _batch_of(session.view, record), verdict.why)
    if withdrawn.outcome is Outcome.skipped:
        session.record(replace(verdict, outcome=Outcome.undone, undo=(), pods=0))


@dataclass(frozen=True, slots=True)
class CutGang:
    """``left``: its noted pods that still run, by (namespace, name)."""

    note: StopNote
    left: tuple[LivePod, ...]

    @property
    def gang(self) -> Key:
        return self.note.gang

    @property
    def ids(self) -> tuple[PodId, ...]:
        return pod_ids(self.left)

    @property
    def why(self) -> str:
        size = len(self.note.pods)
        return f"plan {self.note.plan} stopped {size - len(self.left)} of its {size} pods"


def cut_gangs(view: ClusterView) -> tuple[CutGang, ...]:
    """Gangs with a note of which some pods were stopped and others still run, by key.

    A pod that has finished by itself was not stopped.
    """
    found = []
    for note, pods in _noted_pods(view):
        left = tuple(pod for pod in pods if not pod.finished)
        if left and len(pods) < len(note.pods):
            found.append(CutGang(note, left))
    return tuple(found)


def with_lost_counted(view: ClusterView) -> RunNotes:
    """The notes, where gangs that were to be stopped count as evicted if pods of them have gone."""
    if view.now is None:
        return view.notes
    lost = {note.gang for note, pods in _noted_pods(view) if len(pods) < len(note.pods)}
    return view.notes.counted(lost, view.now)


def _noted_pods(view: ClusterView) -> list[tuple[StopNote, list[LivePod]]]:
    """Every gang with a note, and its noted pods that are there and not going, by key."""
    if not view.notes.stops:
        return []
    noted = {(one.gang[0], uid): one.gang for one in view.notes.stops for uid in one.pods}
    present: dict[Key, list[LivePod]] = defaultdict(list)
    for pod in view.pods.values():
        gang = noted.get((pod.namespace, shortened(pod.uid)))
        if gang is not None and not pod.terminating:
            present[gang].append(pod)
    notes = sorted(view.notes.stops, key=lambda one: one.gang)
    return [(one, sorted(present[one.gang], key=lambda pod: pod.key)) for one in notes]


def settle_cut_gangs(session: ApplySession, orders: PlanActions) -> Steps[None]:
    """Finish or report every cut gang that is not whole, and drop the notes of all others."""
    if not session.view.notes.stops:
        return
    cut = []
    for one in cut_gangs(session.view):
        if not _is_whole(session, orders, one):
            finished = yield from _finish_or_report(session, orders, one)
            cut += [] if finished else [one.gang]
    notes = with_lost_counted(session.view)
    # What was evicted since the last reading shows in the next one.
    over = {note.gang for note in notes.stops}.difference(cut, _unread(session))
    # If that fails, the next run finds them whole or gone again.
    yield from session.remember(notes.without_stops(over))


def _unread(session: ApplySession) -> set[Key]:
    """Gangs with a note of which pods were evicted, perhaps, since the cluster was read."""
    pods = (session.view.pods.get(key) for key in session.leaving)
    uids = {(pod.namespace, shortened(pod.uid)) for pod in pods if pod is not None}
    notes = session.view.notes.stops
    return {one.gang for one in notes if any((one.gang[0], uid) in uids for uid in one.pods)}


def _is_whole(session: ApplySession, orders: PlanActions, cut: CutGang) -> bool:
    """Whether the gang has all its pods again: by this plan, or started by it."""
    ordered = next((one for one in orders.gangs if one.key == cut.gang), None)
    verdict = session.verdicts.get((orders.plan, cut.gang))
    if ordered is not None:
        if verdict is None or verdict.why or not (ordered.starts or ordered.resizes):
            return False
        return verdict.outcome in _DONE[bool(ordered.starts)]
    kept = orders.kept.get(cut.gang)
    if kept is None or not (kept.elastic or len(kept.uids) >= len(cut.note.pods)):
        return False
    pods = (pod for pod in session.view.pods.values() if pod.namespace == cut.gang[0] and pod.node)
    return {pod.uid for pod in pods if pod.stays}.issuperset(kept.uids)


_DONE = {True: (Outcome.started, Outcome.unchanged), False: (Outcome.stopped, Outcome.unchanged)}
"""Outcomes of gangs that have all pods they need, by whether pods of them had to start."""


def _returns(session: ApplySession, orders: PlanActions, cut: CutGang) -> bool:
    """Whether its missing pods are started again and only wait for their scheduler."""
    verdict = session.verdicts.get((orders.plan, cut.gang))
    if verdict is not None:
        return verdict.outcome is Outcome.pending
    kept = orders.kept.get(cut.gang)
    uids = frozenset(() if kept is None else kept.uids)
    pods = [pod for pod in session.view.pods.values() if pod.uid in uids and pod.stays]
    return 0 < len(pods) == len(uids) and any(pod.node is None for pod in pods)


def _finish_or_report(session: ApplySession, orders: PlanActions, cut: CutGang) -> Steps[bool]:
    """Stop the rest of the gang, or record why not; whether it is stopped.

    A plan that has the gang run again, or with other pods, is left to the next run if that did not succeed.
    """
    before = session.verdicts.get((orders.plan, cut.gang))
    returns = _returns(session, orders, cut)
    halted = returns or (before is not None and before.outcome is Outcome.halted)
    undoing = session.limits.evict_partial
    decided = next((one.decision for one in orders.gangs if one.key == cut.gang), "preempt")
    why = "" if before is None else before.why
    if returns:
        why = "its other pods are started and not bound yet"
    elif undoing or decided == "preempt":
        try:
            yield from stop_rest(session, stopping(cut.gang, cut.left), allowed=undoing)
        except Failure as failure:
            why, halted = failure.why, halted or (before is not None and decided == "preempt")
        else:
            outcome = Outcome.undone if undoing else Outcome.stopped
            session.record(GangVerdict(cut.gang, outcome, orders.plan, f"{cut.why}, the rest now"))
            return True
    still = next((one for one in cut_gangs(session.view) if one.gang == cut.gang), cut)
    why, pods = f"{still.why}: {why}" if why else still.why, len(still.left)
    outcome = Outcome.halted if halted else Outcome.partial
    session.record(GangVerdict(cut.gang, outcome, orders.plan, why, pods, undo=still.ids))
    return False
