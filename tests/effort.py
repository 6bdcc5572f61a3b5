"""How much a sweep tries: a sample by default, more with ``--thorough``, everything with ``--whole``.

``make test`` takes the samples and leaves out tests marked slow; ``make test-all`` is thorough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

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
