"""Hints for a word that is not known: the nearest one that is, or what there is.

Promises: short text, deterministic. Called by the documents' complaints and by the readers.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.quantities import shown

_LISTED = 8


def suggestion(word: str, known: Iterable[str], called: str = "known") -> str:
    """``did you mean 'rack'?``, or ``known: block, rack``; ``called`` introduces the list."""
    import difflib  # only a fault needs it, and it costs milliseconds

    options = sorted(set(known))
    folded = {option.lower(): option for option in reversed(options)}
    if near := difflib.get_close_matches(word[:100].lower(), folded, n=1, cutoff=0.6):
        return f"did you mean {shown(folded[near[0]])}?"
    if not options:
        return f"{called}: none"
    more = f" and {len(options) - _LISTED} more" if len(options) > _LISTED else ""
    return f"{called}: {', '.join(options[:_LISTED])}{more}"
