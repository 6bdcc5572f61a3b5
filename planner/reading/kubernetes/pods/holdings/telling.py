"""What a dialect tells about the GPUs of a pod, and helpers to read it safely.

Promises: bounded in size and depth; never raises. Called by the dialects beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.reading.kubernetes.looking import number

LONGEST = 65_536
"""Longest annotation that is read, in characters."""

_MOST = 4096


@dataclass(frozen=True, slots=True)
class Told:
    """GPU indices as a dialect tells them, in its order; None where it cannot be read."""

    indices: tuple[int, ...] | None


UNREADABLE = Told(None)


def written(annotations: Mapping[str, str], key: str) -> str | None:
    """The annotation, None if it is absent or blank."""
    found = annotations.get(key)
    return found if found and found.strip() else None


def comma_list(found: str) -> Told:
    """Indices written as ``0,3`` (blanks allowed)."""
    if len(found) > LONGEST:
        return UNREADABLE
    return told(number(part.strip()) for part in found.split(",") if part.strip())


def told(indices: Iterable[int | None]) -> Told:
    """Indices that are all there and at least one; anything else cannot be read."""
    found = []
    for index in indices:
        if index is None or not 0 <= index < _MOST:
            return UNREADABLE
        found.append(index)
    return Told(tuple(found)) if found else UNREADABLE


def tree(found: str) -> object:
    """The value of a JSON text; None where it is none, too long or too deep."""
    if len(found) > LONGEST:
        return None
    try:
        return json.loads(found)
    except (ValueError, RecursionError):
        return None
