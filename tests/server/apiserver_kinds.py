"""The kinds that the test API server serves, the paths they live at, and the options of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Tree = dict[str, Any]
"""An object."""

Json = Any
"""An object, a list, a string, a number, a truth value or null."""


ALL_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind as served. ``subs``: its subresources; ``short``: names kubectl takes for it."""

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    subs: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    short: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ("spec", "replicas")
    """Where it keeps the number that its subresource ``scale`` sets."""
    custom: bool = False
    """It came with a CustomResourceDefinition."""

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


POD = Kind("Pod", "pods", subs=("status", "binding", "eviction"), short=("po",))
NODE = Kind("Node", "nodes", namespaced=False, subs=("status",), short=("no",))
NAMESPACE = Kind("Namespace", "namespaces", namespaced=False, subs=("status",), short=("ns",))
BINDING = Kind("Binding", "bindings", verbs=("create",))
EVENT = Kind("Event", "events", short=("ev",))
LEASE = Kind("Lease", "leases", "coordination.k8s.io")
BUDGET = Kind(
    "PodDisruptionBudget", "poddisruptionbudgets", "policy", subs=("status",), short=("pdb",)
)
VOLUME_CLAIM = Kind(
    "PersistentVolumeClaim", "persistentvolumeclaims", subs=("status",), short=("pvc",)
)
VOLUME = Kind(
    "PersistentVolume", "persistentvolumes", namespaced=False, subs=("status",), short=("pv",)
)
STORAGE_CLASS = Kind(
    "StorageClass", "storageclasses", "storage.k8s.io", namespaced=False, short=("sc",)
)
CLAIM = Kind("ResourceClaim", "resourceclaims", "resource.k8s.io", subs=("status",))
TEMPLATE = Kind("ResourceClaimTemplate", "resourceclaimtemplates", "resource.k8s.io")
SLICE = Kind("ResourceSlice", "resourceslices", "resource.k8s.io", namespaced=False)
CLASS = Kind("DeviceClass", "deviceclasses", "resource.k8s.io", namespaced=False)
PRIORITY = Kind(
    "PriorityClass", "priorityclasses", "scheduling.k8s.io", namespaced=False, short=("pc",)
)
POD_GROUP = Kind("PodGroup", "podgroups", "scheduling.k8s.io", "v1alpha2", subs=("status",))
WORKLOAD = Kind("Workload", "workloads", "scheduling.k8s.io", "v1alpha2", subs=("status",))
ROLE = Kind("Role", "roles", "rbac.authorization.k8s.io")
ROLE_BINDING = Kind("RoleBinding", "rolebindings", "rbac.authorization.k8s.io")
CLUSTER_ROLE = Kind("ClusterRole", "clusterroles", "rbac.authorization.k8s.io", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", namespaced=False
)
ACCESS = Kind(
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    "authorization.k8s.io",
    namespaced=False,
    verbs=("create",),
)
RULES = Kind(
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    "authorization.k8s.io",
    namespaced=False,
    verbs=("create",),
)

_SCALED = ("scale", "status")

ALWAYS = (
    POD,
    NODE,
    NAMESPACE,
    BINDING,
    EVENT,
    Kind("ConfigMap", "configmaps", short=("cm",)),
    Kind("Secret", "secrets"),
    Kind("Service", "services", subs=("status",), short=("svc",)),
    Kind("ServiceAccount", "serviceaccounts", short=("sa",)),
    VOLUME_CLAIM,
    VOLUME,
    STORAGE_CLASS,
    Kind("ResourceQuota", "resourcequotas", subs=("status",), short=("quota",)),
    Kind("Deployment", "deployments", "apps", subs=_SCALED, short=("deploy",)),
    Kind("ReplicaSet", "replicasets", "apps", subs=_SCALED, short=("rs",)),
    Kind("StatefulSet", "statefulsets", "apps", subs=_SCALED, short=("sts",)),
    Kind("DaemonSet", "daemonsets", "apps", subs=("status",), short=("ds",)),
    Kind("Job", "jobs", "batch", subs=("status",)),
    Kind("CronJob", "cronjobs", "batch", subs=("status",), short=("cj",)),
    LEASE,
    BUDGET,
    Kind("NetworkPolicy", "networkpolicies", "networking.k8s.io", short=("netpol",)),
    CLAIM,
    TEMPLATE,
    SLICE,
    CLASS,
    PRIORITY,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ACCESS,
    RULES,
    Kind(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "apiextensions.k8s.io",
        namespaced=False,
        subs=("status",),
        short=("crd",),
    ),
    Kind(
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "admissionregistration.k8s.io",
        namespaced=False,
        subs=("status",),
    ),
    Kind(
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "admissionregistration.k8s.io",
        namespaced=False,
    ),
)
GROUPED = (POD_GROUP, WORKLOAD)
"""Served where the alpha API of pod groups is on."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads. ``namespace``, ``name``, ``sub``: empty where the path has none."""

    kind: Kind
    namespace: str
    name: str
    sub: str


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
        self._by_root[(kind.root, kind.plural)] = kind
        self.place.cache_clear()

    def named(self, name: str, group: str | None = None) -> Kind:
        """The kind of that name, or plural. Raises KeyError."""
        for kind in self.all:
            if name in (kind.name, kind.plural) and group in (None, kind.group):
                return kind
        raise KeyError(name)

    def of(self, api_version: str, name: str) -> Kind:
        """The kind of an object's own words. Raises KeyError."""
        for kind in self.all:
            if kind.name == name and kind.api_version == api_version:
                return kind
        raise KeyError(f"{api_version} {name}")

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
    strict: bool = False
    query: dict[str, str] = field(default_factory=dict)
