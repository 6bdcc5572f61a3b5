"""URL paths of API objects, and the patterns of paths that ``kubectl proxy`` lets through.

Every part is checked before it becomes part of a path: a name from the cluster that is not a
Kubernetes name raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.read.kube.dialect_registry import scales
from planner.read.kube.kinds import Kind

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_VERSION = re.compile(r"v[0-9]{1,3}(?:(?:alpha|beta)[0-9]{1,3})?")
_PLURAL = re.compile(r"[a-z]{1,63}")


def checked(name: str) -> str:
    """The name, if it can be that of an object: no slash, no dot segment, nothing to quote."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"not the name of a Kubernetes object: {name!r}")
    return name


def is_version(version: str) -> bool:
    return _VERSION.fullmatch(version) is not None


def core(
    plural: str, *, namespace: str | None = None, name: str | None = None, sub: str = ""
) -> str:
    """``/api/v1/...``: a collection, an object or its subresource."""
    return _path("/api/v1", plural, namespace, name, sub)


def grouped(
    group: str,
    version: str,
    plural: str,
    *,
    namespace: str | None = None,
    name: str | None = None,
    sub: str = "",
) -> str:
    """``/apis/GROUP/VERSION/...``: the same for an API group."""
    if not _NAME.fullmatch(group) or ".." in group or not is_version(version):
        raise ValueError(f"not an API group and version: {group!r} {version!r}")
    return _path(f"/apis/{group}/{version}", plural, namespace, name, sub)


def _path(root: str, plural: str, namespace: str | None, name: str | None, sub: str) -> str:
    if not _PLURAL.fullmatch(plural) or (sub and not _PLURAL.fullmatch(sub)):
        raise ValueError(f"not a resource: {plural!r} {sub!r}")
    parts = [root]
    if namespace is not None:
        parts += ["namespaces", checked(namespace)]
    parts.append(plural)
    if name is not None:
        parts.append(checked(name))
        if sub:
            parts.append(sub)
    return "/".join(parts)


API_GROUPS = "/apis"
IDENTITY = core("namespaces", name="kube-system")
"""The uid of this namespace identifies the cluster."""


def _versions(group: str, plural: str, *versions: str) -> tuple[str, ...]:
    return tuple(grouped(group, version, plural) for version in versions)


BUDGETS = grouped("policy", "v1", "poddisruptionbudgets")

_DEVICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
RESOURCE_SLICES = _versions("resource.k8s.io", "resourceslices", *_DEVICE_VERSIONS)

DEVICE_LISTS: tuple[tuple[tuple[str, ...], str, str], ...] = tuple(
    (_versions("resource.k8s.io", plural, *_DEVICE_VERSIONS), kind, "resource.k8s.io/v1")
    for plural, kind in (
        ("resourceslices", "ResourceSlice"),
        ("resourceclaims", "ResourceClaim"),
        ("deviceclasses", "DeviceClass"),
    )
)
"""(paths to try, kind, apiVersion they are read as) of dynamic resource allocation."""


# Patterns for the proxy: whole paths without their query, as regular expressions of Go. No commas:
# kubectl splits the list at them.

_ANY_NAME = "[a-z0-9][a-z0-9.-]*"
_ANY_VERSION = "v[0-9]+((alpha|beta)[0-9]+)?"


def exactly(*paths: str) -> tuple[str, ...]:
    """These paths and no others."""
    return tuple(f"^{re.escape(path)}$" for path in paths)


def look_paths() -> tuple[str, ...]:
    """To read nodes, pods, the cluster's identity, budgets, and what pods refer to."""
    lists = [path for paths, _, _ in DEVICE_LISTS for path in paths]
    return exactly(core("nodes"), core("pods"), IDENTITY, BUDGETS, *lists)


def list_paths(kinds: Sequence[Kind]) -> tuple[str, ...]:
    """To discover and list these kinds, in all namespaces or one, and to read single namespaces."""
    plurals: dict[str, list[str]] = {}
    for kind in kinds:
        plurals.setdefault(kind.group, []).append(kind.plural)
    patterns = []
    for group, names in plurals.items():
        root = f"/apis/{re.escape(group)}/{_ANY_VERSION}" if group else "/api/v1"
        patterns.append(f"^{root}(/(namespaces/{_ANY_NAME}/)?({'|'.join(names)}))?$")
    return (*exactly(API_GROUPS), f"^/api/v1/namespaces/{_ANY_NAME}$", *patterns)


def pod_paths(*, evictions: bool) -> tuple[str, ...]:
    """To read and patch single pods, and to evict them."""
    sub = "(/eviction)?" if evictions else ""
    return (f"^/api/v1/namespaces/{_ANY_NAME}/pods/{_ANY_NAME}{sub}$",)


def scale_paths() -> tuple[str, ...]:
    """Controllers of pods and their scale."""
    found: dict[str, list[str]] = {}
    for (group, _), one in scales().items():
        found.setdefault(f"{re.escape(group)}/{one.version}", []).append(one.plural)
    below = f"/namespaces/{_ANY_NAME}/({{}})/{_ANY_NAME}(/scale)?$"
    return tuple(f"^/apis/{api}{below.format('|'.join(plurals))}" for api, plurals in found.items())
