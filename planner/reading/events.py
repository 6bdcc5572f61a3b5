"""What both text formats are read as: a flat stream of events, each with its place.

Promises: one alphabet for YAML and JSON, so that everything above reads one dialect.
Made by ``yaml_events`` and ``json_events``; consumed by ``composing``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MAX_DEPTH = 64
"""Deepest nesting of lists and objects."""

MAX_NUMBER_DIGITS = 40
"""Longest number; nothing real needs more than 15 digits."""

Kind = Literal["document", "map", "list", "end", "scalar", "alias"]


class Event(NamedTuple):
    """One step through a text.

    ``value``: of a scalar, its Python value. ``text``: a scalar's own text (its name where it is
    a key) or an alias's name. Lines and columns count from 1.
    """

    kind: Kind
    line: int
    column: int
    value: object = None
    text: str = ""
    anchor: str | None = None
    plain: bool = False


class Malformed(Exception):  # noqa: N818  # it names the text, not the program
    """The text cannot be read any further: what, where, and a hint."""

    def __init__(self, what: str, line: int, column: int, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column
        self.hint = hint


def too_deep(line: int, column: int) -> Malformed:
    """Nesting beyond MAX_DEPTH."""
    return Malformed(
        f"nested more than {MAX_DEPTH} levels deep", line, column, "no document needs so many"
    )


def too_long_a_number(digits: int, line: int, column: int) -> Malformed:
    """A number beyond MAX_NUMBER_DIGITS."""
    return Malformed(
        f"a number of {digits:,} characters", line, column, f"the most is {MAX_NUMBER_DIGITS}"
    )
