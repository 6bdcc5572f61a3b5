"""Remarks: what a reader found odd in an object it did not write, and what it did about it.

Promises: a remark never stops a reading; equal topics are told together, with the first subjects.
Gathered by the readers of Kubernetes objects and topology files; shown by the verbs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.reading.sources import printable

MAX_REMARKS = 100_000
"""Most remarks kept; the rest are counted."""

_SHOWN_SUBJECTS = 3
_SHOWN_CHARACTERS = 80
"""Fewer subjects are shown where their names are long, but always one."""


@dataclass(frozen=True, slots=True)
class Remark:
    """``subject``: the object, as ``Pod team-a/vit-3``; ``what``: what is odd and what was done."""

    subject: str
    what: str
    hint: str | None = None


@dataclass(slots=True)
class Remarks:
    """Every remark of one reading, in the order they were made."""

    all: list[Remark] = field(default_factory=list)
    left_out: int = 0

    def add(self, subject: str, what: str, hint: str | None = None) -> None:
        """Remember it, printable and bounded."""
        if len(self.all) >= MAX_REMARKS:
            self.left_out += 1
            return
        hint = None if hint is None else _bounded(hint)
        self.all.append(Remark(_bounded(subject), _bounded(what), hint))

    def lines(self) -> list[str]:
        """``subject: what`` a topic, in order of first mention; many subjects are counted."""
        subjects: dict[tuple[str, str | None], list[str]] = {}
        for remark in self.all:
            subjects.setdefault((remark.what, remark.hint), []).append(remark.subject)
        lines = []
        for (what, hint), about in subjects.items():
            lines.append(f"{_together(about)}: {what}" + (f" (hint: {hint})" if hint else ""))
        if self.left_out:
            lines.append(f"and {self.left_out:,} more remarks")
        return lines


def _together(subjects: list[str]) -> str:
    """``Node a, b, c and 2 more``: the first ones, each once; a kind they share is said once."""
    distinct = list(dict.fromkeys(subjects))
    for count in range(_SHOWN_SUBJECTS, 0, -1):
        named = _named(distinct[:count])
        if len(named) <= _SHOWN_CHARACTERS:
            break
    more = len(distinct) - count
    return f"{named} and {more:,} more" if more > 0 else named


def _named(subjects: list[str]) -> str:
    kinds = {subject.partition(" ")[0] for subject in subjects}
    if len(kinds) > 1 or not all(" " in subject for subject in subjects):
        return ", ".join(subjects)
    return ", ".join([subjects[0], *(subject.partition(" ")[2] for subject in subjects[1:])])


def _bounded(text: str) -> str:
    safe = printable(text)
    return safe if len(safe) <= 400 else safe[:397] + "..."
