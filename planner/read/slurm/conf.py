"""The lines of a ``topology.conf``: ``Key=Value`` pairs, each with its place.

Promises: comments, continued lines, quotes, keys in any case; included files from the folder of
the file, bounded; what is no such line is reported at its place. Called by ``planner.read.slurm.cluster``.
"""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from models.documents.base import suggestion
from models.host_ranges import MAX_NAMES
from models.units import shown
from planner.errors import MissingPathError
from planner.read.findings import Findings
from planner.read.slurm.hostlists import Block, Names, Sizes, Spot, Switch, is_name
from planner.read.sources import STDIN, Source, read_sources

MAX_INCLUDES = 100
MAX_LINE = 1_000_000
"""Longest line, continued ones joined."""
_PAIR = re.compile(r'([A-Za-z0-9_.]+)[ \t]*=[ \t]*("[^"]*"|[^\s"=]+)?(?=\s|$)')
_INCLUDE = re.compile(r"include[ \t]+(\S.*)", re.IGNORECASE)
_BLANK = re.compile(r"\s*")
_COMMENT = re.compile(r"(?<!\\)#")

_LINES = {
    "SwitchName": ("Switches", "Nodes", "LinkSpeed"),
    "BlockName": ("Nodes",),
    "BlockSizes": (),
}
_NO_LEVELS = {"ringname": "a ring", "torusname": "a torus"}


@dataclass(slots=True)
class Conf:
    """What a file and those it includes define."""

    switches: list[Switch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    sizes: Sizes | None = None
    includes: int = 0


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


def read_conf(source: Source, findings: Findings) -> Conf:
    """Everything the file defines; what is wrong goes into the findings."""
    conf = Conf()
    _read(source, conf, findings, _folder(source))
    return conf


def _read(source: Source, conf: Conf, findings: Findings, folder: Path | None) -> None:
    for line in _lines(source):
        if max(len(line.text), len(line.starts)) > MAX_LINE:  # parts may be empty
            what = f"a line of more than {MAX_LINE:,} characters"
            line.spot(0).fault(findings, what, "use host ranges")
            return
        start = _blank(line.text, 0)
        if start == len(line.text):
            continue
        if (found := _INCLUDE.fullmatch(line.text.rstrip(), start)) is not None:
            _include(found[1], line.spot(start), conf, findings, folder)
        else:
            _define(line, start, conf, findings)
        if findings.full:
            return
        if len(conf.switches) + len(conf.blocks) > MAX_NAMES:
            what = f"more than {MAX_NAMES:,} switches or blocks"
            line.spot(start).fault(findings, what, "leave some out")
            return


def _blank(text: str, at: int) -> int:
    """Where the blanks from a place on end."""
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


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


def _define(line: _Line, start: int, conf: Conf, findings: Findings) -> None:
    """Take in one line of pairs."""
    pairs: dict[str, tuple[str, Names]] = {}
    at = start
    while at < len(line.text):
        found = _PAIR.match(line.text, at)
        if found is None:
            word = line.text[at:].split()[0]
            what = f"expected Key=Value, not {shown(word)}"
            line.spot(at).fault(findings, what, "write it like SwitchName=s1 Nodes=node[01-16]")
            return
        key = found[1]
        value = Names((found[2] or "").strip('"'), line.spot(found.start(2) if found[2] else at))
        if key.lower() in pairs:
            line.spot(at).fault(findings, f"{key} stands twice on this line", "remove one")
            return
        pairs[key.lower()] = (key, Names(value.text, value.spot))
        at = _blank(line.text, found.end())
    _defined(pairs, line.spot(start), conf, findings)


def _defined(
    pairs: dict[str, tuple[str, Names]], spot: Spot, conf: Conf, findings: Findings
) -> None:
    kind = next((one for one in _LINES if one.lower() in pairs), None)
    if kind is None:
        word = next((word for word in pairs if word in _NO_LEVELS), None)
        if word is not None:
            what = f"{_NO_LEVELS[word]} has no levels: this topology cannot be planned with"
            spot.fault(findings, what, "trees of switches and blocks are read")
            return
        first = next(iter(pairs.values()))[0]
        hint = suggestion(first, _LINES, "lines start with")
        spot.fault(findings, f"unknown keyword {shown(first)}", hint)
        return
    for key, (written, names) in pairs.items():
        if key not in {one.lower() for one in (kind, *_LINES[kind])}:
            hint = suggestion(written, (kind, *_LINES[kind]), "keywords")
            names.spot.fault(findings, f"unknown keyword {shown(written)} of a {kind} line", hint)
            return
        if not names.text:
            names.spot.fault(findings, f"{written}= without a value", "remove it, or give one")
            return
    name, nodes = pairs[kind.lower()][1], _names(pairs, "nodes")
    if kind == "BlockSizes":
        _sizes(name, conf, findings)
    elif not is_name(name.text):
        what = f"{shown(name.text)} cannot be the name of a domain"
        hint = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"
        name.spot.fault(findings, what, hint)
    elif kind == "SwitchName":
        conf.switches.append(Switch(name.text, name.spot, _names(pairs, "switches"), nodes))
    else:
        conf.blocks.append(Block(name.text, name.spot, nodes))


def _names(pairs: dict[str, tuple[str, Names]], key: str) -> Names | None:
    return pairs[key][1] if key in pairs else None


def _sizes(names: Names, conf: Conf, findings: Findings) -> None:
    words = names.text.split(",")
    if not all(word.isascii() and word.isdecimal() and len(word) <= 9 for word in words):
        what = f"{shown(names.text)} is no list of block sizes"
        names.spot.fault(findings, what, "write it like BlockSizes=18,36,72")
    elif conf.sizes is not None:
        names.spot.fault(findings, "a second line of BlockSizes", "remove one of the two")
    else:
        conf.sizes = Sizes(tuple(int(word) for word in words), names.spot)


def _folder(source: Source) -> Path | None:
    """Where included files may be; None for standard input."""
    return None if source.name == STDIN else Path(source.name).resolve().parent


def _include(name: str, spot: Spot, conf: Conf, findings: Findings, folder: Path | None) -> None:
    """Read a file that is included: one of the folder of the file, or below it."""
    conf.includes += 1
    if conf.includes > MAX_INCLUDES:
        spot.fault(findings, f"more than {MAX_INCLUDES} included files", "put them into one")
        return
    try:
        path = None if folder is None else (folder / name.strip()).resolve()
        inside = path is not None and folder is not None and path.is_relative_to(folder)
        if path is None or not inside or not path.is_file():
            what = f"cannot include {shown(name)}"
            spot.fault(findings, what, "only files in the folder of this file are included")
            return
        found, faults = read_sources([str(path)], None)
    except (MissingPathError, OSError, ValueError, RuntimeError):
        spot.fault(findings, f"cannot include {shown(name)}", "check its name and permissions")
        return
    for fault in faults:
        findings.fault(fault)
    for one in found:
        _read(one, conf, findings, folder)
