"""A Slurm topology file: its lines, and the levels and domains that they define.

Blocks and groups of blocks, or a tree of switches. Levels are widest first; of a tree they are counted from
the nodes, so leaf switches are the innermost. A block is not taken for an NVLink domain. Node names are
matched as written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from models.documents.base import NAME_HINT, suggestion
from models.documents.cluster import MAX_LEVELS, Level
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.instance.cluster import Cluster, Node
from models.units import InvalidValueError, shown
from planner.errors import Fault
from planner.read.findings import Findings, Remark, Remarks
from planner.read.kube.lookup import is_name
from planner.read.level_domains import Domains
from planner.read.parser import line_and_column
from planner.read.slurm.fields import pieces
from planner.read.sources import Source, printable

MAX_LINE = 1_000_000
"""Longest line, continued ones joined."""

MAX_LINKS = 500_000
"""Most (switch, switch below it) pairs of one file."""

MAX_HEIGHT = 64
"""Most switches above one another: bounds the work, far above any network."""

_PAIR = re.compile(r'([A-Za-z0-9_.]+)[ \t]*=[ \t]*("[^"]*"|[^\s"=]+)?(?=\s|$)\s*')
_LINE = re.compile(r"\S[^\n]*")
_COMMENT = re.compile(r"(?<!\\)#")
"""The end of a line that goes on in the next one, and comments."""

SWITCH, BLOCK, SIZES = "SwitchName", "BlockName", "BlockSizes"
BLOCK_LEVEL = "block"
_LINES = {SWITCH: ("Switches", "Nodes", "LinkSpeed"), BLOCK: ("Nodes",), SIZES: ()}
_NO_NODES = "write SwitchName=... Nodes=..., or BlockName=... Nodes=..."


@dataclass(frozen=True, slots=True)
class SlurmTopology(Domains):
    """``source``: its name in messages, as ``Slurm topology cluster/topology.conf``."""

    source: str = ""
    remarks: tuple[Remark, ...] = ()


def read_topology(source: Source) -> SlurmTopology:
    """The levels of a topology file, a tree or blocks. Raises InputError with every fault."""
    return _Reader(source).topology()


def with_policy_levels(
    topology: SlurmTopology, stated: Sequence[Level] | None, remarks: Remarks
) -> SlurmTopology:
    """The topology with what a Policy states of its levels, which no Slurm file holds."""
    own = {level.name: level for level in stated or ()}
    for name in sorted(own.keys() - set(topology.names)):
        names = ", ".join(topology.names) or "none"
        what = f"is no level of {topology.source}: its levels are {names}; it is not used"
        remarks.add(f"Policy level {name}", what)
    both = ((level, own.get(level.name, level)) for level in topology.levels)
    levels = (
        replace(
            level, nvlink=one.nvlink, oversubscription=one.oversubscription, counted=one.counted
        )
        for level, one in both
    )
    return replace(topology, levels=tuple(levels))


def with_slurm_levels(cluster: Cluster, topology: SlurmTopology, remarks: Remarks) -> Cluster:
    """The cluster with the levels of the topology file in place of its own.

    Nodes keep the labels of their old domains.
    """
    if not any(node.name in topology.domains for node in cluster.nodes):
        what = "names no node of the cluster: not used"
        remarks.add(topology.source, what, "node names must be those of the cluster")
        return cluster
    if cluster.levels and cluster.levels != topology.levels:
        names = ", ".join(level.name for level in cluster.levels)
        remarks.add(topology.source, f"its levels go before those of the Cluster ({names})")

    def moved(node: Node) -> Node:
        if node.model is not None and node.name not in topology.domains:
            remark_alone(node.name, remarks)
        implied = {
            level.label: value
            for level, value in zip(cluster.levels, node.domains, strict=True)
            if level.label is not None and value is not None
        }
        labels = tuple(sorted({**dict(node.labels), **implied}.items()))
        return replace(node, domains=topology.domain(node.name), labels=labels)

    return replace(cluster, levels=topology.levels, nodes=tuple(map(moved, cluster.nodes)))


def remark_alone(node: str, remarks: Remarks) -> None:
    remarks.add(f"node {node}", "is not in the topology file: it is alone at every level")


class _Word(NamedTuple):
    """A value as written, and where it is in the text without comments."""

    text: str
    at: int


class _Domain(NamedTuple):
    """A switch or a block, and the host lists of what is below it."""

    name: _Word
    nodes: _Word | None
    switches: _Word | None


class _Reader:
    """``starts``: (offset in ``text``, which has no comments; offset in the source) of its parts.

    ``domains``: of each kind, in the order of the file. ``counted``: names in host lists so far.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.findings, self.remarks = Findings(), Remarks()
        self.called = f"Slurm topology {printable(source.name)}"
        self.domains: dict[str, list[_Domain]] = {SWITCH: [], BLOCK: []}
        self.sizes: _Word | None = None
        self.counted = Counter[str]()
        self.text, self.starts = "", [(0, 0)]
        parts, end, length, at = [], 0, 0, 0
        for line in source.text.split("\n"):
            comment = _COMMENT.search(line)
            said = line if comment is None else line[: comment.start()]
            goes_on = said.rstrip().endswith("\\")
            parts.append(source.text[end : at + (len(said.rstrip()) - 1 if goes_on else len(said))])
            length, end = length + len(parts[-1]), at + len(line) + goes_on
            self.starts.append((length, end))
            at += len(line) + 1
        self.text = "".join([*parts, source.text[end:]])

    def topology(self) -> SlurmTopology:
        self._read()
        switches, blocks = self.domains[SWITCH], self.domains[BLOCK]
        found = SlurmTopology(source=self.called)
        other = blocks[0].name if blocks else self.sizes
        if switches and other is not None:
            self._fault(other, "switches and blocks in one file", "keep one of the two")
        elif switches:
            found = self._of_tree(switches)
        elif blocks:
            found = self._of_blocks(blocks)
        elif not self.findings:
            self._fault(None, "no switch or block in this file", _NO_NODES)
        if not self.findings and not found.domains:
            self._fault(None, "no node in this topology file", _NO_NODES)
        if self.findings:
            self.findings.raise_all()
        return replace(found, remarks=tuple(self.remarks.all))

    def _fault(self, word: _Word | None, what: str, hint: str | None) -> None:
        line, column = 1, 1
        if word is not None:
            length, start = self.starts[
                bisect_right(self.starts, (word.at, len(self.source.text))) - 1
            ]
            line, column = line_and_column(self.source.text, start + word.at - length)
        self.findings.fault(Fault(what, hint, self.source.name, line, column))

    # ---- lines

    def _read(self) -> None:
        for line in _LINE.finditer(self.text):
            at = _Word("", line.start())
            if len(line[0]) > MAX_LINE:
                self._fault(at, f"a line of more than {MAX_LINE:,} characters", "use host ranges")
                return
            if (pairs := self._pairs(*line.span())) is not None:
                self._define(pairs, at)
            if self.findings.full:
                return
            if sum(map(len, self.domains.values())) > MAX_NAMES:
                self._fault(at, f"more than {MAX_NAMES:,} switches or blocks", "leave some out")
                return

    def _pairs(self, at: int, end: int) -> dict[str, tuple[str, _Word]] | None:
        """Keys as written and values, by key in lower case; None for a malformed line."""
        pairs: dict[str, tuple[str, _Word]] = {}
        while at < end:
            here, found = _Word("", at), _PAIR.match(self.text, at, end)
            if found is None:
                what = f"expected Key=Value, not {shown(self.text[at:end].split()[0])}"
                self._fault(here, what, "write it like SwitchName=s1 Nodes=node[01-16]")
                return None
            key = found[1]
            if key.lower() in pairs:
                self._fault(here, f"{key} appears twice on this line", "remove one")
                return None
            value = _Word(found[2].strip('"'), found.start(2)) if found[2] else here
            pairs[key.lower()] = (key, value)
            at = found.end()
        return pairs

    def _define(self, pairs: dict[str, tuple[str, _Word]], at: _Word) -> None:
        kind = next((one for one in _LINES if one.lower() in pairs), None)
        if kind is None:
            first = next(iter(pairs.values()))[0]
            hint = suggestion(first, _LINES, "lines start with")
            self._fault(at, f"unknown keyword {shown(first)}", hint)
            return
        known = (kind, *_LINES[kind])
        for key, (written, value) in pairs.items():
            if key not in map(str.lower, known):
                what = f"unknown keyword {shown(written)} of a {kind} line"
                self._fault(value, what, suggestion(written, known, "keywords"))
                return
            if not value.text:
                self._fault(value, f"{written}= without a value", "remove it, or give one")
                return
        name = pairs[kind.lower()][1]
        nodes, switches = (pairs.get(key, ("", None))[1] for key in ("nodes", "switches"))
        if kind == SIZES:
            self._define_sizes(name)
        elif is_name(name.text):
            self.domains[kind].append(_Domain(name, nodes, switches))
        else:
            self._fault(name, f"{shown(name.text)} cannot be the name of a domain", NAME_HINT)

    def _define_sizes(self, value: _Word) -> None:
        words = value.text.split(",")
        if not all(word.isascii() and word.isdecimal() and len(word) <= 9 for word in words):
            what = f"{shown(value.text)} is no list of block sizes"
            self._fault(value, what, "write it like BlockSizes=18,36,72")
        elif self.sizes is not None:
            self._fault(value, "a second line of BlockSizes", "remove one of the two")
        else:
            self.sizes = value

    # ---- names

    def _by_name(self, found: Sequence[_Domain], kind: str, hint: str) -> dict[str, _Domain]:
        first: dict[str, _Domain] = {}
        for one in found:
            if first.setdefault(one.name.text, one) is not one:
                self._fault(one.name, f"{kind} {shown(one.name.text)} is defined twice", hint)
        return first

    def _names(self, listed: _Word, most: int, what: str, hint: str) -> Iterator[str]:
        """The names of a host list, up to one that cannot be a name; none beyond ``most`` of all lists."""
        if self.counted[what] > most:
            return
        try:
            parts = pieces(listed.text)
            self.counted[what] += sum(map(host_count, parts))
            if self.counted[what] > most:
                self._fault(listed, f"more than {most:,} {what}", hint)
                return
            for name in (name for part in parts for name in hosts(part)):
                if not is_name(name):
                    self._fault(listed, f"{shown(name)} cannot be a name", NAME_HINT)
                    return
                yield name
        except InvalidValueError as refused:
            self._fault(listed, refused.what, refused.hint)

    def _members(
        self, found: Mapping[str, _Domain], relation: str, hint: str
    ) -> dict[str, list[str]]:
        """The nodes of every domain that has any; each node is in one. ``relation``: in messages."""
        members: dict[str, list[str]] = {}
        owner: dict[str, str] = {}
        for name, one in found.items():
            if one.nodes is None:
                continue
            members[name] = list(self._names(one.nodes, MAX_NAMES, "nodes", "narrow the ranges"))
            for node in members[name]:
                if (first := owner.setdefault(node, name)) != name:
                    what = f"node {shown(node)} {relation} {shown(first)} and {shown(name)}"
                    self._fault(one.nodes, what, hint)
                    break
        return members

    # ---- blocks

    def _of_blocks(self, blocks: Sequence[_Domain]) -> SlurmTopology:
        found = self._by_name(blocks, "block", "put its nodes on one line")
        members = self._members(found, "is in", "name it in one block")
        names = list(found)
        wider = self._groups(len(names))
        domains: dict[str, tuple[str | None, ...]] = {}
        for i, name in enumerate(names):
            groups = (_group(names, i, per, size) for size, per in wider)
            domains.update(dict.fromkeys(members.get(name, ()), (*groups, name)))
        levels = (Level(f"block-{size}") for size, _ in wider)
        return SlurmTopology((*levels, Level(BLOCK_LEVEL)), domains, self.called)

    def _groups(self, blocks: int) -> list[tuple[int, int]]:
        """(nodes, blocks) of groups of blocks, the widest first, up to one group of all blocks."""
        if self.sizes is None:
            return []
        base, *larger = sizes = [int(word) for word in self.sizes.text.split(",")]
        if base < 1 or sizes != sorted(set(sizes)):
            what = "block sizes must be positive and ascending"
            self._fault(self.sizes, what, "the base block first, as in BlockSizes=18,36,72")
            return []
        result: list[tuple[int, int]] = []
        before = 1
        for size in larger:
            if before >= blocks or len(result) == MAX_LEVELS - 1:
                break  # a group of all blocks divides nothing
            per = size // base
            if size % base or per % before:
                what = f"block size {size} is no multiple of the one before it: left out"
                self.remarks.add(self.called, what)
                continue
            result.insert(0, (size, per))
            before = per
        return result

    # ---- switches

    def _of_tree(self, listed: Sequence[_Domain]) -> SlurmTopology:
        switches = self._by_name(listed, "switch", "put all that is below it on one line")
        children, parent = self._links(switches)
        heights = self._heights(switches, children)
        if heights is None:
            return SlurmTopology(source=self.called)
        leaves = self._members(switches, "is below", "name it below one leaf switch")
        chains: dict[str, list[str]] = {}
        for leaf in leaves:
            chains[leaf] = chain = [leaf]
            while (above := parent.get(chain[-1])) is not None:
                chain.append(above)
        used = sorted({heights[name] for chain in chains.values() for name in chain}, reverse=True)
        while len(used) > MAX_LEVELS:  # first without levels that one switch spans for all
            if len({_path(chain, heights, used)[0] for chain in chains.values()}) > 1:
                what = f"a tree of {len(used)} levels of switches; the most is {MAX_LEVELS}"
                self._fault(listed[0].name, what, "leave out levels that place nothing")
                break
            used = used[1:]
        domains: dict[str, tuple[str | None, ...]] = {}
        for leaf, nodes in leaves.items():
            domains.update(dict.fromkeys(nodes, _path(chains[leaf], heights, used)))
        names = [*(f"switch-{number}" for number in range(len(used), 1, -1)), "leaf"]
        return SlurmTopology(tuple(map(Level, names[: len(used)])), domains, self.called)

    def _links(
        self, switches: Mapping[str, _Domain]
    ) -> tuple[dict[str, list[str]], dict[str, str]]:
        """The children of every switch, and the parent of each: the first, if there are several."""
        children: dict[str, list[str]] = {}
        parent: dict[str, str] = {}
        for name, switch in switches.items():
            if switch.switches is not None and switch.nodes is not None:
                what = f"switch {shown(name)} has both nodes and switches below it"
                self._fault(switch.name, what, "put the nodes below a switch of their own")
            children[name] = list(dict.fromkeys(self._children(switch.switches, switches)))
            for child in children[name]:
                if parent.setdefault(child, name) != name:
                    what = "is below several switches: the first of them counts as its domain"
                    self.remarks.add(f"switch {child}", what)
        return children, parent

    def _children(self, listed: _Word | None, switches: Mapping[str, _Domain]) -> Iterator[str]:
        if listed is None:
            return
        for child in self._names(listed, MAX_LINKS, "links between switches", "leave some out"):
            if child not in switches:
                hint = None if self.findings.enough else suggestion(child, switches, "switches")
                self._fault(listed, f"switch {shown(child)} is not defined", hint)
                return
            yield child

    def _heights(
        self, switches: Mapping[str, _Domain], children: Mapping[str, Sequence[str]]
    ) -> dict[str, int] | None:
        """Levels from the nodes up: 1 for a leaf, else one above the highest child.

        None, with a fault, for a cycle and for more than MAX_HEIGHT levels.
        """
        heights: dict[str, int] = {}
        try:
            for name in TopologicalSorter(children).static_order():
                heights[name] = 1 + max((heights[child] for child in children[name]), default=0)
        except CycleError as error:
            name = next(name for name in switches if name in error.args[1])
            what = f"switch {shown(name)} is below itself"
            self._fault(switches[name].name, what, "a tree has no cycles")
            return None
        high = next((name for name in switches if heights[name] > MAX_HEIGHT), None)
        if high is not None:
            what = f"switch {shown(high)} heads more than {MAX_HEIGHT} levels of switches"
            self._fault(switches[high].name, what, "leave out levels that place nothing")
        return heights if high is None else None


def _group(names: Sequence[str], block: int, per: int, size: int) -> str:
    """The name of the group of ``per`` consecutive blocks that a block is in."""
    first = block - block % per
    last = min(first + per, len(names)) - 1
    name = names[first] if first == last else f"{names[first]}-{names[last]}"
    return name if is_name(name) else f"blocks-{size}-{first // per}"


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
