"""Numbers, durations, node names and GPU indices as text."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from models.gpu_shares import part_of
from models.host_ranges import host_ranges, number_runs
from models.units import SHOWN_SCHEDULERS, decimal_text, first_of, plural
from planner.untrusted_text import document_safe


class Format(StrEnum):
    """``-o``: how a document is printed. A verb takes those that say something of it."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    name = "name"


def width(text: str) -> int:
    """Width of the text on a terminal: two columns for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def number(value: float | None) -> str:
    """``1204`` as ``1,204``; ``-`` for None."""
    return "-" if value is None else decimal_text(value)


def listed(words: Sequence[str], last: str = "or") -> str:
    """``a, b or c``; names that contain commas are separated by semicolons."""
    comma = "; " if any("," in word for word in words) else ", "
    return f" {last} ".join([part for part in (comma.join(words[:-1]), *words[-1:]) if part])


def left_out(pods: Mapping[str, int]) -> str | None:
    """Which waiting pods are not planned, by scheduler, and what plans them; None without any."""
    count = sum(pods.values())
    if not count:
        return None
    named = first_of([f"{name} {number(own)}" for name, own in pods.items()], SHOWN_SCHEDULERS)
    belong = "belongs to another scheduler" if count == 1 else "belong to other schedulers"
    return f"{plural(count, 'waiting pod')} {belong} ({named}): --scheduler all plans them"


def lasting(seconds: int) -> str:
    """A duration in its two largest units, rounded down: ``45s``, ``3h12m``, ``2d4h``."""
    for size, unit, smaller, less in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size:,}{unit}" + (f"{rest}{less}" if rest else "")
    return f"{seconds // 60}m" if seconds >= 60 else f"{seconds}s"


def gigabytes(mbps: int | None) -> str:
    """MB/s as GB/s with one decimal, rounded down."""
    return "-" if mbps is None else f"{mbps // 1000:,}.{mbps // 100 % 10}"


def permille(share: int | None) -> str:
    """Permille as percent with one decimal: 1000 is ``100.0 %``."""
    return "-" if share is None else f"{share // 10}.{share % 10} %"


def whole_percent(value: int | None) -> str:
    """Permille as whole percent, rounded down: 480 is ``48 %``."""
    return "-" if value is None else f"{value // 10} %"


def change(texts: Iterable[str]) -> str:
    """``before -> after``, or once what is equal."""
    return " -> ".join(dict.fromkeys(texts))


NO_BOUND = "no bound yet"
"""In place of a bound that no engine has improved on yet."""


def percent(gap: float | None) -> str:
    """A gap as percent; a value above zero never reads as zero."""
    if gap is None:
        return "-"
    if gap == 0:
        return "0 %"
    if gap > 99.99:  # of a value near zero
        return ">9999 %"
    return "<0.01 %" if gap < 0.0001 else f"{gap:.2%}".replace("%", " %")


def domain_text(path: str) -> str:
    """The path of a domain; of a long one its innermost names, at least one."""
    names = path.split("/")
    while len(names) > 1 and len("/".join(names)) > LONG_PATH:
        names = names[1:]
    return "/".join(names)


LONG_PATH = 40
"""Most characters of the path of a domain in a sentence or a table."""


def compress(names: Iterable[str], separator: str = ",") -> str:
    """The names with their last numbers folded into ranges; no name is invented."""
    return separator.join(host_ranges(names))


def request_text(amount: str, resource: str) -> str:
    """``4 cpu``; of a part of a GPU ``0.25 of a GPU``, or ``12288Mi and 30 % of the cores of a GPU``."""
    part = part_of(resource)
    if part is None:
        return f"{amount} {resource}"
    memory = f"{part.memory_MiB}Mi" if part.memory_MiB else f"{part.permille / 1000:g}"
    if part.cores_permille == part.permille:
        return f"{memory} of a GPU"
    what = "" if part.memory_MiB else " of the memory"
    cores = f" and {part.cores_permille // 10} % of the cores" * bool(part.cores_permille)
    return f"{memory}{what}{cores} of a GPU"


def resource_text(resource: str) -> str:
    """What a resource is called; parts of GPUs by what they are parts of."""
    return "shared GPUs" if part_of(resource) is not None else resource


def ranges(values: Iterable[int]) -> str:
    """``0-3,6`` from 0, 1, 2, 3, 6."""
    return ",".join(number_runs(sorted(set(values))))


def nodes_and_gpus(used: Mapping[str, str]) -> str:
    """Nodes grouped by their used GPUs: whole nodes bare, others as ``node:0-3``.

    ``used`` maps a node to the text of its GPUs, empty for the whole node.
    """
    groups: dict[str, list[str]] = {}
    for node in sorted(used):
        groups.setdefault(used[node], []).append(node)
    return " ".join(
        part + (f":{gpus}" if gpus else "")
        for gpus, nodes in groups.items()
        for part in host_ranges(nodes)
    )


def short_names(names: Iterable[str], most: int) -> dict[str, str]:
    """The names, unless one is longer than ``most``: then each in a short form that no other one has.

    What all begin with goes, up to a separator, and the network domain that all end with. Of what is still
    too long, such as hashes, a beginning or an end stays in which all differ, or else the whole name.
    """
    known = sorted(set(names))
    first = last = 0
    if len(known) > 1 and any(len(name) > most for name in known):
        first = _same(known, "-_./:")
        last = _same([name[::-1] for name in known], ".")
    bare = {name: name[first : len(name) - last] or name for name in known}
    for ends, length in itertools.product((False, True), range(LEAST_OF_A_NAME - 1, most)):
        short = {
            name: text
            if len(text) <= most
            else (f"…{text[-length:]}" if ends else f"{text[:length]}…")
            for name, text in bare.items()
        }
        if len(set(short.values())) == len(known):
            return short
    return {name: name for name in known}


LEAST_OF_A_NAME = 7
"""Characters of a shortened name at least, the dots included."""


def _same(names: Sequence[str], separators: str) -> int:
    """How many characters all begin with, up to the last separator."""
    first, last = min(names), max(names)
    same = (
        n for n, char in enumerate(first, 1) if char in separators and last.startswith(first[:n])
    )
    return max(same, default=0)


def yaml_text(document: object, *, flow: bool | None = False) -> str:
    """The document as YAML, keys in document order, by libyaml where it is built in. ``flow``: PyYAML's."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    style: dict[str, Any] = {"default_flow_style": flow, "sort_keys": False, "width": 10**6}
    text = str(yaml.dump(document, Dumper=dumper, allow_unicode=True, **style))
    return text if document_safe(text) else str(yaml.dump(document, Dumper=dumper, **style))
