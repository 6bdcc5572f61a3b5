"""Running the program as a process: on a terminal, with signals, with broken pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from effort import HANG_S

ROOT = Path(__file__).parent.parent
HEARING = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import planner.cluster.kubectl, planner.cluster.kubectl
planner.cluster.kubectl.RUN_S = planner.cluster.kubectl.START_S = {HANG_S}
"""
"""A job in the background of a script starts deaf to Ctrl-C, and its children with it: the tests may be
run so, the program they start hears. It waits for a kubectl as long as it may take on a busy machine."""
MAIN = "import sys; sys.argv[0] = 'gangplan'; from planner.__main__ import main; main()"
PATIENT = """
import sys, time
from dataclasses import replace
from planner.search.solve import Search

class Patient(Search):
    def run(self):
        solution = super().run()
        self._progress.update("bandwidth", 1000, 1100)
        sys.stderr.write("searching\\n")  # at once, or the progress line may come between
        if not self._budget.stop.wait(600):
            raise AssertionError("nobody stopped the search")
        return replace(solution, stopped_by="signal")

import planner.search.solve
planner.search.solve.Search = Patient
"""
"""Makes the search go on until it is told to stop: the signals are ours to test, not the solver."""


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@contextmanager
def started(
    *arguments: str,
    before: str = "",
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdout: IO[str] | int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[str]]:
    """The program as a process, off a terminal; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEARING + before + MAIN, *arguments],
        cwd=cwd,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


OWNING = "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
"""Makes the terminal that of the session of the process, which it hangs up when it closes."""


def on_terminal(
    *arguments: str,
    cwd: Path | None = None,
    columns: int = 100,
    before: str = "",
    close_at: bytes = b"",
    **more: str,
) -> tuple[int, str]:
    """(exit code, everything a terminal of so many columns received).

    ``close_at``: the terminal closes, as its window would, after these words.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", (OWNING if close_at else "") + before + MAIN, *arguments],
        cwd=cwd,
        env=environment(**{"TERM": "xterm", **more}),
        start_new_session=bool(close_at),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        close_fds=True,
    )
    os.close(follower)
    received = b""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if ready:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            received += part
            if close_at and close_at in received:
                break
        elif process.poll() is not None:
            break
    os.close(leader)
    return process.wait(timeout=HANG_S), received.decode()


def wait_for(process: subprocess.Popen[str], word: str) -> str:
    """Lines of stderr up to the one that holds the word."""
    assert process.stderr is not None
    read = ""
    for line in process.stderr:
        read += line
        if word in line:
            return read
    raise AssertionError(f"{word!r} never came: {read}")
