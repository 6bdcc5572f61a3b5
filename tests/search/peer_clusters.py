"""Small clusters of the shapes that other schedulers test with, restated in our own words.

Promises: data only; the number behind a name is what is free there. Called by the tables of peer cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from building import node
from building_servers import switched, v100

from models.instance.cluster import Node
from models.instance.instance import Instance

Tree = Mapping[str, Mapping[str, Sequence[int]]]
"""block -> rack -> GPUs of each server."""


@dataclass(frozen=True)
class Case:
    """``source``: the project whose tests have such a case. Everything expected is by gang name.

    ``decisions``: of every gang. ``per_node``: pods a node, largest first. ``domains``: how many
    of each level are used. ``gpus``: the index sets of the pods, in any order of pods.
    ``tiers``: values of some tiers.
    """

    source: str
    instance: Instance
    decisions: Mapping[str, str]
    per_node: Mapping[str, Sequence[int]] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    gpus: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)


def tree(shape: Tree) -> list[Node]:
    """Switched servers of the given sizes; names tell the path."""
    return [
        node(f"{block}-{rack}-{i}", switched(gpus), block, rack)
        for block, racks in shape.items()
        for rack, sizes in racks.items()
        for i, gpus in enumerate(sizes)
    ]


def cpu_tree(shape: Tree) -> list[Node]:
    """The same with servers without GPUs: one cpu where the other has one GPU."""
    return [
        node(f"{block}-{rack}-{i}", None, block, rack, allocatable={"cpu": 1000 * cpus})
        for block, racks in shape.items()
        for rack, sizes in racks.items()
        for i, cpus in enumerate(sizes)
    ]


def flat(*sizes: int) -> list[Node]:
    """Servers of the given sizes in one rack."""
    return tree({"b1": {"r1": sizes}})


def mesh(*free: int) -> list[Node]:
    """One DGX-1 V100 where only these GPUs are healthy."""
    return [node("n", v100(), unhealthy=[i for i in range(8) if i not in free])]


UNEVEN: Tree = {"b1": {"r1": [1], "r2": [1, 1, 1]}, "b2": {"r1": [1], "r2": [2]}}
"""Two blocks: 1 + 3 in four servers, 1 + 2 in two."""

SCATTERED: Tree = {"b1": {"r1": [4, 1, 1]}, "b2": {"r1": [2, 1]}}
"""Two racks: one of 6 with a large server, one of 3."""

PAIRS: Tree = {
    "b1": {"r1": [1, 1], "r2": [1, 1]},
    "b2": {"r1": [1, 1], "r2": [1, 1]},
}
"""A binary tree of eight servers."""
