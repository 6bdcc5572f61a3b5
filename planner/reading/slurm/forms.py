"""A Slurm topology as the planner takes it: levels, and the domain of every node at each.

Promises: frozen data; levels widest first. Made by ``planner.reading.slurm``, used wherever levels
are put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.cluster import Level
from planner.reading.remarks import Remark


@dataclass(frozen=True, slots=True)
class SlurmTopology:
    """What one topology file says.

    ``source``: how messages call it, as ``Slurm topology cluster/topology.conf``. ``kind``: tree,
    block or flat. ``domains``: by node, in the order of the file, one name a level, None where a
    node stands alone. ``remarks``: what is odd in the file, and what was made of it.
    """

    source: str
    kind: str
    levels: tuple[Level, ...]
    domains: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    def domain(self, node: str) -> tuple[str | None, ...]:
        """The node's domains; None at every level for a node that the file does not name."""
        return self.domains.get(node, (None,) * len(self.levels))
