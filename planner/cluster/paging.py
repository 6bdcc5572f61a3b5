"""A list of the API server, page by page, the next page on its way while this one is worked on.

Promises: at most two pages are in memory; a list that expires half-way begins again, and says so.
Called by ``planner.cluster.recording``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from planner.cluster.discovery import Served
from planner.cluster.kubectl import Kubectl, Tree
from planner.cluster.refusals import Reason, Refusal
from planner.errors import Fault, UnavailableError
from planner.reading.kubernetes.looking import text, whole

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
    _first: Future[Tree | Refusal] | None = None

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
            asked = first or self._ask(place, None)
            for tree in self._trees(place, asked):
                metadata = tree.get("metadata")
                left = whole(metadata, "remainingItemCount") or 0
                version = text(metadata, "resourceVersion")
                yield Page(tree.get("items") or [], version, begins, left)
                begins = False

    def _trees(self, place: str | None, asked: Future[Tree | Refusal]) -> Iterator[Tree]:
        """The documents of one place; what follows is asked for before each is handed out."""
        before = None
        for _ in range(MAX_PAGES):
            answer = asked.result()
            if isinstance(answer, Refusal):
                if answer.reason is Reason.expired and self.restarts <= MAX_RESTARTS:
                    raise _Expired
                if answer.reason is Reason.expired:
                    break
                self.refusals.append((place, answer))
                return
            if not isinstance(answer.get("items"), list | None):
                break
            following = text(answer, "metadata", "continue")
            if following is None:
                yield answer
                return
            if following == before:
                break
            before = following
            asked = self._ask(place, following)
            yield answer
        what = f"GET {self.served.path(place)}: the server's answers do not make a list"
        raise UnavailableError(Fault(what, "try again; if it stays so, look at the API server"))

    def _places(self) -> list[str | None]:
        if self.namespaces and self.served.kind.namespaced:
            return list(self.namespaces)
        return [None]

    def _ask(self, place: str | None, following: str | None) -> Future[Tree | Refusal]:
        path = self.served.path(place)
        if self.restarts <= MAX_RESTARTS:
            path += f"?limit={PAGE}"
            if following is not None:
                path += f"&continue={quote(following, safe='')}"
        return self.door.ask_json(path)


class _Expired(Exception):  # noqa: N818  # an event, no error
    """The list changed too much since its first page."""
