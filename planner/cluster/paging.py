"""A list of the API server, page by page, the next page on its way while this one is worked on.

Promises: at most two pages are in memory; a list that expires half-way begins again, and says so.
Called by ``planner.cluster.recording``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.cluster.bodies import Tree
from planner.cluster.discovery import Served
from planner.cluster.kubectl import Asked, Kubectl
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
