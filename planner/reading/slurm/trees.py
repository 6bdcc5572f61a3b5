"""Trees of switches to levels, counted from the nodes: leaf switches are the innermost.

Promises: the smallest domain that holds two nodes is the lowest switch above both; unbalanced
trees, several roots and switches with several parents are read, what is lost is remarked.
Called by ``planner.reading.slurm``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.cluster import Level
from models.documents import suggestion
from models.documents.cluster import MAX_LEVELS
from models.quantities import shown
from planner.reading.findings import Findings
from planner.reading.remarks import Remarks
from planner.reading.slurm.forms import SlurmTopology
from planner.reading.slurm.hostlists import Holders, counted, expanded
from planner.reading.slurm.spots import Names, Switch

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
