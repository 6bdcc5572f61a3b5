"""The columns after the matrix: CPU affinity, NUMA affinity, NUMA node of the GPU's own memory.

Promises: never a fault, what cannot be read is None. Where the CPU list and the NUMA node run
together (``0-45,92-1370``) they are taken apart only if the text proves it. Called by ``nvidia``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

_LIST = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_NODE = re.compile(r"0|[1-9][0-9]{0,2}")
MOST_NUMBERS = 16_384
"""Most CPUs or NUMA nodes that one list may name, each time it names one."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """What the columns after one GPU's row say; None where they do not."""

    cpus: str | None = None
    numa: tuple[int, ...] | None = None
    own_numa: int | None = None


def affinities(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Affinity]:
    """One for each row of words; ``columns``: titles in lower case."""
    kinds = [_kind(title) for title in columns]
    together = _apart(kinds, rows)
    return [_affinity(kinds, [*together.get(tuple(row), row)]) for row in rows]


def _kind(title: str) -> str:
    plain = title.replace(" ", "")
    kinds = {"cpuaffinity": "cpus", "numaaffinity": "numa", "gpunumaid": "own"}
    return kinds.get(plain, "other")


def _affinity(kinds: Sequence[str], words: list[str]) -> Affinity:
    # The words of a list may be apart: "0-23, 48-71".
    words = re.sub(r",\s+", ",", " ".join(words)).split()
    if len(words) == len(kinds):
        given = dict(zip(kinds, words, strict=True))
    elif len(words) < len(kinds) and words:
        given = _fewer(kinds, words)
    else:
        given = {}
    cpus = given.get("cpus")
    own = numbers(given.get("own", ""))
    return Affinity(
        cpus if cpus and _LIST.fullmatch(cpus) else None,
        numbers(given.get("numa", "")),
        own[0] if own is not None and len(own) == 1 else None,
    )


def _fewer(kinds: Sequence[str], words: list[str]) -> dict[str, str]:
    """Blanks have swallowed a column: the first word is the CPUs if it is a list, the last the rest."""
    given = {}
    first = words[0]
    if kinds[0] == "cpus" and _LIST.fullmatch(first) and ("-" in first or "," in first):
        given["cpus"] = first
        kinds, words = kinds[1:], words[1:]
    if words and len(words) == len(kinds):
        given |= dict(zip(kinds, words, strict=True))
    elif words and kinds and kinds[-1] == "own" and words[-1] == "N/A":
        # CPUs and N/A alone: which of the two NUMA columns is N/A does not matter.
        given["own"] = "N/A"
        if len(words) > 1 and "numa" in kinds:
            given["numa"] = words[-2]
    return given


def numbers(text: str) -> tuple[int, ...] | None:
    """Numbers of ``0``, ``0-1`` or ``0,3-9,11-17``, ascending; None for anything else."""
    if not _LIST.fullmatch(text):
        return None
    found: set[int] = set()
    room = MOST_NUMBERS
    for part in text.split(","):
        low, _, high = part.partition("-")
        named = range(int(low), int(high or low) + 1)
        room -= len(named)
        if not named or room < 0:
            return None
        found.update(named)
    return tuple(sorted(found))


def _apart(kinds: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[tuple[str, ...], list[str]]:
    """Rows one word short whose first word is a CPU list run together with a NUMA node."""
    if list(kinds[:2]) != ["cpus", "numa"]:
        return {}
    short = {tuple(row) for row in rows if len(row) == len(kinds) - 1}
    if not short:
        return {}
    firsts = sorted({row[0] for row in short})
    whole = {row[0] for row in rows if len(row) == len(kinds)}
    if _fits([*firsts, *sorted(whole)]):
        return {}
    found = {}
    for row in sorted(short):
        for cut in range(len(row[0]) - 1, 0, -1):
            cpus, node = row[0][:cut], row[0][cut:]
            others = {word for word in whole if not word.startswith(cpus)}
            if _NODE.fullmatch(node) and _fits([cpus, *sorted(others)]):
                found[row] = [cpus, node, *row[1:]]
                break
    return found


def _fits(lists: Sequence[str]) -> bool:
    """Whether these may be CPU lists of one machine: ranges of one length, no partial overlap."""
    read = [numbers(text) for text in lists]
    if any(cpus is None for cpus in read):
        return False
    sets = [frozenset(cpus) for cpus in read if cpus is not None]
    if any(a & b and a != b for a, b in combinations(sets, 2)):
        return False
    for text, cpus in zip(lists, sets, strict=True):
        lengths = {_length(part) for part in text.split(",") if "-" in part}
        # CPUs come in pairs of threads or in whole sockets: an odd number is a run-together one.
        if len(lengths) > 1 or len(cpus) % 2:
            return False
    return True


def _length(part: str) -> int:
    low, _, high = part.partition("-")
    return int(high) - int(low) + 1
