"""Signals: an interruption stops the program; during a search it asks for the best plan so far.

Promises: the first SIGINT or SIGTERM of a search is an event, the second ends the process at once;
outside a search they raise ``Interrupted``. Used by ``planner.cli.app`` and ``planner.pipelines.plan``.
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
"""Exit code of a program that Ctrl-C ended."""


class Interrupted(BaseException):
    """A signal arrived where nothing is worth saving. Not an Exception: nothing may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Stop:
    """What a signal left behind: ``event`` for the search, ``exit_code`` for the end (None: no signal)."""

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


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Python takes signal handlers in the main thread only; elsewhere there is nothing to install."""
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
