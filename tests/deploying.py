"""What ``deploy/`` ships, as kubectl builds it: documents of a folder, and the rights they grant.

Built by the kubectl the tests run with; a grant is one verb on one resource, in one namespace
or in all, to the planner's account alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from admission import Asked, Policy, policies
from apiserver import FakeCluster, groups_of
from apiserver_kinds import Place
from apply_runs import OWN, TOLERATE
from effort import HANG_S
from snapshots import real_kubectl

from planner.cluster.transport import Right

Tree = dict[str, Any]

DEPLOY = Path(__file__).parents[1] / "deploy"
USER = "system:serviceaccount:gangplan-system:gangplan"
ACCOUNT = {"kind": "ServiceAccount", "name": "gangplan", "namespace": "gangplan-system"}
EVERYTHING = ("evictions", "dra", "gate", "kueue", "kai", "tenants/example")
TENANT = "example"


@cache
def built(folder: str) -> tuple[Tree, ...]:
    """The documents that ``kubectl apply -k deploy/FOLDER`` would apply."""
    argv = [real_kubectl(), "kustomize", str(DEPLOY / folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=True)
    return tuple(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


@cache
def shipped() -> tuple[Tree, ...]:
    """Everything there is, with each of the example tenant's bindings."""
    tenant = [
        yaml.load(
            (DEPLOY / "tenants" / "example" / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader
        )
        for name in ("evicting", "allocating", "binding")
    ]
    return (*(one for folder in EVERYTHING for one in built(folder)), *tenant)


def granted(documents: Iterable[Tree]) -> list[Right]:
    """One Right for each verb, group, resource, name and place that some binding grants."""
    trees = list(documents)
    roles = {
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one["rules"]
        for one in trees
        if one["kind"] in {"Role", "ClusterRole"}
    }
    found = []
    for one in trees:
        if one["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        assert one["subjects"] == [ACCOUNT]
        namespace = one["metadata"].get("namespace")
        kind, name = one["roleRef"]["kind"], one["roleRef"]["name"]
        rules = roles[kind, namespace if kind == "Role" else None, name]
        found += [right for rule in rules for right in _each(rule, namespace)]
    return found


def _each(rule: Tree, namespace: str | None) -> Iterable[Right]:
    assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            plural, _, sub = resource.partition("/")
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield Right(verb, group, plural, sub, namespace, name)


def install(cluster: FakeCluster, *, without: Right | None = None) -> None:
    """What ``kubectl apply -k`` puts into a cluster: rights, but for one, and admission policies."""
    for tree in shipped():
        if tree["kind"] in {"RoleBinding", "ClusterRoleBinding", "Namespace", "ServiceAccount"}:
            cluster.put(tree)
    grant(cluster, without=without)
    for policy in policies():
        cluster.objects.policies[policy.name] = hook(policy)


def grant(cluster: FakeCluster, *, without: Right | None = None) -> None:
    """Put the shipped roles into the cluster, or back, less one right."""
    for tree in shipped():
        if tree["kind"] in {"Role", "ClusterRole"}:
            rules = [{**rule, **one} for rule in tree["rules"] for one in _atoms(rule)]
            bound = _place(tree["metadata"]["name"])
            kept = [rule for rule in rules if without not in set(_each(rule, bound))]
            cluster.put({**tree, "rules": kept})


def _atoms(rule: Tree) -> Iterable[Tree]:
    """The rule in pieces of one group, resource and verb."""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield {"apiGroups": [group], "resources": [resource], "verbs": [verb]}


@cache
def _place(role: str) -> str | None:
    """The namespace that the role of that name is bound in; None for all."""
    (binding,) = [
        one
        for one in shipped()
        if one["kind"] in {"RoleBinding", "ClusterRoleBinding"} and one["roleRef"]["name"] == role
    ]
    namespace: str | None = binding["metadata"].get("namespace")
    return namespace


def hook(policy: Policy) -> Callable[..., str | None]:
    """A policy as the fake cluster takes one."""

    def refusal(
        what: str, place: Place, old: Tree | None, new: Tree | None, user: str
    ) -> str | None:
        kind, more = place.kind, {"user": user, "groups": groups_of(user), "sub": place.sub}
        asked = Asked(kind.plural, what, new, old, group=kind.group, **more)  # type: ignore[arg-type]
        return next(iter(policy.refusals(asked)), None)

    return refusal


def a_cluster(*, without: Right | None = None) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN])
    cluster.gang_of_pods("a", 1, namespace=TENANT, tolerations=TOLERATE)
    install(cluster, without=without)
    return cluster
