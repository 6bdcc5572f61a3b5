"""Findings, the errors of the input, and remarks, its non-fatal warnings.

Findings get their places in the texts only when they are raised: sorted by file, line and column,
at most 20. Remarks never stop a reading; equal ones are merged and name their first subjects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import NoReturn

import msgspec
from msgspec import Struct

from models.documents.base import Path
from models.units import shortened, shown_of
from planner.errors import Fault, InputError
from planner.read.parser import places
from planner.read.sources import Source, printable

MAX_REMARKS = 100_000
"""Most remarks kept; the rest are counted."""

MAX_ALIKE = 10_000
"""Most remarks of one wording that are kept, so that those of one tenant leave room for others."""

MAX_CHARACTERS = 400
"""Longest subject, text and hint of a remark."""

_SHOWN_SUBJECTS = 3
_SHOWN_CHARACTERS = 80
"""Fewer subjects are shown where their names are long, but always one."""


class Remark(Struct, frozen=True):
    """``subject``: the object, as ``Pod team-a/vit-3``; ``what``: the problem and how it was handled."""

    subject: str
    what: str
    hint: str | None = None


class Remarks(Struct):
    """Every remark of one reading, in order."""

    all: list[Remark] = []
    left_out: int = 0
    alike: Counter[tuple[str, str | None]] = msgspec.field(default_factory=Counter)

    def add(self, subject: str, what: str, hint: str | None = None) -> None:
        """Add a remark, printable and bounded."""
        if len(self.all) >= MAX_REMARKS:
            self.left_out += 1
            return
        what, hint = _bounded(what), None if hint is None else _bounded(hint)
        self.alike[what, hint] += 1
        if self.alike[what, hint] <= MAX_ALIKE:
            self.all.append(Remark(_bounded(subject), what, hint))

    def lines(self) -> list[str]:
        """One line ``subjects: what`` for equal remarks, in order of first mention."""
        subjects: dict[tuple[str, str | None], list[str]] = {}
        for remark in self.all:
            subjects.setdefault((remark.what, remark.hint), []).append(remark.subject)
        lines = []
        for (what, hint), about in subjects.items():
            named = _subjects_text(about, max(0, self.alike[what, hint] - MAX_ALIKE))
            lines.append(f"{named}: {what}" + (f" (hint: {hint})" if hint else ""))
        if self.left_out:
            lines.append(f"and {self.left_out:,} more remarks")
        return lines


def _subjects_text(subjects: list[str], unnamed: int) -> str:
    """``Node a, b, c and 2 more``: the first ones, each once; a shared kind is written once.

    ``unnamed``: how many more there are.
    """
    distinct = list(dict.fromkeys(subjects))
    for count in range(shown_of(len(distinct) + unnamed, _SHOWN_SUBJECTS), 0, -1):
        named = _joined(distinct[:count])
        if len(named) <= _SHOWN_CHARACTERS:
            break
    more = len(distinct) - count + unnamed
    return f"{named} and {more:,} more" if more > 0 else named


def _joined(subjects: list[str]) -> str:
    kinds = {subject.partition(" ")[0] for subject in subjects}
    if len(kinds) > 1 or not all(" " in subject for subject in subjects):
        return ", ".join(subjects)
    return ", ".join([subjects[0], *(subject.partition(" ")[2] for subject in subjects[1:])])


def _bounded(text: str) -> str:
    return shortened(printable(text), MAX_CHARACTERS)


MAX_FAULTS = 20
MAX_GATHERED = 2_000
"""Most faults kept; 20 are shown."""


class Finding(Struct, frozen=True):
    """A fault at a path of a source; ``at_key``: its place is the field's name."""

    source: Source
    path: Path
    what: str
    hint: str | None = None
    at_key: bool = False


class Findings(Struct):
    """Every fault so far."""

    placed: list[Fault] = []
    unplaced: list[Finding] = []

    def __bool__(self) -> bool:
        return bool(self.placed or self.unplaced)

    @property
    def enough(self) -> bool:
        """Whether more faults are found than are shown: no hint is worth a search any more."""
        return len(self.placed) + len(self.unplaced) >= 2 * MAX_FAULTS

    @property
    def full(self) -> bool:
        return len(self.placed) + len(self.unplaced) >= MAX_GATHERED

    def add(self, finding: Finding) -> None:
        if not self.full:
            self.unplaced.append(finding)

    def fault(self, fault: Fault) -> None:
        if not self.full:
            self.placed.append(fault)

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
        # Those without a file come last: they follow from the others.
        unique = {(f.file or "\U0010ffff", f.line or 0, f.column or 0, f.what): f for f in faults}
        ordered = [unique[key] for key in sorted(unique)][:MAX_FAULTS]
        raise InputError(
            *(
                replace(one, what=printable(one.what), file=one.file and printable(one.file))
                for one in ordered
            )
        )
