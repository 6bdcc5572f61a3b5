"""The what-if of a plan: the changes of the input under which it was made."""

from collections.abc import Iterator

from pydantic import Field

from models.documents.base import Document, Many, Name, Sentence, omitted
from models.host_ranges import host_ranges
from models.units import first_of

_SHOWN = 4
"""Names of a kind in words; the rest are counted."""


class RelaxedDocument(Document):
    """A requirement that does not bind a gang."""

    gang: Sentence = Field(description="namespace/name")
    what: Sentence = Field(description="A level, or what else `--relax` takes")


class WhatIfDocument(Document):
    """What was supposed: files added, nodes drained, gangs left out and requirements relaxed."""

    added: Many[Sentence] = omitted(default=(), description="Files")
    drained: Many[Name] = omitted(
        default=(),
        description="Nodes, sorted: they take nobody, and who stood there is placed anew",
    )
    without: Many[Sentence] = omitted(default=(), description="namespace/name of gangs, sorted")
    relaxed: Many[RelaxedDocument] = omitted(default=(), description="By gang")

    def words(self) -> Iterator[str]:
        """What was supposed, in words that follow "a what-if "."""
        relaxed = [f"{one.what} of {one.gang}" for one in self.relaxed]
        for names, text in (
            (self.added, "with {} added"),
            (host_ranges(self.drained), "with {} drained"),
            (self.without, "without {}"),
            (relaxed, "with {} relaxed"),
        ):
            if names:
                yield text.format(first_of(names, _SHOWN, "other"))
