"""Names of objects as names of ours: API names pass unchanged, anything else is made to fit.

Promises: the result is a valid Name or ShortName of the documents; equal names stay equal.
Called by ``assembling``.
"""

from __future__ import annotations

import re
from functools import lru_cache

_FORM = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_KEY = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
LONGEST = 253
SHORT = 63


@lru_cache(maxsize=65536)
def is_name(text: str, longest: int = LONGEST) -> bool:
    """Whether a text is a name as it is."""
    return len(text) <= longest and _FORM.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether an API server could have given an object that name (RFC 1123 subdomain)."""
    return _SUBDOMAIN.fullmatch(text) is not None and len(text) <= LONGEST and ".." not in text


@lru_cache(maxsize=65536)
def is_label_key(text: str) -> bool:
    return len(text) <= 317 and _KEY.fullmatch(text) is not None


@lru_cache(maxsize=65536)
def is_label_value(text: str) -> bool:
    return text == "" or is_name(text, SHORT)


def clean(text: str, longest: int = LONGEST) -> str:
    """The name itself where it is one, else the nearest that is; ``unnamed`` where nothing is left."""
    if is_name(text, longest):
        return text
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", text[: 4 * longest])[:longest]
    return kept.strip("._-") or "unnamed"


def distinct(name: str, taken: set[str], longest: int = LONGEST) -> str:
    """The name, or with a number behind it where it is taken; remembers it."""
    found, number = name, 1
    while found in taken:
        number += 1
        tail = f"-{number}"
        found = name[: longest - len(tail)] + tail
    taken.add(found)
    return found
