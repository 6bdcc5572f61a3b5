"""Text in lines of a given width, broken between words.

Promises: pure; nothing is lost but the blanks at a break; no line is wider than asked.
Used for tables and talk on a terminal.
"""

from __future__ import annotations

from planner.showing.text import width


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most ``columns`` (2 or more); a longer word breaks after , or / if it can."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width(line) + 1 + width(word) <= columns:
            line += f" {word}"
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, columns)
        lines += full
    return [*lines, line] if line else lines or [""]


def breaks_words(text: str, columns: int) -> bool:
    """Whether a word is wider than ``columns``."""
    return any(width(word) > columns for word in text.split())


def _pieces(word: str, columns: int) -> list[str]:
    """The word cut into pieces that fit, the last one perhaps short."""
    pieces = []
    while width(word) > columns:
        fit = _prefix(word, columns)
        cut = max(word.rfind(mark, 0, fit) for mark in ",/") + 1 or fit
        pieces.append(word[:cut])
        word = word[cut:]
    return [*pieces, word]


def _prefix(word: str, columns: int) -> int:
    """Characters of the word that fit; at least one."""
    used = 0
    for place, char in enumerate(word):
        used += width(char)
        if used > columns:
            return max(place, 1)
    return len(word)
