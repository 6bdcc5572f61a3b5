"""The shipped account on a live cluster: its rights and admission policies under names of the test run.

``deploy/`` unchanged but for names and the namespace of one policy. On a real cluster the owner of the
kubeconfig impersonates the account; everything is deleted at the end.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import live_cluster
import pytest
from admission import enforced
from apiserver import FakeCluster
from apiserver_http import Endpoint, serving
from deploying import TENANT, USER, hook, shipped
from live_cluster import Live, kubectl, opened
from live_objects import LEASES, listed
from live_runs import hurried
from snapshots import environment

from planner.cli.app import run
from planner.show.console import Console

Tree = dict[str, Any]

RBAC = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
SYSTEM = "gangplan-system"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@dataclass(slots=True)
class Account:
    """``name``: user name. ``kubeconfig``: leads to the cluster as that user.

    ``home``: the namespace of its ServiceAccount.
    """

    live: Live
    home: str
    kubeconfig: Path
    roles: list[Tree] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"system:serviceaccount:{self.home}:gangplan"

    def kubectl(self, *arguments: str, given: Tree | None = None) -> tuple[bool, str]:
        """Whether a kubectl of the account's succeeded, and all it said."""
        return kubectl_said(self.kubeconfig, self.live.folder, *arguments, given=given)

    def program(self, *words: str) -> tuple[int, str, str]:
        """gangplan as the account: exit code, stdout, stderr."""
        out, err = io.StringIO(), io.StringIO()
        environ = environment(self.live.folder, KUBECONFIG=str(self.kubeconfig), USER="tester")
        console = Console(stdout=out, stderr=err, stdin=io.BytesIO(), environ=environ)
        more = ("--lock-namespace", self.live.lock_namespace)
        with hurried():
            code = run([*words, *more], console)
        return code, out.getvalue(), err.getvalue()

    def may(self, verb: str, resource: str, sub: str, namespace: str) -> bool:
        what, _, name = resource.partition("/")
        plural, _, group = what.partition(".")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": sub}
        spec = {"resourceAttributes": asked | {"namespace": namespace, "name": name}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        words = ("create", "--validate=false", "-o", "json", "-f", "-")
        done, said = self.kubectl(*words, given={**review, "spec": spec})
        return done and bool(json.loads(said)["status"]["allowed"])

    @contextmanager
    def without(self, verb: str, group: str, resource: str, namespace: str) -> Iterator[None]:
        """One right less while the block runs. ``resource``: with its subresource."""
        plural, _, sub = resource.partition("/")
        for role in self.roles:
            rules = [_less(rule, verb, group, resource) for rule in role["rules"]]
            if rules != role["rules"]:
                self._replace({**role, "rules": [rule for rule in rules if rule["verbs"]]})
        try:
            named = f"{plural}.{group}" if group else plural
            gone = "gangplan" if plural == "leases" else ""
            asked = f"{named}/{gone}" if gone else named
            self.live.wait_until(
                lambda: not self.may(verb, asked, sub, namespace), "the right to go"
            )
            yield
        finally:
            for role in self.roles:
                self._replace(role)
            self.live.wait_until(
                lambda: self.may(verb, asked, sub, namespace), "the right to return"
            )

    def _replace(self, role: Tree) -> None:
        self.live.kubectl("apply", "--validate=false", "-f", "-", given=role)


def _less(rule: Tree, verb: str, group: str, resource: str) -> Tree:
    if group in rule["apiGroups"] and resource in rule["resources"]:
        return {**rule, "verbs": [one for one in rule["verbs"] if one != verb]}
    return rule


def kubectl_said(
    kubeconfig: Path, home: Path, *arguments: str, given: Tree | None = None
) -> tuple[bool, str]:
    """Whether it succeeded, and what it said."""
    try:
        return True, kubectl(kubeconfig, home, *arguments, given=given)
    except AssertionError as failed:
        return False, str(failed)


@contextmanager
def account(folder: Path, *, nodes: int) -> Iterator[Account]:
    """A cluster of so many nodes of ours with the account, while the block runs."""
    fakes: list[tuple[FakeCluster, Endpoint]] = []

    @contextmanager
    def fake(folder: Path) -> Iterator[Path]:
        cluster = FakeCluster(clock=time.time)
        cluster.add_namespace(LEASES)
        with serving(cluster, folder) as endpoint:
            fakes.append((cluster, endpoint))
            yield endpoint.kubeconfig

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_cluster, "_fake", fake)
        with opened(folder, nodes=nodes) as live, contextlib.ExitStack() as stack:
            home = live.lock_namespace
            kept = [one for one in shipped() if one["kind"] in RBAC + POLICIES]
            documents = [_renamed(one, live, home) for one in kept]
            name = f"system:serviceaccount:{home}:gangplan"
            roles = [one for one in documents if one["kind"] in ("Role", "ClusterRole")]
            if fakes:
                cluster, endpoint = fakes[0]
                _install(cluster, documents)
                cluster.tokens["t"] = name
                made = Account(live, home, endpoint.as_user("t"), roles)
            else:
                stack.callback(_delete, live, documents)
                live.kubectl("create", "--validate=false", "-f", "-", given=listed(documents))
                made = Account(live, home, _impersonating(live, name), roles)
            yield made


def _install(cluster: FakeCluster, documents: list[Tree]) -> None:
    for one in documents:
        if one["kind"] in RBAC:
            cluster.put(one)
    for policy in enforced(documents):
        cluster.objects.policies[policy.name] = hook(policy)


def _delete(live: Live, documents: list[Tree]) -> None:
    live.kubectl("delete", "--ignore-not-found", "-f", "-", given=listed(documents), check=False)


def _renamed(tree: Tree, live: Live, home: str) -> Tree:
    """The document with names of this run: of itself, of what it refers to, of namespaces, of the user."""
    ours = f"system:serviceaccount:{home}:gangplan"
    quoted = (f"'{SYSTEM}'", f"'{live.lock_namespace}'")
    one: Tree = json.loads(json.dumps(tree).replace(USER, ours).replace(*quoted))
    metadata = one["metadata"]
    metadata["name"] += f"-{live.run}"
    namespaces = {TENANT: live.namespace, SYSTEM: live.lock_namespace}
    if "namespace" in metadata:
        metadata["namespace"] = namespaces[metadata["namespace"]]
    if "roleRef" in one:
        one["roleRef"]["name"] += f"-{live.run}"
        one["subjects"][0]["namespace"] = home
    if "policyName" in one.get("spec", {}):
        one["spec"]["policyName"] += f"-{live.run}"
    return one


def _impersonating(live: Live, name: str) -> Path:
    """The cluster's own kubeconfig, impersonating a user."""
    words = ("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
    tree = json.loads(live.kubectl(*words))
    for user in tree["users"]:
        user["user"]["as"] = name
    path = live.folder / "kubeconfig-account"
    path.touch(mode=0o600)
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path
