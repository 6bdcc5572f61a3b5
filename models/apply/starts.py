"""In which order gangs and their pods are started, so that stopping anywhere strands least.

Promises: pure and total: ties end with keys. Called by the machine in this package.

Whether a gated pod can be tied to a node at all, by what the pod itself demands.

Promises: pure; asked before the first pod of a gang is started, so that none is started in vain.
Called by ``starting`` and by ``planner.cluster.sending``, which does it.

Starting one gang: the intent on every pod, a dry run, then pod after pod, scarcest node first.

Promises: before the first start everything can be taken back, and is; after it the gang is finished or
told as partial. Nothing is done twice. Called by ``machine`` and ``recovering``.

Gangs whose pods are made anew: moved ones after their eviction, grown ones after their scaling.

Promises: a new pod counts only under the planned name, of the same controller, asking for the same;
unless all are there none is started. Called by ``machine``.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import replace

from models.apply.evictions import Removals, remaining
from models.apply.gang_state import live, stuck, told, verdict_on
from models.apply.live_state import ClusterView, LiveNode, LivePod, taken
from models.apply.orders import GangOrder, Key, Orders, PodOrder
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.pod_state import READY, STARTED, same
from models.apply.requests import (
    AllocateDevices,
    Bind,
    Done,
    DryRunBind,
    Event,
    Rejected,
    RemoveIntent,
    Request,
    Ungate,
    WriteIntent,
)
from models.apply.session import TRIES, ApplySession, Failure, Halted, PodBatch
from models.apply.staleness import gang_moved

_NEVER = 2**62


def by_rank(gangs: Iterable[GangOrder]) -> list[GangOrder]:
    """Higher priority first, then who waits longer, then by name."""
    return sorted(gangs, key=rank)


def rank(gang: GangOrder) -> tuple[int, int, Key]:
    submitted = _NEVER if gang.submitted_at is None else gang.submitted_at
    return (-gang.priority, submitted, gang.key)


def scarcest_first(view: ClusterView, orders: Iterable[PodOrder]) -> list[PodOrder]:
    """Pods of the node with the fewest GPUs left after them first: there a rival would hurt most."""
    pods = list(orders)
    asked: dict[str, int] = {}
    for order in pods:
        asked[order.node] = asked.get(order.node, 0) + order.gpu_count
    used = taken(view, asked, without={order.uid for order in pods})
    left = {
        name: (view.nodes[name].gpus if name in view.nodes else 0) - used[name].gpus - asked[name]
        for name in asked
    }
    return sorted(pods, key=lambda order: (left[order.node], order.node, order.key))


HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def unpinnable(pod: LivePod, node: LiveNode) -> str | None:
    """Why the pod's own constraints leave no way to the node; None if they leave one."""
    chosen = dict(pod.selector).get(HOSTNAME)
    if chosen is not None and chosen != dict(node.labels).get(HOSTNAME):
        return f"its node selector asks for {HOSTNAME}={chosen}"
    if node.hostname is None:
        terms = required_terms(pod)
        if terms and not any(map(can_match, terms)):
            return "its required node affinity matches no node"
    return None


def required_terms(pod: LivePod) -> list[object]:
    """Terms of the pod's required node affinity, alternatives all; empty where it has none."""
    found: object = json.loads(pod.node_affinity)
    for part in (REQUIRED, "nodeSelectorTerms"):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def can_match(term: object) -> bool:
    """A term without requirements matches nothing, and must stay as it is."""
    return isinstance(term, dict) and bool(term.get("matchExpressions") or term.get("matchFields"))


Steps = Generator[Request, Event, Failure | None]


def start(session: ApplySession, batch: PodBatch) -> Generator[Request, Event, GangVerdict]:
    """Start all pods of the squad, or take back what was written. Raises Halted, with a verdict left."""
    try:
        failed = yield from _prepared(session, batch)
        if failed is None:
            failed = yield from _started(session, batch)
        if failed is None:
            session.batches.append(batch)
            return session.record(told(session, batch))
        if live(session, batch) and not session.limits.dry:
            # Some are started: what has become of them meanwhile decides what is said.
            yield from session.read_cluster()
        if live(session, batch):
            return session.record(stuck(session, batch, failed))
        return (yield from withdraw(session, batch, failed.why))
    except Halted as halted:
        session.record(verdict_on(session, batch, Outcome.halted, halted.stop.why))
        raise


def withdraw(
    session: ApplySession, batch: PodBatch, why: str
) -> Generator[Request, Event, GangVerdict]:
    """Take the intents off again; the gang is as if nothing had been wanted of it."""
    left = None
    for order in batch.pods:
        if session.state(order) in READY:
            failed = yield from forget(session, batch, order)
            left = left or failed
    if left is None:
        return session.record(verdict_on(session, batch, Outcome.skipped, why))
    why = f"{why}; its intents could not all be taken off: {left.why}"
    return session.record(verdict_on(session, batch, Outcome.halted, why))


def forget(session: ApplySession, batch: PodBatch, order: PodOrder) -> Steps:
    """Take the intent of this plan off one pod that is not started."""
    settled = yield from session.settle(
        order,
        lambda seen: RemoveIntent(seen.namespace, seen.name, seen.uid, seen.version),
        done=lambda seen: seen.intent is None or seen.intent.plan != batch.plan,
        hindrance=lambda seen: "it was started" if session.classifier.started(seen) else None,
        then=lambda seen: replace(seen, intent=None, intent_is_ours=False, held_at=None),
    )
    if isinstance(settled, Failure) and session.pod(order) is None:
        return None
    return settled if isinstance(settled, Failure) else None


# ---- before the first start


def _prepared(session: ApplySession, batch: PodBatch) -> Steps:
    """Whether all can be pinned; intents, then devices, then what binding needs."""
    waiting = [order for order in batch.pods if session.state(order) in READY]
    loose = next((why for order in waiting if (why := _unpinnable(session, order))), None)
    if loose is not None:
        return Failure(loose)
    begun = bool(live(session, batch))
    refused = yield from _intend_together(session, batch, waiting, begun=begun)
    if refused is not None:
        return refused
    for order in waiting:
        yield from session.pace(batch.called, begun=begun)
        failed = yield from _intend(session, batch, order)
        if failed is not None:
            return failed
    for order in waiting:
        if session.limits.backend == "dra":
            yield from session.pace(batch.called, begun=begun)
            failed = yield from _tried(
                session, order, AllocateDevices(order, session.view.pods[order.key])
            )
            if failed is not None:
                return failed
    return (yield from _tried_all(session, batch, waiting))


def _unpinnable(session: ApplySession, order: PodOrder) -> str | None:
    """Why a pod that a scheduler binds cannot be tied to its node: then none of its gang is begun."""
    seen, node = session.pod(order), session.view.nodes.get(order.node)
    if seen is None or session.classifier.binds(seen):
        return None
    why = "its node is not there" if node is None else unpinnable(seen, node)
    return None if why is None else f"pod {order.name} cannot be pinned to {order.node}: {why}"


def _tried_all(session: ApplySession, batch: PodBatch, waiting: Iterable[PodOrder]) -> Steps:
    """For pods that we bind: no gate of ours left on any, then a dry run of all."""
    binding = [
        o for o in waiting if (pod := session.pod(o)) is not None and session.classifier.binds(pod)
    ]
    for order in binding:
        failed = yield from _open(session, batch, order)
        if failed is not None:
            return failed
    # A dry run left the gate where it is.
    binding = [
        o for o in binding if (pod := session.pod(o)) is None or not session.classifier.gated(pod)
    ]
    begun = bool(live(session, batch))
    tried = yield from session.together(batch.called, [*map(DryRunBind, binding)], begun=begun)
    for order in binding:
        match tried.get(order.key):
            case Done():
                continue
            case Rejected(message):
                return Failure(f"pod {order.name}: {message}")
        failed = yield from _tried(session, order, DryRunBind(order))
        if failed is not None:
            return failed
    return None


def _intend_together(
    session: ApplySession, batch: PodBatch, waiting: Iterable[PodOrder], *, begun: bool
) -> Steps:
    """The intents of pods that carry none and can be started, all on their way at once.

    Why one is refused; what else does not come of them is left to ``_intend``.
    """
    bare = [
        (order, seen)
        for order in waiting
        if (seen := session.pod(order)) is not None
        and seen.intent is None
        and _unstartable(session, seen) is None
    ]
    requests = [WriteIntent(order, batch.intent(order), seen.version) for order, seen in bare]
    came = yield from session.together(batch.called, requests, begun=begun)
    refused: Failure | None = None
    for request in requests:
        order, seen = request.pod, session.pod(request.pod)
        if seen is None or seen.intent is not None:
            continue
        match came.get(order.key):
            case Done():  # the answer showed no pod: a dry run
                intended = replace(seen, intent=request.intent, intent_is_ours=True)
                session.view.pods[order.key] = intended
            case Rejected(message):
                refused = refused or Failure(f"pod {order.name} {message}")
    return refused


def _intend(session: ApplySession, batch: PodBatch, order: PodOrder) -> Steps:
    intent = batch.intent(order)

    def done(seen: LivePod) -> bool:
        return same(seen.intent, intent) and seen.intent_is_ours

    seen = session.pod(order)
    if seen is not None and seen.intent is not None and not done(seen):
        # What is not exactly ours is taken off first: the same words of somebody else stay theirs.
        failed = yield from forget(session, replace(batch, plan=seen.intent.plan), order)
        if failed is not None:
            return failed
    settled = yield from session.settle(
        order,
        lambda seen: WriteIntent(order, intent, seen.version),
        done=done,
        hindrance=lambda seen: _unstartable(session, seen),
        then=lambda seen: replace(seen, intent=intent, intent_is_ours=True),
    )
    return _about(order, settled)


def _open(session: ApplySession, batch: PodBatch, order: PodOrder) -> Steps:
    """Take our gate off a pod that only we bind: nothing starts by that, and it is not pinned."""
    settled = yield from session.settle(
        order,
        lambda seen: Ungate(order, seen, pin=False),
        done=lambda seen: not session.classifier.gated(seen),
        hindrance=lambda seen: _unintended(session, batch, order, seen),
        then=lambda seen: seen if session.limits.dry else replace(seen, gates=_less(session, seen)),
    )
    return _about(order, settled)


def _tried(session: ApplySession, order: PodOrder, request: Request) -> Steps:
    """A request that changes nothing of the pod itself, tried until it is answered."""
    last = ""
    for _ in range(TRIES):
        event = yield from session.ask(request)
        match event:
            case Done():
                return None
            case Rejected(message):
                return Failure(f"pod {order.name}: {message}")
            case _:
                last = str(getattr(event, "message", ""))
        seen = yield from session.look(order)
        if seen is None:
            return Failure(f"pod {order.name} is gone")
        why = _unstartable(session, seen)
        if why is not None:
            return Failure(f"pod {order.name} {why}")
    return Failure(f"pod {order.name}: {last}", transient=True)


def _unstartable(session: ApplySession, seen: LivePod) -> str | None:
    """Why a pod that is not started cannot be."""
    if seen.terminating:
        return "is being deleted"
    if seen.finished:
        return "has finished"
    if seen.node is not None:
        return f"is bound to node {seen.node}"
    if session.classifier.started(seen):
        return "has lost its gate"
    others = session.classifier.foreign(seen)
    return f"waits for the gate {others[0]} of somebody else" if others else None


# ---- the start


def _started(session: ApplySession, batch: PodBatch) -> Steps:
    """Start what is not started, the scarcest node first."""
    waiting = [order for order in batch.pods if session.state(order) in READY]
    begun = bool(live(session, batch))
    for order in scarcest_first(session.view, waiting):
        yield from session.pace(batch.called, begun=begun)
        pod = session.pod(order)
        binds = pod is not None and session.classifier.binds(pod)
        settled = yield from (_bind if binds else _ungate)(session, batch, order)
        if isinstance(settled, Failure):
            return _about(order, settled)
        begun = True
    missing = [order for order in batch.pods if session.state(order) not in STARTED]
    if missing:
        return _about(missing[0], Failure(_fate(session, missing[0])))
    return None


def _fate(session: ApplySession, order: PodOrder) -> str:
    pod = session.pod(order)
    if pod is None:
        return "is gone"
    return f"is bound to node {pod.node}" if pod.node else "is being deleted"


def _ungate(
    session: ApplySession, batch: PodBatch, order: PodOrder
) -> Generator[Request, Event, LivePod | Failure]:
    return (
        yield from session.settle(
            order,
            lambda seen: Ungate(order, seen),
            done=lambda seen: (
                not session.classifier.gated(seen) and seen.node in {None, order.node}
            ),
            hindrance=lambda seen: _unintended(session, batch, order, seen),
            then=lambda seen: replace(seen, gates=_less(session, seen)),
        )
    )


def _bind(
    session: ApplySession, batch: PodBatch, order: PodOrder
) -> Generator[Request, Event, LivePod | Failure]:
    return (
        yield from session.settle(
            order,
            lambda seen: Bind(order, seen.version),
            done=lambda seen: seen.node == order.node,
            hindrance=lambda seen: _unintended(session, batch, order, seen),
            then=lambda seen: replace(seen, node=order.node, held_at=None),
        )
    )


def _unintended(
    session: ApplySession, batch: PodBatch, order: PodOrder, seen: LivePod
) -> str | None:
    """Why the pod must not be started, though its gang is: something touched it since the intent."""
    why = _unstartable(session, seen)
    if why is not None:
        return why
    return None if same(seen.intent, batch.intent(order)) else "has lost its intent"


def _less(session: ApplySession, seen: LivePod) -> tuple[str, ...]:
    return tuple(gate for gate in seen.gates if gate != session.limits.gate)


def _about(order: PodOrder, settled: LivePod | Failure) -> Failure | None:
    if isinstance(settled, Failure):
        return replace(settled, why=f"pod {order.name} {settled.why}")
    return None


_NEXT = "its new pods are placed by the next plan"


def restart(
    session: ApplySession, orders: Orders, gang: GangOrder, leaving: Removals
) -> Generator[Request, Event, None]:
    """Start the new pods where the plan wants the gang, or leave them to the next plan."""
    if session.limits.dry or remaining(session, gang):
        return
    pods = _renewed(session, gang, leaving)
    for after_s in session.limits.waits():
        if len(pods) + _renamed(session, gang, leaving) >= len(gang.starts):
            break
        yield from session.read_cluster(after_s)
        pods = _renewed(session, gang, leaving)
    if len(pods) < len(gang.starts):
        why = f"{len(pods)} of its {len(gang.starts)} pods are there again; {_NEXT}"
        session.record(GangVerdict(gang.key, Outcome.stopped, orders.plan, why))
        return
    anew = replace(gang, starts=tuple(pods), stops=())
    moved = gang_moved(orders, anew, session.view)
    if moved:
        why = f"{moved[0]}; {_NEXT}"
        session.record(GangVerdict(gang.key, Outcome.stopped, orders.plan, why))
        return
    yield from session.hold(f"gang {gang.namespace}/{gang.name}")
    yield from start(session, PodBatch(gang.key, orders.plan, len(pods), tuple(pods)))


def restarted(session: ApplySession, orders: Orders, gang: GangOrder) -> bool:
    """Whether the new pods of a gang were all started by this plan."""
    for order in gang.starts:
        seen = session.view.pods.get(order.key)
        if seen is None or seen.intent is None or not seen.intent_is_ours:
            return False
        if seen.intent.plan != orders.plan or not session.classifier.started(seen):
            return False
    return bool(gang.starts)


def _renamed(session: ApplySession, gang: GangOrder, leaving: Removals) -> int:
    """New pods of its controllers under names that the plan does not know: those will not come."""
    owners = {leaving.owners.get(stop.key) for stop in gang.stops} - {None}
    planned = {order.key for order in gang.starts} | {stop.key for stop in gang.stops}
    return sum(
        pod.owner in owners and key not in planned and not session.classifier.started(pod)
        for key, pod in session.view.pods.items()
    )


def _renewed(session: ApplySession, gang: GangOrder, leaving: Removals) -> list[PodOrder]:
    """The orders for which a pod is there now, with its uid."""
    old = {stop.uid for stop in gang.stops}
    found = []
    for order in gang.starts:
        seen = session.view.pods.get(order.key)
        if seen is None or seen.uid in old or session.classifier.started(seen):
            continue
        if seen.terminating or seen.finished or seen.gpus != order.gpu_count:
            continue
        owner = leaving.owners.get(order.key, seen.owner)
        if owner == seen.owner:
            found.append(replace(order, uid=seen.uid, mode=None))
    return found
