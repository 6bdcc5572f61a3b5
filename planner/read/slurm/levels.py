"""Levels and domains of a Slurm topology: blocks and groups of blocks, or a tree of switches.

Levels are widest first; of a tree they are counted from the nodes, so leaf switches are the
innermost. A block is not taken for an NVLink domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from models.cluster import Level
from models.documents.base import suggestion
from models.documents.cluster import MAX_LEVELS
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


@dataclass(slots=True)
class _Tree:
    """The switches by name, what is below each, and the parent of each that counts."""

    switches: dict[str, Switch] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)
    parent: dict[str, str] = field(default_factory=dict)
    links: int = 0


def from_switches(
    switches: Sequence[Switch], source: str, findings: Findings, remarks: Remarks
) -> SlurmTopology:
    """The levels of a tree; faults go into the findings."""
    tree = _Tree()
    for switch in switches:
        if switch.name in tree.switches:
            what = f"switch {shown(switch.name)} is defined twice"
            switch.spot.fault(findings, what, "put all that is below it on one line")
        tree.switches.setdefault(switch.name, switch)
    _link(tree, findings, remarks)
    heights = _heights(tree, findings)
    if heights is None:
        return SlurmTopology(source, ())
    leaves = _leaves(tree, findings)
    chains = {leaf: _chain(tree, leaf) for leaf in leaves}
    used = sorted({heights[name] for chain in chains.values() for name in chain}, reverse=True)
    used = _fitting(used, chains, heights, switches, findings)
    domains = {}
    for leaf, nodes in leaves.items():
        path = _path(chains[leaf], heights, used)
        domains.update(dict.fromkeys(nodes, path))
    last = len(used) - 1
    names = ("leaf" if i == last else f"switch-{last - i + 1}" for i in range(len(used)))
    return SlurmTopology(source, tuple(Level(name) for name in names), domains)


def _link(tree: _Tree, findings: Findings, remarks: Remarks) -> None:
    """Find the children of every switch and the first parent of each."""
    for switch in tree.switches.values():
        if tree.links > MAX_LINKS:
            tree.below[switch.name] = []
            continue
        if switch.switches is not None and switch.nodes is not None:
            what = f"switch {shown(switch.name)} has both nodes and switches below it"
            switch.spot.fault(findings, what, "put the nodes below a switch of their own")
        children = [] if switch.switches is None else _children(tree, switch.switches, findings)
        tree.below[switch.name] = list(dict.fromkeys(children))
        for child in tree.below[switch.name]:
            first = tree.parent.setdefault(child, switch.name)
            if first != switch.name:
                what = "hangs below several switches: the first of them counts as its domain"
                remarks.add(f"switch {child}", what)


def _children(tree: _Tree, names: HostList, findings: Findings) -> list[str]:
    """The switches of a hostlist, up to the first that is not defined."""
    tree.links += names.count(findings)
    if tree.links > MAX_LINKS:
        what = f"more than {MAX_LINKS:,} links between switches"
        names.spot.fault(findings, what, "leave some out")
        return []
    known = []
    for child in names.names(findings):
        if child not in tree.switches:
            hint = suggestion(child, tree.switches, "switches")
            names.spot.fault(findings, f"switch {shown(child)} is not defined", hint)
            break
        known.append(tree.switches[child].name)
    return known


def _heights(tree: _Tree, findings: Findings) -> dict[str, int] | None:
    """Levels from the nodes up: 1 for a leaf, else one above the highest child.

    None, with a fault, for a cycle and for more than MAX_HEIGHT levels.
    """
    heights: dict[str, int] = {}
    try:
        for name in TopologicalSorter(tree.below).static_order():
            heights[name] = 1 + max((heights[child] for child in tree.below[name]), default=0)
    except CycleError as error:
        name = next(name for name in tree.switches if name in error.args[1])
        what = f"switch {shown(name)} hangs below itself"
        tree.switches[name].spot.fault(findings, what, "a tree has no cycles")
        return None
    too_high = next((name for name in tree.switches if heights[name] > MAX_HEIGHT), None)
    if too_high is not None:
        what = f"switch {shown(too_high)} heads more than {MAX_HEIGHT} levels of switches"
        hint = "leave out levels that place nothing"
        tree.switches[too_high].spot.fault(findings, what, hint)
        return None
    return heights


def _leaves(tree: _Tree, findings: Findings) -> dict[str, list[str]]:
    """The nodes below each switch that has any."""
    leaves: dict[str, list[str]] = {}
    owners = NodeOwners("hangs below", "name it below one leaf switch", findings)
    for switch in tree.switches.values():
        if switch.nodes is None:
            continue
        nodes = owners.add(switch.name, switch.nodes)
        if nodes is None:
            break
        leaves[switch.name] = nodes
    return leaves


def _chain(tree: _Tree, leaf: str) -> list[str]:
    """The switches above a leaf, itself first."""
    chain = [leaf]
    while (parent := tree.parent.get(chain[-1])) is not None:
        chain.append(parent)
    return chain


def _path(
    chain: Sequence[str], heights: Mapping[str, int], used: Sequence[int]
) -> tuple[str | None, ...]:
    """A leaf's domain at every height, widest first.

    Where its branch has no switch of a height, the one below stands for itself there: what hangs
    below it is joined with the rest only farther up.
    """
    at = {heights[name]: name for name in chain}
    here = chain[0]
    path = []
    for height in reversed(used):
        here = at.get(height, here)
        path.append(here)
    return tuple(reversed(path))


def _fitting(
    used: list[int],
    chains: Mapping[str, Sequence[str]],
    heights: Mapping[str, int],
    switches: Sequence[Switch],
    findings: Findings,
) -> list[int]:
    """At most MAX_LEVELS heights: those that one switch spans for all are left out first."""
    while len(used) > MAX_LEVELS:
        if len({_path(chain, heights, used)[0] for chain in chains.values()}) > 1:
            what = f"a tree of {len(used)} levels of switches; the most is {MAX_LEVELS}"
            switches[0].spot.fault(findings, what, "leave out levels that place nothing")
            return used[-MAX_LEVELS:]
        used = used[1:]
    return used
