"""How bad text is refused: what is wrong and a hint, with the text shown safely.

Promises: messages hold one line, no control characters and no more than a few words of the input.
Called by everything that parses what people write.
"""

from __future__ import annotations

_SHOWN = 60


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
