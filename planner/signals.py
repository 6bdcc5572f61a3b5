"""SIGINT, SIGTERM and SIGHUP: they raise ``Interrupted``; during a search they ask for the best plan so far.

While that plan is saved, further signals only say so; after a while one ends the process at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

CTRL_C = 128 + signal.SIGINT
"""Exit code after Ctrl-C."""


class Interrupted(BaseException):
    """A signal arrived where nothing is worth saving. Not an Exception: no handler may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


PATIENCE_S = 20.0
"""Seconds after the first signal of a search after which another one ends the process."""


class Stop:
    """``event``: set by a signal. ``exit_code``: of the program then, None without a signal.

    ``saving``: the line for stderr that answers further signals; without it they end the process.
    ``stopping``: what answers the first one at once, whatever the main thread is doing.
    """

    def __init__(self, saving: bytes, stopping: bytes = b"") -> None:
        self.event = threading.Event()
        self.exit_code: int | None = None
        self._saving = saving
        self._stopping = stopping
        self._first = 0.0

    def check(self) -> None:
        """Raises Interrupted after a signal."""
        if self.exit_code is not None:
            raise Interrupted(self.exit_code - 128)

    def caught(self, number: int, _frame: FrameType | None) -> None:
        if self.exit_code is None:
            self.exit_code = 128 + number
            self._first = time.monotonic()
            self.event.set()
            _answer(self._stopping)
        elif self._saving and time.monotonic() - self._first < PATIENCE_S:
            _answer(self._saving)
        else:
            # The solver's threads may be deep in native code: do not wait for them.
            os._exit(128 + number)


def _answer(text: bytes) -> None:
    if text:
        with contextlib.suppress(OSError):  # a closed stderr
            os.write(2, text)


@contextmanager
def interruptible() -> Iterator[None]:
    """Signals raise Interrupted. One that the caller ignores (``nohup``) stays ignored."""
    with handled(_raise):
        yield


@contextmanager
def stop_on_signal(saving: bytes = b"", stopping: bytes = b"") -> Iterator[Stop]:
    """Signals set the event of the Stop handed out. ``saving``, ``stopping``: as in Stop."""
    stop = Stop(saving, stopping)
    with handled(stop.caught):
        yield stop


@contextmanager
def ignored() -> Iterator[None]:
    """Drop signals for a moment in which an interruption would leave litter."""
    with handled(signal.SIG_IGN):
        yield


@contextmanager
def kept_from_children() -> Iterator[None]:
    """A process that this thread starts meanwhile gets none of the signals, from its first instruction on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


@contextmanager
def handled(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers,
) -> Iterator[None]:
    """Signals go to the handler. Only the main thread may have one; elsewhere nothing is installed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in CAUGHT:
        old = signal.getsignal(number)
        if old is not signal.SIG_IGN:
            before[number] = old
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
