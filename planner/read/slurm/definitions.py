"""What a Slurm topology file defines: switches or blocks with their hostlists, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from models.documents.base import Name
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.units import InvalidValueError, shown
from planner.errors import Fault
from planner.read.findings import Findings
from planner.read.sources import Source


@dataclass(frozen=True, slots=True)
class Spot:
    """A line and column of a ``topology.conf``."""

    source: Source
    line: int
    column: int

    def fault(self, findings: Findings, what: str, hint: str | None = None) -> None:
        """Report something wrong here."""
        findings.fault(Fault(what, hint, self.source.name, self.line, self.column))


@dataclass(frozen=True, slots=True)
class HostList:
    """A hostlist as written, such as ``tux[0-3,7],rack[1-2]n[01-18]``."""

    text: str
    spot: Spot

    def count(self, findings: Findings) -> int:
        """Number of its names, counted without making any; 0 with a fault if it is malformed."""
        try:
            return sum(host_count(piece) for piece in pieces(self.text))
        except InvalidValueError as refused:
            self.spot.fault(findings, refused.what, refused.hint)
            return 0

    def names(self, findings: Findings) -> Iterator[str]:
        """The names one by one, up to one that cannot be a name, which is a fault."""
        try:
            for piece in pieces(self.text):
                for name in hosts(piece):
                    if not is_name(name):
                        self.spot.fault(findings, f"{shown(name)} cannot be a name", NAME_HINT)
                        return
                    yield name
        except InvalidValueError as refused:
            self.spot.fault(findings, refused.what, refused.hint)


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch: its name and what is connected below it."""

    name: str
    spot: Spot
    switches: HostList | None = None
    nodes: HostList | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of nodes."""

    name: str
    spot: Spot
    nodes: HostList | None = None


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Block sizes as written: the base block first, then the sizes of groups of blocks."""

    values: tuple[int, ...]
    spot: Spot


@dataclass(slots=True)
class Definitions:
    """One topology: a tree of switches, or blocks."""

    switches: list[Switch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    sizes: BlockSizes | None = None


NAME_HINT = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def is_name(text: str) -> bool:
    """Whether a node, switch or block can have this name."""
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def pieces(text: str) -> list[str]:
    """The host ranges of a hostlist. Raises InvalidValueError for an empty one among them."""
    found: list[str] = []
    start = depth = 0
    for i, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth <= 0:
            found.append(text[start:i])
            start = i + 1
    found.append(text[start:])
    if any(not piece for piece in found):
        hint = "write a hostlist like tux[0-3,7],rack[1-2]n[01-18]"
        raise InvalidValueError(f"{shown(text)} has nothing between two commas", hint)
    return found


@dataclass(slots=True)
class NodeOwners:
    """The switch or block of each node: every node in one, at most MAX_NAMES in all.

    ``relation``: how a message says that a node is in two; ``hint``: what to do about it.
    """

    relation: str
    hint: str
    findings: Findings
    total: int = 0
    owner: dict[str, str] = field(default_factory=dict)

    def add(self, owner: str, nodes: HostList) -> list[str] | None:
        """The nodes of the hostlist, now of the owner; None where there are too many in all."""
        count = nodes.count(self.findings)
        self.total += count
        if self.total > MAX_NAMES:
            what = f"more than {MAX_NAMES:,} nodes"
            nodes.spot.fault(self.findings, what, "narrow the ranges")
            return None
        found = list(nodes.names(self.findings)) if count else []
        for node in found:
            first = self.owner.setdefault(node, owner)
            if first != owner:
                what = f"node {shown(node)} {self.relation} {shown(first)} and {shown(owner)}"
                nodes.spot.fault(self.findings, what, self.hint)
                break
        return found
