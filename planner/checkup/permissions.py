"""Checks of rights, of the lock's namespace, and of the admission policy that holds the account back.

Promises: every missing right is a finding of its own, named; what only a write would tell is asked as a
dry run. Called by ``examining``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.checkup.findings import Finding, Level, odd, well
from planner.cluster import rights
from planner.cluster.lease import read_lock
from planner.cluster.paths import core, grouped
from planner.cluster.refusals import one_line
from planner.cluster.rights import Right
from planner.cluster.wire import STRATEGIC, Reply, Wire
from planner.errors import GangplanError, MissingPathError, NotPermittedError

ACCOUNT = "system:serviceaccount:gangplan-system:gangplan"
"""The account that ``deploy/`` makes, and that its admission policies are about."""

PROBE = "gangplan.dev/doctor"
"""An annotation that no policy of ours lets through."""

_DENIED = "ValidatingAdmissionPolicy 'gangplan-"
_NOBODY = "00000000-0000-0000-0000-000000000000"


def reading(wire: Wire, groups: frozenset[str] | None) -> Iterator[Finding]:
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


def locking(wire: Wire, namespace: str) -> Iterator[Finding]:
    """Rights to the lock, whether its namespace is there, and who holds it."""
    wanted = rights.locking(namespace)
    missing = rights.lacking(wire, wanted)
    yield from (_lacking("rights: lock", right) for right in missing)
    if missing:
        return
    yield well("rights: lock", f"all {len(wanted)}, in namespace {namespace}")
    yield _lock(wire, namespace)


def _lock(wire: Wire, namespace: str) -> Finding:
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
        holder = read_lock(wire, namespace)
    except GangplanError as error:
        return odd("lock", str(error), "try again")
    return well("lock", "free" if holder is None else holder.worded())


def working(
    wire: Wire, namespaces: Sequence[str], *, evictions: bool, backend: str
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
    wire: Wire, namespace: str, node: str, pod: tuple[str, str, str] | None, account: str | None
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


def _binding(wire: Wire, namespace: str, node: str) -> Reply:
    """A Binding that brings a foreign annotation, for a pod that is not there."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "gangplan-doctor", "uid": _NOBODY, "annotations": {PROBE: "probe"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = core("pods", namespace=namespace, name="gangplan-doctor", sub="binding")
    return wire.send("POST", f"{path}?dryRun=All", body)


def _patch(wire: Wire, namespace: str, name: str, uid: str) -> Reply:
    body = {"metadata": {"uid": uid, "annotations": {PROBE: "probe"}}}
    path = core("pods", namespace=namespace, name=name)
    return wire.send(
        "PATCH", f"{path}?dryRun=All&fieldManager=gangplan", body, content_type=STRATEGIC
    )
