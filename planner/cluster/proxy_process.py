"""The process ``kubectl proxy``: its argv, its folder, its start and its end.

Promises: an argv list, no standard input, its own session; the folder is ours alone (0700) and goes at
the end; what it says on stderr is read, bounded. Called by ``planner.cluster.proxy``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from planner.cluster import tether
from planner.cluster.answers import Reason, Refusal, understood
from planner.errors import CannotWriteError, Fault, NotPermittedError, UnavailableError

START_S = 20.0
"""Seconds it gets to listen: it reads its configuration and asks nobody."""

MAX_RESTARTS = 3

_STEP_S = 0.004
_END_S = 5.0
_MAX_TALK = 8 * 2**10

_NAME = "gangplan-"
_RANDOM = 6
"""Random bytes in the folder's name, two digits each."""

_MAX_PATH = 103
"""Bytes of a socket's path: 108 with the final NUL on Linux, 104 on macOS."""

_REFUSED_METHODS = "^(CONNECT|DELETE|HEAD|OPTIONS|TRACE)$"
_REFUSED_PATHS = "^/api/v1/namespaces/[^/]+/pods/[^/]+/(attach|exec|portforward|proxy)(/.*)?$"
"""Instead of kubectl's own patterns, which also refuse a pod ``exec-1`` in a namespace ``pods``."""

_WITH_PATH = "--append-server-path"
"""For servers behind a path (``https://host/k8s/clusters/x``); kubectl before 1.23 has no such option."""


class Proxy:
    """One proxy after another, should one be ended. ``start`` it, and ``close`` it whatever happens."""

    def __init__(
        self,
        program: str,
        *,
        environ: Mapping[str, str],
        context: str | None,
        kubeconfig: str | None,
        accept: Sequence[str],
    ) -> None:
        for pattern in accept:
            if "," in pattern:
                raise ValueError(f"kubectl would cut the pattern in two: {pattern}")
        self.context = context
        self.kubeconfig = kubeconfig
        self._program = program
        self._environ = {**environ, "KUBERC": "off"}
        self._accept = ",".join(f"^(?:{pattern})$" for pattern in accept)
        self._with_path = True
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._talk = _Tail()
        self._code: int | None = None
        self._restarts = 0

    @property
    def socket(self) -> str:
        """Path of the socket; "" before the first start."""
        return f"{self._folder}/{tether.SOCKET}" if self._folder else ""

    def start(self) -> None:
        """Run it until it listens. Raises UnavailableError, NotPermittedError, CannotWriteError."""
        refusal = self._started()
        if refusal is not None and self._with_path and _unknown(self._talk.text()):
            self._with_path = False
            refusal = self._started()
        if refusal is None:
            return
        hint = f"try it by hand: {self.by_hand()}"
        if refusal.reason is Reason.unauthorized:
            raise NotPermittedError(Fault(f"not logged in: {refusal.message}", hint))
        raise UnavailableError(Fault(f"kubectl proxy failed: {refusal.message}", hint))

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def again(self) -> bool:
        """Start it anew where something else ended it; False where that does not help (any more)."""
        if self._process is None or self._restarts >= MAX_RESTARTS:
            return False
        self._restarts += 1
        return self._started() is None

    def close(self) -> None:
        """End it. Nothing is left, neither process nor folder."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._talk.join()
        if process.stderr is not None:
            process.stderr.close()
        _emptied(self._folder)

    def last_words(self) -> str:
        return understood(self._talk.text()).message

    def by_hand(self) -> str:
        options = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        options += [f"--context={self.context}"] if self.context else []
        return shlex.join(["kubectl", *options, "get", "nodes"])

    def _argv(self) -> list[str]:
        argv = [self._program]
        argv += [] if self.context is None else [f"--context={self.context}"]
        argv += [] if self.kubeconfig is None else [f"--kubeconfig={self.kubeconfig}"]
        argv += [
            "proxy",
            f"--unix-socket={self.socket}",
            f"--accept-paths={self._accept}",
            "--accept-hosts=^localhost$",
            f"--reject-methods={_REFUSED_METHODS}",
            f"--reject-paths={_REFUSED_PATHS}",
        ]
        return [*argv, _WITH_PATH] if self._with_path else argv

    def _started(self) -> Refusal | None:
        """None once it listens; else why it does not, and then it has ended. Raises CannotWriteError."""
        why = "no folder"
        for place in _places(self._environ):
            if len(os.fsencode(place)) + len(_NAME) + 2 * _RANDOM + 2 > _MAX_PATH:
                why = f"{place} is too long a path for a socket"
                continue
            refusal = self._started_in(f"{place}/{_NAME}{secrets.token_hex(_RANDOM)}")
            if refusal is None or self._code != tether.NO_FOLDER:
                return refusal
            why = f"{place}: {refusal.message}"
        hint = "name a folder that you may write in: TMPDIR=/path, at most 80 bytes long"
        raise CannotWriteError(Fault(f"no place for the socket of kubectl proxy: {why}", hint))

    def _started_in(self, folder: str) -> Refusal | None:
        self.close()
        self._folder, self._talk, self._code = folder, _Tail(), None
        try:
            process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
                tether.command(folder, self._argv()),
                stdin=subprocess.PIPE,  # the tether's life line; kubectl itself gets /dev/null
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self._environ,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            return Refusal(Reason.other, why)
        self._process = process
        assert process.stderr is not None
        self._talk.follow(process.stderr.fileno())
        until = time.monotonic() + START_S
        while not _listens(self.socket):
            if (code := process.poll()) is not None:
                self.close()
                self._code = code
                return understood(self._talk.text())
            if time.monotonic() > until:
                self.close()
                return Refusal(Reason.other, f"it did not begin to serve within {START_S:g} s")
            time.sleep(_STEP_S)
        return None


class _Tail:
    """The last of what a process says, read on a thread of its own so that it never has to wait."""

    def __init__(self) -> None:
        self._kept = b""
        self._thread: threading.Thread | None = None

    def follow(self, descriptor: int) -> None:
        """Read until the end. The descriptor stays its owner's to close, after ``join``."""
        self._thread = threading.Thread(
            target=self._read, args=(descriptor,), name="kubectl-proxy", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_END_S)

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def _read(self, descriptor: int) -> None:
        while chunk := os.read(descriptor, 4096):
            self._kept = (self._kept + chunk)[-_MAX_TALK:]


def _unknown(talk: str) -> bool:
    return "unknown flag" in talk and _WITH_PATH in talk


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _places(environ: Mapping[str, str]) -> list[str]:
    """Folders in which the socket's may be made, the best first."""
    places = (environ.get("TMPDIR"), environ.get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
    return [place.rstrip("/") for place in places if place and Path(place).is_absolute()]


def _emptied(folder: str) -> None:
    """What the tether does, where it could not."""
    with contextlib.suppress(OSError):
        Path(folder, tether.SOCKET).unlink()
    with contextlib.suppress(OSError):
        Path(folder).rmdir()
