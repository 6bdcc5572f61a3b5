"""Where something stands in a topology file, and what is wrong there.

Promises: one way to report for both forms of the file. Called by the readers of this package.

Hostlists: ``tux[0-3,7],rack[1-2]n[01-18]``, counted before any name is made.

Promises: no list explodes; every name can be a node's. Called by ``trees`` and ``blocks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from models.documents.base import Name
from models.documents.base import Path as FieldPath
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.units import Refused, shown
from planner.errors import Fault
from planner.read.findings import Finding, Findings
from planner.read.sources import Source


@dataclass(frozen=True, slots=True)
class Spot:
    """A place: a line and column of a ``topology.conf``, or a path inside a ``topology.yaml``."""

    source: Source
    line: int = 1
    column: int = 1
    path: FieldPath | None = None
    at_key: bool = False

    def fault(self, findings: Findings, what: str, hint: str | None = None) -> None:
        """Report something wrong here."""
        if self.path is not None:
            findings.add(Finding(self.source, self.path, what, hint, self.at_key))
        else:
            findings.fault(Fault(what, hint, self.source.name, self.line, self.column))


@dataclass(frozen=True, slots=True)
class Names:
    """A hostlist as it was written, and where."""

    text: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch: its name and what hangs below it."""

    name: str
    spot: Spot
    switches: Names | None = None
    nodes: Names | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of nodes."""

    name: str
    spot: Spot
    nodes: Names | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Block sizes as they were written: the base block first, then what blocks add up to."""

    values: tuple[int, ...]
    spot: Spot


_NAME: TypeAdapter[str] = TypeAdapter(Name)
_NAME_HINT = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"
_HINT = "write a hostlist like tux[0-3,7],rack[1-2]n[01-18]"


def is_name(text: str) -> bool:
    """Whether a node, switch or block can be called so."""
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def pieces(text: str) -> list[str]:
    """The host ranges of a hostlist. Raises Refused for an empty one among them."""
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
        raise Refused(f"{shown(text)} has nothing between two commas", _HINT)
    return found


def counted(names: Names, findings: Findings) -> int:
    """How many names a hostlist stands for, none of them made; 0 if it is wrong, with the fault."""
    try:
        return sum(host_count(piece) for piece in pieces(names.text))
    except Refused as refused:
        names.spot.fault(findings, refused.what, refused.hint)
        return 0


def expanded(names: Names, findings: Findings) -> Iterator[str]:
    """The names of a hostlist, one by one, up to one that cannot be a name, which is reported."""
    try:
        for piece in pieces(names.text):
            for name in hosts(piece):
                yield _checked(name)
    except Refused as refused:
        names.spot.fault(findings, refused.what, refused.hint)


def _checked(name: str) -> str:
    if not is_name(name):
        raise Refused(f"{shown(name)} cannot be a name", _NAME_HINT)
    return name


@dataclass(slots=True)
class Holders:
    """The node lists of one file: every node in one of them, not too many in all.

    ``says``: how a message puts that a node is in two, between the node and both; ``hint``: with it.
    """

    says: str
    hint: str
    findings: Findings
    total: int = 0
    owner: dict[str, str] = field(default_factory=dict)

    def nodes(self, holder: str, names: Names) -> list[str] | None:
        """The nodes that ``names`` gives to the holder; None where there are too many in all."""
        count = counted(names, self.findings)
        self.total += count
        if _too_many(self.total, names, self.findings):
            return None
        found = list(expanded(names, self.findings)) if count else []
        for node in found:
            first = self.owner.setdefault(node, holder)
            if first != holder:
                what = f"node {shown(node)} {self.says} {shown(first)} and {shown(holder)}"
                names.spot.fault(self.findings, what, self.hint)
                break
        return found


def _too_many(total: int, names: Names, findings: Findings) -> bool:
    """Report the list that goes beyond MAX_NAMES nodes in all."""
    if total <= MAX_NAMES:
        return False
    names.spot.fault(findings, f"more than {MAX_NAMES:,} nodes", "narrow the ranges")
    return True
