"""One request to the API server and its reply, independent of what carries it, and the paths of requests.

A lost answer is a reply too (status 0), never an exception. Every part of a path is checked before it
becomes one: a name from the cluster that is not a Kubernetes name raises ValueError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

Tree = dict[str, Any]

JSON = "application/json"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

LOST = 0
"""Status of a reply that never came: the connection broke, or the time limit passed."""

TOO_LONG = "TooLong"
"""Reason of a lost reply that was longer than the limit: a retry does not help."""


@dataclass(frozen=True, slots=True)
class Reply:
    """``body``: the JSON object, {} if there is none. ``why``: why there is none.

    ``date``: the server's clock in seconds since the epoch, None without a header Date.
    ``retry_after_s``: the header Retry-After.
    """

    status: int
    body: Tree = field(default_factory=dict)
    date: float | None = None
    retry_after_s: float | None = None
    why: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The server's message, or why the reply was lost. Untrusted: show it through ``one_line``."""
        message = self.body.get("message")
        return (
            message if isinstance(message, str) and message else self.why or f"HTTP {self.status}"
        )

    @property
    def reason(self) -> str:
        reason = self.body.get("reason")
        return reason if isinstance(reason, str) else ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """``path``: with its query, every part quoted (``planner.cluster.transport``)."""

    method: str
    path: str
    body: Tree | None = None
    content_type: str = JSON


class Transport(Protocol):
    """Sends one request and waits for the reply. Not thread-safe unless it says so."""

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply: ...


def send_one(transport: Transport, one: ApiRequest) -> Reply:
    return transport.send(one.method, one.path, one.body, content_type=one.content_type)


def send_all(transport: Transport, requests: Sequence[ApiRequest]) -> list[Reply]:
    """A reply each, in order: at once if the transport has a ``send_all``, else one by one.

    The server may carry the requests out in any order; after a lost reply it is unknown which of them.
    """
    at_once: Callable[[Sequence[ApiRequest]], list[Reply]] | None
    at_once = getattr(transport, "send_all", None)
    return [send_one(transport, one) for one in requests] if at_once is None else at_once(requests)


class MalformedError(ValueError):
    """A body that is not a JSON object."""


_MAX_DEPTH = 200
"""Nesting of what is read. Tenants may nest some parts of objects thousands of times deep."""


def _shallow(written: bytes) -> bytes:
    """The JSON with null for each value that is nested deeper."""
    import numpy as np

    found = np.frombuffer(written.replace(rb"\\", b"  ").replace(rb"\"", b"  "), np.uint8)
    plain = np.cumsum(found == ord('"'), dtype=np.uint8) % 2 == 0
    step = plain * (
        (found | 32 == ord("{")).astype(np.int8) - (found | 32 == ord("}"))
    )  # [ and ] too
    depth = np.cumsum(step, dtype=np.int32)
    starts = np.flatnonzero((step > 0) & (depth == _MAX_DEPTH))
    ends = np.flatnonzero((step < 0) & (depth == _MAX_DEPTH - 1)) + 1
    parts = zip([0, *ends], [*starts, len(written)], strict=False)
    return b"null".join(written[start:end] for start, end in parts)


def json_object(body: bytes) -> Tree:
    """Raises MalformedError for anything but one whole JSON object without NaN and infinities."""
    try:
        tree = _DECODE(body.decode(json.detect_encoding(body), "replace"))
    except RecursionError:
        return json_object(_shallow(body))
    except ValueError as error:
        where = f" after {len(body):,} bytes" if len(body) else ": it is empty"
        raise MalformedError(f"the answer is not whole JSON{where}") from error
    if not isinstance(tree, dict):
        raise MalformedError("the answer is not a JSON object")
    return tree


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]
    metadata: Tree = {}


def list_object(body: bytes) -> Tree:
    """The same, but the items of a list are left as JSON (``msgspec.Raw``): most is never looked at."""
    try:
        body.decode()  # what is passed over is not looked at
        found = msgspec.json.decode(body, type=_List)
    except RecursionError:
        return list_object(_shallow(body))
    except (UnicodeDecodeError, msgspec.MsgspecError):
        return json_object(body)  # no list, or it says what is wrong
    return {"kind": found.kind, "metadata": found.metadata, "items": found.items}


def _finite(written: str) -> float:
    value = float(written)
    if not math.isfinite(value):  # NaN, or such as 1e999
        raise ValueError(written)
    return value


_DECODE = json.JSONDecoder(parse_float=_finite, parse_constant=_finite).decode


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
    return grouped("", "v1", plural, namespace=namespace, name=name, sub=sub)


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
    if (group and (not _NAME.fullmatch(group) or ".." in group)) or not is_version(version):
        raise ValueError(f"not an API group and version: {group!r} {version!r}")
    if not _PLURAL.fullmatch(plural) or (sub and not _PLURAL.fullmatch(sub)):
        raise ValueError(f"not a resource: {plural!r} {sub!r}")
    parts = [f"/apis/{group}/{version}" if group else f"/api/{version}"]
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


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource, as in RBAC. ``group`` "": the core API.

    ``namespace`` None: cluster-scoped, or in all namespaces. ``name``: that object only; "" any.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str | None = None
    name: str = ""


_DELETED = re.compile(
    "/api/v1/namespaces/[^/]+/configmaps/gangplan-start-[0-9a-f]+"
    "|/apis/scheduling[.]run[.]ai/[^/]+/namespaces/[^/]+/bindrequests/[^/]+"
)
"""What this program deletes: records of starts, and BindRequests that say that they are ours."""


def deletes_others(one: ApiRequest) -> bool:
    """Whether a request would delete anything else, or what has not been read in that version."""
    read = (one.body or {}).get("preconditions", {}).keys() >= {"uid", "resourceVersion"}
    ours = _DELETED.fullmatch(one.path.partition("?")[0]) is not None and read
    return one.method == "DELETE" and not ours


_ANY_NAME = "[a-z0-9][a-z0-9.-]*"
_ANY_VERSION = "v[0-9]+((alpha|beta)[0-9]+)?"


def accepted(rights: Iterable[Right]) -> tuple[str, ...]:
    """Patterns for the proxy: the whole paths, without their query, of what these rights allow.

    With lists goes what says which groups and versions are served. Regular expressions of Go, without
    commas: kubectl splits the list at them.
    """
    found: dict[str, None] = {}
    for one in rights:
        root = f"/apis/{re.escape(one.group)}/{_ANY_VERSION}" if one.group else "/api/v1"
        space = _ANY_NAME if one.namespace is None else re.escape(one.namespace)
        path = f"^{root}(/namespaces/{space}){'?' * (one.namespace is None)}/{one.resource}"
        if one.verb not in ("list", "create") or one.subresource:
            path += f"/{re.escape(one.name) or _ANY_NAME}"
        path += f"/{one.subresource}" if one.subresource else ""
        found[f"{path}$"] = None
        if one.verb == "list" and one.group:
            found |= {f"^{API_GROUPS}$": None, f"^{root}$": None}
    return tuple(found)
