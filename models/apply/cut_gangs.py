"""Gangs of which a run stopped only a part: known from its notes, finished or reported by any later run.

A gang is cut until it is whole again or gone. What completes it is its controller and the plan; otherwise
the rest of it is evicted, if that is allowed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from models.apply.evictions import Removals, stop_rest, stopping
from models.apply.live_state import ClusterView, LivePod
from models.apply.notes import StopNote, shortened
from models.apply.outcomes import GangVerdict, Outcome, PodId, pod_ids
from models.apply.plan_actions import Key, PlanActions
from models.apply.requests import Steps
from models.apply.session import ApplySession


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
        """What is left of it."""
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


def settle_cut_gangs(session: ApplySession, orders: PlanActions, removals: Removals) -> Steps[None]:
    """Finish or report every cut gang that is not whole, and drop the notes of all others."""
    if not session.view.notes.stops:
        return
    cut = []
    for one in cut_gangs(session.view):
        if not _is_whole(session, orders, one):
            finished = yield from _finish_or_report(session, orders, one, removals)
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


_DONE = {
    True: (Outcome.started, Outcome.unchanged),
    False: (Outcome.stopped, Outcome.unchanged),
}
"""Outcomes of gangs that have all pods they need, by whether pods of them had to start."""


def _run(view: ClusterView, namespace: str, uids: Iterable[str]) -> bool:
    """Whether all these pods still run."""
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


def _finish_or_report(
    session: ApplySession, orders: PlanActions, cut: CutGang, removals: Removals
) -> Steps[bool]:
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
        rest = stopping(cut.gang, cut.left)
        failure = yield from stop_rest(session, rest, removals, allowed=undoing)
        if failure is None:
            outcome = Outcome.undone if undoing else Outcome.stopped
            session.record(GangVerdict(cut.gang, outcome, orders.plan, f"{cut.why}, the rest now"))
            return True
        why, halted = failure.why, halted or (before is not None and decided == "preempt")
    still = next((one for one in cut_gangs(session.view) if one.gang == cut.gang), cut)
    session.record(
        GangVerdict(
            cut.gang,
            Outcome.halted if halted else Outcome.partial,
            orders.plan,
            f"{still.why}: {why}" if why else still.why,
            pods=len(still.left),
            undo=still.ids,
        )
    )
    return False
