"""Gangs that an earlier run left incomplete, found from the intents on their pods and its notes alone.

They are completed, withdrawn if nothing started, or reported as partial, and with ``evict_partial`` evicted.
Only intents that a run of ours wrote count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from models.apply.enforcer import PodBatch
from models.apply.evictions import stop_rest, stopping
from models.apply.gate_and_pin import Marked
from models.apply.intents import Intent
from models.apply.live_state import (
    READY,
    RUNNING,
    STARTED,
    ClusterView,
    LivePod,
    PodClassifier,
    PodState,
)
from models.apply.notes import StopNote, shortened
from models.apply.plan_actions import Key, PlanActions, PodStart
from models.apply.requests import GangVerdict, Outcome, PodId, Steps, pod_ids
from models.apply.session import ApplySession, Failure, Lanes
from models.apply.starts import (
    incomplete_verdict,
    obstacle,
    overdue_pods,
    start,
    stuck_reason,
    verdict_for,
    withdraw,
)

MARKS = 3
"""Pods of a gang that are marked as whole, on different nodes: pods are lost singly or with a node."""


@dataclass(frozen=True, slots=True)
class IntentGroup:
    """Pods of one gang with intents of one plan. ``marked``: pods marked as whole.

    ``replaced``: pods that later plans started in place of lost ones.
    """

    batch: PodBatch
    states: tuple[tuple[PodStart, PodState], ...]
    marked: frozenset[Key]
    replaced: int = 0

    def in_state(self, states: Collection[PodState]) -> tuple[PodStart, ...]:
        return tuple(order for order, state in self.states if state in states)

    @property
    def waiting(self) -> tuple[PodStart, ...]:
        return self.in_state(READY)

    @property
    def running(self) -> tuple[PodStart, ...]:
        return self.in_state((*RUNNING, PodState.misplaced))

    @property
    def missing(self) -> int:
        """Pods that cannot be started any more and have not finished."""
        present = self.in_state((*STARTED, *READY, PodState.misplaced))
        return max(0, self.batch.size - len(present) - self.replaced)

    @property
    def partial(self) -> bool:
        """Whether some pods run, others are not started, and the gang never was whole."""
        if self.marked and not self.waiting:
            return False
        return bool(self.running) and bool(self.waiting or self.missing)

    @property
    def unsure(self) -> bool:
        """Whether it is partial, or was whole and lost exactly the marked pods."""
        if not self.partial or self.in_state((*READY, PodState.ungated, PodState.misplaced)):
            return False
        return self.missing >= min(MARKS, self.batch.size)

    @property
    def to_mark(self) -> tuple[PodStart, ...]:
        """Pods of a gang that is or was whole to mark, so that MARKS pods are marked."""
        if self.batch.size < 2 or self.partial or not self.running:
            return ()
        if self.in_state((PodState.ungated,)):
            return ()
        if not self.marked and len(self.states) < self.batch.size:
            return ()
        bound = _spread(self.in_state((PodState.bound, PodState.finished)))
        marked_first = sorted(bound, key=lambda order: order.key not in self.marked)
        return tuple(order for order in marked_first[:MARKS] if order.key not in self.marked)


def _order_of(pod: LivePod, intent: Intent) -> PodStart:
    node, gpus, rank, terms = intent.node, intent.gpus, intent.rank, intent.terms
    return PodStart(*pod.key, pod.uid, "", 0, node, gpus, pod.gpus, pod.requests, rank, terms)


def intent_groups(view: ClusterView, classifier: PodClassifier) -> Iterator[IntentGroup]:
    """Every gang with intents of ours, by gang, then plan."""
    intents: dict[Key, Intent] = {}
    for key, pod in view.pods.items():
        if (intent := pod.own_intent) is not None:
            intents |= _recorded(view, pod, intent)
            intents[key] = intent
    members: dict[tuple[Key, str], list[tuple[LivePod, Intent]]] = defaultdict(list)
    for key, intent in sorted(intents.items(), key=lambda one: one[0]):
        members[(key[0], intent.gang), intent.plan].append((view.pods[key], intent))
    by_gang: dict[Key, list[IntentGroup]] = defaultdict(list)
    for (gang, plan), pods in sorted(members.items()):
        states = tuple(
            (_order_of(pod, intent), classifier.state(pod, pod.uid, intent.node))
            for pod, intent in pods
        )
        size = max(intent.size for _, intent in pods)
        batch = PodBatch(gang, plan, size, tuple(order for order, _ in states))
        marked = frozenset(pod.key for pod, intent in pods if intent.whole)
        by_gang[gang].append(IntentGroup(batch, states, marked))
    for groups in by_gang.values():
        for group in groups:
            # other plans run pods in place of lost ones: never more at once than are missing
            replaced = sum(
                len(other.in_state(RUNNING))
                for other in groups
                if other.batch.plan != group.batch.plan and other.batch.size <= group.missing
            )
            yield replace(group, replaced=replaced)


def _recorded(view: ClusterView, pod: LivePod, intent: Intent) -> dict[Key, Intent]:
    """Intents that the record on a pod stands for: of other pods of the gang that have none of ours."""
    found = {}
    for member in intent.members:
        other = view.pods.get((pod.namespace, member.name))
        if other is not None and other.uid == member.uid and not other.intent_is_ours:
            there = replace(intent, node=member.node, gpus=member.gpus, rank=member.rank)
            found[other.key] = replace(there, whole=False, members=())
    return found


def ordered_starts(orders: PlanActions) -> frozenset[Key]:
    """Gangs that the plan starts; only intents show by which pods a gang grows, or moves."""
    fresh = (gang for gang in orders.gangs if gang.starts and gang.decision != "move")
    return frozenset(gang.key for gang in fresh if not gang.grows)


_NO_PLAN = PlanActions("", "", 0, "", "", (), ())


def recover(session: ApplySession, orders: PlanActions = _NO_PLAN) -> Steps[None]:
    """Complete, withdraw or report every gang that is neither untouched nor whole.

    ``orders``: of a plan. Its gangs that have not begun are left to the caller; pods that it stops are
    meant to be missing, and its gangs that have enough pods, but no marked ones any more, are marked again.
    """
    own, ordered = orders.plan, ordered_starts(orders)
    ending = {gang.key for gang in orders.gangs if gang.stops}
    elastic = {key for key, one in orders.kept.items() if one.elastic}
    waited = [one for one in intent_groups(session.view, session.classifier) if one.waiting]
    for group in waited:
        batch = group.batch
        if group.running or batch.plan != own or batch.gang not in ordered:
            yield from session.check_lock(begun=bool(group.running))
            yield from _complete(session, group)
    done = {(one.batch.gang, one.batch.plan) for one in waited}
    unmarked: list[tuple[PodBatch, Iterable[PodStart]]] = []
    # Only now: pods that were just started may stand for those that other pods of their gang have lost.
    for group in list(intent_groups(session.view, session.classifier)):
        batch = group.batch
        if (batch.gang, batch.plan) in done:
            continue
        if not group.partial:
            why = stuck_group_reason(session, group)
            if why:
                session.record(_partial_verdict(session, group, why))
            else:
                if batch.plan != own:
                    _record_healed(session, group)
                unmarked.append((batch, group.to_mark))
        elif group.unsure and batch.gang in elastic:
            unmarked.append((batch, _spread(group.running)[:MARKS]))
        elif batch.plan == own or batch.gang not in ending:
            session.record(_partial_verdict(session, group, _incomplete_reason(group)))
    yield from mark_whole(session, unmarked)


def stuck_group_reason(session: ApplySession, group: IntentGroup) -> str:
    """Why a gang whose pods are all started will not run; empty if nothing indicates that.

    Once it was whole and bound, later changes of its nodes are not the plan's concern.
    """
    if group.waiting or not group.running:
        return ""
    if group.marked and not group.in_state((PodState.ungated,)):
        return ""
    return stuck_reason(session, group.batch)


def _record_healed(session: ApplySession, group: IntentGroup) -> None:
    """Say that a gang is whole which an earlier run left pending or found stuck."""
    healed = (group.to_mark and not group.marked) or _was_stuck(session, group)
    if healed and not session.limits.dry:
        why = "its pods are all bound now"
        session.record(verdict_for(session, group.batch, Outcome.started, why))


def _was_stuck(session: ApplySession, group: IntentGroup) -> bool:
    """Whether an earlier run found pods of it pending too long that are bound now."""
    nodes = {one.node for one in session.view.notes.avoid if one.gang == group.batch.gang}
    return any(order.node in nodes for order in group.in_state((PodState.bound,)))


def note_stuck_nodes(session: ApplySession) -> Steps[None]:
    """Leave a note of every node on which pods stay pending: the next plans avoid it for their gang."""
    now, notes = session.view.now, session.view.notes
    pending = any(
        pod.node is None and pod.intent_is_ours and session.classifier.started(pod)
        for pod in session.view.pods.values()
    )
    if now is None or session.limits.dry or not (pending or notes.avoid):
        return
    stuck, healed = set(), set()
    for group in intent_groups(session.view, session.classifier):
        orders = overdue_pods(session, group.batch)
        stuck |= {(group.batch.gang, order.node) for order in orders}
        if not orders and _was_stuck(session, group):
            healed.add(group.batch.gang)
    if stuck or healed:
        notes = notes.without_avoided(healed - {gang for gang, _ in stuck})
        # If that fails, the next run that finds them pending tries it again.
        yield from session.remember(notes.with_avoided(sorted(stuck), now))


def _complete(session: ApplySession, group: IntentGroup) -> Steps[None]:
    if group.missing or group.in_state((PodState.misplaced,)):
        why = _incomplete_reason(group)
    else:
        why = obstacle(session, list(group.waiting))
    # Pods of other plans may have replaced those that are gone.
    batch = replace(group.batch, pods=group.in_state((*READY, *STARTED)))
    if not why:
        yield from start(session, batch)
    elif group.running:
        session.record(_partial_verdict(session, group, why))
    else:
        yield from withdraw(session, batch, why)


def _incomplete_reason(group: IntentGroup) -> str:
    misplaced = group.in_state((PodState.misplaced,))
    if misplaced:
        return f"pod {misplaced[0].name} is bound to another node than planned"
    started, size = len(group.running), group.batch.size
    if group.unsure:
        return (
            f"plan {group.batch.plan} started it, {started} of its {size} pods are left, "
            "and it is unknown whether it was ever whole"
        )
    return f"started {started} of its {size} pods; gone: {group.missing}"


def _partial_verdict(session: ApplySession, group: IntentGroup, why: str) -> GangVerdict:
    verdict = incomplete_verdict(session, group.batch, Failure(why))
    return replace(verdict, undo=pod_ids(group.running), unsure=group.unsure)


def mark_started(session: ApplySession, batches: Iterable[PodBatch]) -> Steps[None]:
    """Mark a few pods of gangs as whole, right after all of their pods were seen started."""
    yield from mark_whole(session, [(batch, _spread(batch.pods)[:MARKS]) for batch in batches])


def mark_whole(
    session: ApplySession, gangs: Iterable[tuple[PodBatch, Iterable[PodStart]]]
) -> Steps[None]:
    """Mark these pods of gangs as whole; where that fails, a later run does it."""
    lanes = Lanes(session)
    for batch, chosen in gangs:
        orders = tuple(order for order in chosen if _unmarked(session, order))
        if batch.size > 1 and orders and not session.limits.dry:
            yield from lanes.free_one()
            yield from lanes.add(orders, _mark(session, batch, orders))
    yield from lanes.finish()


def _unmarked(session: ApplySession, order: PodStart) -> bool:
    pod = session.pod(order)
    if pod is None or not session.classifier.started(pod):
        return False
    return pod.intent is None or not pod.intent.whole


def _mark(session: ApplySession, batch: PodBatch, orders: Iterable[PodStart]) -> Steps[None]:
    for order in orders:
        yield from session.check_lock_sometimes()
        with suppress(Failure):
            yield from session.carry_out(
                Marked(order, session.classifier, batch.intent(order, whole=True))
            )


def _spread(pods: Iterable[PodStart]) -> list[PodStart]:
    """The first pod of each node before the second of any."""
    before: Counter[str] = Counter()
    ranked = []
    for order in sorted(pods, key=lambda order: (len(order.name), order.name)):
        ranked.append((before[order.node], order))
        before[order.node] += 1
    return [order for _, order in sorted(ranked, key=lambda one: one[0])]


# ---- evicting partial gangs


def evict_partial(session: ApplySession, *, but: Collection[Key] = ()) -> Steps[None]:
    """Evict the started pods of partial gangs, if allowed, and remove the other intents."""
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
    if verdict.unsure:
        raise Failure("it is not evicted, for it may be at work")
    found = ((session.view.pods.get((space, name)), uid) for space, name, uid in verdict.undo)
    pods = [pod for pod, uid in found if pod is not None and pod.uid == uid]
    for pod in pods:
        if not pod.carries(verdict.plan):
            raise Failure(f"pod {pod.name} does not carry an intent of this plan")
    yield from stop_rest(session, stopping(verdict.gang, pods), plan=verdict.plan, allowed=True)
    withdrawn = yield from withdraw(session, _not_started(session, verdict), verdict.why)
    if withdrawn.outcome is Outcome.skipped:
        session.record(replace(verdict, outcome=Outcome.undone, undo=(), pods=0))


def _not_started(session: ApplySession, verdict: GangVerdict) -> PodBatch:
    """Pods of the gang with an intent of that plan that have not started."""
    orders = [
        _order_of(pod, pod.intent)
        for _, pod in sorted(session.view.pods.items())
        if pod.intent is not None
        and pod.carries(verdict.plan)
        and (pod.namespace, pod.intent.gang) == verdict.gang
    ]
    ready = tuple(order for order in orders if session.state(order) in READY)
    return PodBatch(verdict.gang, verdict.plan, max(1, len(ready)), ready)


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
    if not view.notes.stops:
        return ()
    noted = {(one.gang[0], uid): one.gang for one in view.notes.stops for uid in one.pods}
    present: dict[Key, list[LivePod]] = defaultdict(list)
    for pod in view.pods.values():
        gang = noted.get((pod.namespace, shortened(pod.uid)))
        if gang is not None and not pod.terminating:
            present[gang].append(pod)
    found = []
    for note in sorted(view.notes.stops, key=lambda one: one.gang):
        pods = sorted(present[note.gang], key=lambda pod: pod.key)
        left = tuple(pod for pod in pods if not pod.finished)
        if left and len(pods) < len(note.pods):
            found.append(CutGang(note, left))
    return tuple(found)


def settle_cut_gangs(session: ApplySession, orders: PlanActions) -> Steps[None]:
    """Finish or report every cut gang that is not whole, and drop the notes of all others."""
    if not session.view.notes.stops:
        return
    cut = []
    for one in cut_gangs(session.view):
        if not _is_whole(session, orders, one):
            finished = yield from _finish_or_report(session, orders, one)
            cut += [] if finished else [one.gang]
    notes = session.view.notes
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
    return _run(session.view, cut.gang[0], kept.uids)


_DONE = {True: (Outcome.started, Outcome.unchanged), False: (Outcome.stopped, Outcome.unchanged)}
"""Outcomes of gangs that have all pods they need, by whether pods of them had to start."""


def _run(view: ClusterView, namespace: str, uids: Iterable[str]) -> bool:
    pods = (pod for pod in view.pods.values() if pod.namespace == namespace and pod.node)
    return {pod.uid for pod in pods if pod.stays}.issuperset(uids)


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
