"""URL paths of API objects: every part checked and quoted before it becomes part of one.

Promises: a name from the cluster that is no Kubernetes name never reaches a URL. Raises ValueError,
which callers turn into what they say of that object. Called by whatever sends requests.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_GROUP = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_VERSION = re.compile(r"v[0-9]{1,3}(?:(?:alpha|beta)[0-9]{1,3})?")
_PLURAL = re.compile(r"[a-z]{1,63}")


def checked(name: str) -> str:
    """The name, if it can be that of an object: no slash, no dot segment, nothing to quote."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"no name of a Kubernetes object: {name!r}")
    return name


def core(
    plural: str, *, namespace: str | None = None, name: str | None = None, sub: str = ""
) -> str:
    """``/api/v1/...``: a collection, an object or its subresource."""
    return _path("/api/v1", plural, namespace, name, sub)


def grouped(  # as the API builds its URLs
    group: str,
    version: str,
    plural: str,
    *,
    namespace: str | None = None,
    name: str | None = None,
    sub: str = "",
) -> str:
    """``/apis/GROUP/VERSION/...``: the same for an API group."""
    if not _GROUP.fullmatch(group) or ".." in group or not _VERSION.fullmatch(version):
        raise ValueError(f"no API group and version: {group!r} {version!r}")
    return _path(f"/apis/{group}/{version}", plural, namespace, name, sub)


def _path(root: str, plural: str, namespace: str | None, name: str | None, sub: str) -> str:
    if not _PLURAL.fullmatch(plural) or (sub and not _PLURAL.fullmatch(sub)):
        raise ValueError(f"no resource: {plural!r} {sub!r}")
    parts = [root]
    if namespace is not None:
        parts += ["namespaces", checked(namespace)]
    parts.append(plural)
    if name is not None:
        parts.append(checked(name))
        if sub:
            parts.append(sub)
    return "/".join(parts)
