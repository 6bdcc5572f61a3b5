"""Starting one gang: write every intent, then start pod after pod, scarcest node first.

With a plain back end pods get their intent in the patch that starts them; the first one then
carries a record of the others, from which a later run completes the gang. If a step fails before the first
pod starts, all intents are withdrawn; afterwards the gang is completed or reported as partial.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from models.apply.intents import MAX_RECORD_CHARS, Intent, Member, record_of
from models.apply.live_state import (
    READY,
    RUNNING,
    STARTED,
    ClusterView,
    LiveNode,
    LivePod,
    PodState,
    overcommitted,
    shortages,
    usage,
)
from models.apply.plan_actions import Key, PodStart
from models.apply.requests import (
    AllocateDevices,
    Done,
    GangVerdict,
    Outcome,
    Rejected,
    RemoveIntent,
    Steps,
    Ungate,
    WriteIntent,
    message_of,
    pod_ids,
)
from models.apply.session import TRIES, ApplySession, Failure, Halted, PodBatch
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
    return obstacle(session, unbound, without=going) or _overdue(session, batch)


def overdue_pods(session: ApplySession, batch: PodBatch) -> list[PodStart]:
    """Those that are started and were not bound within the limit, whatever their scheduler says.

    The limit runs from the start of the last pod of the gang: its scheduler may wait for all of them, and
    a gang of which a run was cut off may get its last pods much later than the first.
    """
    now, limit = session.view.now, session.limits.pending_limit_s
    started = [order for order in batch.pods if session.state(order) in STARTED]
    times = [
        pod.written_at
        for order in started
        if (pod := session.pod(order)) is not None and pod.written_at is not None
    ]
    if now is None or limit is None or not times or now - max(times) <= limit:
        return []
    return [order for order in started if session.state(order) is PodState.ungated]


def _overdue(session: ApplySession, batch: PodBatch) -> str:
    for order in overdue_pods(session, batch):
        pod = session.view.pods[order.key]
        why = pod.unschedulable or f"scheduler '{pod.scheduler}' has not said why"
        limit = f"the pending limit of {duration_text(session.limits.pending_limit_s or 0)}"
        return f"pod {order.name} was not bound to node {order.node} within {limit}: {why}"
    return ""


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
    return replace(verdict, undo=pod_ids(started))


PLAIN_BACKENDS = ("annotation", "none")
"""GPU back ends for which no pod of a gang can turn out to be impossible after others have started."""

RECORDS = 3
"""Pods of a gang with the record of the others, so that it is lost only with all of these."""


def start(session: ApplySession, batch: PodBatch) -> Steps[GangVerdict]:
    """Start all pods of the batch, or withdraw the intents. Raises Halted after recording a verdict."""
    try:
        try:
            yield from _try_to_start(session, batch)
            session.started.append(batch)
            return session.record(started_verdict(session, batch))
        except Failure as failed:
            failure = failed
        if running_pods(session, batch) and not session.limits.dry:
            yield from session.read_cluster()  # the verdict depends on what became of them
        if running_pods(session, batch):
            return session.record(incomplete_verdict(session, batch, failure))
        return (yield from withdraw(session, batch, failure.why))
    except Halted as halted:
        session.record(verdict_for(session, batch, Outcome.halted, halted.halt.why))
        raise


def withdraw(session: ApplySession, batch: PodBatch, why: str) -> Steps[GangVerdict]:
    """Remove the intents of a batch that has not started."""
    failures = []
    for order in batch.pods:
        if session.state(order) in READY:
            try:
                yield from _remove_intent(session, batch.plan, order)
            except Failure as failure:
                failures.append(failure.why)
    if not failures:
        return session.record(verdict_for(session, batch, Outcome.skipped, why))
    why = f"{why}; not all of its intents could be removed: {failures[0]}"
    return session.record(verdict_for(session, batch, Outcome.halted, why))


def _try_to_start(session: ApplySession, batch: PodBatch) -> Steps[None]:
    """In one step a pod where that is possible and accepted, else with all intents written first."""
    waiting = [order for order in batch.pods if session.state(order) in READY]
    _foresee(session, batch, waiting)
    carried = _carried_intents(session, batch, waiting)
    if not carried:
        yield from _prepare(session, batch, waiting)
    yield from _start_pods(session, batch, carried)


def _carried_intents(
    session: ApplySession, batch: PodBatch, waiting: Collection[PodStart]
) -> dict[Key, Intent]:
    """Intents to write in the same patches that start the pods; empty if they have to be written before.

    That is for pods that one patch starts: with a plain back end, and without an intent yet.
    The first RECORDS to start carry the record of the others.
    """
    pods = [session.pod(order) for order in waiting]
    gated = session.classifier.gated
    plain = all(pod is not None and pod.intent is None and gated(pod) for pod in pods)
    if session.limits.backend not in PLAIN_BACKENDS or not plain:
        return {}
    carried = {order.key: batch.intent(order) for order in waiting}
    members = {
        order.key: Member(order.name, order.uid, order.node, order.gpus or None, order.rank)
        for order in waiting
    }
    if len(record_of(members.values())) > MAX_RECORD_CHARS:
        return {}
    for order in scarcest_first(session.view, waiting)[:RECORDS]:
        others = tuple(member for key, member in members.items() if key != order.key)
        carried[order.key] = replace(carried[order.key], members=others)
    return carried


def _start_pods(
    session: ApplySession, batch: PodBatch, carried: Mapping[Key, Intent]
) -> Steps[None]:
    """Start the pods that wait, those on the scarcest node first. ``carried``: intents still to write."""
    waiting = [order for order in batch.pods if session.state(order) in READY]
    begun = bool(running_pods(session, batch))
    for order in scarcest_first(session.view, waiting):
        yield from session.check_lock_sometimes(begun=begun)
        yield from _start_pod(session, batch, order, carried.get(order.key))
        begun = True
    for order in batch.pods:
        if session.state(order) not in STARTED:
            raise _lost(session, order)


def scarcest_first(view: ClusterView, orders: Iterable[PodStart]) -> list[PodStart]:
    """Pods on the node with the fewest GPUs left after them first, since a rival could fill it."""
    pods = list(orders)
    requested: dict[str, int] = {}
    for order in pods:
        requested[order.node] = requested.get(order.node, 0) + order.gpu_count
    used = usage(view, requested, without={order.uid for order in pods})
    left = {
        name: (view.nodes[name].gpus if name in view.nodes else 0) - used[name].gpus - gpus
        for name, gpus in requested.items()
    }
    return sorted(pods, key=lambda order: (left[order.node], order.node, order.key))


def _start_pod(
    session: ApplySession, batch: PodBatch, order: PodStart, carried: Intent | None
) -> Steps[None]:
    """Remove the gate of the pod and pin it."""
    classifier = session.classifier

    def done(pod: LivePod) -> bool:
        ours = carried is None or (carried.matches(pod.intent) and pod.intent_is_ours)
        return ours and not classifier.gated(pod) and pod.node in {None, order.node}

    def assumed(pod: LivePod) -> LivePod:
        intended = pod if carried is None else replace(pod, intent=carried, intent_is_ours=True)
        return replace(intended, gates=classifier.other_gates(pod))

    return session.reconcile(
        order,
        lambda pod: Ungate(order, pod, intent=carried),
        done=done,
        obstacle=lambda pod: _unintended(session, batch, order, pod, carried),
        assumed=assumed,
    )


def _foresee(session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart]) -> None:
    """Raises Failure if not all pods can start, as far as the last reading shows."""
    for order in waiting:
        if (pod := session.pod(order)) is None:
            continue
        if (why := _unstartable(session, pod)) is not None:
            raise Failure(f"pod {order.name} {why}")
        node = session.view.nodes.get(order.node)
        why = "the node does not exist" if node is None else unpinnable(pod, node)
        if why is not None:
            raise Failure(f"pod {order.name} cannot be pinned to {order.node}: {why}")
    for order in batch.pods:
        if session.state(order) not in (*READY, *STARTED):
            raise _lost(session, order)


def _prepare(session: ApplySession, batch: PodBatch, waiting: Collection[PodStart]) -> Steps[None]:
    """Write intents, allocate devices."""
    begun = bool(running_pods(session, batch))
    for step in (_write_intent, _allocate):
        for order in waiting if step is _write_intent or session.limits.backend == "dra" else ():
            yield from session.check_lock_sometimes(begun=begun)
            yield from step(session, batch, order)


def _write_intent(session: ApplySession, batch: PodBatch, order: PodStart) -> Steps[None]:
    intent = batch.intent(order)

    def done(pod: LivePod) -> bool:
        return intent.matches(pod.intent) and pod.intent_is_ours

    pod = session.pod(order)
    if pod is not None and pod.intent is not None and not done(pod):
        # Remove it first: equal fields that another client wrote would stay owned by that client.
        yield from _remove_intent(session, pod.intent.plan, order)
    yield from session.reconcile(
        order,
        lambda pod: WriteIntent(order, intent, pod.version),
        done=done,
        obstacle=lambda pod: _unstartable(session, pod),
        assumed=lambda pod: replace(pod, intent=intent, intent_is_ours=True),
    )


def _remove_intent(session: ApplySession, plan: str, order: PodStart) -> Steps[None]:
    """Remove the intent of a plan from a pod, unless it is gone."""
    try:
        yield from session.reconcile(
            order,
            lambda pod: RemoveIntent(pod.namespace, pod.name, pod.uid, pod.version),
            done=lambda pod: pod.intent is None or pod.intent.plan != plan,
            obstacle=lambda pod: "was started" if session.classifier.started(pod) else None,
            assumed=lambda pod: replace(pod, intent=None, intent_is_ours=False, held_at=None),
        )
    except Failure:
        if session.pod(order) is not None:
            raise


def _allocate(session: ApplySession, _batch: PodBatch, order: PodStart) -> Steps[None]:
    """Ask for its devices until that is done or rejected; it leaves the pod itself unchanged."""
    request, last = AllocateDevices(order, session.view.pods[order.key]), ""
    for _ in range(TRIES):
        event = yield from session.send(request)
        match event:
            case Done():
                return
            case Rejected(message):
                raise Failure(f"pod {order.name}: {message}")
        last = message_of(event)
        pod = yield from session.read_pod(order)
        why = "is gone" if pod is None else _unstartable(session, pod)
        if why is not None:
            raise Failure(f"pod {order.name} {why}")
    raise Failure(f"pod {order.name}: {last}", transient=True)


def _lost(session: ApplySession, order: PodStart) -> Failure:
    pod, what = session.pod(order), "is gone"
    if pod is not None:
        what = f"is bound to node {pod.node}" if pod.node else "is being deleted"
    return Failure(f"pod {order.name} {what}")


def _unstartable(session: ApplySession, pod: LivePod) -> str | None:
    """Why a pod that should still wait cannot be started."""
    why, others = session.classifier.over(pod), session.classifier.other_gates(pod)
    if why is None and others:
        return f"has the scheduling gate {others[0]} of another controller"
    return why


def _unintended(
    session: ApplySession, batch: PodBatch, order: PodStart, pod: LivePod, carried: Intent | None
) -> str | None:
    """Why the pod must not start: it changed since its intent was written, or decided (``carried``)."""
    why = _unstartable(session, pod)
    if why is not None:
        return why
    if carried is not None:
        return None if pod.intent is None else "was given another intent"
    return None if batch.intent(order).matches(pod.intent) else "lost its intent"


# ---- the pin, which planner.read.kube.pods.pods takes off again when the pod is read

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class CannotPin(ValueError):  # noqa: N818  # an answer, not a failure of ours
    """The pod's own constraints exclude the node."""


def pin(pod: LivePod, node: LiveNode) -> dict[str, Any]:
    """Fields of ``spec`` that pin a gated pod: a hostname selector, else node affinity by name.

    The API server only accepts additions to a gated pod. Empty if the pod is limited to that node already.
    """
    why = unpinnable(pod, node)
    if why is not None:
        raise CannotPin(why)
    if node.hostname is not None:
        selected = HOSTNAME in dict(pod.selector)
        return {} if selected else {"nodeSelector": {HOSTNAME: node.hostname}}
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    old = required_terms(pod)
    # Terms are alternatives, and none may be added: each that can match has to name the node.
    terms = [
        _with_field(term, field) if isinstance(term, dict) and can_match(term) else term
        for term in old
    ] or [{"matchFields": [field]}]
    if terms == old:
        return {}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def pin_record(pod: LivePod, added: dict[str, Any]) -> str:
    """``Intent.pin`` of a pod. ``added``: what ``pin`` adds to its spec."""
    if "affinity" not in added:
        return "hostname" if added else "none"
    terms = added["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    old = required_terms(pod) or [None]
    changed = [i for i, pair in enumerate(zip(old, terms, strict=True)) if pair[0] != pair[1]]
    return f"terms {' '.join(map(str, changed))}"


def _with_field(term: dict[str, Any], field: dict[str, Any]) -> dict[str, Any]:
    found = term.get("matchFields")
    fields = found if isinstance(found, list) else []
    return term if field in fields else {**term, "matchFields": [*fields, field]}


def unpinnable(pod: LivePod, node: LiveNode) -> str | None:
    """Why the pod's own constraints exclude the node."""
    selected = dict(pod.selector).get(HOSTNAME)
    if selected is not None and selected != dict(node.labels).get(HOSTNAME):
        return f"its node selector requires {HOSTNAME}={selected}"
    if node.hostname is None:
        terms = required_terms(pod)
        if terms and not any(map(can_match, terms)):
            return "its required node affinity matches no node"
    return None


def required_terms(pod: LivePod) -> list[object]:
    """Terms (alternatives) of the pod's required node affinity."""
    found: object = json.loads(pod.node_affinity)
    for part in (REQUIRED, "nodeSelectorTerms"):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def can_match(term: object) -> bool:
    """A term without requirements matches no node."""
    return isinstance(term, dict) and bool(term.get("matchExpressions") or term.get("matchFields"))
