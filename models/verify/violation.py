"""A violation: one difference between a plan and what follows from it, with the rule it breaks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """``gang`` is ``namespace/name``, None where the violation is not about one gang."""

    rule: str
    gang: str | None
    message: str


def printable(text: str) -> str:
    """Text of the document in a message: one line, control characters replaced, bounded length."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def quoted(value: str | int | None) -> str:
    """A stated value in a message, of bounded length."""
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 200 else "a huge integer"
    return repr(value if len(value) <= 80 else value[:77] + "...")
