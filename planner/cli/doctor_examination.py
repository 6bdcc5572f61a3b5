"""One examination: this machine, the way to the cluster, then everything the planner will need there.

Promises: goes as far as it can: what cannot be looked at is a finding, never the end of the others.
Raises only what is wrong with the arguments. Called by ``planner.cli.doctor``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from planner.cli import doctor_checks as machine
from planner.cli import doctor_checks as permissions
from planner.cli import doctor_checks as placing
from planner.cli import doctor_checks as server
from planner.cli.doctor_checks import Finding, failed, odd, well
from planner.cluster.api_paths import checked
from planner.cluster.discovery import served_groups
from planner.cluster.lease import lock_paths
from planner.errors import Fault, GangplanError, InputError
from planner.pipelines.apply_steps import ApplyOptions, ClusterTarget

if TYPE_CHECKING:
    from models.apply.live_state import ClusterView
    from models.apply.orders import Orders
    from models.policy import KubernetesPolicy
    from planner.cluster.proxy import ProxyTransport
    from planner.cluster.transport import Transport


@dataclass(frozen=True, slots=True)
class Wish:
    """``plan``: a saved plan whose needs are looked at, too. ``namespaces``: of tenants.

    ``policy``: file with the gate, the scheduler's name and the back end; a plan has its own.
    """

    reach: ClusterTarget
    way: ApplyOptions = field(default_factory=ApplyOptions)
    plan: str | None = None
    policy: str | None = None
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Needs:
    """What is to be carried, and how Kubernetes is read for it."""

    settings: KubernetesPolicy
    orders: Orders | None = None

    @property
    def backend(self) -> str:
        return self.settings.gpu_backend if self.orders is None else self.orders.backend


def examine(
    wish: Wish, *, stdin: IO[bytes] | None = None, clock: Callable[[], float] = time.time
) -> Iterator[Finding]:
    """Every finding, in order. Raises MissingPathError, InputError, RefusedPlanError at the start."""
    from planner.cluster.kubectl import Kubectl
    from planner.cluster.retry import RetryingTransport

    needs = _needs(wish, stdin)
    yield from machine.machine()
    reach = wish.reach
    try:
        kubectl = Kubectl.find(reach.environ, context=reach.context, kubeconfig=reach.kubeconfig)
        found, version = machine.kubectl_version(kubectl)
    except GangplanError as error:
        yield failed("kubectl", error)
        return
    yield found
    try:
        with _opened(wish, needs) as wire:
            context = "this pod's cluster" if wire.context is None else f"context {wire.context}"
            yield well("API server", f"{wire.version or 'answers'}, {context}")
            yield server.skew(version, wire.version)
            yield server.clock(clock(), wire.date)
            yield from in_cluster(RetryingTransport(wire), wish, needs)
    except GangplanError as error:
        yield failed("API server", error)


def in_cluster(wire: Transport, wish: Wish, needs: Needs) -> Iterator[Finding]:
    """Everything that is asked of the cluster itself. Raises what ends every further question."""
    from planner.cluster.backends.table import backend_of

    who, name = server.account(wire)
    yield who
    yield from permissions.reading(wire, served_groups(wire))
    yield from permissions.locking(wire, wish.way.lock_namespace)
    try:
        view = _view(wire, needs)
    except GangplanError as error:
        yield from _without_a_view(wire, wish, needs, error)
        return
    if needs.orders is not None and needs.orders.cluster != view.cluster:
        said = f"of the cluster with uid {needs.orders.cluster}, this one has {view.cluster}"
        yield failed("plan", InputError(Fault(said, "name the plan's cluster: --context NAME")))
    waiting = placing.waiting(view, needs.settings)
    namespaces = _namespaces(wish, needs, {pod.namespace for pod in waiting})
    yield from _working(wire, wish, needs, namespaces)
    yield _guarded(wire, view, needs, namespaces, name)
    yield placing.nodes(view, needs.settings, needs.orders)
    yield placing.groups(wire)
    yield from placing.backend(wire, backend_of(needs.backend), needs.orders, view)


def _without_a_view(
    wire: Transport, wish: Wish, needs: Needs, error: GangplanError
) -> Iterator[Finding]:
    """The rest of the rights, where nodes and pods cannot be read."""
    yield from _working(wire, wish, needs, _namespaces(wish, needs, set()))
    said = f"not looked at: {error.faults[0].what}"
    hint = error.faults[0].hint or "put the rights above in order, then try again"
    yield odd("nodes", said, hint)


def _working(
    wire: Transport, wish: Wish, needs: Needs, namespaces: tuple[str, ...]
) -> Iterator[Finding]:
    return permissions.working(wire, namespaces, evictions=wish.way.evicts, backend=needs.backend)


def _namespaces(wish: Wish, needs: Needs, waiting: set[str]) -> tuple[str, ...]:
    """Those named, else those of the plan, else those where pods of ours wait."""
    planned = () if needs.orders is None else needs.orders.namespaces
    found = {*wish.namespaces, *planned} or waiting
    return tuple(sorted(filter(_is_name, found)))


def _guarded(
    wire: Transport,
    view: ClusterView,
    needs: Needs,
    namespaces: tuple[str, ...],
    account: str | None,
) -> Finding:
    if not namespaces or not view.nodes:
        hint = "name a namespace of a tenant: -n NAME"
        return odd("admission policy", "not looked at: no pods of ours wait anywhere", hint)
    pods = placing.waiting(view, needs.settings)
    named = [pod for pod in pods if pod.namespace in namespaces and _is_name(pod.name)]
    probe = (named[0].namespace, named[0].name, named[0].uid) if named else None
    return permissions.guarded(wire, namespaces[0], min(view.nodes), probe, account)


def _is_name(text: str) -> bool:
    """Whether it can be a Kubernetes name: only such a thing becomes part of a request."""
    try:
        return bool(checked(text))
    except ValueError:
        return False


def _view(wire: Transport, needs: Needs) -> ClusterView:
    from planner.cluster.live_view import read_cluster

    return read_cluster(wire, needs.settings)


def _needs(wish: Wish, stdin: IO[bytes] | None) -> Needs:
    if wish.plan is None:
        from planner.read.inputs import read_policy

        return Needs(read_policy([], policy=wish.policy).kubernetes)
    from planner.pipelines.apply_steps import read_verified

    plan = read_verified(wish.plan, stdin)
    return Needs(plan.settings, plan.orders)


def _opened(wish: Wish, needs: Needs) -> AbstractContextManager[ProxyTransport]:
    from planner.cluster import api_paths as reaching
    from planner.cluster import proxy, rights
    from planner.cluster.backends.table import backend_of

    return proxy.connect(
        wish.reach.environ,
        context=wish.reach.context,
        kubeconfig=wish.reach.kubeconfig,
        timeout_s=wish.reach.timeout_s,
        accept=(
            *reaching.look_paths(),
            *reaching.pod_paths(evictions=False),
            *lock_paths(wish.way.lock_namespace),
            *reaching.exactly(server.REVIEW, reaching.API_GROUPS),
            rights.ACCEPT,
            *backend_of(needs.backend).accept,
        ),
    )
