"""The kubectl of this machine: where it is, what it is called with, and short runs of it.

Credentials stay kubectl's business. No shell, no standard input; every run is bounded in time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from planner.errors import Fault, MissingPathError, UnavailableError
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
            out, failed = _run([self.program, *arguments], self.environ)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            what = f"cannot run {one_line(self.program)}: {why}"
            raise UnavailableError(Fault(what, INSTALL)) from error
        if failed is not None:
            raise UnavailableError(Fault(f"kubectl failed: {failed}", self.hint(failed)))
        return out

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


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[bytes, str | None]:
    """The standard output of a program that is run to its end, and why it failed.

    It is killed, with all it started, past RUN_S. Raises OSError if it cannot be started.
    """
    with subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,  # a group to kill, and Ctrl-C is ours to pass on
    ) as process:
        try:
            out, err = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            return b"", f"no answer within {RUN_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return out, last_line(err.decode("utf-8", errors="replace")) if process.returncode else None
