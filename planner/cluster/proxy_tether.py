"""A process between gangplan and ``kubectl proxy`` that ends the proxy when gangplan is gone.

Its standard input is the life line: when no process holds the other end any more, after SIGKILL too,
the child, its session and the socket's folder go. Run as a script with a folder, which it makes (0700)
and removes at the end, and the argv of the child: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL."""

SOCKET = "s"
"""Name of the socket in the folder: its whole path has to fit in 104 bytes."""

_CANNOT_RUN = 127
_LIFE_LINE = 0
_POLL_S = 0.1
"""How soon it is seen that the child has ended by itself."""

_PR_SET_PDEATHSIG = 1
"""Linux: the child dies if the tether itself is killed."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> int:
    """The child's exit code, 128 + n if signal n ended it."""
    folder, *argv = sys.argv[1:]
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)  # it has to clean up after those that were signalled
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102  # pathlib doubles the start-up time
    except OSError as error:
        os.write(2, (error.strerror or "").encode())
        return _CANNOT_RUN
    try:
        child = _start(argv)
        while (status := _ended(child)) is None:
            ready, _, _ = select.select([_LIFE_LINE], [], [], _POLL_S)
            if ready and not os.read(_LIFE_LINE, 64):
                status = _end(child)
                break
        _signal_group(child, signal.SIGKILL)  # what the child had started
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, SOCKET))  # noqa: PTH108, PTH118
        with contextlib.suppress(OSError):  # not empty: then other files are in it
            os.rmdir(folder)  # noqa: PTH106


def _start(argv: list[str]) -> int:
    """Fork the child, in a session of its own, with nothing of ours but its two output streams."""
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        for number in (*_IGNORED, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            with contextlib.suppress(ImportError, AttributeError, OSError):
                import ctypes

                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(_CANNOT_RUN)
        os.dup2(os.open(os.devnull, os.O_RDONLY), _LIFE_LINE)
        os.execv(argv[0], argv)  # noqa: S606  # an argv list of ours, no shell
    except OSError as error:
        os.write(2, f"error: cannot run it: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_RUN)


def _ended(child: int) -> int | None:
    """The status that it ended with; None while it runs."""
    found, status = os.waitpid(child, os.WNOHANG)
    return status if found else None


def _end(child: int) -> int:
    """End the child and everything in its session, SIGTERM first, then SIGKILL; its status."""
    _signal_group(child, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        if (status := _ended(child)) is not None:
            return status
        time.sleep(0.005)
    _signal_group(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
