"""Levels and the domain of each node at each of them, whatever names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.documents.cluster import Level


@dataclass(frozen=True, slots=True)
class Domains:
    """Levels, widest first. ``domains``: by node, in order, one name a level, None where a node is alone."""

    levels: tuple[Level, ...] = ()
    domains: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [level.name for level in self.levels]

    def domain(self, node: str) -> tuple[str | None, ...]:
        """The node's domains; None at every level for a node that is not known."""
        return self.domains.get(node, (None,) * len(self.levels))

    def named_domains(self, node: str) -> dict[str, str]:
        own = zip(self.names, self.domain(node), strict=True)
        return {level: domain for level, domain in own if domain is not None}
