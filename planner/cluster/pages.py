"""Lists of the API server, page by page. A list that cannot be had whole is an error.

A list that expires half-way begins again. Which kinds a cluster serves, and in which version, say its
discovery documents; versions are checked before they become part of a path.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from msgspec import Raw

from planner.cluster.transport import (
    API_GROUPS,
    TOO_LONG,
    MalformedError,
    Reply,
    Transport,
    Tree,
    core,
    grouped,
    is_version,
    json_object,
)
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.read.kube.kinds import BY_RESOURCE, Kind
from planner.read.kube.lookup import items, objects, text, whole
from planner.untrusted_text import one_line

PAGE = 500
"""Objects a page; fewer where the answer is longer than the limit of one."""

MAX_PAGES = 20_000
MAX_RESTARTS = 3
"""A list that expires more often is read in one piece."""

_NOT_FOUND, _GONE = 404, 410


@dataclass(frozen=True, slots=True)
class Page:
    """``items``: as JSON. ``first``: discard all pages before this one.

    ``left``: objects to come, if the server says.
    """

    items: list[Raw]
    resource_version: str | None
    first: bool
    left: int


class NotServedError(UnavailableError):
    """404 for a list: this server has no such kind."""


class ListPages:
    """The pages of one or several lists. ``refused``: path and reply of lists with 403 or 404."""

    def __init__(self, transport: Transport, *paths: str) -> None:
        self._transport = transport
        self._paths = paths
        self.restarts = 0
        self.refused: list[tuple[str, Reply]] = []

    def __iter__(self) -> Iterator[Page]:
        """Raises UnavailableError, NotPermittedError."""
        while True:
            first = True
            self.refused.clear()
            try:
                for path in self._paths:
                    limit = PAGE if self.restarts <= MAX_RESTARTS else None
                    for page in self._pages(path, limit, first=first):
                        yield page
                        first = False
            except _ExpiredError:
                self.restarts += 1
            else:
                return

    def _pages(self, path: str, limit: int | None, *, first: bool) -> Iterator[Page]:
        token: str | None = None
        for _ in range(MAX_PAGES):
            query = [f"limit={limit}"] if limit is not None else []
            query += [f"continue={quote(token, safe='')}"] if token is not None else []
            asked = "&".join([path, *query]) if "?" in path else "?".join([path, "&".join(query)])
            reply = self._transport.send("GET", asked.removesuffix("?"))
            if reply.status in {403, _NOT_FOUND}:
                self.refused.append((path, reply))
                return
            if reply.status == _GONE and limit is not None:
                raise _ExpiredError
            if reply.reason == TOO_LONG and limit is not None and limit > 1:
                limit //= 2
                continue
            if not reply.ok:
                raise failed(reply, f"GET {path}")
            body, metadata = reply.body, reply.body.get("metadata")
            items = body.get("items", ())
            following = text(metadata, "continue")
            if not isinstance(items, list | None) or (following is not None and following == token):
                break
            left = whole(metadata, "remainingItemCount") or 0
            written = [_written(one) for one in items or ()]
            yield Page(written, text(metadata, "resourceVersion"), first, left)
            if following is None:
                return
            first, token = False, following
        what = f"GET {path}: the server's answers are not a list"
        raise UnavailableError(Fault(what, _LOOK))


def _written(item: object) -> Raw:
    """An item as JSON; it is a tree if the server is in this process, or the list has half a character."""
    return item if isinstance(item, Raw) else Raw(json.dumps(item).encode())


class _ExpiredError(Exception):
    """The list changed too much since its first page."""


_LOOK = "try again; if it persists, look at the API server"


def tree_of(item: Raw) -> Tree | None:
    """The whole object; None if it is none. Raises UnavailableError for what is no JSON."""
    written = bytes(item)
    try:
        return json_object(written) if written.startswith(b"{") else None
    except MalformedError as error:
        raise UnavailableError(Fault(f"an object of a list: {error}", _LOOK)) from error


T = TypeVar("T")


def list_objects(transport: Transport, path: str) -> list[Tree]:
    """Every object of a list that can be read. Raises as ``read_list`` does."""
    return read_list(transport, path, tree_of)


def read_list(transport: Transport, path: str, read: Callable[[Raw], T | None]) -> list[T]:
    """What ``read`` makes of the JSON of each object of a list, without None.

    Raises UnavailableError, NotPermittedError, NotServedError.
    """
    pages = ListPages(transport, path)
    found: list[T] = []
    for page in pages:
        if page.first:
            found.clear()
        found += [made for one in page.items if (made := read(one)) is not None]
    for _, reply in pages.refused:
        raise failed(reply, f"GET {path}")
    return found


DEVICES = tuple(
    f"{plural}.resource.k8s.io" for plural in ("resourceslices", "resourceclaims", "deviceclasses")
)
"""Resources of dynamic resource allocation."""

BUDGETS = "poddisruptionbudgets.policy"


def list_kind(transport: Transport, resource: str) -> Tree | None:
    """The list of a kind that planning reads, in the first version that is served.

    None if none is, or it may not be read.
    """
    kind = BY_RESOURCE.get(resource)
    for served in () if kind is None else (ServedKind(kind, one) for one in kind.versions):
        try:
            found = list_objects(transport, served.path())
        except NotServedError:
            continue
        except NotPermittedError:
            return None
        kind_of_list = f"{served.kind.name}List"
        return {"kind": kind_of_list, "apiVersion": served.api_version, "items": found}
    return None


def get(transport: Transport, path: str) -> Reply:
    """The reply to GET for one object that exists."""
    reply = transport.send("GET", path)
    if not reply.ok:
        raise failed(reply, f"GET {path}")
    return reply


def failed(reply: Reply, what: str) -> UnavailableError | NotPermittedError:
    """The error for a refused or lost request."""
    message = f"{what}: {one_line(reply.message)}"
    if reply.status in (401, 403):
        return NotPermittedError(Fault(message, "see gangplan doctor for the rights it needs"))
    if reply.status == _NOT_FOUND:
        return NotServedError(Fault(message))
    return UnavailableError(Fault(message, _LOOK))


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind and the version to read."""

    kind: Kind
    version: str

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    def path(self, namespace: str | None = None) -> str:
        """URL path of the list, of one namespace or of all."""
        if not self.kind.group:
            return core(self.kind.plural, namespace=namespace)
        return grouped(self.kind.group, self.version, self.kind.plural, namespace=namespace)


def served_groups(transport: Transport) -> frozenset[str] | None:
    """The API groups; None if the server does not say."""
    found = _served_versions(transport.send("GET", API_GROUPS))
    return None if found is None else frozenset(found)


def is_served(transport: Transport, group: str, version: str, plural: str) -> bool:
    """Whether a resource can be listed; also if the user may not know. Raises UnavailableError."""
    listable = _listable(transport, f"{API_GROUPS}/{group}/{version}")
    return listable is None or plural in listable


def discover(transport: Transport, kinds: Sequence[Kind]) -> tuple[list[ServedKind], list[Kind]]:
    """Kinds that are served, and those that are not, each in the given order.

    Raises UnavailableError, NotPermittedError.
    """
    served = _served_versions(_document(transport, API_GROUPS))
    listed = functools.cache(functools.partial(_listable, transport))

    def has(kind: Kind, version: str) -> bool:
        if kind.beside != kind.group and served is not None and kind.beside not in served:
            return False
        if kind.certain or not kind.group:
            return True
        listable = listed(f"{API_GROUPS}/{kind.group}/{version}")
        return listable is None or kind.plural in listable

    found, absent = [], []
    for kind in kinds:
        version = next((one for one in _candidates(kind, served) if has(kind, one)), None)
        if version is None:
            absent.append(kind)
        else:
            found.append(ServedKind(kind, version))
    return found, absent


def _document(transport: Transport, path: str) -> Reply:
    """A discovery document; also the reply that it is missing or forbidden."""
    reply = transport.send("GET", path)
    if reply.ok or reply.status in {403, 404, 410}:
        return reply
    raise failed(reply, f"GET {path}")


def _served_versions(groups: Reply) -> dict[str, list[str]] | None:
    """Group to its versions, the preferred one first; None if the user may not know."""
    if not groups.ok:
        return None
    found = {}
    for group in objects(groups.body, "groups"):
        names = [text(group, "preferredVersion", "version")]
        names += [text(version, "version") for version in objects(group, "versions")]
        versions = [name for name in names if name is not None and is_version(name)]
        found[text(group, "name") or ""] = list(dict.fromkeys(versions))
    return found


def _candidates(kind: Kind, served: dict[str, list[str]] | None) -> tuple[str, ...]:
    """Versions to look at: known ones first. Without discovery the known ones are tried."""
    if not kind.group or served is None:
        return kind.versions
    there = served.get(kind.group, [])
    known = tuple(version for version in kind.versions if version in there)
    if kind.certain:
        return known
    return known + tuple(version for version in there if version not in known)


def _listable(transport: Transport, path: str) -> set[str] | None:
    """Plurals of a group's version that can be listed; None if the user may not know."""
    resources = _document(transport, path)
    if not resources.ok:
        return None if resources.status == 403 else set()
    entries = objects(resources.body, "resources")
    return {name for e in entries if (name := text(e, "name")) and "list" in items(e, "verbs")}
