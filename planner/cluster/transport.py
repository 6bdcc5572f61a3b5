"""One request to the API server and its reply, independent of what carries it.

A lost answer is a reply too (status 0), never an exception.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, runtime_checkable

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
    """``path``: with its query, every part quoted (``planner.cluster.api_paths``)."""

    method: str
    path: str
    body: Tree | None = None
    content_type: str = JSON


class Transport(Protocol):
    """Sends one request and waits for the reply. Not thread-safe unless it says so."""

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply: ...


@runtime_checkable
class ManyTransport(Protocol):
    """A transport that sends several requests at once."""

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """A reply each, in order; the server may carry the requests out in any order.

        After a lost reply it is unknown which of them were carried out.
        """


def send_one(transport: Transport, one: ApiRequest) -> Reply:
    return transport.send(one.method, one.path, one.body, content_type=one.content_type)


def send_all(transport: Transport, requests: Sequence[ApiRequest]) -> list[Reply]:
    """At once if the transport can do that, else one by one."""
    if isinstance(transport, ManyTransport):
        return transport.send_all(requests)
    return [send_one(transport, one) for one in requests]


class MalformedError(ValueError):
    """A body that is not a JSON object."""


def json_object(body: bytes) -> Tree:
    """Raises MalformedError for anything but one whole JSON object without NaN and infinities."""
    try:
        tree = _DECODE(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError) as error:
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
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return json_object(body)  # no list, or it says what is wrong
    return {"kind": found.kind, "metadata": found.metadata, "items": found.items}


def _finite(written: str) -> float:
    value = float(written)
    if math.isinf(value):  # such as 1e999
        _refuse(written)
    return value


def _refuse(written: str) -> NoReturn:
    raise ValueError(written)


_DECODE = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse).decode
