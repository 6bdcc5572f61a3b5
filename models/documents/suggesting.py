"""Hints for a word that is not known: the nearest one that is, or what there is.

Promises: short text, deterministic. Called by the documents' complaints, the readers and ``topo``.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.quantities import shown

_LISTED = 8
_SIMILAR = 3
_TELLING = 2  # letters and digits: T4 is a name


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
    # A name with a comma in it would look like two.
    listed = (shown(option) if "," in option else option for option in options[:_LISTED])
    return f"{called}: {', '.join(listed)}{more}"


def similar(word: str, known: Iterable[str]) -> list[str]:
    """Known names that hold the word, blanks, dashes and case aside; else the nearest. At most 3.

    For names of products, of which people write the telling part: GB200, dgx1, MI300X.
    """
    import difflib

    names = sorted(set(known))
    part = _squeezed(word[:100])
    if len(part) >= _TELLING:
        holding = [name for name in names if part in _squeezed(name)]
        if holding:
            holding.sort(key=lambda name: (not _squeezed(name).startswith(part), len(name), name))
            return holding[:_SIMILAR]
    folded = {name.lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(word[:100].lower(), folded, n=1, cutoff=0.6)
    return [folded[match] for match in near]


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
