"""What is wrong with the input, gathered, placed in the texts, sorted and cut to 20.

Promises: places are looked up only when something is wrong; the order is by file, line, column.
Called by every step of reading.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NoReturn

from planner.errors import Fault, InputError
from planner.reading.composing import Path
from planner.reading.events import Malformed
from planner.reading.parsing import places
from planner.reading.sources import Source, printable

MAX_FAULTS = 20
MAX_GATHERED = 2_000
"""After so many nothing more is gathered: 20 are shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with what stands at a path of a source."""

    source: Source
    path: Path
    what: str
    hint: str | None = None
    at_key: bool = False


@dataclass(slots=True)
class Findings:
    """Everything wrong so far."""

    placed: list[Fault] = field(default_factory=list)
    unplaced: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.placed or self.unplaced)

    @property
    def full(self) -> bool:
        return len(self.placed) + len(self.unplaced) >= MAX_GATHERED

    def add(self, finding: Finding) -> None:
        if not self.full:
            self.unplaced.append(finding)

    def malformed(self, source: Source, fault: Malformed) -> None:
        self.fault(Fault(fault.what, fault.hint, source.name, fault.line, fault.column))

    def fault(self, fault: Fault) -> None:
        if not self.full:
            self.placed.append(fault)

    def extend(self, other: Findings) -> None:
        """Take over what another gatherer found."""
        self.placed += other.placed
        self.unplaced += other.unplaced

    def raise_all(self) -> NoReturn:
        """Raise InputError with the first 20 faults, each with its place."""
        faults = list(self.placed)
        by_source: dict[Source, list[Finding]] = defaultdict(list)
        for finding in self.unplaced:
            by_source[finding.source].append(finding)
        for source, findings in by_source.items():
            found = places(source, ((f.path, f.at_key) for f in findings))
            for finding in findings:
                line, column = found[finding.path, finding.at_key]
                faults.append(Fault(finding.what, finding.hint, source.name, line, column))
        unique = {_order(fault): fault for fault in faults}
        ordered = [unique[key] for key in sorted(unique)][:MAX_FAULTS]
        raise InputError(*(_safe(fault) for fault in ordered))


def _order(fault: Fault) -> tuple[str, int, int, str]:
    """Faults without a file come last: they follow from the others."""
    return (fault.file or "\U0010ffff", fault.line or 0, fault.column or 0, fault.what)


def _safe(fault: Fault) -> Fault:
    name = None if fault.file is None else printable(fault.file)
    return Fault(printable(fault.what), fault.hint, name, fault.line, fault.column)
