"""Starting one gang by the writes of its Enforcer, and the verdict on it.

If a write fails before the first pod starts, all are taken back; afterwards the gang is completed or reported
as partial.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from models.apply.enforcer import PodBatch, Write, recorded
from models.apply.gate_and_pin import lost
from models.apply.live_state import (
    RUNNING,
    STARTED,
    LivePod,
    PodState,
    overcommitted,
    shortages,
)
from models.apply.on_request import contested
from models.apply.plan_actions import PodStart
from models.apply.records import StartRecord, packed
from models.apply.requests import GangVerdict, Outcome, Steps, pod_ids
from models.apply.session import ApplySession, Failure, Halted, Lanes
from models.apply.staleness import node_changes
from models.units import duration_text


def verdict_for(
    session: ApplySession, batch: PodBatch, outcome: Outcome, why: str = ""
) -> GangVerdict:
    pods = len(running_pods(session, batch))
    return GangVerdict(batch.gang, outcome, batch.plan, why, pods)


def running_pods(session: ApplySession, batch: PodBatch) -> list[PodStart]:
    """Pods of the batch that are started and neither finished nor terminating."""
    states = (*RUNNING, PodState.misplaced)
    return [order for order in batch.pods if session.state(order) in states]


def started_verdict(session: ApplySession, batch: PodBatch) -> GangVerdict:
    """Verdict on a batch whose pods are all started: started, or pending if some are unbound.

    In a dry run no scheduler sees them.
    """
    bound = all(session.state(order) is not PodState.ungated for order in batch.pods)
    if bound or session.limits.dry:
        return verdict_for(session, batch, Outcome.started)
    messages = (pod.unschedulable for pod in map(session.pod, batch.pods) if pod is not None)
    return verdict_for(session, batch, Outcome.pending, next(filter(None, messages), ""))


def judge(session: ApplySession, batch: PodBatch) -> GangVerdict:
    """Verdict on a batch that was started completely, from a later reading."""
    missing = [order for order in batch.pods if session.state(order) not in STARTED]
    if missing and not running_pods(session, batch):
        return verdict_for(session, batch, Outcome.skipped, "its pods are gone")
    if missing:
        why = f"pod {missing[0].name} is gone or bound to another node"
        return incomplete_verdict(session, batch, Failure(why))
    why = stuck_reason(session, batch)
    # Only deleting the pod removes a pin that cannot hold, whether or not other pods are bound.
    if why:
        return incomplete_verdict(session, batch, Failure(why))
    return started_verdict(session, batch)


def stuck_reason(session: ApplySession, batch: PodBatch) -> str:
    """Why started pods will not run where they are; empty if nothing indicates that.

    Terminating pods release their room soon and do not count.
    """
    for order in batch.pods:
        if session.state(order) is PodState.bound and order.node not in session.view.nodes:
            return f"node {order.node} is gone"
    nodes = {order.node for order in batch.pods if order.gpu_count}
    if shared := overcommitted(session.view, nodes):
        return f"node {shared[0]} is overcommitted: other pods use the same GPUs"
    unbound = [order for order in batch.pods if session.state(order) is PodState.ungated]
    if not unbound:
        return ""
    going = frozenset(pod.uid for pod in session.view.pods.values() if pod.terminating)
    pods = ((session.view.pods[one.key], one.node) for one in overdue_pods(session, batch))
    late = (not_bound(session, pod, f"bound to node {node}") for pod, node in pods)
    return obstacle(session, unbound, without=going) or next(late, "")


def overdue_pods(session: ApplySession, batch: PodBatch) -> list[PodStart]:
    """Those that are started and were not bound within the limit, whatever their scheduler says.

    The limit runs since a run last began to start pods of the gang: its scheduler may wait for all of them,
    and a gang of which a run was cut off may get its last pods much later than the first.
    """
    now, limit = session.view.now, session.limits.pending_limit_s
    record = session.view.records.get(batch.key)
    if now is None or limit is None or record is None or record.begun is None:
        return []
    orders = batch.pods if now - record.begun > limit else ()
    return [order for order in orders if session.state(order) is PodState.ungated]


def not_bound(session: ApplySession, pod: LivePod, bound: str) -> str:
    """What is said of a pod that is late."""
    why = pod.unschedulable or f"scheduler '{pod.scheduler}' has not said why"
    limit = f"the pending limit of {duration_text(session.limits.pending_limit_s or 0)}"
    return f"pod {pod.name} was not {bound} within {limit}: {why}"


def obstacle(
    session: ApplySession, orders: list[PodStart], *, without: Collection[str] = ()
) -> str:
    """Why pods cannot run on their nodes now; empty if they can. ``without``: see ``shortages``."""
    for node in sorted({order.node for order in orders}):
        pods = [session.pod(order) for order in orders if order.node == node]
        for what in node_changes(None, session.view.nodes.get(node), pods):
            return f"node {node} {what}"
        labels = dict(session.view.nodes[node].labels)
        for pod in pods:
            for key, value in () if pod is None else pod.selector:
                if labels.get(key) != value:
                    return f"node {node} lacks the label {key}={value} that its pods select"
    for name, what in shortages(session.view, orders, without=without):
        return f"node {name} {what}"
    return ""


def incomplete_verdict(session: ApplySession, batch: PodBatch, failure: Failure) -> GangVerdict:
    """Verdict on a batch that stopped in the middle: halted if it may continue by itself."""
    if failure.transient:
        return verdict_for(session, batch, Outcome.halted, failure.why)
    verdict = verdict_for(session, batch, Outcome.partial, failure.why)
    started = () if session.limits.dry else running_pods(session, batch)
    made = (pod for pod in map(session.pod, started) if pod is not None and not pod.expected)
    return replace(verdict, undo=pod_ids(made))


def start(session: ApplySession, batch: PodBatch) -> Steps[GangVerdict]:
    """Start all pods of the batch, or withdraw it. Raises Halted after recording a verdict."""
    try:
        try:
            enforcer = session.enforcer_of(batch.pods)
            refused = enforcer.refusal(session.view, batch)
            if why := refused or contested(session.view, batch):
                raise Failure(why, lasting=refused is not None)  # noqa: TRY301  # as what follows
            if (unrecorded := (yield from _record(session, batch))) is not None:
                return session.record(unrecorded)
            yield from _write(session, batch)
            session.started.append(batch)
            return session.record(started_verdict(session, batch))
        except Failure as failed:
            failure = failed
        if running_pods(session, batch) and not session.limits.dry:
            yield from session.read_cluster()  # the verdict depends on what became of them
        if running_pods(session, batch):
            return session.record(incomplete_verdict(session, batch, failure))
        if failure.lasting:
            session.barred |= {(batch.gang, order.node) for order in batch.pods}
        return (yield from withdraw(session, batch, failure.why))
    except Halted as halted:
        session.record(verdict_for(session, batch, Outcome.halted, halted.halt.why))
        raise


def withdraw(session: ApplySession, batch: PodBatch, why: str) -> Steps[GangVerdict]:
    """Take back what was written for a batch that has not started, the record last."""
    failed = ""
    last = recorded(batch.key, session.view.records.get(batch.key), None)
    for write in (*session.enforcer_of(batch.pods).withdrawal(session.view, batch), last):
        if failed and write is last:
            break
        try:
            yield from session.carry_out(write)
        except Failure as failure:
            failed = failed or failure.why
    if not failed:
        return session.record(verdict_for(session, batch, Outcome.skipped, why))
    why = f"{why}; not all of it could be taken back: {failed}"
    return session.record(verdict_for(session, batch, Outcome.halted, why))


def _record(session: ApplySession, batch: PodBatch) -> Steps[GangVerdict | None]:
    """Write the record; if that fails, nothing was touched, and this is the verdict."""
    before, begun = session.view.records.get(batch.key), session.view.now
    terms = next((order.terms for order in batch.pods), None)
    places = session.enforcer_of(batch.pods).places(session.view, batch)
    if not places:
        return None
    after = StartRecord(batch.gang, batch.plan, places, terms, begun=begun)
    if before is not None and before.pods == places and (begun is None or before.whole):
        after = before
    try:
        if packed(after.text()) is None:
            raise Failure(f"its {len(places):,} pods are too many to record")  # noqa: TRY301
        yield from session.carry_out(recorded(batch.key, before, after, batch.pods))
    except Failure as failure:
        if before is not None:
            return incomplete_verdict(session, batch, Failure(failure.why, transient=True))
        outcome = Outcome.skipped if batch.key not in session.view.records else Outcome.halted
        return verdict_for(session, batch, outcome, failure.why)
    return None


def _write(session: ApplySession, batch: PodBatch) -> Steps[None]:
    """Write what can be taken back, then what lets pods run."""
    begun = bool(running_pods(session, batch))
    plan = session.enforcer_of(batch.pods).plan(session.view, batch)
    for write in plan.prepare:
        yield from session.check_lock_sometimes(begun=begun)
        yield from session.carry_out(write)
    for write in plan.start:
        yield from session.check_lock_sometimes(begun=begun)
        yield from session.carry_out(write)
        begun = True
    for order in batch.pods:
        if session.state(order) not in STARTED:
            raise Failure(lost(session.view, order))


def mark_whole(session: ApplySession, batches: Iterable[PodBatch]) -> Steps[None]:
    """Record that every pod of these gangs has started, so that later losses do not look partial.

    Where that fails, a later run does it.
    """
    writes = []
    for batch in batches:
        record = session.view.records.get(batch.key)
        if batch.size > 1 and record is not None and not record.whole:
            writes.append(recorded(batch.key, record, replace(record, whole=True)))
    yield from send_records(session, writes)


def send_records(session: ApplySession, writes: Iterable[Write]) -> Steps[None]:
    """Records that may be written side by side, and not at all."""
    lanes = Lanes(session)
    for write in () if session.limits.dry else writes:
        yield from lanes.free_one()
        yield from lanes.add((), _tried(session, write))
    yield from lanes.finish()


def _tried(session: ApplySession, write: Write) -> Steps[None]:
    yield from session.check_lock_sometimes()
    with suppress(Failure):
        yield from session.carry_out(write)
