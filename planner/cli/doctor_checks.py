"""The checks of ``gangplan doctor``: API server, clock, rights, lock, admission, gate, GPU back end.

Every check goes as far as it can: what cannot be checked is a finding, not the end of the others. What
only a write shows is asked as a dry run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from models.apply.live_state import ClusterView, LivePod
from models.apply.placement_requests import SLOT_KEYS
from models.instance.policy import KubernetesPolicy
from models.units import first_of, plural
from planner.cluster import rights
from planner.cluster.backends import backend_of
from planner.cluster.backends.base import Backend
from planner.cluster.live_view import ClusterReader
from planner.cluster.lock import LEASE, read_lease
from planner.cluster.pages import is_served, list_objects, served_groups
from planner.cluster.placement_requests import GROUP
from planner.cluster.retry import RetryingTransport
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import (
    STRATEGIC,
    Reply,
    Right,
    Transport,
    Tree,
    accepted,
    core,
    grouped,
)
from planner.errors import (
    GangplanError,
    InputError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
)
from planner.pipelines.apply import ApplyOptions, ClusterTarget, run_paths, settings_to_run
from planner.read.kube.lookup import is_object_name, mapping, objects, text, texts
from planner.read.kube.pods.requests import is_about_gpus
from planner.untrusted_text import one_line

_GRAVEST = (
    UnavailableError.exit_code,
    NotPermittedError.exit_code,
    MissingPathError.exit_code,
    InputError.exit_code,
)


class Level(StrEnum):
    """``fail``: ``apply`` or ``run`` would refuse, or could not work."""

    ok = "ok"
    warn = "warn"
    fail = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """``hint``: what to do. ``code``: the exit code that ``apply`` would have. May hold untrusted text."""

    check: str
    level: Level
    found: str
    hint: str | None = None
    code: int = 0


def passed(check: str, found: str) -> Finding:
    return Finding(check, Level.ok, found)


def warned(check: str, found: str, hint: str) -> Finding:
    return Finding(check, Level.warn, found, hint)


def failed(check: str, error: GangplanError) -> Finding:
    """The first fault of an error, as a finding."""
    fault = error.faults[0]
    return Finding(check, Level.fail, fault.what, fault.hint, error.exit_code)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if nothing failed; else that of the gravest failure."""
    codes = {one.code or 1 for one in findings if one.level is Level.fail}
    return next((code for code in _GRAVEST if code in codes), 1) if codes else 0


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """``namespaces``: of tenants. ``policy``: a file with the gate and the back end."""

    target: ClusterTarget
    options: ApplyOptions = field(default_factory=ApplyOptions)
    policy: str | None = None
    namespaces: tuple[str, ...] = ()


def examine(request: DoctorRequest) -> Iterator[Finding]:
    """Every finding, in order. Raises MissingPathError, InputError at the start."""
    settings = settings_to_run([], request.policy)
    account = Right("create", "authentication.k8s.io", "selfsubjectreviews")
    asked = accepted([account, Right("list", "", "namespaces"), *rights.GATE])
    accept = (*run_paths(request.options, settings), *asked, *GATE_PATHS)
    try:
        with request.target.connect(accept) as transport:
            context = f"context {transport.context}" if transport.context else "this pod's cluster"
            yield passed("API server", f"{transport.version or 'answers'}, {context}")
            yield check_clock(time.time(), transport.date)
            yield from check_cluster(RetryingTransport(transport), request, settings)
    except GangplanError as error:
        yield failed("API server", error)


def check_cluster(
    transport: Transport, request: DoctorRequest, settings: KubernetesPolicy
) -> Iterator[Finding]:
    """Everything that the cluster itself is asked. Raises what ends every further question."""
    found, account = check_account(transport)
    yield found
    groups = served_groups(transport)
    every = tuple(dict.fromkeys((*rights.snapshot_rights(), *rights.VIEW)))
    yield from _everywhere("rights: reading", transport, groups, every)
    yield from check_locking(transport, request.options.lock_namespace)
    view: ClusterView | None = None
    waiting: list[LivePod] = []
    try:
        records = StartRecords(transport, request.options.lock_namespace, optional=True)
        view = ClusterReader(transport, settings, records).read_view()
        waiting = waiting_pods(view, settings)
    except GangplanError as error:
        fault = error.faults[0]
        hint = fault.hint or "grant the rights above, then try again"
        unread = warned("admission policy", f"not checked: {fault.what}", hint)
    chosen = set(request.namespaces) or {pod.namespace for pod in waiting}
    namespaces = tuple(sorted(filter(is_object_name, chosen)))
    yield from check_working(
        transport, namespaces, evictions=request.options.evicts, backend=settings.gpu_backend
    )
    if view is None:
        yield unread
        return
    pods = [one for one in waiting if one.namespace in namespaces and is_object_name(one.name)]
    if pods:
        probe = core("pods", namespace=pods[0].namespace, name=pods[0].name)
        yield check_admission(transport, probe, account)
    else:
        hint = "try again while a pod of a tenant waits for gangplan"
        yield warned("admission policy", "not checked: no pod waits for gangplan", hint)
    yield from check_gate(transport, view, settings)
    if view.nodes and (view.requests or (groups or frozenset()) >= _ASKING):
        yield from check_requests(transport, view, account)
    yield check_backend(transport, backend_of(settings.gpu_backend))


REVIEW = grouped("authentication.k8s.io", "v1", "selfsubjectreviews")

MAX_DRIFT_S = 30.0
"""Seconds that clocks may differ before times in messages mislead."""


def check_clock(ours: float, theirs: float | None) -> Finding:
    """Both in seconds since the epoch."""
    if theirs is None:
        hint = "the lock needs the server's time: check for a proxy that removes the header Date"
        return warned("clock", "the server sends no header Date", hint)
    drift = ours - theirs
    if abs(drift) <= MAX_DRIFT_S:
        return passed("clock", f"within {MAX_DRIFT_S:.0f} s of the server's")
    what = f"{abs(drift):,.0f} s {'ahead of' if drift > 0 else 'behind'} the server's"
    hint = (
        "synchronise this host (NTP); the lock uses the server's clock, times in plans use this one"
    )
    return warned("clock", what, hint)


def check_account(transport: Transport) -> tuple[Finding, str | None]:
    """The user name that the server authenticates us as, None if it does not say."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = transport.send("POST", REVIEW, review)
    name = text(reply.body, "status", "userInfo", "username") if reply.ok else None
    # served since Kubernetes 1.28; nothing depends on it
    return passed("account", one_line(name or "the server does not say")), name


ACCOUNT = "system:serviceaccount:gangplan-system:gangplan"
"""The account that ``deploy/`` creates and its admission policies restrict."""

FOREIGN: Tree = {"annotations": {"gangplan.dev/doctor": "probe"}}
"""Metadata that the account may not write to a waiting pod or a node."""

_ASKING = {GROUP, "kueue.x-k8s.io"}
"""API groups of clusters where Kueue may ask gangplan."""

_DENIED = "ValidatingAdmissionPolicy 'gangplan-"


def _everywhere(
    check: str, transport: Transport, groups: frozenset[str] | None, every: Sequence[Right]
) -> Iterator[Finding]:
    """A missing right for a kind that is not served is a warning only."""
    missing = rights.missing_rights(transport, every)
    for right in missing:
        lost = rights.OPTIONAL.get(right)
        if lost is not None:
            what = f"missing: {rights.describe(right)}; without it {lost}"
            yield warned(check, what, _grant(right))
        elif groups is None or not right.group or right.group in groups:
            yield _lacking(check, right)
        else:
            what = f"missing: {rights.describe(right)}; this cluster does not serve {right.group}"
            yield warned(check, what, f"harmless until it does; {_grant(right)}")
    if not missing:
        yield passed(check, f"all {len(every)}")


def check_locking(transport: Transport, namespace: str) -> Iterator[Finding]:
    """Rights to the lock, whether its namespace is there, and who holds it."""
    where = f", in namespace {namespace}"
    found = _checked("rights: lock", transport, rights.lock_rights(namespace), where)
    yield from found
    if found[0].level is Level.ok:
        yield _lock(transport, namespace)


def _lock(transport: Transport, namespace: str) -> Finding:
    path = grouped("coordination.k8s.io", "v1", "leases", namespace=namespace)
    about = {"name": LEASE, "namespace": namespace}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
    reply = transport.send("POST", f"{path}?dryRun=All", lease)
    if reply.status == 404:
        what = f"there is no namespace {namespace}: {one_line(reply.message)}"
        hint = f"kubectl create namespace {namespace}, or name another: --lock-namespace"
        return Finding("lock", Level.fail, what, hint, MissingPathError.exit_code)
    if not reply.ok and reply.status != 409:
        what = f"a Lease cannot be created in namespace {namespace}: {one_line(reply.message)}"
        hint = "check the quotas and admission policies of that namespace"
        return Finding("lock", Level.fail, what, hint, NotPermittedError.exit_code)
    try:
        holder = read_lease(transport, namespace).holder
    except GangplanError as error:
        return warned("lock", str(error), "try again")
    return passed("lock", "free" if holder is None else holder.describe())


def check_working(
    transport: Transport, namespaces: Sequence[str], *, evictions: bool, backend: str
) -> Iterator[Finding]:
    """Rights to start pods in these namespaces; without any, in all namespaces."""
    for namespace in namespaces:
        wanted = rights.work_rights(
            [namespace], evictions=evictions, backend=backend, resized=[namespace]
        )
        yield from _checked(f"rights: {namespace}", transport, wanted)
    if namespaces:
        return
    anywhere = rights.work_rights([None], evictions=evictions, backend=backend, resized=[None])
    if rights.missing_rights(transport, anywhere):
        what = "no pod waits for gangplan, so no namespace was checked"
        yield warned("rights: namespaces", what, "name the namespaces of your tenants: -n NAME")
    else:
        yield passed("rights: namespaces", f"all {len(anywhere)}, in all namespaces")


def _checked(
    check: str, transport: Transport, wanted: Sequence[Right], where: str = ""
) -> list[Finding]:
    missing = [_lacking(check, right) for right in rights.missing_rights(transport, wanted)]
    return missing or [passed(check, f"all {len(wanted)}{where}")]


def _grant(right: Right) -> str:
    return f"{rights.role_of(right)} of deploy/ grants it (docs/deploy.md)"


def _lacking(check: str, right: Right) -> Finding:
    what = f"missing: {rights.describe(right)}"
    return Finding(check, Level.fail, what, _grant(right), NotPermittedError.exit_code)


def check_admission(transport: Transport, path: str, account: str | None) -> Finding:
    """Whether the server refuses what the admission policies forbid, as a dry run.

    ``path``: of a waiting pod, or of a node.
    """
    reply, kind = _patch(transport, path, FOREIGN), "pod" if "/pods/" in path else "node"
    if _DENIED in reply.message:
        found = f"the server refuses an annotation on a {kind} that is not gangplan's"
        return passed("admission policy", found)
    if reply.status in {0, 401, 403, 429} or reply.status >= 500:
        what = f"not decided: {one_line(reply.message)}"
        return warned("admission policy", what, "grant the rights above, then try again")
    if account is not None and account != ACCOUNT:
        what = f"none restricts {one_line(account)}; those of deploy/admission restrict {ACCOUNT}"
        hint = "fine for an administrator; for the account of a job put its name into the policies"
        return warned("admission policy", what, hint)
    hint = "kubectl apply -k deploy/admission (Kubernetes 1.30 or newer)"
    what = f"none: this account may change other fields of {kind}s"
    return warned("admission policy", what, hint)


def check_requests(
    transport: Transport, view: ClusterView, account: str | None
) -> Iterator[Finding]:
    """Whether what Kueue asks can be answered, and no more be done to a node."""
    node = core("nodes", name=min(filter(is_object_name, view.nodes), default="none"))
    reply = _patch(transport, node, {"labels": {SLOT_KEYS[0]: "0" * 16}})
    if missing := rights.missing_rights(transport, rights.PLACING):
        hint = "kubectl apply -k deploy/kueue, where Kueue is to ask (docs/beside-kueue.md)"
        yield warned("requests", rights.unanswered_warning(missing), hint)
    elif not reply.ok:
        what = f"a label of a node is refused: {one_line(reply.message)}"
        yield warned("requests", what, "kubectl apply -k deploy/admission, as shipped")
    else:
        yield passed("requests", f"{len(view.requests)} of Kueue; nodes may be labelled for them")
        yield check_admission(transport, node, account)


def _patch(transport: Transport, path: str, metadata: Tree) -> Reply:
    path = f"{path}?dryRun=All&fieldManager=gangplan"
    return transport.send("PATCH", path, {"metadata": metadata}, content_type=STRATEGIC)


def waiting_pods(view: ClusterView, settings: KubernetesPolicy) -> list[LivePod]:
    """Pods that are ours to start, by (namespace, name)."""
    pods = [pod for _, pod in sorted(view.pods.items()) if pod.stays and not pod.expected]
    return [pod for pod in pods if pod.node is None and settings.scheduling_gate in pod.gates]


def check_backend(transport: Transport, chosen: Backend) -> Finding:
    """What the back end enforces, and whether this cluster can."""
    if (absent := chosen.absent(transport)) is not None:
        hint = f"{chosen.install}, or choose another kubernetes.gpuBackend in the Policy"
        what = f"{chosen.name}: {absent}"
        return Finding("GPU back end", Level.fail, what, hint, InputError.exit_code)
    return passed("GPU back end", f"{chosen.name}: {chosen.note}")


# ---- the gate that deploy/gate adds at creation

LABEL, ENABLED = "gangplan.dev/placement", "enabled"
"""Of a namespace that opted in."""

QUEUES = "gangplan.dev/placement-queues"
"""Annotation of such a namespace: the queues whose pods wait for gangplan; without it all."""

_API = ("admissionregistration.k8s.io", "v1")
_POLICIES, _BINDINGS = (grouped(*_API, one.resource, name=one.name) for one in rights.GATE)
GATE_PATHS = (f"^/apis/{_API[0].replace('.', '[.]')}/{_API[1]}$",)
"""URL paths to learn what is served."""

_MANY = 5
_INSTALL = "kubectl apply -k deploy/gate"


def check_gate(
    transport: Transport, view: ClusterView, settings: KubernetesPolicy
) -> Iterator[Finding]:
    """Findings about the policy, then about pods that it did not gate."""
    try:
        opted = _opted_in(transport)
        policy, binding = transport.send("GET", _POLICIES), transport.send("GET", _BINDINGS)
    except GangplanError as error:
        fault = error.faults[0]
        yield warned("gate", f"not checked: {fault.what}", fault.hint or "try again")
        return
    if not opted and not policy.ok:
        yield passed("gate", f"in pod templates: no namespace has the label {LABEL}: {ENABLED}")
    elif not policy.ok:
        yield _without(transport, opted, policy)
    elif faults := list(_faults(policy.body, binding, settings.scheduling_gate)):
        yield warned(
            "gate", f"{rights.GATE[0].name} is not as shipped: {'; '.join(faults)}", _INSTALL
        )
    else:
        yield passed("gate", f"{rights.GATE[0].name}, for {_listed(opted)}")
    loose = [pod for pod in view.pods.values() if _is_loose(pod, opted, settings)]
    if loose:
        names = first_of(sorted("/".join(pod.key) for pod in loose), _MANY)
        what = f"{plural(len(loose), 'pod')} with GPUs left to another scheduler: {names}"
        hint = "made before the namespace opted in, or given back: delete them to have them planned"
        yield warned("gate", what, hint)


def _opted_in(transport: Transport) -> dict[str, str]:
    """The namespaces that opted in, with their queues, "" for all pods."""
    found = list_objects(transport, core("namespaces"))
    return {
        text(one, "metadata", "name") or "": texts(one, "metadata", "annotations").get(QUEUES, "")
        for one in found
        if texts(one, "metadata", "labels").get(LABEL) == ENABLED
    }


def _listed(opted: Mapping[str, str]) -> str:
    """Namespaces that opted in: ``2 namespaces: research (queues a,b), vision``."""
    shown = [f"{name} (queues {queues})" if queues else name for name, queues in opted.items()]
    names = f": {first_of(sorted(map(one_line, shown)), _MANY)}" if opted else ""
    return plural(len(opted), "namespace") + names


def _without(transport: Transport, opted: Mapping[str, str], policy: Reply) -> Finding:
    """What it means that the policy cannot be read."""
    past = f"pods of {_listed(opted)} start without gangplan"
    if not is_served(transport, *_API, rights.GATE[0].resource):
        what = f"this server has no MutatingAdmissionPolicy: {past}"
        hint = "put the gate into their pod templates (docs/apply.md); Kubernetes 1.36 serves it"
        return warned("gate", what, hint)
    if policy.status == 404:
        return warned("gate", f"there is no policy {rights.GATE[0].name}: {past}", _INSTALL)
    what = f"not checked: {one_line(policy.message)}"
    return warned("gate", what, f"{rights.GATE[0].name} of deploy/gate grants it")


def _faults(policy: Tree, binding: Reply, gate: str) -> Iterator[str]:
    """What keeps pods from getting this gate."""
    spec = mapping(policy, "spec")
    written = [
        text(one, "applyConfiguration", "expression") or "" for one in objects(spec, "mutations")
    ]
    if not any(f"'{gate}'" in one for one in written):
        yield f"it does not add the gate {gate}"
    if spec.get("failurePolicy") not in (None, "Fail"):
        yield "failurePolicy is not Fail"
    if not binding.ok:
        yield f"no binding {rights.GATE[1].name}"
        return
    bound = mapping(binding.body, "spec")
    chosen = {"matchLabels": {LABEL: ENABLED}}
    if text(bound, "policyName") != rights.GATE[0].name:
        yield "its binding names another policy"
    if mapping(bound, "matchResources").get("namespaceSelector") != chosen:
        yield f"its binding selects other namespaces than those with {LABEL}: {ENABLED}"


def _is_loose(pod: LivePod, opted: Mapping[str, str], settings: KubernetesPolicy) -> bool:
    """Whether a pod with GPUs waits without the gate, where all pods with GPUs should have it."""
    asks = pod.gpus > 0 or any(is_about_gpus(name) for name, _ in pod.requests)
    waits = pod.stays and pod.node is None and pod.start is None and not pod.expected
    everyone = opted.get(pod.namespace) == ""
    return everyone and waits and asks and settings.scheduling_gate not in pod.gates
