"""Requests for a placement in a run: first those of gangs that have ended or stopped, last those that wait.

The answer to a gang that waits is never that it failed: its system would give it up after a few times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice

from models.apply.enforcer import PodBatch, Write
from models.apply.live_state import ClusterView
from models.apply.on_request import answered, contested, request_for, unneeded_labels
from models.apply.placement_requests import LiveRequest, request_of
from models.apply.plan_actions import GangActions, PlanActions
from models.apply.requests import GangVerdict, Outcome, Steps
from models.apply.session import ApplySession, Failure
from models.apply.starts import not_bound, start, started_verdict
from models.units import duration_text, first_of, shortened

_READINGS = 5
"""Times to look whether pods that could take the room of a gang are bound by now."""

_LONGEST = 1000
"""Characters of the message of a request."""

LATE = "its workload was not let start for {}: its nodes are free again, and it waits for nodes"


def settle_requests(session: ApplySession) -> Steps[None]:
    """Take nodes from requests whose gang has ended, stopped or was not let start, then their labels."""
    requests = sorted(session.view.requests.values(), key=str)
    due = [(one, write) for one in requests if (write := _due(session, one)) is not None]
    late = (one for one, _ in due if one.state == "placed")
    session.barred |= {(one.gang, node) for one in late for node in one.nodes}
    yield from _carry_out(session, [write for _, write in due])
    yield from _carry_out(session, list(unneeded_labels(session.view, session.view.nodes)))
    for one, why in overdue(session):
        plan, bound = one.plan or "", one.pods - len(one.pending)
        session.record(GangVerdict(one.gang, Outcome.partial, plan, why, bound))


def is_unsettled(session: ApplySession) -> bool:
    """Whether ``settle_requests`` has anything to do."""
    view = session.view
    due = (one for one in view.requests.values() if _due(session, one) is not None)
    return any(True for _ in chain(due, unneeded_labels(view, view.nodes), overdue(session)))


def overdue(session: ApplySession) -> Iterator[tuple[LiveRequest, str]]:
    """Those with a pod that was not bound in time, and why: only their system can stop them."""
    for one in session.view.requests.values():
        pod = session.view.pods.get((one.namespace, next(iter(one.pending), "")))
        if pod is not None and one.state == "placed" and _is_late(session, one):
            yield one, not_bound(session, pod, "bound")


def _is_late(session: ApplySession, request: LiveRequest) -> bool:
    now, limit, since = session.view.now, session.limits.pending_limit_s, request.since
    return now is not None and limit is not None and since is not None and now - since > limit


def _due(session: ApplySession, request: LiveRequest) -> Write | None:
    match request.state:
        case "dead":
            return answered(request, "over", "its workload has ended")
        case "evicted":
            return answered(request, "waits", "its workload was stopped; it waits for nodes again")
        case "placed" if not (request.admitted or request.pods) and _is_late(session, request):
            limit = duration_text(session.limits.pending_limit_s or 0)
            return answered(request, "waits", LATE.format(limit))
    return None


def _carry_out(session: ApplySession, writes: Collection[Write]) -> Steps[None]:
    """Each write by itself; those that fail are reported, and due again in the next run."""
    for write in writes:
        yield from session.check_lock_sometimes()
        try:
            yield from session.carry_out(write)
        except Failure as failure:
            kind, _, named = write.what.partition(" ")
            namespace, _, name = named.rpartition("/")
            key = (namespace or kind, name)
            session.record(GangVerdict(key, Outcome.halted, "", failure.why))


def start_on_request(session: ApplySession, orders: PlanActions, gang: GangActions) -> Steps[None]:
    """Start a gang by the answer to its request, once no pod that is to come could be in its way.

    If such pods do not come, no other gang waits for any: their system may be away.
    """
    batch = PodBatch.of(orders.plan, gang)
    request = request_for(session.view, batch.pods[0])
    if request is not None and request.state == "placed" and request.plan == orders.plan:
        verdict = started_verdict(session, batch)
        if verdict.outcome is Outcome.started:
            verdict = GangVerdict(gang.key, Outcome.unchanged, orders.plan, pods=verdict.pods)
        session.record(verdict)
        return
    why = contested(session.view, batch)
    readings = 0 if session.limits.dry or session.in_vain else _READINGS
    for after_s in islice(session.limits.waits(), readings):
        if not why:
            break
        yield from session.read_cluster(after_s)
        why = contested(session.view, batch)
    if why:
        session.in_vain = True
        session.record(GangVerdict(gang.key, Outcome.skipped, orders.plan, why))
    else:
        yield from start(session, batch)


def has_news(view: ClusterView, orders: PlanActions) -> bool:
    """Whether a request of a gang that waits gets another message than it has."""
    return any(view.requests[uid].message != message for uid, message in _news(view, orders))


def _news(view: ClusterView, orders: PlanActions) -> Iterator[tuple[str, str]]:
    """The messages of the requests of gangs that wait, by uid."""
    for one in orders.waiting:
        request = view.requests.get(one.request)
        if request is not None and request.state == "waits":
            nodes = [n.node for n in view.notes.avoided(view.now or 0) if n.gang == request.gang]
            avoids = f"; for an hour it avoids node {first_of(nodes, 3)}, where it did not start"
            yield request.uid, shortened(one.message + avoids * bool(nodes), _LONGEST)


def report_waiting(session: ApplySession, orders: PlanActions) -> Steps[None]:
    """Write into the requests of gangs that wait why they do."""
    messages = dict(_news(session.view, orders))
    for gang in orders.gangs:
        verdict = session.verdicts.get((orders.plan, gang.key))
        if gang.on_request and verdict is not None and verdict.outcome is Outcome.skipped:
            why = f"{verdict.why}; the next plan tries again"
            messages[request_of(gang.starts[0].uid)] = shortened(why, _LONGEST)
    requests = session.view.requests
    waiting = [uid for uid in messages if uid in requests and requests[uid].state == "waits"]
    yield from _carry_out(
        session, [answered(requests[uid], "waits", messages[uid]) for uid in waiting]
    )
