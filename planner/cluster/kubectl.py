"""The kubectl of this machine: where it is, what it is called with, and short runs of it.

Credentials stay kubectl's business. No shell, no standard input; every run is bounded in time and
output.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from planner.errors import Fault, MissingPathError, UnavailableError
from planner.untrusted_text import one_line

RUN_S = 30.0
"""Seconds for a run that asks no server."""

MAX_OUTPUT = 2**20
"""Bytes of stdout and of stderr that are read."""

_CHUNK = 64 * 2**10
_TICK_S = 0.05
_GRACE_S = 1.0

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
        """Context and kubeconfig, as options."""
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
            finished = run([self.program, *arguments], environ=self.environ, seconds=RUN_S)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            what = f"cannot run {one_line(self.program)}: {why}"
            raise UnavailableError(Fault(what, INSTALL)) from error
        if finished.code != 0:
            message = finished.cut or last_line(finished.err)
            raise UnavailableError(Fault(f"kubectl failed: {message}", self.hint(message)))
        return finished.out

    def _current_context(self) -> str | None:
        options = [] if self.kubeconfig is None else [f"--kubeconfig={self.kubeconfig}"]
        try:
            out = self.run(*options, "config", "current-context")
        except UnavailableError as error:
            if "current-context is not set" in str(error):
                return None
            raise
        return out.decode("utf-8", errors="replace").strip() or None


def last_line(stderr: str) -> str:
    """What kubectl says at the end, without its log lines before that."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    verdicts = [line for line in lines if not _KLOG.match(line)] or lines
    return (
        one_line(_PREFIX.sub("", verdicts[-1])) if verdicts else "kubectl failed without a message"
    )


def _program(environ: Mapping[str, str]) -> str:
    wanted = environ.get("KUBECTL") or "kubectl"
    found = shutil.which(wanted, path=environ.get("PATH", os.defpath))
    if found is None:
        what = f"$KUBECTL is {one_line(wanted)}, which" if environ.get("KUBECTL") else "kubectl"
        raise UnavailableError(Fault(f"{what} is not a program that can be run", INSTALL))
    return found


@dataclass(frozen=True, slots=True)
class Finished:
    """``code``: negative for a signal. ``cut``: why the program was ended early, else ""."""

    code: int
    out: bytes
    err: str
    cut: str = ""


def run(
    argv: Sequence[str], *, environ: Mapping[str, str], seconds: float, max_output: int = MAX_OUTPUT
) -> Finished:
    """Run a program to its end. It is killed, with all it started, past its limits.

    Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,  # a group to kill, and Ctrl-C is ours to pass on
    )
    try:
        return _read(
            process, time.monotonic() + seconds, f"no answer within {seconds:g} s", max_output
        )
    finally:
        _end(process)


def _read(
    process: subprocess.Popen[bytes], deadline: float, late: str, max_output: int
) -> Finished:
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        while selector.get_map() or process.poll() is None:
            if time.monotonic() >= deadline:
                return Finished(-signal.SIGKILL, b"", _text(err), late)
            ready = selector.select(_TICK_S)
            if not ready and process.poll() is not None and not selector.select(0):
                break  # it has ended, but something that it started still holds the pipe
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk[: max(0, max_output + 1 - len(key.data))])
            if len(out) > max_output:
                cut = f"an answer of more than {max_output // 2**20} MiB"
                return Finished(-signal.SIGKILL, b"", _text(err), cut)
    return Finished(process.wait(), bytes(out), _text(err[:max_output]))


def _text(written: bytearray) -> str:
    return written.decode("utf-8", errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and everything in its session: TERM first, then KILL."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
