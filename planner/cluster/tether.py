"""The tether: a process between us and ``kubectl proxy`` that ends it when we are gone, however we went.

Promises: standard input is its life line: once no process holds the other end, SIGKILL included, the
child, its session and the socket's folder go. Run as a script by ``planner.cluster.proxy``: stdlib only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

GRACE_S = 1.0
"""Seconds the child gets to end when asked, before it is made to."""

SOCKET = "s"
"""Name of the socket in the folder: short, for its whole path has to fit in 104 bytes."""

CANNOT_RUN = 127

NO_FOLDER = 73
"""Exit code where the folder cannot be made; why is on stderr."""

_LIFE_LINE = 0
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux: for the day somebody ends the tether itself with SIGKILL."""

_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def command(folder: str, argv: Sequence[str]) -> list[str]:
    """The argv that runs ``argv`` tethered.

    ``folder`` is made first, for us alone, and removed at the end with the socket in it.
    """
    return [sys.executable, "-I", "-S", __file__, folder, *argv]


def main() -> int:
    """The child's exit code, 128 + n where signal n ended it."""
    folder, *argv = sys.argv[1:]
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)  # ours is to clean up, after whoever was signalled
    ended, wake = os.pipe()
    for end in (ended, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake)
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102  # pathlib doubles the start
    except OSError as error:
        os.write(2, (error.strerror or "").encode())
        return NO_FOLDER
    try:
        child = _started(argv)
        _only(1, 2)  # the child alone holds its streams: their end tells of its end
        code = _watched(child, ended)
        return _code(child) if code is None else code
    finally:
        _removed(folder)


def _started(argv: Sequence[str]) -> int:
    """The child, in a session of its own and with nothing of ours but its two output streams."""
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        for number in (*_DEAF_TO, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        _bound_to(parent)
        _only(_LIFE_LINE)
        _executed(argv)
    finally:
        os._exit(CANNOT_RUN)


def _bound_to(parent: int) -> None:
    """End with the tether, should that be killed. What systems other than Linux cannot do is left out."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import ctypes

            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_RUN)


def _executed(argv: Sequence[str]) -> NoReturn:
    try:
        os.execv(argv[0], list(argv))  # noqa: S606  # an argv list of ours, no shell
    except OSError as error:
        os.write(2, f"error: cannot run it: {error.strerror}\n".encode())
        raise


def _watched(child: int, ended: int) -> int | None:
    """The exit code of the child, None if it still runs although nobody holds the life line."""
    while True:
        ready, _, _ = select.select([_LIFE_LINE, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 64)
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return _said(status)
        if _LIFE_LINE in ready and not os.read(_LIFE_LINE, 64):
            return None


def _code(child: int) -> int:
    """End the child and everything in its session: asked first, then made to."""
    _signal(child, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            _signal(child, signal.SIGKILL)  # whatever it had started and left
            return _said(status)
        time.sleep(0.005)
    _signal(child, signal.SIGKILL)
    return _said(os.waitpid(child, 0)[1])


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _said(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _only(*descriptors: int) -> None:
    """These descriptors lead nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _removed(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, SOCKET))  # noqa: PTH108, PTH118  # pathlib doubles the start
    with contextlib.suppress(OSError):  # not empty: then it is not ours to empty
        os.rmdir(folder)  # noqa: PTH106


if __name__ == "__main__":
    sys.exit(main())
