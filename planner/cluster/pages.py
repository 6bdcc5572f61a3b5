"""URL paths of API objects: every part checked and quoted before it becomes part of one.

Promises: a name from the cluster that is no Kubernetes name never reaches a URL. Raises ValueError,
which callers turn into what they say of that object. Called by whatever sends requests.

A list of the API server, page by page, the next page on its way while this one is worked on.

Promises: at most two pages are in memory; a list that expires half-way begins again, and says so.
Called by ``planner.cluster.snapshot``.

Lists of the API server over the wire, page by page.

Promises: a list that expires half-way begins again; a list that cannot be had whole is an error, never
a shorter list. Raises UnavailableError and NotPermittedError. Called by ``live``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from planner.cluster.answers import Reason, Refusal, Tree
from planner.cluster.discovery import Served
from planner.cluster.kubectl import Asked, Kubectl
from planner.cluster.transport import Reply, Wire
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.read.kube.lookup import text, whole
from planner.untrusted_text import one_line

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


PAGE = 500
"""Objects a page."""

MAX_PAGES = 20_000
MAX_RESTARTS = 3
"""So often a list is begun again page by page; after that it is asked for in one piece."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of a list. ``begins``: what came before, if anything, counts no more.

    ``left``: how many objects are still to come, as far as the server says.
    """

    items: list[Any]
    resource_version: str | None
    begins: bool
    left: int


@dataclass(slots=True)
class Listing:
    """All objects of one kind, of the whole cluster or of some namespaces.

    ``refusals``: (namespace or None, what the server said) where the user may not list, or where
    the kind is not there after all.
    """

    door: Kubectl
    served: Served
    namespaces: Sequence[str] = ()
    restarts: int = 0
    refusals: list[tuple[str | None, Refusal]] = field(default_factory=list)
    _first: Asked | None = None

    def open(self) -> None:
        """Ask for the first page, without waiting for it."""
        if self._first is None:
            self._first = self._ask(self._places()[0], None)

    def pages(self) -> Iterator[Page]:
        """Every page in order. Raises UnavailableError, NotPermittedError."""
        while True:
            try:
                yield from self._pages()
            except _Expired:
                self.restarts += 1
                self._first = None
            else:
                return

    def _pages(self) -> Iterator[Page]:
        self.refusals.clear()
        begins = True
        for place in self._places():
            first, self._first = self._first, None
            for tree in self._trees(place, first or self._ask(place, None)):
                metadata = tree.get("metadata")
                left = whole(metadata, "remainingItemCount") or 0
                version = text(metadata, "resourceVersion")
                yield Page(tree.get("items") or [], version, begins, left)
                begins = False

    def _trees(self, place: str | None, asked: Asked) -> Iterator[Tree]:
        """The documents of one place; what follows is asked for before each is handed out."""
        for _ in range(MAX_PAGES):
            token = asked.following.result()
            ahead = None if token in {None, asked.token} else self._ask(place, token)
            answer = asked.body.result()
            if isinstance(answer, Refusal):
                if answer.reason is not Reason.expired:
                    self.refusals.append((place, answer))
                    return
                if self.restarts > MAX_RESTARTS:
                    break
                raise _Expired
            following = text(answer, "metadata", "continue")
            whole_list = isinstance(answer.get("items"), list | None)
            if not whole_list or (following is not None and following == asked.token):
                break
            if following is None:
                yield answer
                return
            # The page may have been sent again, and be of a later state than what it first began with.
            fits = ahead is not None and ahead.token == following
            asked = ahead if ahead is not None and fits else self._ask(place, following)
            yield answer
        what = f"GET {self.served.path(place)}: the server's answers do not make a list"
        raise UnavailableError(Fault(what, "try again; if it stays so, look at the API server"))

    def _places(self) -> list[str | None]:
        if self.namespaces and self.served.kind.namespaced:
            return list(self.namespaces)
        return [None]

    def _ask(self, place: str | None, token: str | None) -> Asked:
        limit = PAGE if self.restarts <= MAX_RESTARTS else None
        return self.door.ask_list(self.served.path(place), limit, token)


class _Expired(Exception):  # noqa: N818  # an event, no error
    """The list changed too much since its first page."""


PAGE_LISTS = 500
"""Objects a page."""

MAX_PAGES_LISTS = 20_000
MAX_RESTARTS_LISTS = 3
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
    for restart in range(MAX_RESTARTS_LISTS + 2):
        found = _pages(wire, path, PAGE_LISTS if restart <= MAX_RESTARTS_LISTS else None)
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
    for _ in range(MAX_PAGES_LISTS):
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
