"""How much a sweep tries, a sample by default, more with ``--thorough``, everything with ``--whole``; and
how long anything is waited for.

``make test`` takes the samples and leaves out tests marked slow; ``make test-all`` is thorough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

BRIEF = 4_000
"""What the exhaustive planner may try for one plan in a sample: some tenths of a second."""

T = TypeVar("T")

HANG_S = 600.0
"""Whatever takes longer hangs: no verdict depends on how busy the machine is."""

THOROUGH, WHOLE = "--thorough", "--whole"
_options = {THOROUGH: False, WHOLE: False}


def set_effort(*, thorough: bool, whole: bool) -> None:
    """Called once, before tests are imported. ``whole``: thorough, and the longest sweeps as a whole."""
    _options.update({THOROUGH: thorough or whole, WHOLE: whole})


def examples(every: int, sample: int | None = None) -> int:
    """How many examples to try. ``sample``: by default a tenth, but at least ten."""
    if _options[THOROUGH]:
        return every
    return min(every, max(10, every // 10)) if sample is None else sample


def spread(values: Sequence[T], step: int = 5, *, thorough: int = 1) -> Sequence[T]:
    """All values, or every ``step``-th of them as a sample.

    ``thorough``: the step with ``--thorough`` of a sweep that takes minutes; ``--whole`` takes all values.
    """
    if _options[WHOLE]:
        return values
    return values[::thorough] if _options[THOROUGH] else values[::step]


def first_fast(values: Iterable[T], fast: int = 1) -> list[object]:
    """Parameters of a test: all but the first ``fast`` are marked slow."""
    return [
        value if index < fast else pytest.param(value, marks=pytest.mark.slow)
        for index, value in enumerate(values)
    ]


class TooManyError(Exception):
    """More is to be tried than a sample of a sweep may take."""


class Effort:
    """Counts what is tried. ``most``: of one plan; None for any number."""

    most: int | None = None

    def __init__(self) -> None:
        self.tried = 0

    def one(self) -> None:
        """Count one more thing that is tried. Raises TooManyError."""
        self.tried += 1
        if self.most is not None and self.tried > self.most:
            raise TooManyError


@contextmanager
def briefly() -> Iterator[None]:
    """Leave the block where trying every plan takes long; not with ``--thorough``."""
    with pytest.MonkeyPatch.context() as patch, suppress(TooManyError):
        patch.setattr(Effort, "most", None if examples(1, 0) else BRIEF)
        yield
