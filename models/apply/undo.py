"""Undoing gangs that are partial: the commands for a human, or evictions where they are allowed.

Promises: only pods whose intent our account wrote are evicted, each by its uid; commands are safe to
paste, whatever names they hold. Called by ``machine`` and the verbs that show verdicts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Generator
from dataclasses import replace
from urllib.parse import quote

from models.apply.evictions import evict
from models.apply.live_state import LivePod
from models.apply.orders import Key, PodOrder, PodStop
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.pod_state import READY
from models.apply.requests import Event, Request
from models.apply.session import ApplySession, Failure, PodBatch
from models.apply.starts import withdraw


def commands(verdict: GangVerdict, context: str | None, kubeconfig: str | None) -> list[str]:
    """One line of shell for each started pod: the server deletes it if it is still that pod, by its uid."""
    kubectl = [
        "kubectl",
        *(["--kubeconfig", kubeconfig] if kubeconfig else []),
        *(["--context", context] if context else []),
    ]
    found = []
    for namespace, name, uid in verdict.undo:
        path = _path(namespace, name)
        if path is None:
            continue  # the API gives no such name, and it would be another object's path
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        # printf, for echo would read backslashes in some shells; what is deleted is of no interest.
        said = shlex.join(["printf", "%s", json.dumps(options, separators=(",", ":"))])
        delete = shlex.join([*kubectl, "delete", "--raw", path, "-f", "-"])
        found.append(f"{said} | {delete} >/dev/null")
    return found


def _path(namespace: str, name: str) -> str | None:
    """Of a pod, as ``kubectl --raw`` takes it; None for a name that is a step in a path."""
    if {namespace, name} & {"", ".", ".."}:
        return None
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def undo_partial(
    session: ApplySession, *, but: Collection[Key] = ()
) -> Generator[Request, Event, None]:
    """Evict what is started of partial gangs, if that is allowed, and take the other intents off."""
    if not session.limits.evict_partial:
        return
    for verdict in sorted(session.verdicts.values(), key=lambda one: (one.gang, one.plan)):
        if verdict.outcome is Outcome.partial and verdict.gang not in but:
            yield from _undone(session, verdict)


def _undone(session: ApplySession, verdict: GangVerdict) -> Generator[Request, Event, None]:
    if verdict.unsure:
        # It may be at work: that is nothing to be settled by a flag that somebody once set.
        session.record(replace(verdict, why=f"{verdict.why}, so it is not evicted"))
        return
    stops = []
    for namespace, name, uid in verdict.undo:
        seen = session.view.pods.get((namespace, name))
        if seen is None or seen.uid != uid:
            continue
        if not _wrote(seen, verdict.plan):
            session.record(replace(verdict, why=f"{verdict.why}; pod {name} is not ours to evict"))
            return
        stops.append(PodStop(namespace, name, uid, "", 0, seen.node or "", seen.gpus))
    if session.evicted + len(stops) > session.limits.max_evictions:
        why = f"{verdict.why}; undoing it takes {len(stops)} evictions: --max-evictions"
        session.record(replace(verdict, why=why))
        return
    yield from session.hold(f"gang {verdict.gang[0]}/{verdict.gang[1]}")
    for stop in stops:
        failed = yield from _evicted(session, stop)
        if failed is not None:
            session.record(replace(verdict, why=f"{verdict.why}; {failed.why}"))
            return
    batch = _waiting(session, verdict)
    taken_back = yield from withdraw(session, batch, verdict.why)
    if taken_back.outcome is Outcome.skipped:
        session.record(replace(verdict, outcome=Outcome.undone, undo=(), pods=0))


def _wrote(seen: LivePod, plan: str) -> bool:
    return seen.intent is not None and seen.intent_is_ours and seen.intent.plan == plan


def _evicted(session: ApplySession, stop: PodStop) -> Generator[Request, Event, Failure | None]:
    """Evict one pod, asking again for a while where a budget keeps it."""
    failed = yield from evict(session, stop)
    for after_s in session.limits.waits():
        if failed is None or not failed.transient:
            break
        yield from session.read_cluster(after_s)
        failed = yield from evict(session, stop)
    return failed


def _waiting(session: ApplySession, verdict: GangVerdict) -> PodBatch:
    """What is left of the gang with an intent of that plan and not started."""
    orders = []
    for key in sorted(session.view.pods):
        seen = session.view.pods[key]
        if not _wrote(seen, verdict.plan) or seen.intent is None:
            continue
        if (seen.namespace, seen.intent.gang) != verdict.gang:
            continue
        order = PodOrder(
            seen.namespace, seen.name, seen.uid, "", 0, seen.intent.node, None, seen.gpus
        )
        if session.state(order) in READY:
            orders.append(order)
    return PodBatch(verdict.gang, verdict.plan, max(1, len(orders)), tuple(orders))
