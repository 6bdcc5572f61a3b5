"""Host ranges such as ``gpu-[01-16,20]``: counted before they are expanded; and names as ranges."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from models.units import InvalidValueError, shown

MAX_NAMES = 200_000
"""Most names one host range (and one cluster) may hold."""


MAX_RUNS = 20
"""Most runs of numbers in one bracket, so that a range stays readable."""

_MARKS = frozenset("[],")
"""Characters of which a plain name has none."""

_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)
_ITEM = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def host_count(pattern: str) -> int:
    """Number of names in a host range, counted without expanding it. Raises InvalidValueError."""
    if _MARKS.isdisjoint(pattern):
        return 1
    return math.prod(
        sum(last - first + 1 for first, last, _ in part)
        for part in _parts(pattern)
        if not isinstance(part, str)
    )


def check_hosts(pattern: str) -> None:
    """Raise InvalidValueError for malformed brackets and for more than MAX_NAMES names."""
    if (count := host_count(pattern)) > MAX_NAMES:
        what = f"{shown(pattern)} has {count:,} names; the most is {MAX_NAMES:,}"
        raise InvalidValueError(what, "narrow the range")


def hosts(pattern: str) -> Iterator[str]:
    """Names of ``gpu-[01-16,20]``: all combinations of its brackets, in written order.

    Zero padding is kept (``[08-10]`` gives 08, 09, 10). Raises InvalidValueError for malformed brackets and,
    before any name is made, for more than MAX_NAMES of them.
    """
    check_hosts(pattern)
    if _MARKS.isdisjoint(pattern):
        return iter((pattern,))
    choices = [[part] if isinstance(part, str) else _numbers(part) for part in _parts(pattern)]
    return ("".join(combination) for combination in itertools.product(*choices))


def host_ranges(names: Iterable[str]) -> tuple[str, ...]:
    """The names as few host ranges over their last numbers, sorted; ``hosts`` undoes it."""
    ranges: list[str] = []
    numbered: dict[tuple[str, str, int], list[int]] = {}
    for name in sorted(set(names)):
        found = _NUMBERED.fullmatch(name)
        if found is None:
            ranges.append(name)
        else:
            prefix, digits, suffix = found.groups()
            numbered.setdefault((prefix, suffix, len(digits)), []).append(int(digits))
    for (prefix, suffix, width), numbers in numbered.items():
        runs = list(number_runs(numbers, width))
        if len(numbers) == 1:
            ranges.append(prefix + runs[0] + suffix)
        else:
            pieces = (runs[at : at + MAX_RUNS] for at in range(0, len(runs), MAX_RUNS))
            ranges += [f"{prefix}[{','.join(piece)}]{suffix}" for piece in pieces]
    return tuple(sorted(ranges))


def number_runs(numbers: Sequence[int], width: int = 1) -> Iterator[str]:
    """Ascending numbers as ``07`` and ``09-12``."""
    starts = [i for i, number in enumerate(numbers) if not i or number != numbers[i - 1] + 1]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=False):
        first, last = numbers[start], numbers[end - 1]
        yield f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "")


def _numbers(items: list[tuple[int, int, int]]) -> list[str]:
    return [f"{n:0{width}d}" for first, last, width in items for n in range(first, last + 1)]


@lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str | list[tuple[int, int, int]], ...]:
    """Literal texts and brackets in turn; a bracket is a list of (first, last, width)."""
    parts: list[str | list[tuple[int, int, int]]] = []
    for number_, piece in enumerate(re.split(r"\[([^\[\]]*)\]", pattern)):
        if number_ % 2 == 0:
            if "[" in piece or "]" in piece:
                raise InvalidValueError(f"{shown(pattern)} has an unmatched bracket", _RANGE_HINT)
            if "," in piece:
                raise InvalidValueError(
                    f"{shown(pattern)} has a comma outside its brackets", _RANGE_HINT
                )
            parts.append(piece)
        else:
            parts.append([_item(pattern, item) for item in piece.split(",")])
    return tuple(parts)


_RANGE_HINT = "write a host range like gpu-[01-16,20]"


def _item(pattern: str, item: str) -> tuple[int, int, int]:
    """(first, last, width) of ``01-16`` or ``20``; width 0 without padding."""
    found = _ITEM.fullmatch(item)
    if found is None:
        raise InvalidValueError(
            f"{shown(item)} in {shown(pattern)} is not a number or range", _RANGE_HINT
        )
    low, high = found.group(1), found.group(2) or found.group(1)
    padded = len(low) if low.startswith("0") else 0
    if int(low) > int(high):
        raise InvalidValueError(
            f"the range {shown(item)} in {shown(pattern)} runs backwards", _RANGE_HINT
        )
    if len(high) < len(low) or (high.startswith("0") and len(high) != len(low)):
        raise InvalidValueError(
            f"the ends of {shown(item)} in {shown(pattern)} are padded differently", _RANGE_HINT
        )
    return int(low), int(high), padded
