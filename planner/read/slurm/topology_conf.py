"""A ``topology.conf``, each entry with its place.

Comments, continued lines, quotes, and keys in any case. Names are not resolved here.
"""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from models.documents.base import suggestion
from models.host_ranges import MAX_NAMES
from models.units import shown
from planner.read.findings import Findings
from planner.read.parser import match_end
from planner.read.slurm.definitions import (
    NAME_HINT,
    Block,
    BlockSizes,
    Definitions,
    HostList,
    Spot,
    Switch,
    is_name,
)
from planner.read.sources import Source

MAX_LINE = 1_000_000
"""Longest line, continued ones joined."""
_PAIR = re.compile(r'([A-Za-z0-9_.]+)[ \t]*=[ \t]*("[^"]*"|[^\s"=]+)?(?=\s|$)')
_BLANK = re.compile(r"\s*")
_COMMENT = re.compile(r"(?<!\\)#")

_LINES = {
    "SwitchName": ("Switches", "Nodes", "LinkSpeed"),
    "BlockName": ("Nodes",),
    "BlockSizes": (),
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line, continued ones joined: ``starts`` are (offset, line, column) of its parts."""

    text: str
    starts: tuple[tuple[int, int, int], ...]
    source: Source

    def spot(self, offset: int) -> Spot:
        """The place of a character."""
        at = bisect.bisect_right(self.starts, (offset, sys.maxsize, 0)) - 1
        start, line, column = self.starts[at]
        return Spot(self.source, line, column + offset - start)


def read_conf(source: Source, findings: Findings) -> Definitions:
    """Everything the file defines; faults go into the findings."""
    reader = _Reader(findings)
    reader.read(source)
    return reader.found


@dataclass(slots=True)
class _Reader:
    findings: Findings
    found: Definitions = field(default_factory=Definitions)

    def read(self, source: Source) -> None:
        for line in _lines(source):
            if max(len(line.text), len(line.starts)) > MAX_LINE:  # parts may be empty
                what = f"a line of more than {MAX_LINE:,} characters"
                line.spot(0).fault(self.findings, what, "use host ranges")
                return
            start = match_end(_BLANK, line.text, 0)
            if start == len(line.text):
                continue
            if (pairs := self._pairs(line, start)) is not None:
                self._define(pairs, line.spot(start))
            if self.findings.full:
                return
            if len(self.found.switches) + len(self.found.blocks) > MAX_NAMES:
                what = f"more than {MAX_NAMES:,} switches or blocks"
                line.spot(start).fault(self.findings, what, "leave some out")
                return

    def _pairs(self, line: _Line, start: int) -> dict[str, tuple[str, HostList]] | None:
        """Keys as written and values, by key in lower case; None for a malformed line."""
        pairs: dict[str, tuple[str, HostList]] = {}
        at = start
        while at < len(line.text):
            found = _PAIR.match(line.text, at)
            if found is None:
                what = f"expected Key=Value, not {shown(line.text[at:].split()[0])}"
                hint = "write it like SwitchName=s1 Nodes=node[01-16]"
                line.spot(at).fault(self.findings, what, hint)
                return None
            key = found[1]
            if key.lower() in pairs:
                line.spot(at).fault(
                    self.findings, f"{key} appears twice on this line", "remove one"
                )
                return None
            spot = line.spot(found.start(2) if found[2] else at)
            pairs[key.lower()] = (key, HostList((found[2] or "").strip('"'), spot))
            at = match_end(_BLANK, line.text, found.end())
        return pairs

    def _define(self, pairs: dict[str, tuple[str, HostList]], spot: Spot) -> None:
        kind = next((one for one in _LINES if one.lower() in pairs), None)
        if kind is None:
            first = next(iter(pairs.values()))[0]
            hint = suggestion(first, _LINES, "lines start with")
            spot.fault(self.findings, f"unknown keyword {shown(first)}", hint)
            return
        for key, (written, value) in pairs.items():
            if key not in {one.lower() for one in (kind, *_LINES[kind])}:
                hint = suggestion(written, (kind, *_LINES[kind]), "keywords")
                what = f"unknown keyword {shown(written)} of a {kind} line"
                value.spot.fault(self.findings, what, hint)
                return
            if not value.text:
                hint = "remove it, or give one"
                value.spot.fault(self.findings, f"{written}= without a value", hint)
                return
        name = pairs[kind.lower()][1]
        nodes, switches = (pairs.get(key, ("", None))[1] for key in ("nodes", "switches"))
        if kind == "BlockSizes":
            self._sizes(name)
        elif not is_name(name.text):
            what = f"{shown(name.text)} cannot be the name of a domain"
            name.spot.fault(self.findings, what, NAME_HINT)
        elif kind == "SwitchName":
            self.found.switches.append(Switch(name.text, name.spot, switches, nodes))
        else:
            self.found.blocks.append(Block(name.text, name.spot, nodes))

    def _sizes(self, value: HostList) -> None:
        words = value.text.split(",")
        if not all(word.isascii() and word.isdecimal() and len(word) <= 9 for word in words):
            what = f"{shown(value.text)} is no list of block sizes"
            value.spot.fault(self.findings, what, "write it like BlockSizes=18,36,72")
        elif self.found.sizes is not None:
            value.spot.fault(self.findings, "a second line of BlockSizes", "remove one of the two")
        else:
            self.found.sizes = BlockSizes(tuple(int(word) for word in words), value.spot)


def _lines(source: Source) -> Iterator[_Line]:
    """The lines without comments, those that end in a backslash joined with the next."""
    parts: list[str] = []
    starts: list[tuple[int, int, int]] = []
    length = 0
    for number, raw in enumerate(source.text.split("\n"), 1):
        part = raw.removesuffix("\r")
        comment = _COMMENT.search(part)
        part = part[: comment.start()] if comment else part
        starts.append((length, number, 1))
        continued = part.rstrip().endswith("\\")
        parts.append(part.rstrip()[:-1] if continued else part)
        length += len(parts[-1])
        if not continued or max(length, len(starts)) > MAX_LINE:
            yield _Line("".join(parts), tuple(starts), source)
            parts, starts, length = [], [], 0
    if starts:
        yield _Line("".join(parts), tuple(starts), source)
