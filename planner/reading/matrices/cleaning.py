"""A captured text to plain lines: terminal escapes, quote marks and table frames become blanks.

Promises: every line keeps its length, so that columns in messages are those of the file.
Called by ``finding``.
"""

from __future__ import annotations

import re

MOST_CHARACTERS = 16_384
"""Longest line that can hold a row: 64 GPUs and 256 NICs take 2,600 characters."""

_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title for the terminal's window
    r"|(?:\x1b|\x9b|\^\[)\[?[0-9;?]*[ -/]*[@-~]"
    # What is left of an underline where a web page swallowed the escape character itself.
    r"|\[[0-9]{1,3}(?:;[0-9]{1,3})*m|\[m(?=\s|$)"
)
_FRAME = str.maketrans(dict.fromkeys("|>`\u2502\u2503\u00a0\u200b\ufeff\x00", " "))
_COMMENT = re.compile(r"^[\s*]*(?:#+|//|\*|-)(?=\s)")


def clean_lines(text: str) -> list[str]:
    """The lines, each as long as it was; one too long to be of a topology becomes empty."""
    return [_clean(line) for line in text.split("\n")]


def _clean(line: str) -> str:
    line = line.rstrip("\r")
    if len(line) > MOST_CHARACTERS:
        return ""
    if not line or line.isspace():
        return ""
    if "\x1b" in line or "[" in line or "\x9b" in line:
        line = _ESCAPE.sub(lambda found: " " * len(found[0]), line)
    line = line.translate(_FRAME)
    return _COMMENT.sub(lambda found: " " * len(found[0]), line)


def longest_line(text: str) -> tuple[int, int]:
    """Number (from 1) and length of the longest line."""
    return max(
        ((number, len(line)) for number, line in enumerate(text.split("\n"), 1)),
        key=lambda found: found[1],
    )
