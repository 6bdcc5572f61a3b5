"""What comes before the first pod of a gang starts: intents, devices, volumes, and a dry run of a binding.

Nothing here starts a pod. ``starts`` calls it, and withdraws the intents if it fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from models.apply.gang_state import running_pods
from models.apply.intents import Intent
from models.apply.live_state import READY, STARTED, LivePod
from models.apply.pins import unpinnable
from models.apply.plan_actions import PodStart
from models.apply.requests import (
    AllocateDevices,
    ChooseNode,
    Done,
    DryRunBind,
    Rejected,
    RemoveIntent,
    Request,
    Steps,
    Ungate,
    WriteIntent,
    message_of,
)
from models.apply.session import TRIES, ApplySession, Failure, PodBatch


def foreseen(session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart]) -> Failure | None:
    """Why not all pods can start, as far as the last reading shows."""
    for order in waiting:
        pod = session.pod(order)
        why = None if pod is None else _unstartable(session, pod)
        if why is not None:
            return Failure(f"pod {order.name} {why}")
        why = _cannot_pin(session, order)
        if why is not None:
            return Failure(f"pod {order.name} cannot be pinned to {order.node}: {why}")
    for order in batch.pods:
        if session.state(order) not in (*READY, *STARTED):
            return lost(session, order)
    return None


def prepare(
    session: ApplySession, batch: PodBatch, waiting: Collection[PodStart]
) -> Steps[Failure | None]:
    """Write intents, allocate devices, dry-run a binding."""
    begun = bool(running_pods(session, batch))
    failure = yield from _write_intents(session, batch, waiting, begun=begun)
    if failure is not None:
        return failure
    if session.limits.backend == "dra":
        for order in waiting:
            yield from session.check_lock_sometimes(batch.label, begun=begun)
            pod = session.view.pods[order.key]
            failure = yield from _try(session, order, AllocateDevices(order, pod))
            if failure is not None:
                return failure
    failure = yield from _dry_run_binding(session, batch, waiting)
    return failure or (yield from _choose_nodes(session, batch, waiting))


def check_claims(
    session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart]
) -> Steps[Failure | None]:
    """Check whether the volume claims of all pods still fit their nodes."""
    checks = [replace(one, check=True) for one in _node_choices(session, batch, waiting)]
    return (yield from _send_choices(session, batch, checks))


def _choose_nodes(
    session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart]
) -> Steps[Failure | None]:
    """Tell provisioners the nodes of the pods that gangplan binds.

    Last of all, since a volume that is made ties its pod to the node.
    """
    choices = [one for one in _node_choices(session, batch, waiting) if one.binds]
    return (yield from _send_choices(session, batch, choices))


def _node_choices(
    session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart]
) -> list[ChooseNode]:
    nodes = tuple(sorted({order.node for order in batch.pods}))
    return [
        ChooseNode(order, pod.claims, nodes, session.classifier.binds(pod))
        for order in waiting
        if (pod := session.pod(order)) is not None and pod.claims
    ]


def _send_choices(
    session: ApplySession, batch: PodBatch, choices: Iterable[ChooseNode]
) -> Steps[Failure | None]:
    for choice in choices:
        begun = bool(running_pods(session, batch))
        yield from session.check_lock_sometimes(batch.label, begun=begun)
        failure = yield from _try(session, choice.pod, choice)
        if failure is not None:
            return failure
    return None


def _cannot_pin(session: ApplySession, order: PodStart) -> str | None:
    """Why a pod that its scheduler binds cannot be pinned to the planned node."""
    pod, node = session.pod(order), session.view.nodes.get(order.node)
    if pod is None or session.classifier.binds(pod):
        return None
    return "the node does not exist" if node is None else unpinnable(pod, node)


def _write_intents(
    session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart], *, begun: bool
) -> Steps[Failure | None]:
    """Send the intents of pods without any as groups, then settle each pod."""
    bare = [
        (order, pod)
        for order in waiting
        if (pod := session.pod(order)) is not None
        and pod.intent is None
        and _unstartable(session, pod) is None
    ]
    requests = [WriteIntent(order, batch.intent(order), pod.version) for order, pod in bare]
    events = yield from session.send_groups(batch.label, requests, begun=begun)
    rejected: Failure | None = None
    for request in requests:
        order, pod = request.pod, session.pod(request.pod)
        if pod is None or pod.intent is not None:
            continue
        match events.get(order.key):
            case Done():  # without a pod: a dry run
                intended = replace(pod, intent=request.intent, intent_is_ours=True)
                session.view.pods[order.key] = intended
            case Rejected(message):
                rejected = rejected or Failure(f"pod {order.name} {message}")
    if rejected is not None:
        return rejected
    for order in waiting:
        yield from session.check_lock_sometimes(batch.label, begun=begun)
        failure = yield from _write_intent(session, batch, order)
        if failure is not None:
            return failure
    return None


def _write_intent(session: ApplySession, batch: PodBatch, order: PodStart) -> Steps[Failure | None]:
    intent = batch.intent(order)

    def done(pod: LivePod) -> bool:
        return intent.matches(pod.intent) and pod.intent_is_ours

    pod = session.pod(order)
    if pod is not None and pod.intent is not None and not done(pod):
        # Remove it first: equal fields that another client wrote would stay owned by that client.
        other = replace(batch, plan=pod.intent.plan)
        failure = yield from remove_intent(session, other, order)
        if failure is not None:
            return failure
    result = yield from session.reconcile(
        order,
        lambda pod: WriteIntent(order, intent, pod.version),
        done=done,
        obstacle=lambda pod: _unstartable(session, pod),
        assumed=lambda pod: replace(pod, intent=intent, intent_is_ours=True),
    )
    return failure_of(order, result)


def remove_intent(session: ApplySession, batch: PodBatch, order: PodStart) -> Steps[Failure | None]:
    result = yield from session.reconcile(
        order,
        lambda pod: RemoveIntent(pod.namespace, pod.name, pod.uid, pod.version),
        done=lambda pod: pod.intent is None or pod.intent.plan != batch.plan,
        obstacle=lambda pod: "it was started" if session.classifier.started(pod) else None,
        assumed=lambda pod: replace(pod, intent=None, intent_is_ours=False, held_at=None),
    )
    if isinstance(result, Failure) and session.pod(order) is not None:
        return result
    return None


def _dry_run_binding(
    session: ApplySession, batch: PodBatch, waiting: Iterable[PodStart]
) -> Steps[Failure | None]:
    """For pods that gangplan binds: remove our gate, then dry-run one binding.

    The intents have shown that each pod can be bound; it shows whether bindings are admitted here.
    """
    binding = [
        order
        for order in waiting
        if (pod := session.pod(order)) is not None and session.classifier.binds(pod)
    ]
    for order in binding:
        failure = yield from _remove_gate(session, batch, order)
        if failure is not None:
            return failure
    # A dry run leaves the gate in place.
    for order in binding:
        if (pod := session.pod(order)) is None or not session.classifier.gated(pod):
            return (yield from _try(session, order, DryRunBind(order)))
    return None


def _remove_gate(session: ApplySession, batch: PodBatch, order: PodStart) -> Steps[Failure | None]:
    """Remove our gate from a pod that gangplan binds: that starts nothing, and does not pin it."""
    result = yield from session.reconcile(
        order,
        lambda pod: Ungate(order, pod, pin=False),
        done=lambda pod: not session.classifier.gated(pod),
        obstacle=lambda pod: unintended(session, batch, order, pod),
        assumed=lambda pod: pod if session.limits.dry else without_gate(session, pod),
    )
    return failure_of(order, result)


def _try(session: ApplySession, order: PodStart, request: Request) -> Steps[Failure | None]:
    """Send a request that leaves the pod itself unchanged until it is done or rejected."""
    last = ""
    for _ in range(TRIES):
        event = yield from session.send(request)
        match event:
            case Done():
                return None
            case Rejected(message):
                return Failure(f"pod {order.name}: {message}")
        last = message_of(event)
        pod = yield from session.read_pod(order)
        if pod is None:
            return Failure(f"pod {order.name} is gone")
        why = _unstartable(session, pod)
        if why is not None:
            return Failure(f"pod {order.name} {why}")
    return Failure(f"pod {order.name}: {last}", transient=True)


def lost(session: ApplySession, order: PodStart) -> Failure:
    """Why a pod cannot start that neither waits nor has started."""
    pod = session.pod(order)
    if pod is None:
        return Failure(f"pod {order.name} is gone")
    what = f"is bound to node {pod.node}" if pod.node else "is being deleted"
    return Failure(f"pod {order.name} {what}")


def _unstartable(session: ApplySession, pod: LivePod) -> str | None:
    """Why a pod that should still wait cannot be started."""
    if pod.terminating:
        return "is being deleted"
    if pod.finished:
        return "has finished"
    if pod.node is not None:
        return f"is bound to node {pod.node}"
    if session.classifier.started(pod):
        return "lost its gate"
    others = session.classifier.other_gates(pod)
    return f"has the scheduling gate {others[0]} of another controller" if others else None


def unintended(
    session: ApplySession,
    batch: PodBatch,
    order: PodStart,
    pod: LivePod,
    carried: Intent | None = None,
) -> str | None:
    """Why the pod must not start: it changed since its intent was written, or decided (``carried``)."""
    why = _unstartable(session, pod)
    if why is not None:
        return why
    if carried is not None:
        return None if pod.intent is None else "was given another intent"
    return None if batch.intent(order).matches(pod.intent) else "lost its intent"


def without_gate(session: ApplySession, pod: LivePod) -> LivePod:
    return replace(pod, gates=session.classifier.other_gates(pod))


def failure_of(order: PodStart, result: LivePod | Failure) -> Failure | None:
    if isinstance(result, Failure):
        return replace(result, why=f"pod {order.name} {result.why}")
    return None
