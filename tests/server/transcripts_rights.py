"""Recorded scenes: what RBAC grants and denies a service account."""

from __future__ import annotations

from apiserver import FakeCluster
from apiserver_kinds import CLUSTER_ROLE, LEASE, Tree
from apiserver_transcripts import GATE, Happening, Scene, all_of, cluster_of, pod, rows
from transcripts_claims import claim

_RBAC = "rbac.authorization.k8s.io"
_SUBJECT = {"kind": "ServiceAccount", "name": "planner", "namespace": "planner-system"}


def _rule(group: str, resource: str, *verbs: str, names: tuple[str, ...] = ()) -> Tree:
    rule: Tree = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return rule | ({"resourceNames": list(names)} if names else {})


def _with(*rules: Tree) -> Happening:
    """The cluster role of the service account holds these rules, and no others."""

    def happens(cluster: FakeCluster) -> None:
        role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "planner"}}
        if cluster.store.get(CLUSTER_ROLE, "", "planner") is None:
            cluster.create(role | {"rules": list(rules)})
            cluster.create(
                {
                    "apiVersion": f"{_RBAC}/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": "planner"},
                    "subjects": [_SUBJECT],
                    "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "planner"},
                }
            )
        else:
            cluster.change(CLUSTER_ROLE, "planner", lambda tree: tree | {"rules": list(rules)})

    return happens


def _nodes(cluster: FakeCluster) -> None:
    for name in ("n1", "n2", "n3", "n4"):
        cluster.add_node(name)
    cluster.add_service_account("planner", "planner-system", "planner")


def _locked(cluster: FakeCluster) -> None:
    """The recorded role beside the lease."""
    kinds = {
        "apiVersion": f"{_RBAC}/v1",
        "metadata": {"name": "lock", "namespace": "planner-system"},
    }
    rules = rows()[333]["role in the namespace of the lease"]
    cluster.create(kinds | {"kind": "Role", "rules": rules})
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": "lock"}
    cluster.create(kinds | {"kind": "RoleBinding", "subjects": [_SUBJECT], "roleRef": reference})


def _version(cluster: FakeCluster) -> None:
    found = cluster.store.get(LEASE, "planner-system", "planner")
    assert found is not None
    cluster.store.revision = 4239
    cluster.store.keep(LEASE, found, manager="recording")


def _full(cluster: FakeCluster) -> None:
    _with(*rows()[333]["clusterrole"])(cluster)


def _others(cluster: FakeCluster) -> None:
    """What else was there when everything was listed."""
    for name in ("ag", "ah", "free", "ga", "gb", "gc", "gr", "gs"):
        cluster.create(
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": name},
                "spec": {"schedulingPolicy": {"basic": {}}},
            }
        )
    for number in (20, 21, 22, 23):
        claim(f"cl{number}")(cluster)
    for name in ("n1-gpu", "n2-gpu"):
        cluster.put(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": {"driver": "gpu.example.com", "pool": {"name": name}, "devices": []},
            }
        )


def planner_cluster() -> FakeCluster:
    cluster = cluster_of({"p0": {}, "p1": {}, "p2": {"gates": [GATE]}}, nodes=_nodes, groups=True)()
    claim("rb")(cluster)
    _locked(cluster)
    return cluster


_CLAIMS = "resource.k8s.io"
_STATUS = [_rule(_CLAIMS, "resourceclaims", "get", "patch")]

SCENES = (
    Scene(
        (*range(300, 333), 335, 336),
        planner_cluster,
        before={
            306: _with(_rule("", "pods/binding", "create")),
            308: _with(_rule("", "bindings", "create")),
            310: _with(_rule("", "pods", "patch")),
            311: _with(_rule("", "pods", "get", "patch")),
            313: _version,
            316: _with(*_STATUS),
            317: _with(*_STATUS, _rule(_CLAIMS, "resourceclaims/status", "patch")),
            318: _with(*_STATUS, _rule(_CLAIMS, "resourceclaims/status", "get", "patch")),
            319: _with(
                *_STATUS,
                _rule(_CLAIMS, "resourceclaims/status", "get", "patch"),
                _rule(_CLAIMS, "resourceclaims/binding", "patch"),
            ),
            320: all_of(
                _full,
                _others,
                lambda cluster: pod(cluster, "p5"),
                lambda cluster: pod(cluster, "p6", gates=[GATE]),
            ),
            335: all_of(lambda cluster: pod(cluster, "z0"), _with(_rule("", "bindings", "create"))),
            336: _with(_rule("", "pods/binding", "create")),
        },
    ),
)
