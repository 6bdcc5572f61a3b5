"""Makes text from clusters and files harmless to print: no cursor moves, colours or reordering."""

from __future__ import annotations

import re
import unicodedata

from models.units import shortened

MAX_MESSAGE = 300
"""Characters of a message of a server or a program that are shown."""

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that can drive a terminal (controls, bidi, line separators) or cannot be shown."""

_DRIVING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""Controls and format characters of the basic plane, line feeds apart."""

_HARMLESS = bytes((0x0A, *range(0x20, 0x7F)))
"""What is printed of ASCII."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def safe(text: str) -> str:
    """The text with every control, bidirectional and unassigned character written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(char) if unicodedata.category(char) in _UNSAFE else char for char in text
    )


def document_safe(text: str) -> bool:
    """Whether a document may go to a terminal as it is: no character in it drives one."""
    return _DRIVING.search(text) is None


def json_safe(text: str) -> str:
    """JSON text with characters that drive a terminal written as JSON escapes: the same document."""
    if text.isascii() and not text.encode().translate(None, _HARMLESS):
        return text  # as that of most plans, which may be large
    return _DRIVING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str) -> str:
    """The text on one printable line of at most MAX_MESSAGE characters."""
    return shortened(safe(" ".join(text.split())), MAX_MESSAGE)
