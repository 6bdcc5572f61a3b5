"""The one door to a cluster: kubectl, called with argv lists, an explicit context and a time limit.

Promises: reads only; credentials stay kubectl's business; a failed request is tried again only where
that can help, and counted. Called by ``planner.cluster.snapshot`` and whatever asks a live cluster.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

from planner.cluster.answers import (
    MAX_BYTES,
    MalformedError,
    Reason,
    Refusal,
    Tree,
    json_object,
    understood,
    way_on,
)
from planner.cluster.child_process import Children, Cut, Ended
from planner.errors import (
    Fault,
    GangplanError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
)
from planner.untrusted_text import one_line

WAITS_S = (0.5, 1.0, 2.0)
"""Pauses before a transient failure is tried again."""

_GRACE_S = 10.0
"""Seconds kubectl gets beyond its own time-out: to log in, and to say what went wrong."""

_INSTALL = "install kubectl, or name it: KUBECTL=/path/to/kubectl"

_RETURNED = (Reason.missing, Reason.forbidden, Reason.expired)

_Body = TypeVar("_Body")


_CONTINUE = re.compile(
    rb'\{"kind":"\w+","apiVersion":"[\w./-]+","metadata":\{[^{}]*"continue":"([^"\\]+)"[^{}]*\},'
)
"""How lists of built-in kinds begin: what to ask for next is known before the rest is parsed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A list, or a page of one, that is on its way. ``token``: the ``continue`` it was asked with.

    ``following``: the ``continue`` it begins with, known before the rest is parsed; None if it does
    not begin with one.
    """

    token: str | None
    following: Future[str | None]
    body: Future[Tree | Refusal]


class FailedRequestError(UnavailableError):
    """The server is there, and one request failed as often as it was sent."""


class Kubectl:
    """Asks one cluster. Use it as a context manager: leaving it ends every child.

    Questions run on threads of its own, so that a signal never arrives between the start of a child
    and its being known. ``context`` None: kubectl has none (inside a pod it uses the service account).
    """

    def __init__(
        self,
        program: str,
        *,
        environ: Mapping[str, str],
        context: str | None = None,
        kubeconfig: str | None = None,
        timeout_s: float = 60.0,
        most: int = MAX_BYTES,
    ) -> None:
        self._program = program
        # kubectl's own preferences file may add flags to `get`: not to ours.
        self._environ = {**environ, "KUBERC": "off"}
        self.context = context
        self._kubeconfig = kubeconfig
        self._timeout_s = timeout_s
        self._most = most
        self._children = Children()
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="kubectl")
        self._retries: list[str] = []

    @classmethod
    def find(
        cls,
        environ: Mapping[str, str],
        *,
        context: str | None = None,
        kubeconfig: str | None = None,
        timeout_s: float = 60.0,
    ) -> Self:
        """The kubectl of ``$KUBECTL`` or of PATH, bound to the context given or the current one.

        Raises UnavailableError without kubectl, MissingPathError without that kubeconfig.
        """
        program = _program(environ)
        if kubeconfig is not None and not Path(kubeconfig).is_file():
            hint = (
                "check the spelling, or leave --kubeconfig out to use $KUBECONFIG or ~/.kube/config"
            )
            raise MissingPathError(Fault(f"no such file: {one_line(kubeconfig)}", hint))
        door = cls(
            program, environ=environ, context=context, kubeconfig=kubeconfig, timeout_s=timeout_s
        )
        if context is None:
            try:
                door.context = door.current_context()
            except BaseException:
                door.close()
                raise
        return door

    @property
    def program(self) -> str:
        """Where this kubectl is."""
        return self._program

    @property
    def retries(self) -> int:
        """How many requests were sent again."""
        return len(self._retries)

    def current_context(self) -> str | None:
        """The context that kubectl would use; None if there is none."""
        ended = self._threads.submit(self._run, ["config", "current-context"]).result()
        if ended.code == 0 and ended.cut is None:
            return ended.out.decode("utf-8", errors="replace").strip() or None
        if "current-context is not set" in ended.talk:
            return None
        raise self._given_up("config current-context", self._refusal(ended), 1)

    def get_raw(self, path: str) -> bytes | Refusal:
        """The body of GET ``path``; a Refusal for 403, 404 and 410.

        Raises UnavailableError (69) or NotPermittedError (77) where nothing more can be asked.
        """
        return self._threads.submit(self._got, path, bytes).result()

    def ask_json(self, path: str) -> Future[Tree | Refusal]:
        """The same as a JSON object: ask now, wait later.

        A body that is cut short counts as a transient failure.
        """
        return self._threads.submit(self._got, path, json_object)

    def ask_list(self, path: str, limit: int | None, token: str | None) -> Asked:
        """The same for a list of at most ``limit`` objects, from where ``token`` says."""
        query = "" if limit is None else f"?limit={limit}"
        if token is not None:
            query += f"{'&' if query else '?'}continue={quote(token, safe='')}"
        following: Future[str | None] = Future()

        def parse(raw: bytes) -> Tree:
            found = _CONTINUE.match(raw)
            if not following.done():
                following.set_result(found[1].decode("ascii", "replace") if found else None)
            return json_object(raw)

        def ended(_: Future[Tree | Refusal]) -> None:
            if not following.done():
                following.set_result(None)

        body = self._threads.submit(self._got, path + query, parse)
        body.add_done_callback(ended)
        return Asked(token, following, body)

    def close(self) -> None:
        """End every child and every thread; no further question is answered."""
        self._children.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _got(
        self,
        path: str,
        parse: Callable[[bytes], _Body],
    ) -> _Body | Refusal:
        """GET ``path``, tried again where that can help."""
        begun = time.monotonic()
        for tries, pause in enumerate((*WAITS_S, None), start=1):
            ended = self._run(["get", f"--raw={path}"])
            refusal = self._refusal(ended) if ended.code or ended.cut else None
            if refusal is None:
                try:
                    return parse(ended.out)
                except MalformedError as error:
                    refusal = Refusal(Reason.transient, str(error))
            if refusal.reason in _RETURNED:
                return refusal
            late = time.monotonic() - begun > 1.5 * self._timeout_s
            hopeless = ended.cut in {Cut.too_long, Cut.closed} or late
            if pause is None or hopeless or not _worth(refusal, tries):
                raise self._given_up(f"GET {path.partition('?')[0]}", refusal, tries)
            self._retries.append(path)
            self._children.closed.wait(pause)
        raise AssertionError("the last try returns or raises")

    def _run(self, arguments: Sequence[str]) -> Ended:
        argv = [self._program, f"--request-timeout={self._timeout_s:g}s"]
        if self.context is not None:
            argv.append(f"--context={self.context}")
        if self._kubeconfig is not None:
            argv.append(f"--kubeconfig={self._kubeconfig}")
        try:
            return self._children.run(
                [*argv, *arguments],
                environ=self._environ,
                seconds=self._timeout_s + _GRACE_S,
                most=self._most,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UnavailableError(
                Fault(f"cannot run {one_line(self._program)}: {why}", _INSTALL)
            ) from error

    def _refusal(self, ended: Ended) -> Refusal:
        match ended.cut:
            case Cut.deadline:
                seconds = self._timeout_s + _GRACE_S
                return Refusal(Reason.transient, f"no answer within {seconds:g} s")
            case Cut.too_long:
                return Refusal(Reason.other, f"an answer of more than {self._most // 2**20} MiB")
            case Cut.closed:
                return Refusal(Reason.other, "stopped")
            case _:
                return understood(ended.talk)

    def _given_up(self, what: str, refusal: Refusal, tries: int) -> GangplanError:
        """The error that ends the run."""
        hint = f"try it by hand: {self._by_hand()}"
        match refusal.reason:
            case Reason.unauthorized:
                return NotPermittedError(Fault(f"not logged in: {refusal.message}", hint))
            case Reason.refused:
                said = f"cannot reach the API server: {refusal.message}"
                hint = way_on(refusal.message, self.context, self._by_hand())
            case Reason.transient:
                times = f" ({tries} times)" if tries > 1 else ""
                said = f"{what} failed{times}: {refusal.message}"
                return FailedRequestError(Fault(said, hint))
            case _:
                said = f"kubectl failed: {refusal.message}"
        return UnavailableError(Fault(said, hint))

    def _by_hand(self) -> str:
        options = [f"--kubeconfig={self._kubeconfig}"] if self._kubeconfig else []
        options += [f"--context={self.context}"] if self.context else []
        return shlex.join(["kubectl", *options, "get", "nodes"])


def _worth(refusal: Refusal, tries: int) -> bool:
    """Whether another try can help; a refused connection gets one only."""
    if refusal.reason is Reason.refused:
        return tries == 1
    return refusal.reason is Reason.transient


def _program(environ: Mapping[str, str]) -> str:
    wanted = environ.get("KUBECTL") or "kubectl"
    found = shutil.which(wanted, path=environ.get("PATH", os.defpath))
    if found is None:
        named = f"$KUBECTL is {one_line(wanted)}, which" if environ.get("KUBECTL") else "kubectl"
        raise UnavailableError(Fault(f"{named} is not a program that can be run", _INSTALL))
    return found
