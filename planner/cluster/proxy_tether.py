"""A process between gangplan and ``kubectl proxy`` that ends the proxy when gangplan is gone.

Its standard input is the life line: when no process holds the other end any more, after SIGKILL too,
the child, its session and the socket's folder go. Run as a script: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence

GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL."""

SOCKET = "s"
"""Name of the socket in the folder: its whole path has to fit in 104 bytes."""

CANNOT_RUN = 127

NO_FOLDER = 73
"""Exit code if the folder cannot be made; the reason is on stderr."""

_LIFE_LINE = 0
_PR_SET_PDEATHSIG = 1
"""Linux: the child dies if the tether itself is killed."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def command(folder: str, argv: Sequence[str]) -> list[str]:
    """The argv that runs ``argv`` tethered.

    ``folder`` is made first (0700), and removed at the end with the socket in it.
    """
    return [sys.executable, "-I", "-S", __file__, folder, *argv]


def main() -> int:
    """The child's exit code, 128 + n if signal n ended it."""
    folder, *argv = sys.argv[1:]
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)  # it has to clean up after those that were signalled
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102  # pathlib doubles the start-up time
    except OSError as error:
        os.write(2, (error.strerror or "").encode())
        return NO_FOLDER
    try:
        child = _start(argv)
        _redirect_to_null(1, 2)  # only the child holds its streams, so that their end is its end
        if (status := _watch(child)) is None:
            status = _end(child)
        _signal_group(child, signal.SIGKILL)  # what the child had started
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
    finally:
        _remove(folder)


def _start(argv: Sequence[str]) -> int:
    """Fork the child, in a session of its own, with nothing of ours but its two output streams."""
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        for number in (*_IGNORED, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        _die_with(parent)
        _redirect_to_null(_LIFE_LINE)
        os.execv(argv[0], list(argv))  # noqa: S606  # an argv list of ours, no shell
    except OSError as error:
        os.write(2, f"error: cannot run it: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


def _die_with(parent: int) -> None:
    """On Linux: die when the tether dies."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_RUN)


def _watch(child: int) -> int | None:
    """The status that the child ended with; None if it still runs when the life line closes."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake)
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        ready, _, _ = select.select([_LIFE_LINE, ended], [], [])
        if ended in ready:
            os.read(ended, 64)
        if _LIFE_LINE in ready and not os.read(_LIFE_LINE, 64):
            return None


def _end(child: int) -> int:
    """End the child and everything in its session, SIGTERM first, then SIGKILL; its status."""
    _signal_group(child, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.005)
    _signal_group(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _redirect_to_null(*descriptors: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


def _remove(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, SOCKET))  # noqa: PTH108, PTH118
    with contextlib.suppress(OSError):  # not empty: then other files are in it
        os.rmdir(folder)  # noqa: PTH106


if __name__ == "__main__":
    sys.exit(main())
