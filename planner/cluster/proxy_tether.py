"""The program that becomes ``kubectl proxy``, and the process beside it that ends it when gangplan is gone.

Standard input is the life line: when no process holds the other end any more, after SIGKILL too, kubectl,
its session and the socket's folder go. Run as a script: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Sequence

GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL."""

SOCKET = "s"
"""Name of the socket in the folder: its whole path has to fit in 104 bytes."""

CANNOT_RUN = 127

NO_FOLDER = 73
"""Exit code if the folder cannot be made; the reason is on stderr."""

_LIFE_LINE = 0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def command(folder: str, argv: Sequence[str]) -> list[str]:
    """The argv that becomes ``argv``, tethered. To be started as the leader of a session.

    ``folder`` is made first (0700), and removed at the end with the socket in it.
    """
    return [sys.executable, "-I", "-S", __file__, folder, *argv]


def main() -> int:
    """Returns only if the program cannot be run."""
    folder, *argv = sys.argv[1:]
    ended, held = os.pipe()  # it ends when the program does, which holds the other end
    program = os.getpid()
    if os.fork() == 0:
        os.setsid()
        for number in _ENDING:
            signal.signal(
                number, signal.SIG_IGN
            )  # it has to clean up after those that were signalled
        os.close(held)
        _redirect_to_null(1, 2)  # only the program holds its streams, so that their end is its end
        _watch(program, ended)
        _remove(folder)
        os._exit(0)
    os.set_inheritable(held, True)  # noqa: FBT003
    _redirect_to_null(_LIFE_LINE)
    for number in (*_ENDING, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102  # pathlib doubles the start-up time
    except OSError as error:
        os.write(2, (error.strerror or "").encode())
        return NO_FOLDER
    try:
        os.execv(argv[0], argv)  # noqa: S606  # an argv list of ours, no shell
    except OSError as error:
        os.write(2, f"error: cannot run it: {error.strerror}\n".encode())
    return CANNOT_RUN


def _watch(program: int, ended: int) -> None:
    """Wait for the end of the program, or of the life line: then end it and everything in its session."""
    if ended in select.select([_LIFE_LINE, ended], [], [])[0]:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program, signal.SIGTERM)
        select.select([ended], [], [], GRACE_S)
        os.killpg(program, signal.SIGKILL)  # also what the program had started


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
