"""Values as Slurm writes them: numbers and lists of every data_parser version, GRES, TRES, host lists.

Nothing here but ``pieces`` raises for what a tree holds: what cannot be read is None, or empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from models.documents.server import MAX_GPUS
from models.host_ranges import host_count, hosts
from models.units import InvalidValueError, shown
from planner.read.kube.lookup import at

NO_VALUES = frozenset({2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1})
"""Numbers that versions before 23.02 write for "not set" and "unlimited", of 32 and 64 bits."""

NO_SHORT_VALUES = (2**16 - 2, 2**16 - 1)
"""The same of 16 bits. In other fields these are numbers like any other."""

MAX_NUMBER = 2**53


def number(tree: object, *path: str) -> int | None:
    """A whole number, plain, as text, or as ``{"set": true, "infinite": false, "number": 5}``.

    None where it is not set or unlimited. A negative number is returned: the caller says where it is.
    """
    value = at(tree, *path)
    plain = not isinstance(value, dict)
    if isinstance(value, dict):
        known = value.get("set") is True and value.get("infinite") is not True
        value = value.get("number") if known else None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_NUMBER:
        return None
    return None if plain and value in NO_VALUES else value


def words(tree: object, *path: str) -> tuple[str, ...]:
    """Texts of a list, or of a text with commas, plus signs or blanks between them."""
    value = at(tree, *path)
    found = value if isinstance(value, list) else [value]
    parts = (word for one in found if isinstance(one, str) for word in re.split(r"[,+\s]+", one))
    return tuple(word for word in parts if word and word != "(null)")


def said(tree: object, *path: str) -> str:
    """A text; empty for ``(null)``, ``N/A`` and anything else."""
    value = at(tree, *path)
    return value if isinstance(value, str) and value not in ("(null)", "N/A", "None") else ""


@dataclass(frozen=True, slots=True)
class Gres:
    """Generic resources: ``gpu:h100:4(IDX:0-3)``. ``indices``: None where they are not written.

    ``parts``: what is used of each device of a shared one, as in ``shard:8(4/8,4/8)``.
    """

    name: str
    kind: str | None
    count: int
    indices: tuple[int, ...] | None = None
    parts: tuple[int, ...] | None = None


_GRES = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?:[:/](?P<kind>[0-9]*[^:/=()0-9][^:/=()]*))?"
    r"(?:[:=](?P<count>[0-9]{1,15})(?P<unit>[KMGTP]?))?(?:\((?P<more>[^()]*)\))?"
)
_NO_GRES = ("cpu", "mem", "node", "billing", "energy", "license")
_SHARES = re.compile(r"[0-9]{1,9}/[0-9]{1,9}(?:,[0-9]{1,9}/[0-9]{1,9})*")
MAX_GRES = 100
"""Most generic resources of one node or job."""


def _parts(text: str) -> Iterator[str]:
    """What stands between commas that are in no brackets, up to one that is malformed."""
    start = depth = found = 0
    for here, char in enumerate(f"{text},"):
        depth += (char == "(") - (char == ")")
        if not 0 <= depth <= 1 or found == MAX_GRES:
            return
        if char == "," and not depth:
            yield text[start:here]
            start, found = here + 1, found + 1


def gres(text: str) -> tuple[Gres, ...]:
    """Every generic resource in a list of them, of GRES or of ``tres_per_*``; others are left out."""
    found = []
    for part in _parts(text):
        match = _GRES.fullmatch(part.strip())
        if match is None or match["name"] in _NO_GRES:
            continue
        more = match["more"] or ""
        indices = _indices(more[4:]) if more.startswith("IDX:") else None
        shares = _SHARES.fullmatch(more)
        parts = tuple(int(one.split("/")[0]) for one in more.split(",")) if shares else None
        count = 1 if indices is None else len(indices)
        if match["count"] is not None:
            count = int(match["count"]) * _scale(match["unit"])
        found.append(Gres(match["name"].lower(), match["kind"], count, indices, parts))
    return tuple(found)


def _scale(unit: str) -> int:
    return int(1024 ** " KMGTP".index(unit or " "))


def malformed(text: str) -> str | None:
    """The first generic resource of GPUs in a list that cannot be read."""
    start = 0
    for part in _parts(text):
        start += len(part) + 1
        if "gpu" in part.lower() and _GRES.fullmatch(part.strip()) is None:
            return part
    return text[start:] if start < len(text) and "gpu" in text[start:].lower() else None


def gpus(text: str) -> tuple[Gres, ...]:
    return tuple(one for one in gres(text) if one.name == "gpu")


def shares(text: str) -> tuple[Gres, ...]:
    """The shares of GPUs in a list of generic resources."""
    return tuple(one for one in gres(text) if one.name in ("shard", "mps") and one.count)


_SLICE = re.compile(r"(^|[^0-9a-z])[0-9]{1,2}c?(_|\.)?[0-9]{0,2}g[._][0-9]{1,4}gb", re.IGNORECASE)


def is_slice(kind: str | None) -> bool:
    """Whether a type of GPUs is a MIG profile, such as ``1g.10gb`` or ``a100_3g.20gb``."""
    return kind is not None and _SLICE.search(kind) is not None


def _indices(text: str) -> tuple[int, ...] | None:
    """``0-3,5`` as numbers; none for ``N/A``; None for anything else."""
    if text == "N/A":
        return ()
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= MAX_GPUS:
            return None
        found += range(first, last + 1)
    return tuple(found)


_TRES = re.compile(r"\s*([^=\s]+)=([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGTP]?)\s*")


def tres(text: str) -> dict[str, Fraction]:
    """``cpu=8,mem=120000M,node=1,gres/gpu=8``: amounts by name, ``mem`` in MiB."""
    found: dict[str, Fraction] = {}
    for name, amount, unit in (
        one.groups() for one in map(_TRES.fullmatch, text.split(",")) if one
    ):
        scale = Fraction(_scale(unit or "M"), 2**20) if name == "mem" else _scale(unit)
        found.setdefault(name, Fraction(amount) * scale)
    return found


def pieces(text: str) -> list[str]:
    """The host ranges of a host list. Raises InvalidValueError for an empty one among them."""
    found: list[str] = []
    start = depth = 0
    for i, character in enumerate(f"{text},"):
        depth += (character == "[") - (character == "]")
        if i == len(text) or (character == "," and depth <= 0):
            found.append(text[start:i])
            start = i + 1
    if not all(found):
        hint = "write a hostlist like tux[0-3,7],rack[1-2]n[01-18]"
        raise InvalidValueError(f"{shown(text)} has nothing between two commas", hint)
    return found


def expanded(text: str, most: int) -> tuple[str, ...] | None:
    """The names of a host list in order; None if it is malformed or has more than ``most``."""
    if not text:
        return ()
    try:
        parts = pieces(text)
        if sum(map(host_count, parts)) > most:
            return None
        return tuple(name for part in parts for name in hosts(part))
    except InvalidValueError:
        return None
