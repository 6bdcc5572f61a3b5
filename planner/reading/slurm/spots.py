"""Where something stands in a topology file, and what is wrong there.

Promises: one way to report for both forms of the file. Called by the readers of this package.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import Fault
from planner.reading.composing import Path
from planner.reading.findings import Finding, Findings
from planner.reading.sources import Source


@dataclass(frozen=True, slots=True)
class Spot:
    """A place: a line and column of a ``topology.conf``, or a path inside a ``topology.yaml``."""

    source: Source
    line: int = 1
    column: int = 1
    path: Path | None = None
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
