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
import subprocess
import sys
from functools import partial

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
        code = _run(argv)
    except OSError as error:
        os.write(2, f"error: cannot run it: {error.strerror}\n".encode())
        return _CANNOT_RUN
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, SOCKET))  # noqa: PTH108, PTH118
        with contextlib.suppress(OSError):  # not empty: then other files are in it
            os.rmdir(folder)  # noqa: PTH106
    return code if code >= 0 else 128 - code


def _run(argv: list[str]) -> int:
    """Run the child, in a session of its own, until it or the life line ends. Raises OSError."""
    child = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
        argv,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(_prepare, os.getpid()),  # noqa: PLW1509  # there are no threads
    )
    while child.poll() is None:
        ready, _, _ = select.select([_LIFE_LINE], [], [], _POLL_S)
        if ready and not os.read(_LIFE_LINE, 64):
            _signal_group(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            break
    _signal_group(child.pid, signal.SIGKILL)  # and what it had started
    return child.wait()


def _prepare(parent: int) -> None:
    """In the child: take signals as usual, and end with the tether."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_CANNOT_RUN)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
