"""The rights that the work needs, asked of the API server before anything is written.

Promises: a right is asked for exactly as the request that needs it will be judged; asking changes
nothing. Raises UnavailableError where the server does not say. Called by ``planner.pipelines.apply_steps``,
``planner.pipelines.run`` and ``planner.cli.doctor``.

Which API groups a cluster serves: what is not served needs no right.

Promises: one request; nobody's word is taken for a group that is not named. Called by
``planner.pipelines.run`` and ``planner.cli``.

Namespaces that this account may start no pods in: what waits there is left out of the plans of ``run``.

Promises: one namespace without rights, which anybody may fill with pods that wait, stops no run for the
others; where all of them lack rights nothing is left out, and the run says so. Called by
``planner.pipelines.run_rounds``.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.apply.live_state import PodClassifier
from models.apply.orders import Orders
from planner.cluster.api_paths import grouped
from planner.cluster.kinds import ALL, NAMESPACES, Kind
from planner.cluster.transport import LOST, Transport, Tree
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.read.kube.lookup import mapping, objects, text
from planner.untrusted_text import one_line

LEASE = "gangplan"
"""Name of the Lease that is the lock."""

_REVIEWS = grouped("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
ACCEPT = f"^{_REVIEWS}$".replace(".", r"\.")
"""Paths that asking takes, for the proxy: one regular expression."""

SCALED = (
    ("apps", "statefulsets"),
    ("apps", "replicasets"),
    ("apps", "deployments"),
    ("kubeflow.org", "pytorchjobs"),
)
"""Controllers whose number of pods a resize sets: group and plural."""

DRA = "dra"
"""The GPU back end that writes ResourceClaims."""

_SHOWN = 4
"""Missing rights that one error names; ``doctor`` names all."""


@dataclass(frozen=True, slots=True)
class Right:
    """One thing to be allowed, as RBAC divides them. ``group`` "": the core API.

    ``namespace`` None: of no namespace, or in all of them. ``name``: that object only; "" any.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str | None = None
    name: str = ""


def identity() -> tuple[Right, ...]:
    """To tell which cluster this is."""
    return (Right("get", "", "namespaces", name="kube-system"),)


def looking() -> tuple[Right, ...]:
    """To read what a plan relies on: room is counted over the pods of all namespaces."""
    devices = ("resourceslices", "resourceclaims", "deviceclasses")
    return (
        Right("list", "", "nodes"),
        Right("list", "", "pods"),
        Right("list", "scheduling.k8s.io", "podgroups"),
        *(Right("list", "resource.k8s.io", plural) for plural in devices),
    )


def reading(
    groups: Collection[str] | None = None, *, skip: Collection[str] = ()
) -> tuple[Right, ...]:
    """To record all that planning reads.

    ``groups``: API groups that are served; None for every one. ``skip``: resources left out.
    """
    kinds = [
        kind
        for kind in ALL
        if kind is not NAMESPACES and kind.resource not in skip and _served(kind, groups)
    ]
    lists = [Right("list", kind.group, kind.plural) for kind in kinds]
    return (*identity(), *dict.fromkeys(lists))


def locking(lock_namespace: str) -> tuple[Right, ...]:
    """To take, renew and release the lock. Creating cannot be granted by name."""
    lease = Right("get", "coordination.k8s.io", "leases", namespace=lock_namespace, name=LEASE)
    return (replace(lease, verb="create", name=""), lease, replace(lease, verb="update"))


def working(
    namespaces: Iterable[str | None],
    *,
    evictions: bool,
    backend: str,
    bound: Collection[str | None] | None = None,
    evicted: Collection[str | None] | None = None,
    resized: Collection[str | None] = (),
) -> tuple[Right, ...]:
    """To start pods in these namespaces (None: in all of them).

    ``bound``: those of them with pods that we bind ourselves; None for all. ``evicted``: those with
    pods to evict, where that is allowed; None for all. ``resized``: those with gangs whose size changes.
    """
    rights: list[Right] = []
    for namespace in namespaces:
        pods = Right("get", "", "pods", namespace=namespace)
        rights += [pods, replace(pods, verb="patch")]
        if bound is None or namespace in bound:
            rights.append(replace(pods, verb="create", subresource="binding"))
        if evictions and (evicted is None or namespace in evicted):
            rights.append(replace(pods, verb="create", subresource="eviction"))
        if evictions and namespace in resized:
            rights += _scales(namespace)
        if backend == DRA:
            rights += _claims(namespace)
    return tuple(rights)


def needed(
    orders: Orders,
    *,
    lock_namespace: str,
    evictions: bool,
    backend: str,
    bound: Collection[str | None] | None = None,
    undoing: bool = False,
) -> tuple[Right, ...]:
    """Everything that applying these orders may send, the lock included.

    ``undoing``: gangs that are partial may be evicted, too, wherever they are. Else a tenant whose gangs
    only start need not agree to evictions.
    """
    stopped = {gang.namespace for gang in orders.gangs if gang.stops}
    work = working(
        orders.namespaces,
        evictions=evictions,
        backend=backend,
        bound=bound,
        evicted=None if undoing else stopped,
        resized={gang.namespace for gang in orders.gangs if gang.resizes},
    )
    every = (*identity(), *looking(), *locking(lock_namespace), *work)
    return tuple(dict.fromkeys(every))


def all_rights(
    namespaces: Iterable[str | None],
    *,
    lock_namespace: str,
    evictions: bool,
    backend: str,
    groups: Collection[str] | None = None,
) -> tuple[Right, ...]:
    """Everything that a ``run`` may send: to read, to lock, and to work in these namespaces."""
    places = tuple(namespaces)
    work = working(places, evictions=evictions, backend=backend, resized=places)
    every = (*reading(groups), *looking(), *locking(lock_namespace), *work)
    return tuple(dict.fromkeys(every))


def lacking(wire: Transport, rights: Sequence[Right]) -> list[Right]:
    """Those of the rights that this account does not have, in the order given.

    A right that many namespaces share is first asked for in all of them at once.
    """
    sharing: dict[Right, int] = defaultdict(int)
    for right in rights:
        sharing[replace(right, namespace=None)] += right.namespace is not None
    everywhere = {one for one, count in sharing.items() if count > 1 and _allowed(wire, one)}
    return [
        right
        for right in rights
        if replace(right, namespace=None) not in everywhere and not _allowed(wire, right)
    ]


def demand(wire: Transport, rights: Sequence[Right]) -> None:
    """Raises NotPermittedError, which names what is missing."""
    missing = lacking(wire, rights)
    if missing:
        raise refusal(missing)


def refusal(missing: Sequence[Right]) -> NotPermittedError:
    """The error for these rights."""
    named = "; ".join(worded(right) for right in missing[:_SHOWN])
    rest = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    hint = f"gangplan doctor names all that is missing; by hand: {by_hand(missing[0])}"
    return NotPermittedError(Fault(f"not permitted: {named}{rest}", hint))


def worded(right: Right) -> str:
    """As an administrator grants it: ``create pods/binding in namespace research``."""
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    if right.subresource:
        resource = f"{right.resource}/{right.subresource}"
        resource += f" of {right.group}" if right.group else ""
    name = f" {right.name}" if right.name else ""
    return f"{right.verb} {resource}{name}{_where(right)}"


def by_hand(right: Right) -> str:
    """The kubectl command that asks the same."""
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    words = ["kubectl", "auth", "can-i", right.verb]
    words.append(f"{resource}/{right.name}" if right.name else resource)
    if right.subresource:
        words.append(f"--subresource={right.subresource}")
    if right.namespace is not None:
        words += ["-n", right.namespace]
    elif _namespaced(right):
        words.append("-A")
    return shlex.join(words)


def _served(kind: Kind, groups: Collection[str] | None) -> bool:
    return groups is None or not kind.group or kind.group in groups


def _claims(namespace: str | None) -> list[Right]:
    """To give a pod's claim its devices: finalizer, allocation, reservation.

    The API server asks for the last of these without a namespace, so no tenant alone can grant it.
    """
    claim = Right("get", "resource.k8s.io", "resourceclaims", namespace=namespace)
    patch = replace(claim, verb="patch")
    anywhere = replace(patch, subresource="binding", namespace=None)
    return [claim, patch, replace(patch, subresource="status"), anywhere]


def _scales(namespace: str | None) -> list[Right]:
    """To set the number of pods of a controller that has a field for it."""
    owners = [Right("get", group, plural, namespace=namespace) for group, plural in SCALED]
    scales = [replace(owner, subresource="scale") for owner in owners]
    return [*owners, *scales, *(replace(one, verb="patch") for one in scales)]


def _allowed(wire: Transport, right: Right) -> bool:
    attributes: Tree = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace or "",
        "name": right.name,
    }
    review: Tree = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {name: value for name, value in attributes.items() if value}
        },
    }
    reply = wire.send("POST", _REVIEWS, review)
    if reply.status in {401, 403}:
        hint = "every user may ask that by default: see the ClusterRoleBinding system:basic-user"
        said = f"not permitted to ask what is permitted: {one_line(reply.message)}"
        raise NotPermittedError(Fault(said, hint))
    status = reply.body.get("status")
    if not reply.ok or not isinstance(status, dict):
        said = "no answer" if reply.status == LOST else f"HTTP {reply.status}"
        what = f"cannot learn whether we may {worded(right)}: {said}: {one_line(reply.message)}"
        raise UnavailableError(Fault(what, f"try it by hand: {by_hand(right)}"))
    return status.get("allowed") is True


_WIDE = frozenset((kind.group, kind.plural) for kind in ALL if not kind.namespaced)


def _namespaced(right: Right) -> bool:
    return (right.group, right.resource) not in _WIDE


def _where(right: Right) -> str:
    if right.namespace is not None:
        return f" in namespace {right.namespace}"
    return " in all namespaces" if _namespaced(right) else ""


if TYPE_CHECKING:
    from models.apply.live_state import ClusterView


def unserved(
    wire: Transport, view: ClusterView, classifier: PodClassifier, backend: str
) -> tuple[str, ...]:
    """Those where pods of ours wait and a right to start them is missing; none if it is so of all."""
    waiting = sorted(
        {
            pod.namespace
            for pod in view.pods.values()
            if not (classifier.started(pod) or pod.finished or pod.terminating)
        }
    )
    if len(waiting) < 2:
        return ()
    missing = lacking(wire, working(waiting, evictions=False, backend=backend))
    found = {right.namespace for right in missing}
    return () if found.issuperset(waiting) else tuple(one for one in waiting if one in found)


def unyielding(wire: Transport, view: ClusterView, backend: str) -> tuple[str, ...]:
    """Those where pods with GPUs run and a right to evict them is missing."""
    running = sorted(
        {pod.namespace for pod in view.pods.values() if pod.node and pod.gpus and not pod.finished}
    )
    missing = lacking(wire, working(running, evictions=True, backend=backend))
    found = {right.namespace for right in missing}
    return tuple(one for one in running if one in found)


def waiting_in(namespaces: Collection[str], classifier: PodClassifier) -> Callable[[Tree], bool]:
    """Whether a pod waits for us in one of them."""

    def waits(tree: Tree) -> bool:
        spec = mapping(tree, "spec")
        if text(tree, "metadata", "namespace") not in namespaces or text(spec, "nodeName"):
            return False
        gates = (gate.get("name") for gate in objects(spec, "schedulingGates"))
        return classifier.gate in gates or text(spec, "schedulerName") == classifier.scheduler

    return waits


def told(namespaces: Collection[str]) -> str:
    """A line on what is left out."""
    named = ", ".join(sorted(namespaces)[:5]) + (", ..." if len(namespaces) > 5 else "")
    return f"not permitted to start pods in {named}: what waits there is not planned"
