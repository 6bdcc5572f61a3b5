"""The process ``kubectl proxy``: its arguments, its folder, its start and its end.

The folder with its socket is ours alone (0700) and is removed at the end. Its stderr is read, bounded.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from planner.cluster import proxy_tether
from planner.cluster.kubectl import Kubectl, last_line
from planner.errors import CannotWriteError, Fault, UnavailableError

START_S = 20.0
"""Seconds it gets to listen: it reads its configuration and asks no server."""

MAX_RESTARTS = 3

_STEP_S = 0.004
_END_S = 5.0
_MAX_STDERR = 8 * 2**10

_MAX_PATH = 103
"""Bytes of a socket's path: 108 with the final NUL on Linux, 104 on macOS."""

_REFUSED_METHODS = "^(CONNECT|DELETE|HEAD|OPTIONS|TRACE)$"
_REFUSED_PATHS = "^/api/v1/namespaces/[^/]+/pods/[^/]+/(attach|exec|portforward|proxy)(/.*)?$"
"""Instead of kubectl's own patterns, which also refuse a pod ``exec-1`` in a namespace ``pods``."""


class ProxyProcess:
    """One proxy, started anew if something ends it. ``start`` it, and always ``close`` it."""

    def __init__(self, kubectl: Kubectl, accept: Sequence[str]) -> None:
        for pattern in accept:
            if "," in pattern:
                raise ValueError(f"kubectl would cut the pattern in two: {pattern}")
        self.kubectl = kubectl
        self._accept = ",".join(f"^(?:{pattern})$" for pattern in accept)
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: _Tail | None = None
        self._code: int | None = None
        self._restarts = 0

    @property
    def socket(self) -> str:
        """Path of the socket; "" before the first start."""
        return f"{self._folder}/{proxy_tether.SOCKET}" if self._folder else ""

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Run it until it listens. Raises UnavailableError, CannotWriteError."""
        why = self._start()
        if why is not None:
            hint = self.kubectl.hint(why)
            raise UnavailableError(Fault(f"kubectl proxy failed: {why}", hint))

    def restart(self) -> bool:
        """Start it anew after something else ended it; False if that does not help (any more)."""
        if self._process is None or self._restarts >= MAX_RESTARTS:
            return False
        self._restarts += 1
        return self._start() is None

    def close(self) -> None:
        """End it. Neither process nor folder is left."""
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
        if self._stderr is not None:
            self._stderr.join(_END_S)
        with contextlib.suppress(OSError):  # the tether has done it, unless it was killed
            Path(self.socket).unlink()
        with contextlib.suppress(OSError):
            Path(self._folder).rmdir()

    def last_line(self) -> str:
        """The end of its stderr."""
        return last_line("" if self._stderr is None else self._stderr.text())

    def _argv(self) -> list[str]:
        return [
            self.kubectl.program,
            *self.kubectl.options(),
            "proxy",
            f"--unix-socket={self.socket}",
            f"--accept-paths={self._accept}",
            "--accept-hosts=^localhost$",
            f"--reject-methods={_REFUSED_METHODS}",
            f"--reject-paths={_REFUSED_PATHS}",
            "--append-server-path",  # for servers behind a path: https://host/k8s/clusters/x
        ]

    def _start(self) -> str | None:
        """None once it listens; else why it does not, and it has ended. Raises CannotWriteError."""
        why = "no folder"
        for place in _places(self.kubectl.environ):
            folder = f"{place}/gangplan-{secrets.token_hex(6)}"
            if len(os.fsencode(folder)) + len(proxy_tether.SOCKET) + 1 > _MAX_PATH:
                why = f"{place} is too long a path for a socket"
                continue
            found = self._start_in(folder)
            if found is None or self._code != proxy_tether.NO_FOLDER:
                return found
            why = f"{place}: {found}"
        hint = "name a writable folder: TMPDIR=/path, at most 80 bytes long"
        raise CannotWriteError(Fault(f"no place for the socket of kubectl proxy: {why}", hint))

    def _start_in(self, folder: str) -> str | None:
        self.close()
        self._folder, self._stderr, self._code = folder, None, None
        try:
            self._process = process = subprocess.Popen(  # noqa: S603  # our own argv, no shell
                proxy_tether.command(folder, self._argv()),
                stdin=subprocess.PIPE,  # the tether's life line; kubectl itself gets /dev/null
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(self.kubectl.environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        self._stderr = _Tail(process)
        until = time.monotonic() + START_S
        while not _listens(self.socket):
            if (code := process.poll()) is not None:
                self.close()
                self._code = code
                return self.last_line()
            if time.monotonic() > until:
                self.close()
                return f"it did not begin to serve within {START_S:g} s"
            time.sleep(_STEP_S)
        return None


class _Tail(threading.Thread):
    """The end of what a process writes, read on a thread so that the process never blocks."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(name="kubectl-proxy", daemon=True)
        self._process = process
        self._kept = b""
        self.start()

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def run(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while chunk := os.read(stream.fileno(), 4096):
                self._kept = (self._kept + chunk)[-_MAX_STDERR:]


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def _places(environ: Mapping[str, str]) -> list[str]:
    """Folders for the folder of the socket, the best first."""
    places = (environ.get("TMPDIR"), environ.get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
    return [place.rstrip("/") for place in places if place and Path(place).is_absolute()]
