"""A ``topology.conf``, or the default topology of a ``topology.yaml``, each entry with its place.

Comments, continued lines, quotes, keys in any case, and included files from the folder of the
file. Names are not resolved here. A remark names each other topology of a YAML file.
"""

from __future__ import annotations

import bisect
import pathlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from models.documents.base import Many, Name, Path, suggestion
from models.host_ranges import MAX_NAMES
from models.units import described, shown
from planner.errors import MissingPathError
from planner.read.findings import Finding, Findings, Remarks
from planner.read.parser import match_end, parse
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
from planner.read.sources import STDIN, Source, read_sources
from planner.read.validation import validate

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
    """Everything the file and those it includes define; faults go into the findings."""
    named = source.name != STDIN
    reader = _Reader(findings, pathlib.Path(source.name).resolve().parent if named else None)
    reader.read(source)
    return reader.found


@dataclass(slots=True)
class _Reader:
    """``folder``: where included files may be; None for standard input."""

    findings: Findings
    folder: pathlib.Path | None
    found: Definitions = field(default_factory=Definitions)
    includes: int = 0

    def read(self, source: Source) -> None:
        for line in _lines(source):
            if max(len(line.text), len(line.starts)) > MAX_LINE:  # parts may be empty
                what = f"a line of more than {MAX_LINE:,} characters"
                line.spot(0).fault(self.findings, what, "use host ranges")
                return
            start = match_end(_BLANK, line.text, 0)
            if start == len(line.text):
                continue
            if (include := _INCLUDE.fullmatch(line.text.rstrip(), start)) is not None:
                self._include(include[1], line.spot(start))
            elif (pairs := self._pairs(line, start)) is not None:
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
            word = next((word for word in pairs if word in _NO_LEVELS), None)
            if word is not None:
                what = f"{_NO_LEVELS[word]} has no levels: this topology cannot be planned with"
                spot.fault(self.findings, what, "trees of switches and blocks are read")
                return
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

    def _include(self, name: str, spot: Spot) -> None:
        """Read an included file, if it is in the folder of the file or below it."""
        self.includes += 1
        if self.includes > MAX_INCLUDES:
            what = f"more than {MAX_INCLUDES} included files"
            spot.fault(self.findings, what, "put them into one")
            return
        try:
            path = None if self.folder is None else (self.folder / name.strip()).resolve()
            if path is None or not path.is_relative_to(self.folder or path) or not path.is_file():
                what = f"cannot include {shown(name)}"
                hint = "only files in the folder of this file are included"
                spot.fault(self.findings, what, hint)
                return
            sources, faults = read_sources([str(path)], None)
        except (MissingPathError, OSError, ValueError, RuntimeError):
            what = f"cannot include {shown(name)}"
            spot.fault(self.findings, what, "check its name and permissions")
            return
        for fault in faults:
            self.findings.fault(fault)
        for source in sources:
            self.read(source)


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


LAYOUTS = ("tree", "block", "flat", "ring", "torus3d")
READ = ("tree", "block", "flat")


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


Text = Annotated[str, Field(min_length=1)]


class _Topology(_Entry):
    """A named topology of any layout."""

    topology: Text
    cluster_default: bool = False
    tree: Any = None
    block: Any = None
    flat: Any = None
    ring: Any = None
    torus3d: Any = None


class _Switch(_Entry):
    switch: Name
    children: Text | None = None
    nodes: Text | None = None
    link_speed: Any = None


class _Switches(_Entry):
    switches: Many[_Switch] | None = None


class _Block(_Entry):
    block: Name
    nodes: Text | None = None


def _listed(value: object) -> object:
    return value if isinstance(value, list) or value is None else [value]


class _Blocks(_Entry):
    blocks: Many[_Block] | None = None
    block_sizes: Annotated[
        Many[Annotated[int, Field(ge=-(10**9), le=10**9)]] | None, BeforeValidator(_listed)
    ] = None


class _TreeLayout(_Entry):
    tree: _Switches


class _BlockLayout(_Entry):
    block: _Blocks


Layout = Literal["tree", "block", "flat"]


def read_yaml(
    source: Source, findings: Findings, remarks: Remarks
) -> tuple[Layout, Definitions] | None:
    """The default topology of the file, or the first; None where nothing can be read."""
    found = _topologies(source, findings)
    if not found:
        if not findings:
            hint = "write a list with `topology:`"
            findings.add(Finding(source, (0,), "no topology in this file", hint))
        return None
    defaults = [one for one in found if one[0].cluster_default]
    for _, path, _ in defaults[1:]:
        what = "a second default topology"
        findings.add(Finding(source, (*path, "cluster_default"), what, "keep one"))
    chosen = defaults[0] if defaults else found[0]
    for topology, _, _ in found:
        if topology is not chosen[0]:
            what = f"not used: the topology of the cluster is {shown(chosen[0].topology)}"
            hint = "mark another one with `cluster_default: true`"
            remarks.add(f"topology {topology.topology}", what, hint)
    return _definitions(*chosen, source, findings)


def _topologies(source: Source, findings: Findings) -> list[tuple[_Topology, Path, dict[str, Any]]]:
    """Every named topology of the file, its path and its fields."""
    parsed = parse(source)
    for malformed in parsed.faults:
        findings.malformed(source, malformed)
    found: list[tuple[_Topology, Path, dict[str, Any]]] = []
    for number, document in enumerate([] if parsed.faults else parsed.documents):
        if document is not None and not isinstance(document, list):
            what = f"expected a list, not {described(document)}"
            findings.add(Finding(source, (number,), what, "write `- ` before each"))
            continue
        for i, tree in enumerate(document or ()):
            entry = validate(_Topology, tree, source, (number, i), findings)
            if entry is not None:
                found.append((entry.document, (number, i), tree))
    return found


def _definitions(
    topology: _Topology, path: Path, tree: dict[str, Any], source: Source, findings: Findings
) -> tuple[Layout, Definitions] | None:
    """What the chosen topology defines."""
    layouts = [layout for layout in LAYOUTS if layout in tree]
    name = shown(topology.topology)
    if len(layouts) != 1:
        what = f"topology {name} has {' and '.join(layouts) or 'no layout'}"
        findings.add(Finding(source, path, what, f"give it one of {', '.join(READ)}"))
        return None
    if layouts[0] not in READ:
        what = f"a {layouts[0]} has no levels: topology {name} is not read"
        hint = f"{', '.join(READ)} are; mark one with `cluster_default: true`"
        findings.add(Finding(source, (*path, layouts[0]), what, hint, at_key=True))
        return None
    if layouts[0] == "tree":
        return _tree(tree, path, source, findings)
    if layouts[0] == "block":
        return _blocks(tree, path, source, findings)
    return "flat", Definitions()


def _tree(
    tree: dict[str, Any], path: Path, source: Source, findings: Findings
) -> tuple[Layout, Definitions] | None:
    entry = validate(_TreeLayout, {"tree": tree["tree"]}, source, path, findings)
    if entry is None:
        return None
    switches = [
        Switch(
            one.switch,
            Spot(source, path=(*path, "tree", "switches", i, "switch")),
            _hosts(one.children, source, (*path, "tree", "switches", i, "children")),
            _hosts(one.nodes, source, (*path, "tree", "switches", i, "nodes")),
        )
        for i, one in enumerate(entry.document.tree.switches or ())
    ]
    return "tree", Definitions(switches=switches)


def _blocks(
    tree: dict[str, Any], path: Path, source: Source, findings: Findings
) -> tuple[Layout, Definitions] | None:
    entry = validate(_BlockLayout, {"block": tree["block"]}, source, path, findings)
    if entry is None:
        return None
    layout = entry.document.block
    blocks = [
        Block(
            one.block,
            Spot(source, path=(*path, "block", "blocks", i, "block")),
            _hosts(one.nodes, source, (*path, "block", "blocks", i, "nodes")),
        )
        for i, one in enumerate(layout.blocks or ())
    ]
    sizes = None
    if layout.block_sizes is not None:
        spot = Spot(source, path=(*path, "block", "block_sizes"))
        sizes = BlockSizes(layout.block_sizes, spot)
    return "block", Definitions(blocks=blocks, sizes=sizes)


def _hosts(text: str | None, source: Source, path: Path) -> HostList | None:
    return None if text is None else HostList(text, Spot(source, path=path))
