"""What a check found: well, worth a look, or in the way.

Promises: plain data; words may hold names from the cluster, and are made harmless where they are shown.
Made by the other files of this package; shown by ``planner.show.doctor``.

Checks of this machine: Python and gangplan, the solver, libyaml, kubectl.

Promises: asks no cluster; kubectl is run for its own version only. Called by ``examining``.

Checks of the API server: its version beside kubectl's, its clock beside ours, who we are to it.

Promises: reads only. Called by ``examining``.

Checks of rights, of the lock's namespace, and of the admission policy that holds the account back.

Promises: every missing right is a finding of its own, named; what only a write would tell is asked as a
dry run. Called by ``examining``.

Checks of what plans rely on: nodes kept from other schedulers, PodGroups, the GPU back end.

Promises: judges one reading of the cluster, sends nothing but lists. Called by ``examining``.
"""

from __future__ import annotations

import io
import json
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from models.apply.live_state import ClusterView, LiveNode, LivePod
from planner import __version__
from planner.cluster import rights
from planner.cluster.api_paths import POD_GROUPS, RESOURCE_SLICES, core, grouped
from planner.cluster.kubectl import Kubectl
from planner.cluster.lock import read_lease
from planner.cluster.node_guard import open_nodes, unguarded
from planner.cluster.rights import Right
from planner.cluster.transport import STRATEGIC, Reply, Transport
from planner.errors import (
    Fault,
    GangplanError,
    InputError,
    MissingPathError,
    NotPermittedError,
    StaleError,
    UnavailableError,
)
from planner.read.kube.lookup import text
from planner.show.text import plural
from planner.untrusted_text import one_line

_GRAVEST = (
    UnavailableError.exit_code,
    NotPermittedError.exit_code,
    MissingPathError.exit_code,
    InputError.exit_code,
    StaleError.exit_code,
)


class Level(StrEnum):
    """How it is. ``fail``: ``apply`` or ``run`` would refuse, or could not work."""

    ok = "ok"
    warn = "warn"
    fail = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """``hint``: what to do. ``code``: the exit code that ``apply`` would have for it."""

    check: str
    level: Level
    found: str
    hint: str | None = None
    code: int = 0


def well(check: str, found: str) -> Finding:
    return Finding(check, Level.ok, found)


def odd(check: str, found: str, hint: str) -> Finding:
    return Finding(check, Level.warn, found, hint)


def failed(check: str, error: GangplanError) -> Finding:
    """The first fault of an error, as a finding."""
    fault = error.faults[0]
    return Finding(check, Level.fail, fault.what, fault.hint, error.exit_code)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if nothing failed; else that of the gravest failure."""
    codes = {one.code or 1 for one in findings if one.level is Level.fail}
    return next((code for code in _GRAVEST if code in codes), 1) if codes else 0


def machine() -> Iterator[Finding]:
    """What needs no kubectl."""
    yield well("gangplan", f"{__version__} with Python {platform.python_version()}")
    yield _solver()
    yield _libyaml()


def _solver() -> Finding:
    """A queue of two gangs for one server, planned and proven: only one of them has room."""
    hint = "install gangplan anew: pip install --force-reinstall gangplan ortools"
    try:
        from planner.read.inputs import load
        from planner.search.solve import solve

        solution = solve(load(["-"], stdin=io.BytesIO(_QUEUE)).instance)
    except (ImportError, OSError) as error:
        return Finding("solver", Level.fail, f"cannot be loaded: {error}", hint, 1)
    decided = [decision.decision for decision in solution.decisions]
    if decided != ["place", "wait"] or solution.stopped_by != "proof":
        said = f"a plan of two gangs came out as {', '.join(decided)} ({solution.stopped_by})"
        return Finding("solver", Level.fail, said, hint, 1)
    return well("solver", solution.solver)


_QUEUE = b"""
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: doctor}
spec: {nodes: [{name: n, model: DGX H100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: first, namespace: doctor}
spec: {priority: 2, roles: [{name: worker, replicas: 1, gpus: 8}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: second, namespace: doctor}
spec: {priority: 1, roles: [{name: worker, replicas: 1, gpus: 4}]}
"""


def _libyaml() -> Finding:
    import yaml

    if yaml.__with_libyaml__:
        return well("libyaml", f"PyYAML {yaml.__version__} with libyaml")
    said = f"PyYAML {yaml.__version__} without libyaml: large files are read several times slower"
    return odd("libyaml", said, "install PyYAML from a wheel: pip install --force-reinstall pyyaml")


def kubectl_version(kubectl: Kubectl) -> tuple[Finding, str | None]:
    """What kubectl says of itself, and its version, such as v1.32.4."""
    program = one_line(kubectl.program)
    try:
        version = _version(kubectl.run("version", "--client", "-o", "json"))
    except UnavailableError as error:
        return failed("kubectl", error), None
    if version is None:
        what = f"{program} version does not print a version"
        return failed("kubectl", UnavailableError(Fault(what, _INSTALL))), None
    return well("kubectl", f"{version}, {program}"), version


_INSTALL = "install kubectl, or name it: KUBECTL=/path/to/kubectl"


def _version(out: bytes) -> str | None:
    try:
        tree = json.loads(out)
        told = tree["clientVersion"]["gitVersion"]
    except (ValueError, KeyError, TypeError):
        return None
    return one_line(told) if isinstance(told, str) else None


REVIEW = grouped("authentication.k8s.io", "v1", "selfsubjectreviews")

MAX_SKEW = 1
"""Minor versions that kubectl may be older or newer than the server."""

MAX_DRIFT_S = 30.0
"""Seconds that clocks may differ before times in messages mislead."""

_MINOR = re.compile(r"v(\d{1,3})\.(\d{1,4})")


def skew(ours: str | None, theirs: str | None) -> Finding:
    """``ours``: version of kubectl. ``theirs``: of the server."""
    minors = [found and (int(found[1]), int(found[2])) for found in map(_minor, (ours, theirs))]
    if minors[0] is None or minors[1] is None:
        said = f"kubectl {ours or 'of unknown version'}, server {theirs or 'of unknown version'}"
        return odd("version skew", said, "compare: kubectl version")
    apart = abs(minors[0][1] - minors[1][1])
    said = f"kubectl {ours}, server {theirs}"
    if minors[0][0] == minors[1][0] and apart <= MAX_SKEW:
        return well("version skew", said)
    hint = "use a kubectl within one minor version of the server: KUBECTL=/path/to/kubectl"
    return odd("version skew", said, hint)


def _minor(version: str | None) -> re.Match[str] | None:
    return _MINOR.match(version or "")


def clock(ours: float, theirs: float | None) -> Finding:
    """Both in seconds since the epoch."""
    if theirs is None:
        hint = "the lock needs the server's time: does something between remove the header Date?"
        return odd("clock", "the server does not tell its time", hint)
    drift = ours - theirs
    if abs(drift) <= MAX_DRIFT_S:
        return well("clock", f"within {MAX_DRIFT_S:.0f} s of the server's")
    said = f"{abs(drift):,.0f} s {'ahead of' if drift > 0 else 'behind'} the server's"
    hint = "set it (NTP); the lock goes by the server's clock, times in plans by this one"
    return odd("clock", said, hint)


def account(wire: Transport) -> tuple[Finding, str | None]:
    """Who the server takes us for."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = wire.send("POST", REVIEW, review)
    name = text(reply.body, "status", "userInfo", "username") if reply.ok else None
    if name is None:
        # Served since Kubernetes 1.28; nothing depends on it.
        return well("account", "the server does not tell"), None
    return well("account", one_line(name)), name


ACCOUNT = "system:serviceaccount:gangplan-system:gangplan"
"""The account that ``deploy/`` makes, and that its admission policies are about."""

PROBE = "gangplan.dev/doctor"
"""An annotation that no policy of ours lets through."""

_DENIED = "ValidatingAdmissionPolicy 'gangplan-"
_NOBODY = "00000000-0000-0000-0000-000000000000"


def reading(wire: Transport, groups: frozenset[str] | None) -> Iterator[Finding]:
    """Rights to read. Kinds that this cluster does not have are no loss."""
    every = tuple(dict.fromkeys((*rights.reading(), *rights.looking())))
    missing = rights.lacking(wire, every)
    for right in missing:
        if groups is None or not right.group or right.group in groups:
            yield _lacking("rights: reading", right)
        else:
            said = f"missing: {rights.worded(right)}; this cluster does not serve {right.group}"
            yield odd("rights: reading", said, f"harmless until it does; {_GRANT}")
    if not missing:
        yield well("rights: reading", f"all {len(every)}")


def locking(wire: Transport, namespace: str) -> Iterator[Finding]:
    """Rights to the lock, whether its namespace is there, and who holds it."""
    wanted = rights.locking(namespace)
    missing = rights.lacking(wire, wanted)
    yield from (_lacking("rights: lock", right) for right in missing)
    if missing:
        return
    yield well("rights: lock", f"all {len(wanted)}, in namespace {namespace}")
    yield _lock(wire, namespace)


def _lock(wire: Transport, namespace: str) -> Finding:
    path = grouped("coordination.k8s.io", "v1", "leases", namespace=namespace)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": rights.LEASE, "namespace": namespace},
    }
    reply = wire.send("POST", f"{path}?dryRun=All", lease)
    if reply.status == 404:
        said = f"there is no namespace {namespace}: {one_line(reply.message)}"
        hint = f"kubectl create namespace {namespace}, or name another: --lock-namespace"
        return Finding("lock", Level.fail, said, hint, MissingPathError.exit_code)
    if not reply.ok and reply.status != 409:
        said = f"a Lease cannot be made in namespace {namespace}: {one_line(reply.message)}"
        hint = "look at quotas and admission policies of that namespace"
        return Finding("lock", Level.fail, said, hint, NotPermittedError.exit_code)
    try:
        holder = read_lease(wire, namespace).holder
    except GangplanError as error:
        return odd("lock", str(error), "try again")
    return well("lock", "free" if holder is None else holder.describe())


def working(
    wire: Transport, namespaces: Sequence[str], *, evictions: bool, backend: str
) -> Iterator[Finding]:
    """Rights to start pods in these namespaces; in all of them if none is named."""
    for namespace in namespaces:
        wanted = rights.working(
            [namespace], evictions=evictions, backend=backend, resized=[namespace]
        )
        missing = rights.lacking(wire, wanted)
        yield from (_lacking(f"rights: {namespace}", right) for right in missing)
        if not missing:
            yield well(f"rights: {namespace}", f"all {len(wanted)}")
    if namespaces:
        return
    anywhere = rights.working([None], evictions=evictions, backend=backend, resized=[None])
    if rights.lacking(wire, anywhere):
        said = "no pods of ours wait anywhere, so no namespace was asked about"
        yield odd("rights: namespaces", said, "name those of your tenants: -n NAME")
    else:
        yield well("rights: namespaces", f"all {len(anywhere)}, in all namespaces")


_GRANT = "deploy/ has roles that hold it (docs/deploy.md)"


def _lacking(check: str, right: Right) -> Finding:
    hint = f"{_GRANT}; ask: {rights.by_hand(right)}"
    said = f"missing: {rights.worded(right)}"
    return Finding(check, Level.fail, said, hint, NotPermittedError.exit_code)


def guarded(
    wire: Transport,
    namespace: str,
    node: str,
    pod: tuple[str, str, str] | None,
    account: str | None,
) -> Finding:
    """Whether the server refuses what the admission policies forbid, asked as a dry run.

    ``pod``: (namespace, name, uid) of one that waits; without one a Binding of none is tried.
    """
    reply = _binding(wire, namespace, node) if pod is None else _patch(wire, *pod)
    if _DENIED in reply.message:
        return well("admission policy", "this account may change nothing of pods but our own marks")
    if reply.status in {0, 401, 403, 429} or reply.status >= 500:
        said = f"cannot tell: {one_line(reply.message)}"
        return odd("admission policy", said, "put the rights above in order, then try again")
    if account is not None and account != ACCOUNT:
        said = f"none holds {one_line(account)} back; those of deploy/admission are about {ACCOUNT}"
        hint = "fine for an administrator; for an account of a job put its name into the policies"
        return odd("admission policy", said, hint)
    hint = "kubectl apply -k deploy/admission (Kubernetes 1.30 or newer)"
    return odd("admission policy", "none: this account may change other things of pods", hint)


def _binding(wire: Transport, namespace: str, node: str) -> Reply:
    """A Binding that brings a foreign annotation, for a pod that is not there."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "gangplan-doctor", "uid": _NOBODY, "annotations": {PROBE: "probe"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = core("pods", namespace=namespace, name="gangplan-doctor", sub="binding")
    return wire.send("POST", f"{path}?dryRun=All", body)


def _patch(wire: Transport, namespace: str, name: str, uid: str) -> Reply:
    body = {"metadata": {"uid": uid, "annotations": {PROBE: "probe"}}}
    path = core("pods", namespace=namespace, name=name)
    return wire.send(
        "PATCH", f"{path}?dryRun=All&fieldManager=gangplan", body, content_type=STRATEGIC
    )


if TYPE_CHECKING:
    from models.apply.orders import Orders
    from models.policy import KubernetesPolicy
    from planner.cluster.backends.base import Backend

_SHOWN = 3
_KEEP = "keep others off: kubectl taint nodes NAME example.com/gangplan=only:NoSchedule"


def waiting(view: ClusterView, settings: KubernetesPolicy) -> list[LivePod]:
    """Pods that are ours to start, by (namespace, name)."""
    return [
        pod
        for _, pod in sorted(view.pods.items())
        if pod.node is None
        and not pod.finished
        and not pod.terminating
        and (pod.scheduler == settings.scheduler_name or settings.scheduling_gate in pod.gates)
    ]


def nodes(view: ClusterView, settings: KubernetesPolicy, orders: Orders | None) -> Finding:
    """Whether nodes that we bind pods onto are kept from other schedulers.

    With a plan its own nodes; without one every node with GPUs, where pods wait to be bound by us.
    """
    if orders is not None:
        opened = open_nodes(orders, view)
        if opened:
            said = f"{_named(opened)}; apply refuses to bind there"
            return Finding("nodes", Level.fail, said, _KEEP, StaleError.exit_code)
        return well("nodes", "those that the plan binds pods onto are kept from other schedulers")
    bound = [pod for pod in waiting(view, settings) if pod.scheduler == settings.scheduler_name]
    if not bound:
        return well("nodes", "no pods wait to be bound by us: kube-scheduler looks after the nodes")
    every = [node for _, node in sorted(view.nodes.items()) if _usable(node)]
    opened = unguarded(
        every,
        view.pods.values(),
        scheduler=settings.scheduler_name,
        gpu_resources=settings.gpu_resources,
    )
    if not opened:
        return well("nodes", f"{plural(len(every), 'node')} with GPUs, all kept from others")
    said = f"{len(opened):,} of {plural(len(every), 'node')} with GPUs open to others: {_named(opened)}"
    return odd("nodes", f"{said}; apply refuses to bind there", _KEEP)


def _usable(node: LiveNode) -> bool:
    return node.gpus > 0 and node.ready and not node.unschedulable


def _named(opened: list[tuple[str, str]]) -> str:
    named = "; ".join(f"{name}: {why}" for name, why in opened[:_SHOWN])
    return named + (f"; and {len(opened) - _SHOWN:,} more" if len(opened) > _SHOWN else "")


def groups(wire: Transport) -> Finding:
    """Whether gangs can be atomic in gate mode."""
    if _served(wire, POD_GROUPS):
        said = "served: a gang with one of its size starts whole or not at all"
    else:
        said = (
            "not served: a gang that is cut off half-way is finished, or reported, by the next run"
        )
    return well("native PodGroups", said)


def backend(
    wire: Transport, chosen: Backend, orders: Orders | None, view: ClusterView
) -> Iterator[Finding]:
    """What the back end enforces, and what speaks against it."""
    if chosen.name == "dra" and not _served(wire, RESOURCE_SLICES):
        said = "dra: this cluster serves no ResourceSlices"
        hint = "install a DRA driver, or choose another kubernetes.gpuBackend in the Policy"
        yield Finding("GPU back end", Level.fail, said, hint, InputError.exit_code)
        return
    field_errors = [] if orders is None else chosen.check(orders, view)
    for complaint in field_errors:
        hint = "see docs/gpus.md, or choose another kubernetes.gpuBackend in the Policy"
        said = f"{chosen.name}: {complaint}"
        yield Finding("GPU back end", Level.fail, said, hint, InputError.exit_code)
    if not field_errors:
        yield well("GPU back end", f"{chosen.name}: {chosen.note()}")


def _served(wire: Transport, paths: tuple[str, ...]) -> bool:
    return any(wire.send("GET", f"{path}?limit=1").ok for path in paths)
