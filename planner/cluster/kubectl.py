"""The kubectl of this machine: where it is, what it is called with, short runs of it, and its proxy.

Credentials stay kubectl's business. No shell, no standard input; every run is bounded in time. The
folder with the socket of the proxy is ours alone (0700) and is removed at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Self

from planner.cluster import proxy_tether
from planner.errors import CannotWriteError, Fault, MissingPathError, UnavailableError
from planner.untrusted_text import one_line

RUN_S = 30.0
"""Seconds for a run that asks no server."""

INSTALL = "install kubectl, or name it: KUBECTL=/path/to/kubectl"
_PREFIX = re.compile(r"^(?:error|Unable to connect to the server|Error in configuration): ")
_KLOG = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]]*\] ")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """``context`` None: kubectl has none; inside a pod it uses the service account."""

    program: str
    environ: Mapping[str, str]
    context: str | None = None
    kubeconfig: str | None = None

    @classmethod
    def find(
        cls,
        environ: Mapping[str, str],
        *,
        context: str | None = None,
        kubeconfig: str | None = None,
    ) -> Self:
        """The kubectl of $KUBECTL or PATH with the given context, or the current one.

        Raises UnavailableError without kubectl, MissingPathError without that kubeconfig.
        """
        if kubeconfig is not None and not Path(kubeconfig).is_file():
            hint = "check the spelling, or omit --kubeconfig to use $KUBECONFIG or ~/.kube/config"
            raise MissingPathError(Fault(f"no such file: {one_line(kubeconfig)}", hint))
        # kubectl's own preferences file may add options to its verbs: not to ours.
        environ = {**environ, "KUBERC": "off"}
        found = cls(_program(environ), environ, context, kubeconfig)
        return found if context is not None else replace(found, context=found._current_context())

    def options(self) -> list[str]:
        found = [] if self.kubeconfig is None else [f"--kubeconfig={self.kubeconfig}"]
        return found if self.context is None else [*found, f"--context={self.context}"]

    def by_hand(self) -> str:
        """A command for people that asks the same cluster."""
        return shlex.join(["kubectl", *self.options(), "get", "nodes"])

    def hint(self, message: str) -> str:
        """What to do where the server cannot be reached."""
        if self.context is None and ":8080" in message:  # without a server kubectl asks this port
            return (
                "no current context: check $KUBECONFIG or ~/.kube/config, or use --kubeconfig FILE"
            )
        return f"try it by hand: {self.by_hand()}"

    def run(self, *arguments: str) -> bytes:
        """The standard output. Raises UnavailableError where kubectl fails."""
        try:
            out, failed = self._run(arguments)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            what = f"cannot run {one_line(self.program)}: {why}"
            raise UnavailableError(Fault(what, INSTALL)) from error
        if failed is not None:
            raise UnavailableError(Fault(f"kubectl failed: {failed}", self.hint(failed)))
        return out

    def _run(self, arguments: Sequence[str]) -> tuple[bytes, str | None]:
        """The standard output, and why it failed. It is killed, with all it started, past RUN_S."""
        with subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(self.environ),
            start_new_session=True,  # a group to kill, and Ctrl-C is ours to pass on
        ) as process:
            try:
                out, err = process.communicate(timeout=RUN_S)
            except subprocess.TimeoutExpired:
                return b"", f"no answer within {RUN_S:g} s"
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        return out, last_line(err) if process.returncode else None

    def _current_context(self) -> str | None:
        options = [] if self.kubeconfig is None else [f"--kubeconfig={self.kubeconfig}"]
        try:
            out = self.run(*options, "config", "current-context")
        except UnavailableError as error:
            if "current-context is not set" in str(error):
                return None
            raise
        return out.decode("utf-8", errors="replace").strip() or None


def last_line(stderr: bytes) -> str:
    """What kubectl says at the end, without its log lines before that."""
    written = stderr.decode("utf-8", errors="replace").splitlines()
    lines = [line for line in written if line.strip()] or ["kubectl failed without a message"]
    verdicts = [line for line in lines if not _KLOG.match(line)] or lines
    return one_line(_PREFIX.sub("", verdicts[-1]))


def _program(environ: Mapping[str, str]) -> str:
    wanted = environ.get("KUBECTL") or "kubectl"
    found = shutil.which(wanted, path=environ.get("PATH", os.defpath))
    if found is None:
        what = f"$KUBECTL is {one_line(wanted)}, which" if environ.get("KUBECTL") else "kubectl"
        raise UnavailableError(Fault(f"{what} is not a program that can be run", INSTALL))
    return found


START_S = 20.0
"""Seconds it gets to listen: it reads its configuration and asks no server."""

MAX_RESTARTS = 3

_STEP_S = 0.004
_END_S = 5.0
_MAX_STDERR = 8 * 2**10

_PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_MAX_PLACE = 103 - len("/gangplan-0123456789ab/") - len(proxy_tether.SOCKET)
"""A socket's path has at most 108 bytes with the final NUL on Linux, 104 on macOS."""

_REFUSED_METHODS = "^(CONNECT|HEAD|OPTIONS|TRACE)$"
_REFUSED_PATHS = "^/api/v1/namespaces/[^/]+/pods/[^/]+/(attach|exec|portforward|proxy)(/.*)?$"
"""Instead of kubectl's own patterns, which also refuse a pod ``exec-1`` in a namespace ``pods``."""


class ProxyProcess:
    """One proxy, started anew if something ends it. ``start`` it, and always ``close`` it.

    ``socket``: its path; "" before the first start. ``said``: the end of its stderr once it has ended.
    """

    def __init__(self, kubectl: Kubectl, accept: Sequence[str]) -> None:
        for pattern in accept:
            if "," in pattern:
                raise ValueError(f"kubectl would cut the pattern in two: {pattern}")
        self.kubectl = kubectl
        self.socket = ""
        self.said = ""
        self._accept = ",".join(f"^(?:{pattern})$" for pattern in accept)
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: BinaryIO | None = None
        self._restarts = 0

    @property
    def alive(self) -> bool:
        """Whether it runs, and its tether has not begun to remove the folder."""
        running = self._process is not None and self._process.poll() is None
        return running and Path(self.socket).exists()

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
            with self._stderr as written:
                written.seek(max(0, written.seek(0, os.SEEK_END) - _MAX_STDERR))
                self.said = last_line(written.read(_MAX_STDERR))
        with contextlib.suppress(OSError):  # the tether has done it, unless it was killed
            Path(self.socket).unlink()
        with contextlib.suppress(OSError):
            Path(self.socket).parent.rmdir()

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
        self.close()
        place = _place(self.kubectl.environ)
        folder = f"{place}/gangplan-{secrets.token_hex(6)}"
        self.socket = f"{folder}/{proxy_tether.SOCKET}"
        try:
            self._stderr = tempfile.TemporaryFile(dir=place)  # noqa: SIM115  # ``close`` does
            self._process = process = subprocess.Popen(  # noqa: S603  # our own argv, no shell
                [sys.executable, "-I", "-S", proxy_tether.__file__, folder, *self._argv()],
                stdin=subprocess.PIPE,  # the tether's life line; kubectl itself gets /dev/null
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=dict(self.kubectl.environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if self._stderr is not None:
                self._stderr.close()
            return getattr(error, "strerror", None) or str(error)
        until = time.monotonic() + START_S
        while not _listens(self.socket):
            if process.poll() is not None:
                self.close()
                return self.said
            if time.monotonic() > until:
                self.close()
                return f"it did not begin to serve within {START_S:g} s"
            time.sleep(_STEP_S)
        return None


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def _place(environ: Mapping[str, str]) -> str:
    """A folder for the folder of the socket, the best that serves. Raises CannotWriteError."""
    why = "no folder"
    for place in (environ.get("TMPDIR"), environ.get("XDG_RUNTIME_DIR"), *_PLACES):
        if not place or not Path(place).is_absolute():
            continue
        if len(os.fsencode(place)) > _MAX_PLACE:
            why = f"{place} is too long a path for a socket"
        elif os.access(place, os.W_OK | os.X_OK):
            return place.rstrip("/")
        else:
            why = f"{place} cannot be written"
    hint = "name a writable folder: TMPDIR=/path, at most 80 bytes long"
    raise CannotWriteError(Fault(f"no place for the socket of kubectl proxy: {why}", hint))
