"""fieldValidation=Strict: which fields an object of a kind may have.

Promises: the top level and metadata of every kind, the spec of pods, the whole of a Binding; deeper
fields pass. Called by ``fake_objects`` and ``fake_binding``.
"""

from __future__ import annotations

import json

from fake_kinds import Kind
from fake_statuses import ApiError
from fake_trees import Json, Tree

_METADATA = frozenset(
    [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ]
)
_POD_SPEC = frozenset(
    [
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    ]
)
_REFERENCE = frozenset(
    ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"]
)
_TOP = {
    "Binding": {"target"},
    "Eviction": {"deleteOptions"},
    "ConfigMap": {"data", "binaryData", "immutable"},
    "Secret": {"data", "stringData", "type", "immutable"},
    "ServiceAccount": {"secrets", "imagePullSecrets", "automountServiceAccountToken"},
    "Role": {"rules"},
    "ClusterRole": {"rules", "aggregationRule"},
    "RoleBinding": {"subjects", "roleRef"},
    "ClusterRoleBinding": {"subjects", "roleRef"},
    "PriorityClass": {"value", "globalDefault", "description", "preemptionPolicy"},
}
_INNER = {
    ("Pod", "spec"): _POD_SPEC,
    ("Binding", "target"): _REFERENCE,
    ("Lease", "spec"): frozenset(
        [
            "acquireTime",
            "holderIdentity",
            "leaseDurationSeconds",
            "leaseTransitions",
            "preferredHolder",
            "renewTime",
            "strategy",
        ]
    ),
}


def refuse_unknown(kind: Kind, tree: Tree, *, name: str = "", patch: Json = None) -> None:
    """Raises ApiError: 400, or 422 where it came as a patch. ``name``: of the kind, if not its own."""
    said = name or kind.name
    found = list(_unknown(said, tree))
    if not found:
        return
    words = "strict decoding error: " + ", ".join(f'unknown field "{one}"' for one in found)
    if patch is None:
        version = "policy/v1" if said == "Eviction" else kind.api_version.rpartition("/")[2]
        raise ApiError(400, f'{said} in version "{version}" cannot be handled as a {said}: {words}')
    value = json.dumps(json.dumps(patch, separators=(",", ":")))
    raise ApiError(422, f' "" is invalid: patch: Invalid value: {value}: {words}')


def _unknown(kind: str, tree: Tree) -> list[str]:
    top = {"apiVersion", "kind", "metadata"} | _TOP.get(kind, {"spec", "status"})
    if kind not in _TOP and kind not in ("Pod", "Lease", "Node", "Namespace"):
        top |= set(tree)
    found = [key for key in tree if key not in top]
    found += [f"metadata.{key}" for key in tree.get("metadata") or {} if key not in _METADATA]
    for (owner, part), fields in _INNER.items():
        if owner == kind and isinstance(tree.get(part), dict):
            found += [f"{part}.{key}" for key in tree[part] if key not in fields]
    return found
