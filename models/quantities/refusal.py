"""How bad text is refused: what is wrong and a hint, with the text shown safely.

Promises: messages hold one line, no control characters and no more than a few words of the input.
Called by everything that parses what people write.
"""

from __future__ import annotations

from decimal import Decimal

_SHOWN = 60
_MAX_INTEGER_SHOWN = 10**20


class Refused(ValueError):  # noqa: N818  # it is raised and read as a verb
    """A value that cannot be read: what is wrong, and what to write instead."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def shown(text: object) -> str:
    """Text quoted for a message: one line, control characters escaped, at most 60 characters."""
    raw = str(text) if isinstance(text, str) else repr(text)
    cut = raw if len(raw) <= _SHOWN else raw[: _SHOWN - 3] + "..."
    return "'" + "".join(c if c.isprintable() else _escaped(c) for c in cut) + "'"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def described(value: object) -> str:
    """A value for a message, by its kind."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the number {value}" if abs(value) < _MAX_INTEGER_SHOWN else "an enormous number"
    if isinstance(value, float | Decimal):
        return f"the number {shown(str(value))[1:-1]}"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return "a list" if isinstance(value, list | tuple) else "an object"
