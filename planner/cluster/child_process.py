"""Child processes with a deadline, bounded output, and an end that comes with ours.

Promises: argv lists, no shell, no standard input; a child past its deadline or its output bound is
ended with everything it started. Called by ``planner.cluster.kubectl``, from worker threads only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_CHUNK = 2**20
_TICK_S = 0.05
_GRACE_S = 1.0
MAX_TALK = 16 * 2**10
"""Bytes of a child's stderr that are kept; the rest is read and dropped."""


class Cut(StrEnum):
    """Why a child did not end by itself."""

    deadline = "deadline"
    too_long = "too long"
    closed = "closed"


@dataclass(frozen=True, slots=True)
class Ended:
    """What a child left: its exit code (negative: signal), stdout, the head of stderr."""

    code: int
    out: bytes
    talk: str
    cut: Cut | None = None


class Children:
    """Runs children until ``close``, which ends those that still run and lets none start."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    @property
    def closed(self) -> threading.Event:
        return self._closed

    def close(self) -> None:
        """The runs in progress end within a moment, with ``Cut.closed``."""
        self._closed.set()

    def run(
        self, argv: Sequence[str], *, environ: Mapping[str, str], seconds: float, most: int
    ) -> Ended:
        """Run one child for at most ``seconds``, reading at most ``most`` bytes of its stdout.

        Raises OSError if it cannot be started.
        """
        if self._closed.is_set():
            return Ended(-signal.SIGTERM, b"", "", Cut.closed)
        process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,  # so that its own helpers end with it, and Ctrl-C is ours to pass on
        )
        try:
            return self._drained(process, time.monotonic() + seconds, most)
        finally:
            _end(process)

    def _drained(self, process: subprocess.Popen[bytes], deadline: float, most: int) -> Ended:
        """Read both streams until the child ends or has to be cut."""
        assert process.stdout is not None
        assert process.stderr is not None
        out, talk = _Bounded(most), _Bounded(MAX_TALK)
        _widen(process.stdout.fileno())
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, out)
            selector.register(process.stderr, selectors.EVENT_READ, talk)
            while selector.get_map():
                if (cut := self._cut(deadline, out)) is not None:
                    return Ended(-signal.SIGKILL, b"", talk.text(), cut)
                ready = selector.select(_TICK_S)
                if not ready and process.poll() is not None and not selector.select(0):
                    break  # it ended, but something that it left behind still holds the pipe
                for key, _ in ready:
                    if not key.data.take(os.read(key.fd, _CHUNK)):
                        selector.unregister(key.fileobj)
        while (code := _polled(process)) is None:
            if (cut := self._cut(deadline, out)) is not None:
                return Ended(-signal.SIGKILL, b"", talk.text(), cut)
        if out.over:
            return Ended(code, b"", talk.text(), Cut.too_long)
        return Ended(code, b"".join(out.chunks), talk.text())

    def _cut(self, deadline: float, out: _Bounded) -> Cut | None:
        if self._closed.is_set():
            return Cut.closed
        if out.over:
            return Cut.too_long
        return Cut.deadline if time.monotonic() >= deadline else None


class _Bounded:
    """The first ``most`` bytes of a stream."""

    def __init__(self, most: int) -> None:
        self.chunks: list[bytes] = []
        self._room = most
        self.over = False

    def take(self, chunk: bytes) -> bool:
        """Keep what fits; False at the end of the stream."""
        self.over = self.over or len(chunk) > self._room
        kept = chunk[: self._room]
        self._room -= len(kept)
        if kept:
            self.chunks.append(kept)
        return bool(chunk)

    def text(self) -> str:
        return b"".join(self.chunks).decode("utf-8", errors="replace")


def _widen(pipe: int) -> None:
    """A wider pipe, where the system has them: fewer wake-ups while another thread computes."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK)


def _polled(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_TICK_S)
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a child that still runs, and everything in its session: asked first, then made to."""
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
