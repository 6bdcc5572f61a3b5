"""Ends the building of a program early; whoever builds knows the clock and the signals, models do not."""

from __future__ import annotations

from collections.abc import Callable


class Interrupted(Exception):  # noqa: N818  # no error: the caller asked for it
    """Building has ended because the caller asked that it end."""


class TooLarge(Interrupted):
    """Building has ended because the program is larger than any that an engine solves in time."""


Question = Callable[[], bool]
"""Whether building is to end; asked several times a second."""


def never() -> bool:
    """Building runs to its end."""
    return False


def check(interrupted: Question) -> None:
    """Raises Interrupted if building is to end."""
    if interrupted():
        raise Interrupted
