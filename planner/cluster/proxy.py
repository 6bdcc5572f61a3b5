"""Bulk work through the one door: a ``kubectl proxy`` on a unix socket that only we can reach.

Promises: credentials stay kubectl's business; only the paths named get through, and no DELETE; proxy,
socket and folder go with us however we end. Called by the verbs that write; gives them a Wire.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime

from planner.cluster.answers import MAX_BYTES, MalformedError, json_object, way_on
from planner.cluster.kubectl import Kubectl
from planner.cluster.proxy_process import Proxy
from planner.cluster.transport import JSON, LOST, Asked, Reply, Tree
from planner.cluster.unix_http import Answer, BrokenError, Channel
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.untrusted_text import one_line

TOO_LONG = "TooLong"
"""Reason of a reply that was longer than is read: asking again does not help."""

FILTERED = "Filtered"
"""Reason of a reply of the proxy's own filter: a path that was not named; nothing was sent on."""

VERSION = "/version"
"""Asked first: it tells whether the server can be reached, and everybody may read it."""

_WAITS_S = (0.5, 1.0)
"""Pauses before the server is asked again whether it is there."""

_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


@contextlib.contextmanager
def opened(
    environ: Mapping[str, str],
    *,
    context: str | None = None,
    kubeconfig: str | None = None,
    timeout_s: float = 60.0,
    accept: Sequence[str] = (),
    most: int = MAX_BYTES,
) -> Iterator[ProxyWire]:
    """A wire to the cluster of that context (None: the current one), for the paths of ``accept``.

    ``accept``: regular expressions of Go for whole paths without their query; no commas, for kubectl
    cuts the list at them. ``timeout_s``: for one request.
    Raises UnavailableError (69), NotPermittedError (77), MissingPathError (66), CannotWriteError (73).
    """
    with Kubectl.find(environ, context=context, kubeconfig=kubeconfig, timeout_s=timeout_s) as door:
        program, context = door.program, door.context
    proxy = Proxy(
        program,
        environ=environ,
        context=context,
        kubeconfig=kubeconfig,
        accept=(f"{VERSION}", *accept),
    )
    wire = ProxyWire(proxy, timeout_s=timeout_s, most=most)
    try:
        proxy.start()
        wire.greet()
        yield wire
    finally:
        wire.close()


class ProxyWire:
    """The Wire through ``kubectl proxy``. Safe for several threads: they take turns.

    ``context``: of kubectl, None if it has none. ``version``: the server's, such as v1.36.2; None if
    it would not say. ``date``: the server's clock when it was greeted.
    """

    def __init__(self, proxy: Proxy, *, timeout_s: float, most: int = MAX_BYTES) -> None:
        self._proxy = proxy
        self._channel = Channel(lambda: proxy.socket, seconds=timeout_s, most=most)
        self._turn = threading.Lock()
        self._date: tuple[str, float | None] = ("", None)
        self.context = proxy.context
        self.kubeconfig = proxy.kubeconfig
        self.version: str | None = None
        self.date: float | None = None

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """One request and its answer; what is no answer of the API server is Reply(LOST)."""
        with self._turn:
            if not self._serves():
                return self._ended()
            try:
                answer = self._channel.ask(method, path, _raw(body), content_type)
            except BrokenError as error:
                return _broken(error)
            return self._reply(answer)

    def send_all(self, asked: Sequence[Asked]) -> list[Reply]:
        """Requests on their way together, on the one connection; kubectl takes them one by one."""
        questions = [(one.method, one.path, _raw(one.body), one.content_type) for one in asked]
        with self._turn:
            if not self._serves():
                return [self._ended()] * len(asked)
            return [
                _broken(found) if isinstance(found, BrokenError) else self._reply(found)
                for found in self._channel.ask_all(questions)
            ]

    def greet(self) -> None:
        """See whether the server is there and knows us. Raises UnavailableError, NotPermittedError."""
        for pause in (*_WAITS_S, None):
            reply = self.send("GET", VERSION)
            hopeless = reply.status == LOST and not _transient(reply.why)
            if pause is None or hopeless or (reply.status != LOST and reply.status < 500):
                break
            time.sleep(pause)
        if reply.status == 401 or (reply.status == LOST and _credentials(reply.why)):
            raise NotPermittedError(
                Fault(f"not logged in: {one_line(reply.message)}", self._hint())
            )
        if reply.status == LOST or reply.status >= 500:
            said = f"cannot reach the API server: {one_line(reply.message)}"
            hint = way_on(reply.message, self.context, self._proxy.by_hand())
            raise UnavailableError(Fault(said, hint))
        version = reply.body.get("gitVersion")
        self.version = one_line(version) if reply.ok and isinstance(version, str) else None
        self.date = reply.date

    def close(self) -> None:
        """End the connection and the proxy."""
        self._channel.close()
        self._proxy.close()

    def _serves(self) -> bool:
        """Whether the proxy is there, started anew where something ended it."""
        if self._proxy.alive():
            return True
        self._channel.close()
        return self._proxy.again()

    def _ended(self) -> Reply:
        return Reply(LOST, why=f"kubectl proxy ended: {self._proxy.last_words()}")

    def _hint(self) -> str:
        return f"try it by hand: {self._proxy.by_hand()}"

    def _reply(self, answer: Answer) -> Reply:
        headers = answer.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == JSON:
            try:
                body = json_object(answer.body)
            except MalformedError as error:
                return _no_body(answer, str(error))
            after = headers.get("retry-after")
            return Reply(
                answer.status,
                body,
                self._clock(headers.get("date", "")),
                _seconds(after) if after is not None else None,
            )
        text = one_line(answer.body[:2000].decode("utf-8", "replace"))
        if kind != "text/plain":
            what = "an empty body" if not answer.body else f"a body of {kind or 'no'} type"
            return _no_body(answer, f"HTTP {answer.status} with {what}, which is no API server's")
        if "audit-id" in headers or answer.status == 404:
            # the API server's own few lines of plain text: "404 page not found" where it has no such API
            return _no_body(answer, text)
        if answer.status == 403 and text == "Forbidden":
            return Reply(
                400, {"reason": FILTERED}, why="kubectl proxy lets no such request through"
            )
        return Reply(LOST, why=text or f"HTTP {answer.status}")

    def _clock(self, written: str) -> float | None:
        """Seconds since the epoch of a header Date; a thousand answers a second have the same one."""
        known, value = self._date
        if written != known:
            try:
                value = parsedate_to_datetime(written).timestamp()
            except ValueError:
                value = None
            self._date = (written, value)
        return value


def _raw(body: Tree | None) -> bytes | None:
    return None if body is None else _ENCODE(body).encode("utf-8", "surrogatepass")


def _broken(error: BrokenError) -> Reply:
    return Reply(LOST, body={"reason": TOO_LONG} if error.too_long else {}, why=str(error))


def _no_body(answer: Answer, why: str) -> Reply:
    """An answer without the JSON it should have: its status counts only where it says "no"."""
    if answer.status >= 500 or answer.status == 404:
        return Reply(
            answer.status, why=why, retry_after_s=_seconds(answer.headers.get("retry-after"))
        )
    return Reply(LOST, why=why)


def _seconds(written: str | None) -> float | None:
    """Of a header Retry-After; its other form, a date, is not used by API servers."""
    whole = written is not None and written.isascii() and written.isdigit() and len(written) < 7
    return float(written) if whole and written is not None else None


def _credentials(why: str) -> bool:
    return why.startswith("getting credentials")


def _transient(why: str) -> bool:
    """Whether asking again may help: not where credentials, names or certificates are wrong."""
    return not (_credentials(why) or "no such host" in why or "x509" in why or "tls:" in why)
