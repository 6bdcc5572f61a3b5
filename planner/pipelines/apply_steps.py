"""The steps from a plan document to a live cluster, as ``apply``, ``diff`` and ``run`` share them.

Promises: nothing is written before every step has passed; what is refused is refused in words, with the
exit code of the contract. Called by ``planner.pipelines.apply`` and ``planner.pipelines.run``.

The way to a live cluster for verbs that need no plan to know what they may ask for.

Promises: the proxy lets through what the verb can ask for and nothing else. Called by
``planner.pipelines.run`` and ``planner.cli.status``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from models.apply.outcomes import Outcome, Verdict
from planner.errors import Fault, InputError, RefusedPlanError, StaleError
from planner.pipelines.plan import refusals
from planner.show.text import lasting
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from models.apply.live_state import ClusterView
    from models.apply.orders import Orders
    from models.apply.outcomes import ApplyLimits
    from models.documents.plan import PlanDocument
    from models.policy import KubernetesPolicy
    from planner.cluster.backends.base import Backend
    from planner.cluster.sending import RequestSender, Tell
    from planner.cluster.transport import Transport

SKEW_S = 60
"""A plan may be so much younger than it can be: clocks differ."""

LOCK_NAMESPACE = "gangplan-system"

TICK_S = 1.0
"""Seconds between two readings while something is waited for."""

MAX_SHOWN = 20
"""Things that moved, named in one refusal."""

_UNDONE = (Outcome.skipped, Outcome.partial, Outcome.halted, Outcome.withheld)


@dataclass(frozen=True, slots=True)
class Way:
    """How a plan is applied. ``wait_s``: for evicted pods to go, and for pins to be bound.

    ``max_evictions``: pods, None for any number. ``shared_nodes``: bind onto open nodes, too.
    ``one_by_one``: a gang that would be bound to an open node is left out, and the others go on.
    """

    lock_namespace: str = LOCK_NAMESPACE
    lock_wait_s: float = 0.0
    allow_evictions: bool = False
    max_evictions: int | None = None
    evict_partial: bool = False
    shared_nodes: bool = False
    one_by_one: bool = False
    wait_s: float = 60.0

    @property
    def evicts(self) -> bool:
        return self.allow_evictions or self.evict_partial


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan that holds by itself, as orders. ``settings``: how its Policy has Kubernetes read."""

    orders: Orders
    settings: KubernetesPolicy
    backend: Backend


def read_ready(path: str, stdin: IO[bytes] | None = None) -> Ready:
    """The plan of a file, verified. Raises MissingPathError, InputError, RefusedPlanError."""
    from planner.read import plan_files

    content = plan_files.read_bytes(path, stdin)
    return ready(plan_files.parse(content, path), plan_files.read_plan(content, path), path)


def ready(document: dict[str, Any], plan: PlanDocument, file: str | None = None) -> Ready:
    """Verify a plan, given as JSON and typed, and read its orders. ``file``: for messages.

    Raises RefusedPlanError (5) and InputError (65).
    """
    from models.apply.orders import CannotOrder, orders_of
    from models.verify.check import check
    from planner.cluster.backends.table import backend_of

    violations = check(document)
    if violations:
        raise RefusedPlanError(*refusals(violations, file))
    try:
        orders = orders_of(plan)
    except CannotOrder as cannot:
        raise InputError(Fault(cannot.what, cannot.hint, file)) from None
    settings = plan.instance.policy.spec.kubernetes.to_policy()
    return Ready(orders, settings, backend_of(orders.backend))


def accepted(plan: Ready, way: Way) -> tuple[str, ...]:
    """URL paths that applying may ask for, for the proxy: regular expressions without commas.

    Raises UsageError for a namespace of the lock that is no name.
    """
    from planner.cluster import lock as locking
    from planner.cluster import rights
    from planner.cluster.api_paths import lease_paths, look_paths, pod_paths, scale_paths

    locking.path(way.lock_namespace)  # says what is wrong with a name that is none
    resizes = any(gang.resizes for gang in plan.orders.gangs)
    return (
        *look_paths(),
        *pod_paths(evictions=way.evicts),
        *lease_paths(way.lock_namespace),
        *(scale_paths() if resizes else ()),
        rights.ACCEPT,
        *plan.backend.accept,
    )


def check_cluster(plan: Ready, cluster: str) -> None:
    """``cluster``: uid of the live cluster. Raises InputError."""
    if plan.orders.cluster != cluster:
        what = (
            f"the plan is of the cluster with uid {one_line(plan.orders.cluster)}; "
            f"this one has {one_line(cluster) or 'none'}"
        )
        raise InputError(Fault(what, "name the plan's cluster: --context NAME"))


def check_age(plan: Ready, max_age_s: int | None, now: float | None) -> None:
    """``now``: the server's clock in seconds since the epoch. Raises StaleError."""
    if max_age_s is None or now is None:
        return
    age = int(now) - plan.orders.created_at
    if age < -SKEW_S:
        what = f"the plan was made {lasting(-age)} from now, by the API server's clock"
        raise StaleError(Fault(what, "set the clock of the host that plans"))
    if age > max_age_s:
        what = f"the plan is {lasting(age)} old, --max-age is {lasting(max_age_s)}"
        raise StaleError(Fault(what, "plan again, or raise --max-age"))


def check_rights(plan: Ready, way: Way, wire: Transport) -> None:
    """Ask for every right before anything is written. Raises NotPermittedError."""
    from planner.cluster.rights import demand, needed

    demand(
        wire,
        needed(
            plan.orders,
            lock_namespace=way.lock_namespace,
            evictions=way.evicts,
            backend=plan.orders.backend,
            undoing=way.evict_partial,
        ),
    )


def check_view(plan: Ready, way: Way, view: ClusterView) -> None:
    """Whether what the plan relied on still holds. Raises StaleError, or InputError of the back end.

    Where the plan is half applied already, it is the machine that leaves out what no longer holds.
    """
    from models.apply.staleness import changes, has_started

    if not has_started(plan.orders, view):
        found = [str(one) for one in changes(plan.orders, view)]
        if found:
            raise StaleError(*_stale(plan, found))
        if not way.shared_nodes:
            check_guarded(plan, view, one_by_one=way.one_by_one)
    field_errors = plan.backend.check(plan.orders, view)
    if field_errors:
        hint = "kubernetes.gpuBackend of the Policy says how GPUs reach the nodes"
        raise InputError(*_faults(field_errors, hint))


def check_guarded(plan: Ready, view: ClusterView, *, one_by_one: bool = False) -> None:
    """Whether other schedulers are kept off the nodes that pods are bound to. Raises StaleError.

    ``one_by_one``: only if that leaves nothing to do; else the machine leaves such gangs out.
    """
    from planner.cluster.node_guard import UNTAINTED, open_nodes, unconcerned

    found = open_nodes(plan.orders, view)
    going_on = one_by_one and unconcerned(plan.orders, view, [node for node, _ in found])
    if found and not going_on:
        bare = all(why == UNTAINTED for _, why in found)
        keep = (
            "kubectl taint nodes NAME example.com/gangplan=only:NoSchedule"
            if bare
            else "let only pods of gangplan tolerate the taint of its nodes"
        )
        said = [f"node {node} is open: {why}" for node, why in found]
        raise StaleError(*_faults(said, f"{keep}; or take the risk: --allow-shared-nodes"))


def limits(plan: Ready, way: Way, view: ClusterView, *, dry: bool = False) -> ApplyLimits:
    """What the machine is held to."""
    from models.apply.outcomes import ApplyLimits
    from planner.cluster.node_guard import open_nodes

    return ApplyLimits(
        allow_evictions=way.allow_evictions,
        max_evictions=sys.maxsize if way.max_evictions is None else way.max_evictions,
        evict_partial=way.evict_partial,
        wait_rounds=math.ceil(way.wait_s / TICK_S),
        tick_s=TICK_S,
        gate=plan.settings.scheduling_gate,
        scheduler=plan.settings.scheduler_name,
        backend=plan.orders.backend,
        dry=dry,
        open_nodes=() if way.shared_nodes else tuple(open_nodes(plan.orders, view)),
    )


def carry(
    plan: Ready,
    way: Way,
    sender: RequestSender,
    tell: Tell,
    seen: Callable[[ClusterView], None] = lambda _: None,
) -> Verdict:
    """Under the lock: read again, check again, apply. ``seen``: hears of the view that was checked.

    Raises StaleError, InputError, UnavailableError before the first write; nothing after it.
    """
    from models.apply.machine import apply_plan
    from planner.cluster.sending import carried

    view = sender.read_view()
    check_cluster(plan, view.cluster)
    check_view(plan, way, view)
    seen(view)
    return carried(
        apply_plan(plan.orders, view, limits(plan, way, view, dry=sender.dry)), sender, tell
    )


def exit_code(verdict: Verdict, signal_exit: int | None) -> int:
    """0 whole or merely pending or advised; 7 part-way; 130 or 143 where a signal ended it."""
    if verdict.stop is not None:
        return 7 if signal_exit is None else signal_exit
    return 7 if any(gang.outcome in _UNDONE for gang in verdict.gangs) else 0


def _stale(plan: Ready, found: list[str]) -> list[Fault]:
    from models.units import time_text

    hint = f"plan again: this plan was made at {time_text(plan.orders.created_at)}"
    return _faults([f"stale: {one}" for one in found], hint)


def _faults(found: list[str], hint: str) -> list[Fault]:
    """One fault each, at most MAX_SHOWN; the hint once, at the end."""
    shown = [one_line(one) for one in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        shown[-1] = f"{shown[-1]} (and {len(found) - MAX_SHOWN:,} more)"
    return [Fault(one, hint if one is shown[-1] else None) for one in shown]


if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from models.policy import KubernetesPolicy
    from planner.cluster.proxy import ProxyTransport


@dataclass(frozen=True, slots=True)
class Reach:
    """Which cluster. ``timeout_s``: of one request."""

    environ: Mapping[str, str]
    context: str | None = None
    kubeconfig: str | None = None
    timeout_s: float = 30.0


def for_writing(
    reach: Reach, way: Way, settings: KubernetesPolicy
) -> AbstractContextManager[ProxyTransport]:
    """To look, lock, ask for rights, and start whatever pods a plan may come to."""
    from planner.cluster import api_paths as reaching
    from planner.cluster import rights
    from planner.cluster.api_paths import API_GROUPS
    from planner.cluster.backends.table import backend_of

    return _opened(
        reach,
        *reaching.look_paths(),
        *reaching.pod_paths(evictions=way.evicts),
        *_lease(way.lock_namespace),
        *reaching.scale_paths(),
        rights.ACCEPT,
        *reaching.exactly(API_GROUPS),
        *backend_of(settings.gpu_backend).accept,
    )


def for_looking(reach: Reach, lock_namespace: str) -> AbstractContextManager[ProxyTransport]:
    """To look, and to see who holds the lock."""
    from planner.cluster import api_paths as reaching

    return _opened(reach, *reaching.look_paths(), *_lease(lock_namespace))


def _lease(namespace: str) -> tuple[str, ...]:
    from planner.cluster import api_paths as reaching
    from planner.cluster import lock as locking

    locking.path(namespace)  # says what is wrong with a name that is none
    return reaching.lease_paths(namespace)


def _opened(reach: Reach, *accept: str) -> AbstractContextManager[ProxyTransport]:
    from planner.cluster import proxy

    return proxy.connect(
        reach.environ,
        context=reach.context,
        kubeconfig=reach.kubeconfig,
        timeout_s=reach.timeout_s,
        accept=accept,
    )
