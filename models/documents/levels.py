"""Levels as a Policy states them: by a node label, or by the nodes of every domain.

Promises: types by pydantic, contradictions by ``complaints``. Called by the Policy document.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from models.documents.base import Complaint, Many, Mapped, Name
from models.documents.cluster import Hosts, LevelDocument
from models.policy import Domains
from models.quantities import MAX_NAMES, host_count, hosts, shown


class StatedLevel(LevelDocument):
    """One topology level: of a label, or of domains that are written out."""

    domains: Mapped[Name, Many[Hosts]] | None = Field(
        default=None,
        description="Nodes of every domain, names or host ranges, in place of a label; others are alone",
    )

    def complaints(self) -> Iterator[Complaint]:
        """Contradictions; paths start at the level."""
        if self.domains is None:
            return
        if self.label is not None:
            yield Complaint(
                ("domains",), f"level {shown(self.name)} has a label and domains", "keep one of them",
                at_key=True,
            )  # fmt: skip
        counts = [host_count(pattern) for patterns in self.domains.values() for pattern in patterns]
        if sum(counts) > MAX_NAMES:
            what = f"{sum(counts):,} nodes in the domains of one level"
            yield Complaint(("domains",), what, f"the most is {MAX_NAMES:,}")
            return
        seen: dict[str, str] = {}
        for domain, patterns in self.domains.items():
            for i, pattern in enumerate(patterns):
                for node in hosts(pattern):
                    if node in seen:
                        other = "twice" if seen[node] == domain else f"also in {shown(seen[node])}"
                        what = f"node {shown(node)} is {other}"
                        yield Complaint(("domains", domain, i), what, "a node is in one domain")
                        return
                    seen[node] = domain

    def to_domains(self) -> Domains:
        """Its domains by name, each with its nodes, sorted and written out."""
        return tuple(
            (domain, tuple(sorted(node for pattern in patterns for node in hosts(pattern))))
            for domain, patterns in sorted((self.domains or {}).items())
        )
