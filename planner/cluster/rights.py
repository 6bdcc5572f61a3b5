"""The rights that each verb needs, checked with the API server before anything is written.

A right is checked exactly as the server will judge the request that needs it; checking changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from models.apply.live_state import ClusterView, PodClassifier
from models.apply.plan_actions import PlanActions
from planner.cluster.backends import backend_of
from planner.cluster.lock import LEASE
from planner.cluster.pages import BUDGETS, DEVICES
from planner.cluster.placement_requests import GROUP, PLURAL, READ
from planner.cluster.retry import WAITS_S, RetryingTransport
from planner.cluster.transport import LOST, Right, Transport, Tree, grouped
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.read.kube.dialect_registry import DIALECTS, scales
from planner.read.kube.kinds import ALL
from planner.read.kube.lookup import mapping, objects, text
from planner.untrusted_text import one_line

_REVIEWS = grouped("authorization.k8s.io", "v1", "selfsubjectaccessreviews")

_SHOWN = 4
"""Missing rights in one error; ``doctor`` lists all."""


_WITHOUT = {
    "namespaces": (
        "labels of namespaces are unknown: a ClusterQueue with a namespaceSelector of labels admits nothing"
    ),
    "poddisruptionbudgets.policy": (
        "plans may stop or move gangs that disruption budgets protect, and evictions of their pods then fail"
    ),
    **{resource: words for one in DIALECTS for resource, words in one.without.items()},
}

OPTIONAL = {
    Right("list", kind.group, kind.plural): _WITHOUT[kind.resource]
    for kind in ALL
    if kind.resource in _WITHOUT
}
"""Rights that a run goes on without, and what it does without them."""


RECORDS = Right("list", "", "configmaps")
"""To read the records of starts, in the namespace of the lock."""

OPTIONAL[RECORDS] = "plans of running gangs keep to the nodes that gangplan pinned them to"

REVIEW = Right("create", "authorization.k8s.io", "selfsubjectaccessreviews")
"""To check rights: every user has it by default."""

IDENTITY = Right("get", "", "namespaces", name="kube-system")
"""To identify the cluster."""

GATE = tuple(
    Right("get", "admissionregistration.k8s.io", plural, name="gangplan-gate")
    for plural in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
)
"""To check the policy that gates pods of namespaces that opted in, and its binding."""


def _lists(*resources: str) -> tuple[Right, ...]:
    parts = (resource.partition(".") for resource in resources)
    return tuple(Right("list", group, plural) for plural, _, group in parts)


VIEW = _lists("nodes", "pods", *DEVICES)
"""To read what a plan relies on: free capacity depends on the pods of all namespaces."""

LOOK = (IDENTITY, *VIEW, *_lists(BUDGETS, *READ))
"""The same with what is read if the account may."""

PLACING = (Right("patch", "", "nodes"), Right("patch", GROUP, PLURAL, "status"))
"""To answer requests for a placement."""

REQUESTS = frozenset((f"{PLURAL}.{GROUP}",))
"""The resources that are not recorded where they cannot be answered."""


def snapshot_rights(
    groups: Collection[str] | None = None, *, skip: Collection[str] = ()
) -> tuple[Right, ...]:
    """To record everything that planning reads.

    ``groups``: the served API groups; None for all. ``skip``: resources left out.
    """
    kinds = (kind for kind in ALL if groups is None or kind.beside in ("", *groups))
    lists = [Right("list", one.group, one.plural) for one in kinds if one.resource not in skip]
    return (IDENTITY, *dict.fromkeys(lists))


def require_run(
    transport: Transport, groups: Collection[str] | None, skip: Collection[str], lock_namespace: str
) -> None:
    """What every run needs: to record, to read and to lock. Raises NotPermittedError.

    If a served kind could not be read, its gangs would be taken for single pods.
    """
    needed = (*snapshot_rights(groups, skip=skip), *VIEW, *lock_rights(lock_namespace))
    require(transport, [right for right in dict.fromkeys(needed) if right not in OPTIONAL])


def lock_rights(lock_namespace: str) -> tuple[Right, ...]:
    """To keep the lock, and the records of starts beside it.

    RBAC cannot restrict create to a name.
    """
    lease = Right("get", "coordination.k8s.io", "leases", namespace=lock_namespace, name=LEASE)
    record = replace(RECORDS, namespace=lock_namespace)
    verbs = ("list", "get", "create", "update", "delete")
    records = (replace(record, verb=verb) for verb in verbs)
    return (replace(lease, verb="create", name=""), lease, replace(lease, verb="update"), *records)


def work_rights(
    namespaces: Iterable[str | None],
    *,
    evictions: bool,
    backend: str,
    evicted: Collection[str | None] | None = None,
    resized: Collection[str | None] = (),
) -> tuple[Right, ...]:
    """To start pods in these namespaces (None: in all namespaces).

    ``evicted``: the namespaces with pods to evict, if evictions are allowed; None for all. ``resized``:
    those with gangs to resize.
    """
    rights: list[Right] = []
    chosen = backend_of(backend)
    for namespace in namespaces:
        pods = Right("get", "", "pods", namespace=namespace)
        rights += [pods, replace(pods, verb="patch")]
        if evictions and (evicted is None or namespace in evicted):
            rights.append(replace(pods, verb="create", subresource="eviction"))
        if evictions and namespace in resized:
            rights += _scales(namespace)
        rights += chosen.rights(namespace)
    return tuple(rights)


def plan_rights(
    orders: PlanActions,
    *,
    lock_namespace: str,
    evictions: bool,
    backend: str,
    undoing: bool = False,
) -> tuple[Right, ...]:
    """For every request that applying these orders may send, including the lock.

    ``undoing``: partial gangs may be evicted in any namespace. Without it, evictions need no right in
    namespaces whose gangs only start.
    """
    stopped = {gang.namespace for gang in orders.gangs if gang.stops}
    work = work_rights(
        orders.namespaces,
        evictions=evictions,
        backend=backend,
        evicted=None if undoing else stopped,
        resized={gang.namespace for gang in orders.gangs if gang.resizes},
    )
    placing = PLACING if orders.answers else ()
    every = (IDENTITY, *VIEW, *lock_rights(lock_namespace), *work, *placing)
    return tuple(dict.fromkeys(every))


def missing_rights(transport: Transport, rights: Sequence[Right]) -> list[Right]:
    """The rights that this account does not have, in the given order.

    A right in several namespaces is first checked for all namespaces at once.
    """
    sharing: dict[Right, int] = defaultdict(int)
    for right in rights:
        sharing[replace(right, namespace=None)] += right.namespace is not None
    everywhere = {one for one, count in sharing.items() if count > 1 and _allowed(transport, one)}
    left = [right for right in rights if replace(right, namespace=None) not in everywhere]
    return [right for right in left if not _allowed(transport, right)]


def require(transport: Transport, rights: Sequence[Right]) -> None:
    """Raises NotPermittedError with the missing rights.

    A server that has just started denies everything for a moment: if it denies a right that the account
    has shown before, it is asked again.
    """
    missing = missing_rights(transport, rights)
    if isinstance(transport, RetryingTransport):
        for wait in WAITS_S:
            if not any(transport.known.has(right) for right in missing):
                break
            transport.pause(wait)
            missing = missing_rights(transport, missing)
    if missing:
        raise not_permitted(missing)


def not_permitted(missing: Sequence[Right]) -> NotPermittedError:
    listed = "; ".join(describe(right) for right in missing[:_SHOWN])
    rest = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    hint = f"bind {granting(missing)}; gangplan doctor lists all missing rights"
    return NotPermittedError(Fault(f"not permitted: {listed}{rest}", hint))


_ROLES = {
    "leases": "gangplan-locking",
    "configmaps": "gangplan-locking",
    "bindrequests": "gangplan-binding",
}


def role_of(right: Right) -> str:
    """The role of ``deploy/`` that grants the right."""
    if right.resource in _ROLES:
        return _ROLES[right.resource]
    match right:
        case Right(group="admissionregistration.k8s.io"):
            return "gangplan-gate"
        case Right(verb="list") | Right(resource="namespaces"):
            return "gangplan-reading"
        case Right(resource="resourceclaims", subresource=sub):
            return "gangplan-reserving" if sub == "binding" else "gangplan-allocating"
        case Right(subresource="eviction") | Right(group="apps" | "kubeflow.org"):
            return "gangplan-evicting"
    placing = replace(right, namespace=None) in PLACING
    return "gangplan-placing" if placing else "gangplan-starting"


def granting(missing: Iterable[Right]) -> str:
    """The roles of ``deploy/`` to bind, and where: ``gangplan-allocating in namespace research``."""
    spaces: dict[str, list[str]] = defaultdict(list)
    for right in missing:
        names = spaces[role_of(right)]
        if right.namespace is not None and right.namespace not in names:
            names.append(right.namespace)
    return ", ".join(
        f"{role} in namespace {' and '.join(names[:_SHOWN])}" if names else role
        for role, names in spaces.items()
    )


def describe(right: Right) -> str:
    """As an administrator grants it: ``create pods/eviction in namespace research``."""
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    if right.subresource:
        resource = f"{right.resource}/{right.subresource}"
        resource += f" of {right.group}" if right.group else ""
    name = f" {right.name}" if right.name else ""
    where = "" if (right.group, right.resource) in _WIDE else " in all namespaces"
    if right.namespace is not None:
        where = f" in namespace {right.namespace}"
    return f"{right.verb} {resource}{name}{where}"


def _scales(namespace: str | None) -> list[Right]:
    owners = [
        Right("get", group, one.plural, namespace=namespace) for (group, _), one in scales().items()
    ]
    found = [replace(owner, subresource="scale") for owner in owners]
    return [*owners, *found, *(replace(one, verb="patch") for one in found)]


def _allowed(transport: Transport, right: Right) -> bool:
    attributes = {name: value for name, value in asdict(right).items() if value}
    review: Tree = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    reply = transport.send("POST", _REVIEWS, review)
    if reply.status in {401, 403}:
        hint = "every user may by default: see the ClusterRoleBinding system:basic-user"
        what = f"not permitted to review own rights: {one_line(reply.message)}"
        raise NotPermittedError(Fault(what, hint))
    status = reply.body.get("status")
    if not reply.ok or not isinstance(status, dict):
        answer = "no answer" if reply.status == LOST else f"HTTP {reply.status}"
        what = f"cannot check the right to {describe(right)}: {answer}: {one_line(reply.message)}"
        raise UnavailableError(Fault(what))
    return status.get("allowed") is True


_WIDE = frozenset((kind.group, kind.plural) for kind in ALL if not kind.namespaced)


def namespaces_without_start_rights(
    transport: Transport, view: ClusterView, classifier: PodClassifier, backend: str
) -> dict[str, list[Right]]:
    """Namespaces where our pods wait and rights to start them are missing, with these.

    Empty if there is nothing of ours anywhere else: then ``check_rights`` fails. One namespace without
    rights, which any tenant may fill with waiting pods, must not stop a run for the others.
    """
    ours = [pod for pod in view.pods.values() if pod.stays and (pod.gpus or pod.gates)]
    waiting = sorted(
        {pod.namespace for pod in ours if not (pod.expected or classifier.started(pod))}
    )
    found = _missing_in(transport, work_rights(waiting, evictions=False, backend=backend))
    return found if any(pod.namespace not in found for pod in ours) else {}


def namespaces_without_eviction_rights(
    transport: Transport, view: ClusterView, backend: str
) -> tuple[str, ...]:
    """Namespaces where pods with GPUs run and a right to evict or resize them is missing."""
    running = sorted(
        {pod.namespace for pod in view.pods.values() if pod.node and pod.gpus and not pod.finished}
    )
    wanted = work_rights(running, evictions=True, backend=backend, resized=running)
    return tuple(_missing_in(transport, wanted))


def _missing_in(transport: Transport, rights: Sequence[Right]) -> dict[str, list[Right]]:
    """The missing ones by their namespace, sorted."""
    found: dict[str, list[Right]] = defaultdict(list)
    for right in missing_rights(transport, rights):
        if right.namespace is not None:
            found[right.namespace].append(right)
    return dict(sorted(found.items()))


def unanswered(transport: Transport, view: ClusterView) -> list[Right]:
    """The missing rights for which requests for a placement stay without an answer."""
    return missing_rights(transport, PLACING) if view.requests else []


def unanswered_warning(missing: Sequence[Right]) -> str:
    """The warning that requests for a placement are left out, with the rights that are missing."""
    listed = "; ".join(map(describe, missing))
    return (
        f"not permitted to {listed}: what Kueue asks gangplan to place is not planned; "
        f"bind {granting(missing)}"
    )


def waits_in(namespaces: Collection[str], classifier: PodClassifier) -> Callable[[Tree], bool]:
    """A predicate: whether a pod waits for gangplan in one of these namespaces."""

    def waits(tree: Tree) -> bool:
        spec = mapping(tree, "spec")
        if text(tree, "metadata", "namespace") not in namespaces or text(spec, "nodeName"):
            return False
        gates = (gate.get("name") for gate in objects(spec, "schedulingGates"))
        return classifier.gate in gates

    return waits


def left_out_warning(missing: Mapping[str, Sequence[Right]]) -> str:
    """The warning about namespaces that are left out, with the rights that are missing there."""
    roles = dict.fromkeys(role_of(right) for rights in missing.values() for right in rights)
    names = ", ".join(sorted(missing)[:5]) + (", ..." if len(missing) > 5 else "")
    return (
        f"not permitted to start pods in {names}: pods that wait there are not planned; "
        f"bind {' and '.join(roles)} there"
    )
