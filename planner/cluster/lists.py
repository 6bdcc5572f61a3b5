"""Lists of the API server over the wire, page by page.

Promises: a list that expires half-way begins again; a list that cannot be had whole is an error, never
a shorter list. Raises UnavailableError and NotPermittedError. Called by ``live``.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from planner.cluster.paths import grouped
from planner.cluster.refusals import one_line
from planner.cluster.wire import Reply, Tree, Wire
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.reading.kubernetes.looking import text

PAGE = 500
"""Objects a page."""

MAX_PAGES = 20_000
MAX_RESTARTS = 3
"""So often a list is begun again page by page; after that it is asked for in one piece."""

GROUPS = tuple(
    grouped("scheduling.k8s.io", version, "podgroups")
    for version in ("v1", "v1beta1", "v1alpha3", "v1alpha2")
)
"""Where native PodGroups may be served: the first that is there counts."""


def _resource(plural: str) -> tuple[str, ...]:
    return tuple(
        grouped("resource.k8s.io", version, plural) for version in ("v1", "v1beta2", "v1beta1")
    )


SLICES = _resource("resourceslices")

RESOURCES: tuple[tuple[tuple[str, ...], str, str], ...] = tuple(
    (_resource(plural), kind, "resource.k8s.io/v1")
    for plural, kind in (
        ("resourceslices", "ResourceSlice"),
        ("resourceclaims", "ResourceClaim"),
        ("deviceclasses", "DeviceClass"),
    )
)
"""(paths to try, kind, apiVersion they are read as) of what dynamic resource allocation is about."""

_NOT_FOUND, _GONE = 404, 410


def listed(wire: Wire, path: str) -> list[Tree]:
    """Every object of a list."""
    for restart in range(MAX_RESTARTS + 2):
        found = _pages(wire, path, PAGE if restart <= MAX_RESTARTS else None)
        if found is not None:
            return found
    raise UnavailableError(Fault(f"GET {path}: the list changes faster than it is read"))


def versions(wire: Wire, paths: Sequence[str]) -> list[Tree] | None:
    """The list at the first path that is there; None where none is, or it may not be read."""
    for path in paths:
        try:
            return listed(wire, path)
        except NotServedError:
            continue
        except NotPermittedError:
            return None
    return None


def any_at(wire: Wire, paths: Sequence[str]) -> bool:
    """Whether the first of these lists that is there, and may be read, holds anything."""
    for path in paths:
        reply = wire.send("GET", f"{path}?limit=1")
        if reply.ok:
            return bool(reply.body.get("items"))
        if reply.status not in (401, 403, _NOT_FOUND):
            raise failed(reply, f"GET {path}")
    return False


def named(wire: Wire, path: str) -> Reply:
    """The answer of GET for one object that is there."""
    reply = wire.send("GET", path)
    if not reply.ok:
        raise failed(reply, f"GET {path}")
    return reply


class NotServedError(UnavailableError):
    """404 for a list: this server has no such kind."""


def failed(reply: Reply, what: str) -> UnavailableError | NotPermittedError:
    """The error that a refused or lost request is."""
    said = f"{what}: {one_line(reply.message)}"
    if reply.status in (401, 403):
        return NotPermittedError(Fault(said, "see gangplan doctor for the rights it needs"))
    if reply.status == _NOT_FOUND:
        return NotServedError(Fault(said))
    return UnavailableError(Fault(said, "try again; if it stays so, look at the API server"))


def _pages(wire: Wire, path: str, limit: int | None) -> list[Tree] | None:
    """All pages of a list; None if it expired half-way."""
    found: list[Tree] = []
    token: str | None = None
    for _ in range(MAX_PAGES):
        query = [f"limit={limit}"] if limit is not None else []
        query += [f"continue={quote(token, safe='')}"] if token is not None else []
        reply = wire.send("GET", f"{path}?{'&'.join(query)}" if query else path)
        if reply.status == _GONE:
            return None
        if not reply.ok:
            raise failed(reply, f"GET {path}")
        items = reply.body.get("items")
        if not isinstance(items, list) and not ("items" in reply.body and items is None):
            raise UnavailableError(Fault(f"GET {path}: the server's answer is no list"))
        found += [one for one in items or () if isinstance(one, dict)]
        following = text(reply.body, "metadata", "continue")
        if following is None:
            return found
        if following == token:
            break
        token = following
    raise UnavailableError(Fault(f"GET {path}: the server's pages do not end"))
