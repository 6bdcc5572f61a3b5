"""The kinds that the test server serves, the paths they live at, and the options of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Tree = dict[str, Any]
"""An object."""

Json = Any
"""An object, a list, a string, a number, a truth value or null."""

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind as served. ``subs``: its subresources; ``custom``: of a CustomResourceDefinition."""

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    subs: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def resource(self) -> str:
        """``pods``, ``leases.coordination.k8s.io``: as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


def _kinds(table: str) -> tuple[Kind, ...]:
    """Of lines ``GROUP/VERSION KIND PLURAL SUBRESOURCES``; ``*``: not in namespaces."""
    found = []
    for line in table.strip().splitlines():
        api, name, plural, *subs = line.split()
        group, _, version = api.rpartition("/")
        inside, title = not name.endswith("*"), name.removesuffix("*")
        verbs = ("create",) if name.endswith("Review*") else VERBS
        found.append(Kind(title, plural, group, version, inside, tuple(subs), verbs))
    return tuple(found)


ALWAYS = _kinds("""
v1 Pod pods status eviction
v1 Node* nodes status
v1 Namespace* namespaces status
v1 Event events
v1 ConfigMap configmaps
v1 Secret secrets
v1 Service services status
v1 ServiceAccount serviceaccounts
v1 PersistentVolumeClaim persistentvolumeclaims status
v1 PersistentVolume* persistentvolumes status
v1 ResourceQuota resourcequotas status
storage.k8s.io/v1 StorageClass* storageclasses
apps/v1 Deployment deployments scale status
apps/v1 ReplicaSet replicasets scale status
apps/v1 StatefulSet statefulsets scale status
apps/v1 DaemonSet daemonsets status
batch/v1 Job jobs status
batch/v1 CronJob cronjobs status
coordination.k8s.io/v1 Lease leases
policy/v1 PodDisruptionBudget poddisruptionbudgets status
resource.k8s.io/v1 ResourceClaim resourceclaims status
resource.k8s.io/v1 ResourceClaimTemplate resourceclaimtemplates
resource.k8s.io/v1 ResourceSlice* resourceslices
resource.k8s.io/v1 DeviceClass* deviceclasses
scheduling.k8s.io/v1 PriorityClass* priorityclasses
rbac.authorization.k8s.io/v1 Role roles
rbac.authorization.k8s.io/v1 RoleBinding rolebindings
rbac.authorization.k8s.io/v1 ClusterRole* clusterroles
rbac.authorization.k8s.io/v1 ClusterRoleBinding* clusterrolebindings
authorization.k8s.io/v1 SelfSubjectAccessReview* selfsubjectaccessreviews
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy* validatingadmissionpolicies status
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding* validatingadmissionpolicybindings
admissionregistration.k8s.io/v1 MutatingAdmissionPolicy* mutatingadmissionpolicies
admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding* mutatingadmissionpolicybindings
""")
GROUPED = _kinds("scheduling.k8s.io/v1alpha2 PodGroup podgroups status")
"""Served where the alpha API of pod groups is on."""

_NAMED = {kind.name: kind for kind in ALWAYS}
POD, NODE, NAMESPACE, LEASE, PRIORITY = (
    _NAMED[name] for name in ("Pod", "Node", "Namespace", "Lease", "PriorityClass")
)
CLAIM, TEMPLATE, SLICE = (_NAMED[f"Resource{name}"] for name in ("Claim", "ClaimTemplate", "Slice"))
BUDGET, ACCESS = _NAMED["PodDisruptionBudget"], _NAMED["SelfSubjectAccessReview"]
(POD_GROUP,) = GROUPED


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads. ``namespace``, ``name``, ``sub``: empty where the path has none."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    sub: str = ""


class Kinds:
    """All kinds that are served, by their URLs."""

    def __init__(self, kinds: tuple[Kind, ...] = ALWAYS) -> None:
        self.all: list[Kind] = []
        self._by_root: dict[tuple[str, str], Kind] = {}
        self.place = lru_cache(maxsize=65536)(self._placed)
        for kind in kinds:
            self.serve(kind)

    def serve(self, kind: Kind) -> None:
        self.all.append(kind)
        self._by_root[kind.root, kind.plural] = kind
        self.place.cache_clear()

    def named(self, name: str) -> Kind:
        """The kind of that name, or plural. Raises StopIteration."""
        return next(kind for kind in self.all if name in (kind.name, kind.plural))

    def of(self, api_version: str, name: str) -> Kind:
        """The kind of an object's own words. Raises StopIteration."""
        return next(k for k in self.all if (k.api_version, k.name) == (api_version, name))

    def _placed(self, path: str) -> Place | None:
        """``path``: without its query."""
        parts = path.split("/")[1:]
        head = 2 if parts[0] == "api" else 3
        root, rest = "/" + "/".join(parts[:head]), parts[head:]
        if not rest or not all(rest):
            return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and (root, rest[2]) in self._by_root:
            namespace, rest = rest[1], rest[2:]
        kind = self._by_root.get((root, rest[0]))
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
            return None
        name, sub = [*rest[1:], "", ""][:2]
        if (sub and sub not in kind.subs) or (name and kind.namespaced and not namespace):
            return None
        return Place(kind, namespace, name, sub)


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Who asks, and how. ``user`` None: everything is allowed. ``manager``: field manager."""

    user: str | None = None
    groups: tuple[str, ...] = ()
    manager: str = "unknown"
    dry_run: bool = False
    query: dict[str, str] = field(default_factory=dict)


# ---- what is served, as kubectl and the program ask for it


def discovered(kinds: Kinds, path: str) -> Tree | None:
    """The answer to GET ``path``; None where it is no discovery."""
    match path:
        case "/version":
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.2"}
        case "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case "/apis":
            groups: dict[str, dict[str, None]] = {}
            for kind in kinds.all:
                if kind.group:
                    groups.setdefault(kind.group, {})[kind.version] = None
            listed = [_group(name, found) for name, found in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    alike = [kind for kind in kinds.all if kind.root == path]
    if not alike:
        return None
    rows = [
        {"name": kind.plural, "singularName": kind.name.lower(), "kind": kind.name}
        | {"namespaced": kind.namespaced, "verbs": list(kind.verbs)}
        for kind in alike
    ]
    api = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": alike[0].api_version}
    return api | {"resources": rows}


def _group(name: str, versions: dict[str, None]) -> Tree:
    """The stable versions first."""
    listed = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in sorted(versions, key=lambda version: (len(version), version))
    ]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}
