"""The wire: one HTTP request to the API server and its answer, whoever carries it.

Promises: an interface and its plain data; a lost answer is an answer (status 0), never an exception.
Implemented by ``planner.cluster.proxy`` through ``kubectl proxy``, and by tests from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

Tree = dict[str, Any]

JSON = "application/json"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

LOST = 0
"""Status of a reply that never came: the connection broke, or time was up."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; ``body``: the JSON object, {} if there is none.

    ``date``: the server's clock in seconds since the epoch, None if it did not say.
    ``retry_after_s``: of the header Retry-After.
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
        """The server's words (untrusted, unbounded: show it through ``one_line``), or why it was lost."""
        said = self.body.get("message")
        return said if isinstance(said, str) and said else self.why or f"HTTP {self.status}"

    @property
    def reason(self) -> str:
        said = self.body.get("reason")
        return said if isinstance(said, str) else ""


class Wire(Protocol):
    """Sends one request and waits for its answer. Not safe for several threads unless it says so."""

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """``path``: with its query, every part quoted (``planner.cluster.pages``)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that waits to be sent with others."""

    method: str
    path: str
    body: Tree | None = None
    content_type: str = JSON


@runtime_checkable
class Ahead(Protocol):
    """A wire that need not wait for one answer before it sends the next request."""

    def send_all(self, asked: Sequence[Asked]) -> list[Reply]:
        """An answer each, in order; the requests are carried out one after the other.

        After a lost one, all are lost: nobody knows which of them were carried out.
        """


def send_all(wire: Wire, asked: Sequence[Asked]) -> list[Reply]:
    """All of them over the wire, one by one if it knows no other way."""
    if isinstance(wire, Ahead):
        return wire.send_all(asked)
    return [
        wire.send(one.method, one.path, one.body, content_type=one.content_type) for one in asked
    ]
