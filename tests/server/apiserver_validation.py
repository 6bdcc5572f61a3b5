"""Validation of metadata and of unknown fields, worded as the API server words it."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from apiserver_errors import ApiError, FieldError, wrong
from apiserver_kinds import Json, Kind, Tree

_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

_ALPHANUMERIC = "and must start and end with an alphanumeric character"
_BAD_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALPHANUMERIC} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_BAD_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_ALPHANUMERIC} (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_BAD_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{_ALPHANUMERIC} (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def metadata_faults(metadata: Tree) -> list[FieldError]:
    """Faults of labels and annotations."""
    faults: list[FieldError] = []
    for key, value in (metadata.get("labels") or {}).items():
        if said := _key_fault(key):
            faults.append(wrong("metadata.labels", json.dumps(key), said))
        if said := _value_fault(value):
            faults.append(wrong("metadata.labels", json.dumps(value), said))
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        size += len(key) + len(value)
        if said := _key_fault(key.lower()):
            faults.append(wrong("metadata.annotations", json.dumps(key), said))
    if size > 256 * 1024:
        said = "Too long: may not be more than 262144 bytes"
        faults.append(FieldError("metadata.annotations", "FieldValueTooLong", said))
    return faults


def name_faults(name: str, *, label: bool = False) -> list[FieldError]:
    """``label``: the name of a namespace, which has no dots."""
    good = (_LABEL if label else _SUBDOMAIN).fullmatch(name) and len(name) <= (63 if label else 253)
    if good:
        return []
    return [wrong("metadata.name", json.dumps(name), _BAD_LABEL if label else _BAD_SUBDOMAIN)]


def changed_metadata_faults(old: Tree, new: Tree) -> list[FieldError]:
    """What an update may not change; the server says each of these twice."""
    faults: list[FieldError] = []
    for field in ("uid", "name", "namespace", "creationTimestamp"):
        if new.get(field) != old.get(field):
            value = json.dumps(new.get(field, ""))
            faults += [wrong(f"metadata.{field}", value, "field is immutable")] * 2
    return faults


@lru_cache(maxsize=4096)
def _key_fault(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        return f"prefix part {_BAD_SUBDOMAIN}" if prefix else "prefix part must be non-empty"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return None if _QUALIFIED.fullmatch(name) else _BAD_QUALIFIED


@lru_cache(maxsize=4096)
def _value_fault(value: str) -> str | None:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return None if _VALUE.fullmatch(value) else _BAD_VALUE


_METADATA = frozenset(
    [
        "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp",
        "finalizers", "generateName", "generation", "labels", "managedFields", "name", "namespace",
        "ownerReferences", "resourceVersion", "selfLink", "uid",
    ]
)  # fmt: skip
_POD_SPEC = frozenset(
    [
        "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers",
        "dnsConfig", "dnsPolicy", "enableServiceLinks", "ephemeralContainers", "hostAliases",
        "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname", "hostnameOverride",
        "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
        "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims",
        "resources", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates",
        "schedulingGroup", "securityContext", "serviceAccount", "serviceAccountName",
        "setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds",
        "tolerations", "topologySpreadConstraints", "volumes",
    ]
)  # fmt: skip
_REFERENCE = frozenset(
    [
        "apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid",
    ]
)  # fmt: skip
_LEASE_SPEC = frozenset(
    [
        "acquireTime", "holderIdentity", "leaseDurationSeconds", "leaseTransitions",
        "preferredHolder", "renewTime", "strategy",
    ]
)  # fmt: skip
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
    ("Lease", "spec"): _LEASE_SPEC,
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
