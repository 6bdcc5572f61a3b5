"""A Slurm topology as the planner takes it: levels, and the domain of every node at each.

Promises: frozen data; levels widest first. Made by ``planner.read.slurm.cluster``, used wherever levels
are put together.

Blocks of nodes to levels: the blocks, and what consecutive ones add up to.

Promises: every level nests in the next wider one; a size that does not fit is remarked. A block is
not taken for an NVLink domain by itself. Called by ``planner.read.slurm.cluster``.

Trees of switches to levels, counted from the nodes: leaf switches are the innermost.

Promises: the smallest domain that holds two nodes is the lowest switch above both; unbalanced
trees, several roots and switches with several parents are read, what is lost is remarked.
Called by ``planner.read.slurm.cluster``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.cluster import Level
from models.documents.base import suggestion
from models.documents.cluster import MAX_LEVELS
from models.units import shown
from planner.read.findings import Findings, Remark, Remarks
from planner.read.slurm.hostlists import (
    Block,
    Holders,
    Names,
    Sizes,
    Switch,
    counted,
    expanded,
    is_name,
)


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


def from_blocks(
    blocks: Sequence[Block],
    sizes: Sizes | None,
    source: str,
    findings: Findings,
    remarks: Remarks,
) -> SlurmTopology:
    """The levels of blocks; what is wrong with them goes into the findings."""
    members = _members(blocks, findings)
    names = list(members)
    wider = _aggregates(sizes, len(names), source, findings, remarks)
    levels = [Level(f"block-{size}") for size, _ in reversed(wider)]
    domains: dict[str, tuple[str | None, ...]] = {}
    for i, name in enumerate(names):
        groups = [_group(names, i, per, size) for size, per in reversed(wider)]
        domains.update(dict.fromkeys(members[name], (*groups, name)))
    return SlurmTopology(source, "block", (*levels, Level("block")), domains)


def _members(blocks: Sequence[Block], findings: Findings) -> dict[str, list[str]]:
    """The nodes of every block, in the order of the file."""
    members: dict[str, list[str]] = {}
    holders = Holders("is in", "name it in one block", findings)
    for block in blocks:
        if block.name in members:
            what = f"block {shown(block.name)} is defined twice"
            block.spot.fault(findings, what, "put its nodes on one line")
            continue
        members[block.name] = []
        if block.nodes is None:
            continue
        nodes = holders.nodes(block.name, block.nodes)
        if nodes is None:
            break
        members[block.name] = nodes
    return members


def _aggregates(
    sizes: Sizes | None, blocks: int, source: str, findings: Findings, remarks: Remarks
) -> list[tuple[int, int]]:
    """(nodes, blocks) of what blocks add up to, ascending, as far as all blocks in one."""
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
            break  # what is wider than all blocks together divides nothing
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
    """The levels of a tree; what is wrong with it goes into the findings."""
    tree = _Tree()
    for switch in switches:
        if switch.name in tree.switches:
            what = f"switch {shown(switch.name)} is defined twice"
            switch.spot.fault(findings, what, "put all that is below it on one line")
        tree.switches.setdefault(switch.name, switch)
    _link(tree, findings, remarks)
    if _has_cycle(tree, findings):
        return SlurmTopology(source, "tree", ())
    heights = _heights(tree)
    if _too_high(heights, tree, findings):
        return SlurmTopology(source, "tree", ())
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
    return SlurmTopology(source, "tree", tuple(Level(name) for name in names), domains)


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


def _children(tree: _Tree, names: Names, findings: Findings) -> list[str]:
    """The switches of a hostlist, up to the first that is not defined."""
    tree.links += counted(names, findings)
    if tree.links > MAX_LINKS:
        what = f"more than {MAX_LINKS:,} links between switches"
        names.spot.fault(findings, what, "leave some out")
        return []
    known = []
    for child in expanded(names, findings):
        if child not in tree.switches:
            hint = suggestion(child, tree.switches, "switches")
            names.spot.fault(findings, f"switch {shown(child)} is not defined", hint)
            break
        known.append(tree.switches[child].name)
    return known


def _has_cycle(tree: _Tree, findings: Findings) -> bool:
    """Report a switch that hangs below itself."""
    done: set[str] = set()
    for root in tree.switches:
        path: dict[str, None] = {}
        todo = [(root, False)]
        while todo:
            name, left = todo.pop()
            if left:
                del path[name]
                done.add(name)
            elif name in path:
                what = f"switch {shown(name)} hangs below itself"
                tree.switches[name].spot.fault(findings, what, "a tree has no cycles")
                return True
            elif name not in done:
                path[name] = None
                todo.append((name, True))
                todo += [(child, False) for child in tree.below[name]]
    return False


def _heights(tree: _Tree) -> dict[str, int]:
    """Levels from the nodes up: 1 for a leaf, else one above the highest child. No cycles."""
    heights: dict[str, int] = {}
    for root in tree.switches:
        todo = [root]
        while todo:
            name = todo[-1]
            missing = [child for child in tree.below[name] if child not in heights]
            if missing and name not in heights:
                todo += missing
                continue
            todo.pop()
            heights[name] = 1 + max((heights[child] for child in tree.below[name]), default=0)
    return heights


def _too_high(heights: Mapping[str, int], tree: _Tree, findings: Findings) -> bool:
    """Report the first switch of a height that no network has."""
    name = next((name for name in tree.switches if heights[name] > MAX_HEIGHT), None)
    if name is None:
        return False
    what = f"switch {shown(name)} heads more than {MAX_HEIGHT} levels of switches"
    tree.switches[name].spot.fault(findings, what, "leave out levels that place nothing")
    return True


def _leaves(tree: _Tree, findings: Findings) -> dict[str, list[str]]:
    """The nodes below each switch that has any."""
    leaves: dict[str, list[str]] = {}
    holders = Holders("hangs below", "name it below one leaf switch", findings)
    for switch in tree.switches.values():
        if switch.nodes is None:
            continue
        nodes = holders.nodes(switch.name, switch.nodes)
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
