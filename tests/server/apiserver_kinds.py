"""The kinds that the test server serves, the paths they live at, and how it words refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
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


def _kinds(table: str) -> tuple[Kind, ...]:
    """Of lines ``GROUP/VERSION KIND/SUBRESOURCE... ...``; ``*``: not in namespaces."""
    found = []
    for api, *kinds in map(str.split, table.strip().splitlines()):
        group, _, version = api.rpartition("/")
        for title, *subs in (kind.split("/") for kind in kinds):
            name, inside = title.strip("*"), not title.endswith("*")
            plural = re.sub(
                "yies$", "ies", name.lower() + {"s": "es", "y": "ies"}.get(name[-1], "s")
            )
            verbs = ("create",) if "Review" in name else VERBS
            found.append(Kind(name, plural, group, version, inside, tuple(subs), verbs))
    return tuple(found)


ALWAYS = _kinds("""
v1 Pod/status/eviction Node*/status Namespace*/status Event ConfigMap Secret Service/status
v1 ServiceAccount PersistentVolumeClaim/status PersistentVolume*/status ResourceQuota/status
storage.k8s.io/v1 StorageClass*
apps/v1 Deployment/scale/status ReplicaSet/scale/status StatefulSet/scale/status DaemonSet/status
batch/v1 Job/status CronJob/status
coordination.k8s.io/v1 Lease
policy/v1 PodDisruptionBudget/status
resource.k8s.io/v1 ResourceClaim/status ResourceClaimTemplate ResourceSlice* DeviceClass*
scheduling.k8s.io/v1 PriorityClass*
rbac.authorization.k8s.io/v1 Role RoleBinding ClusterRole* ClusterRoleBinding*
authorization.k8s.io/v1 SelfSubjectAccessReview*
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy*/status ValidatingAdmissionPolicyBinding*
admissionregistration.k8s.io/v1 MutatingAdmissionPolicy* MutatingAdmissionPolicyBinding*
""")
_NAMED = {kind.name: kind for kind in ALWAYS}
POD, NODE, NAMESPACE, LEASE = (_NAMED[name] for name in ("Pod", "Node", "Namespace", "Lease"))
PRIORITY, BUDGET = _NAMED["PriorityClass"], _NAMED["PodDisruptionBudget"]
CLAIM, ACCESS = _NAMED["ResourceClaim"], _NAMED["SelfSubjectAccessReview"]


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

    def of(self, tree: Tree) -> Kind:
        """The kind of an object. Raises StopIteration."""
        api = tree["apiVersion"], tree["kind"]
        return next(kind for kind in self.all if (kind.api_version, kind.name) == api)

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
        kind, (name, sub) = self._by_root.get((root, rest[0])), [*rest[1:], "", ""][:2]
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
            return None
        if (sub and sub not in kind.subs) or (name and kind.namespaced and not namespace):
            return None
        return Place(kind, namespace, name, sub)

    def discovered(self, path: str) -> Tree | None:
        """The answer to GET ``path``, as kubectl and the program ask; None where it is no discovery."""
        if path == "/version":
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.2"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if path == "/apis":
            found: dict[str, Tree] = {}
            for kind in sorted(self.all, key=lambda kind: (len(kind.version), kind.version)):
                one = {"groupVersion": kind.api_version, "version": kind.version}
                group = {"name": kind.group, "versions": [], "preferredVersion": one}
                listed = found.setdefault(kind.group, group)["versions"]
                listed += [one] if one not in listed else []
            groups = [group for name, group in found.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        alike = [kind for kind in self.all if kind.root == path]
        rows = [
            {"name": kind.plural, "singularName": kind.name.lower(), "kind": kind.name}
            | {"namespaced": kind.namespaced, "verbs": list(kind.verbs)}
            for kind in alike
        ]
        api = {"kind": "APIResourceList", "apiVersion": "v1", "resources": rows}
        return api | {"groupVersion": alike[0].api_version} if alike else None


Answer = tuple[int, Tree, dict[str, str]]
"""(status, body, headers). Status 0: no answer arrives."""


@dataclass(slots=True)
class Call:
    """One request, for hooks. ``path``: without its query; ``place``: the object it is about, if any.

    ``user``: None for an administrator. ``answer``: None before it is made.
    """

    number: int
    method: str
    path: str
    query: dict[str, str]
    body: Json
    content_type: str
    user: str | None
    place: Place | None
    answer: Answer | None = None

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.query

    @property
    def writes(self) -> bool:
        return self.method != "GET" and not self.dry_run


# ---- refusals

_REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired"}
_REASONS |= {415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests"}
_REASONS |= {503: "ServiceUnavailable", 504: "Timeout"}


class ApiError(Exception):
    """A request that is refused. ``kind``, ``name``: of the object; ``causes``: of the refusal."""

    def __init__(
        self,
        code: int,
        message: str,
        kind: Kind | None = None,
        name: str = "",
        *,
        reason: str = "",
        causes: Sequence[Tree] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason or _REASONS.get(code, "")
        about = {} if kind is None else {"name": name, "group": kind.group, "kind": kind.plural}
        about |= {"causes": list(causes)}
        self.details = {key: value for key, value in about.items() if value}

    def tree(self) -> Tree:
        more = {"code": self.code, "reason": self.reason, "details": self.details}
        return status("Failure", message=self.message, **more)


def status(word: str, **more: object) -> Tree:
    """A Status; without what is empty."""
    tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": word}
    return tree | {key: value for key, value in more.items() if value}


def conflict(kind: Kind, name: str, why: str, reason: str = "") -> ApiError:
    said = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, said, kind, name, reason=reason)


def invalid(kind: Kind, name: str, faults: Sequence[tuple[str, str]]) -> ApiError:
    """``faults``: fields, and what is wrong with them."""
    causes = [
        {"reason": "FieldValueInvalid", "message": said, "field": field} for field, said in faults
    ]
    listed = ", ".join(f"{field}: Invalid value: {said}" for field, said in faults)
    return ApiError(422, f'{kind.name} "{name}" is invalid: {listed}', kind, name, causes=causes)


def denied(user: str, verb: str, place: Place) -> ApiError:
    """Without the right."""
    kind, name = place.kind, place.name
    what = kind.resource + (f' "{name}"' if name else "")
    where = f'in the namespace "{place.namespace}"' if place.namespace else "at the cluster scope"
    asked = f"{kind.plural}/{place.sub}" if place.sub else kind.plural
    said = f'{what} is forbidden: User "{user}" cannot {verb} resource "{asked}" in API group'
    return ApiError(403, f'{said} "{kind.group}" {where}', kind, name)
