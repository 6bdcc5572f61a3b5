"""SIGINT and SIGTERM: they raise ``Interrupted``; during a search they ask for the best plan so far.

The second signal of a search ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)

CTRL_C = 128 + signal.SIGINT
"""Exit code after Ctrl-C."""


class Interrupted(BaseException):
    """A signal arrived where nothing is worth saving. Not an Exception: no handler may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Stop:
    """``event``: set by a signal. ``exit_code``: of the program then, None without a signal."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.exit_code: int | None = None

    def caught(self, number: int, _frame: FrameType | None) -> None:
        if self.event.is_set():
            # The solver's threads may be deep in native code: do not wait for them.
            os._exit(128 + number)
        self.exit_code = 128 + number
        self.event.set()


@contextmanager
def interruptible() -> Iterator[None]:
    """Signals raise Interrupted. One that the caller ignores (``nohup``) stays ignored."""
    with _handled(_raise):
        yield


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Signals set the event of the Stop handed out."""
    stop = Stop()
    with _handled(stop.caught):
        yield stop


@contextmanager
def ignored() -> Iterator[None]:
    """Drop signals for a moment in which an interruption would leave litter."""
    with _handled(signal.SIG_IGN):
        yield


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers,
) -> Iterator[None]:
    """Python accepts signal handlers in the main thread only; elsewhere nothing is installed."""
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
