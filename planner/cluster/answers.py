"""Bodies of answers: one JSON object, or none that can be used.

Promises: pure; a body that is cut short, no object, or holds what is no number, is refused. Called by
``planner.cluster.kubectl`` and ``planner.cluster.proxy``.

What kubectl's stderr means: it exits 1 for everything, so its words have to tell.

Promises: pure; a message is one printable line of bounded length, whatever the server wrote.
Called by ``planner.cluster.kubectl``.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from planner.untrusted_text import one_line

MAX_BYTES = 256 * 2**20
"""Largest answer that is read."""

Tree = dict[str, Any]


class MalformedError(ValueError):
    """An answer that is no JSON object."""


def json_object(body: bytes) -> Tree:
    """Raises MalformedError for anything but one JSON object without NaN and infinities."""
    try:
        tree = _DECODE(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        where = f" after {len(body):,} bytes" if len(body) else ": it is empty"
        raise MalformedError(f"the answer is not whole JSON{where}") from error
    if not isinstance(tree, dict):
        raise MalformedError("the answer is no JSON object")
    return tree


def _finite(written: str) -> float:
    """Raises ValueError for what is too large to be a number, such as 1e999."""
    value = float(written)
    if math.isinf(value):
        _no_number(written)
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


_DECODE = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number).decode


class Reason(StrEnum):
    """How to go on after a refusal."""

    missing = "missing"
    """404: no such object, or no such kind."""
    forbidden = "forbidden"
    """403: the right is not granted."""
    expired = "expired"
    """410: the list went on too long; start it again."""
    unauthorized = "unauthorized"
    """401: no valid credentials."""
    refused = "refused"
    """Nobody listens at the server's address."""
    transient = "transient"
    """429, 5xx, a time-out, a broken connection: the same request may succeed a moment later."""
    other = "other"
    """Anything else: a wrong context, a name that does not resolve, a certificate."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is not the one asked for. ``message``: the server's or kubectl's words."""

    reason: Reason
    message: str


_STATUS = {
    "NotFound": Reason.missing,
    "Forbidden": Reason.forbidden,
    "Expired": Reason.expired,
    "Gone": Reason.expired,
    "Unauthorized": Reason.unauthorized,
    "TooManyRequests": Reason.transient,
    "InternalError": Reason.transient,
    "ServiceUnavailable": Reason.transient,
    "ServerTimeout": Reason.transient,
    "Timeout": Reason.transient,
}

_SERVER = re.compile(r"^Error from server(?: \((?P<status>\w+)\))?: (?P<message>.*)$", re.MULTILINE)
_LOGIN = re.compile(r"^error: (?P<message>You must be logged in to the server.*)$", re.MULTILINE)
_REFUSED = re.compile(
    r"^(?P<message>The connection to the server .* was refused).*$|^.*connection refused.*$",
    re.MULTILINE,
)
_BROKEN = re.compile(
    r"unexpected EOF|: EOF$|connection reset|broken pipe|timed? ?out|deadline exceeded"
    r"|request canceled|http2: |server closed|unable to handle the request|malformed HTTP",
    re.MULTILINE | re.IGNORECASE,
)
_GONE = re.compile(r"continue parameter is too old|resource version .*too old", re.IGNORECASE)
_PREFIX = re.compile(r"^(?:error|Unable to connect to the server|Error in configuration): ")
_KLOG = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]]*\] ")


def understood(talk: str) -> Refusal:
    """What a failed kubectl said, as a reason and one line."""
    if found := _SERVER.search(talk):
        reason = _STATUS.get(found["status"] or "", Reason.other)
        if _GONE.search(found["message"]):
            reason = Reason.expired
        return Refusal(reason, one_line(found["message"]))
    if found := _LOGIN.search(talk):
        return Refusal(Reason.unauthorized, one_line(found["message"]))
    if found := _REFUSED.search(talk):
        return Refusal(Reason.refused, one_line(found["message"] or found[0]))
    said = _last(talk)
    return Refusal(Reason.transient if _BROKEN.search(talk) else Reason.other, said)


def way_on(message: str, context: str | None, by_hand: str) -> str:
    """The hint where a server cannot be reached. Told no server, kubectl asks port 8080 of this host."""
    if context is None and ":8080" in message:
        return (
            "no current context: look at $KUBECONFIG or ~/.kube/config, or name --kubeconfig FILE"
        )
    return f"try it by hand: {by_hand}"


def _last(talk: str) -> str:
    """The last line that says something: kubectl's own log lines come before its verdict."""
    lines = [line for line in talk.splitlines() if line.strip()]
    spoken = [line for line in lines if not _KLOG.match(line)] or lines
    return one_line(_PREFIX.sub("", spoken[-1])) if spoken else "kubectl failed without a word"
