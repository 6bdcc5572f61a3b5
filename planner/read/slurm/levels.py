"""Levels and domains of a Slurm topology: blocks and groups of blocks, or a tree of switches.

Levels are widest first; of a tree they are counted from the nodes, so leaf switches are the
innermost. A block is not taken for an NVLink domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from models.documents.base import suggestion
from models.documents.cluster import MAX_LEVELS, Level
from models.units import shown
from planner.read.findings import Findings, Remark, Remarks
from planner.read.slurm.definitions import (
    Block,
    BlockSizes,
    HostList,
    NodeOwners,
    Switch,
    is_name,
)


@dataclass(frozen=True, slots=True)
class SlurmTopology:
    """Levels and domains of one topology file.

    ``source``: its name in messages, as ``Slurm topology cluster/topology.conf``. ``domains``: by
    node, in the order of the file, one name a level, None where a node is alone.
    """

    source: str
    levels: tuple[Level, ...]
    domains: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    def domain(self, node: str) -> tuple[str | None, ...]:
        """The node's domains; None at every level for a node that is not in the file."""
        return self.domains.get(node, (None,) * len(self.levels))


def from_blocks(
    blocks: Sequence[Block],
    sizes: BlockSizes | None,
    source: str,
    findings: Findings,
    remarks: Remarks,
) -> SlurmTopology:
    """The levels of blocks; faults go into the findings."""
    members = _members(blocks, findings)
    names = list(members)
    wider = _aggregates(sizes, len(names), source, findings, remarks)
    levels = [Level(f"block-{size}") for size, _ in reversed(wider)]
    domains: dict[str, tuple[str | None, ...]] = {}
    for i, name in enumerate(names):
        groups = [_group(names, i, per, size) for size, per in reversed(wider)]
        domains.update(dict.fromkeys(members[name], (*groups, name)))
    return SlurmTopology(source, (*levels, Level("block")), domains)


def _members(blocks: Sequence[Block], findings: Findings) -> dict[str, list[str]]:
    """The nodes of every block, in the order of the file."""
    members: dict[str, list[str]] = {}
    owners = NodeOwners("is in", "name it in one block", findings)
    for block in blocks:
        if block.name in members:
            what = f"block {shown(block.name)} is defined twice"
            block.spot.fault(findings, what, "put its nodes on one line")
            continue
        members[block.name] = []
        if block.nodes is None:
            continue
        nodes = owners.add(block.name, block.nodes)
        if nodes is None:
            break
        members[block.name] = nodes
    return members


def _aggregates(
    sizes: BlockSizes | None, blocks: int, source: str, findings: Findings, remarks: Remarks
) -> list[tuple[int, int]]:
    """(nodes, blocks) of groups of blocks, ascending, up to one group of all blocks."""
    if sizes is None or not sizes.values:
        return []
    base, *larger = sizes.values
    if min(sizes.values) < 1 or any(a >= b for a, b in zip(sizes.values, larger, strict=False)):
        what = "block sizes must be positive and ascending"
        sizes.spot.fault(findings, what, "the base block first, as in BlockSizes=18,36,72")
        return []
    result: list[tuple[int, int]] = []
    before = 1
    for size in larger:
        if before >= blocks or len(result) == MAX_LEVELS - 1:
            break  # a group of all blocks divides nothing
        per = size // base
        if size % base or per % before:
            what = f"block size {size} is no multiple of the one before it: left out"
            remarks.add(source, what)
            continue
        result.append((size, per))
        before = per
    return result


def _group(names: Sequence[str], block: int, per: int, size: int) -> str:
    """The name of the group of ``per`` consecutive blocks that a block is in."""
    first = block - block % per
    last = min(first + per, len(names)) - 1
    name = names[first] if first == last else f"{names[first]}-{names[last]}"
    return name if is_name(name) else f"blocks-{size}-{first // per}"


MAX_LINKS = 500_000
"""Most (switch, switch below it) pairs of one file."""

MAX_HEIGHT = 64
"""Most switches above one another: bounds the work, far above any network."""


def from_switches(
    switches: Sequence[Switch], source: str, findings: Findings, remarks: Remarks
) -> SlurmTopology:
    """The levels of a tree; faults go into the findings."""
    tree = _Tree(findings)
    tree.link(switches, remarks)
    heights = tree.heights()
    if heights is None:
        return SlurmTopology(source, ())
    leaves = tree.leaves()
    chains = {leaf: tree.chain(leaf) for leaf in leaves}
    used = sorted({heights[name] for chain in chains.values() for name in chain}, reverse=True)
    while len(used) > MAX_LEVELS:  # first without levels that one switch spans for all
        if len({_path(chain, heights, used)[0] for chain in chains.values()}) > 1:
            what = f"a tree of {len(used)} levels of switches; the most is {MAX_LEVELS}"
            switches[0].spot.fault(findings, what, "leave out levels that place nothing")
            break
        used = used[1:]
    domains = {}
    for leaf, nodes in leaves.items():
        domains.update(dict.fromkeys(nodes, _path(chains[leaf], heights, used)))
    last = len(used) - 1
    names = ("leaf" if i == last else f"switch-{last - i + 1}" for i in range(len(used)))
    return SlurmTopology(source, tuple(Level(name) for name in names), domains)


@dataclass(slots=True)
class _Tree:
    """Switches by name, the children of each, and its parent: the first, if there are several."""

    findings: Findings
    switches: dict[str, Switch] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    parent: dict[str, str] = field(default_factory=dict)
    links: int = 0

    def link(self, switches: Sequence[Switch], remarks: Remarks) -> None:
        """Find the children of every switch and the first parent of each."""
        for switch in switches:
            if switch.name in self.switches:
                what = f"switch {shown(switch.name)} is defined twice"
                switch.spot.fault(self.findings, what, "put all that is below it on one line")
            self.switches.setdefault(switch.name, switch)
        for switch in self.switches.values():
            if switch.switches is not None and switch.nodes is not None:
                what = f"switch {shown(switch.name)} has both nodes and switches below it"
                switch.spot.fault(self.findings, what, "put the nodes below a switch of their own")
            found = [] if switch.switches is None else self._children(switch.switches)
            self.children[switch.name] = list(dict.fromkeys(found))
            for child in self.children[switch.name]:
                if self.parent.setdefault(child, switch.name) != switch.name:
                    what = "is below several switches: the first of them counts as its domain"
                    remarks.add(f"switch {child}", what)

    def _children(self, names: HostList) -> list[str]:
        """The switches of a hostlist, up to the first that is not defined."""
        if self.links > MAX_LINKS:
            return []
        self.links += names.count(self.findings)
        if self.links > MAX_LINKS:
            what = f"more than {MAX_LINKS:,} links between switches"
            names.spot.fault(self.findings, what, "leave some out")
            return []
        known = []
        for child in names.names(self.findings):
            if child not in self.switches:
                enough = self.findings.enough
                hint = None if enough else suggestion(child, self.switches, "switches")
                names.spot.fault(self.findings, f"switch {shown(child)} is not defined", hint)
                break
            known.append(child)
        return known

    def heights(self) -> dict[str, int] | None:
        """Levels from the nodes up: 1 for a leaf, else one above the highest child.

        None, with a fault, for a cycle and for more than MAX_HEIGHT levels.
        """
        heights: dict[str, int] = {}
        try:
            for name in TopologicalSorter(self.children).static_order():
                below = (heights[child] for child in self.children[name])
                heights[name] = 1 + max(below, default=0)
        except CycleError as error:
            name = next(name for name in self.switches if name in error.args[1])
            what = f"switch {shown(name)} is below itself"
            self.switches[name].spot.fault(self.findings, what, "a tree has no cycles")
            return None
        for name, switch in self.switches.items():
            if heights[name] > MAX_HEIGHT:
                what = f"switch {shown(name)} heads more than {MAX_HEIGHT} levels of switches"
                switch.spot.fault(self.findings, what, "leave out levels that place nothing")
                return None
        return heights

    def leaves(self) -> dict[str, list[str]]:
        """The nodes below each switch that has any."""
        leaves: dict[str, list[str]] = {}
        owners = NodeOwners("is below", "name it below one leaf switch", self.findings)
        for switch in self.switches.values():
            if switch.nodes is None:
                continue
            nodes = owners.add(switch.name, switch.nodes)
            if nodes is None:
                break
            leaves[switch.name] = nodes
        return leaves

    def chain(self, leaf: str) -> list[str]:
        """The switches above a leaf, itself first."""
        chain = [leaf]
        while (parent := self.parent.get(chain[-1])) is not None:
            chain.append(parent)
        return chain


def _path(
    chain: Sequence[str], heights: Mapping[str, int], used: Sequence[int]
) -> tuple[str | None, ...]:
    """A leaf's domain at every height, widest first.

    Where its branch has no switch of a height, the switch below is the domain.
    """
    at = {heights[name]: name for name in chain}
    here = chain[0]
    path = []
    for height in reversed(used):
        here = at.get(height, here)
        path.append(here)
    return tuple(reversed(path))
