"""A ``topology.yaml``: several topologies in one file, of which the cluster's default counts.

Promises: the chosen one is read strictly, the others are named in a remark.
Called by ``planner.read.slurm.cluster``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from models.documents.base import Path, suggestion
from models.units import described, shown
from planner.read.findings import Findings, Remarks
from planner.read.parser import parse
from planner.read.slurm.hostlists import Block, Names, Sizes, Spot, Switch, is_name
from planner.read.sources import Source

LAYOUTS = ("tree", "block", "flat", "ring", "torus3d")
READ = ("tree", "block", "flat")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The topology that counts: its layout, and what it defines."""

    layout: str
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    sizes: Sizes | None = None


def read_documents(source: Source, findings: Findings, remarks: Remarks) -> Chosen | None:
    """The default topology of the file, or the first; None where nothing can be read."""
    parsed = parse(source)
    for fault in parsed.faults:
        findings.malformed(source, fault)
    if parsed.faults:
        return None
    reader = _Reader(source, findings)
    entries = [
        (entry, (number, i))
        for number, document in enumerate(parsed.documents)
        for entry, i in reader.entries(document, (number,))
    ]
    known = [(entry, path) for entry, path in entries if reader.is_topology(entry, path)]
    if not known:
        if not findings:
            reader.fault((0,), "no topology in this file", "write a list with `topology:`")
        return None
    defaults = [one for one in known if one[0].get("cluster_default") is True]
    for _, path in defaults[1:]:
        reader.fault((*path, "cluster_default"), "a second default topology", "keep one")
    chosen, path = defaults[0] if defaults else known[0]
    for entry, _ in known:
        if entry is not chosen:
            what = f"not used: the topology of the cluster is {shown(chosen['topology'])}"
            hint = "mark another one with `cluster_default: true`"
            remarks.add(f"topology {entry['topology']}", what, hint)
    return reader.chosen(chosen, path)


class _Reader:
    def __init__(self, source: Source, findings: Findings) -> None:
        self.source = source
        self.findings = findings

    def fault(self, path: Path, what: str, hint: str | None, *, at_key: bool = False) -> None:
        Spot(self.source, path=path, at_key=at_key).fault(self.findings, what, hint)

    def entries(self, tree: object, path: Path) -> Iterator[tuple[dict[str, object], int]]:
        """The objects of a list, with their positions."""
        if tree is None:
            return
        if not isinstance(tree, list):
            self.fault(path, f"expected a list, not {described(tree)}", "write `- ` before each")
            return
        for i, entry in enumerate(tree):
            if isinstance(entry, dict):
                yield entry, i
            else:
                what = f"expected an object, not {described(entry)}"
                self.fault((*path, i), what, "write `key: value` lines")

    def known(self, entry: dict[str, object], path: Path, *fields: str) -> None:
        """Report the fields that are none of these."""
        for name in entry:
            if name not in fields:
                hint = suggestion(name, fields, "fields")
                self.fault((*path, name), f"unknown field {shown(name)}", hint, at_key=True)

    def text(self, entry: dict[str, object], path: Path, field: str) -> Names | None:
        """The text of a field; None where there is none, which is reported unless it is absent."""
        value = entry.get(field)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            what = f"{field}: expected text, not {described(value)}"
            self.fault((*path, field), what, "put it in quotes")
            return None
        return Names(value, Spot(self.source, path=(*path, field)))

    def name(self, entry: dict[str, object], path: Path, field: str) -> Names | None:
        """The name of a switch or block, which must be there."""
        found = self.text(entry, path, field)
        if found is None:
            if entry.get(field) is None:
                self.fault(path, f"a {field} without a name", f"write `{field}: NAME`")
        elif not is_name(found.text):
            what = f"{shown(found.text)} cannot be the name of a domain"
            hint = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            self.fault((*path, field), what, hint)
        return found

    def is_topology(self, entry: dict[str, object], path: Path) -> bool:
        """Whether an entry is a named topology; what is wrong with its frame is reported."""
        self.known(entry, path, "topology", "cluster_default", *LAYOUTS)
        default = entry.get("cluster_default", False)
        if not isinstance(default, bool):
            what = f"cluster_default: expected true or false, not {described(default)}"
            self.fault((*path, "cluster_default"), what, "write true or false")
        if self.text(entry, path, "topology") is None:
            if entry.get("topology") is None:
                self.fault(path, "a topology without a name", "write `- topology: NAME`")
            return False
        return True

    def chosen(self, entry: dict[str, object], path: Path) -> Chosen | None:
        """What the chosen topology defines."""
        layouts = [layout for layout in LAYOUTS if layout in entry]
        if len(layouts) != 1:
            what = f"topology {shown(entry['topology'])} has {' and '.join(layouts) or 'no layout'}"
            self.fault(path, what, f"give it one of {', '.join(READ)}")
            return None
        layout = layouts[0]
        if layout not in READ:
            what = f"a {layout} has no levels: topology {shown(entry['topology'])} is not read"
            hint = f"{', '.join(READ)} are; mark one with `cluster_default: true`"
            self.fault((*path, layout), what, hint, at_key=True)
            return None
        if layout == "flat":
            return Chosen("flat")
        inner, below = entry[layout], (*path, layout)
        if not isinstance(inner, dict):
            what = f"{layout}: expected an object, not {described(inner)}"
            self.fault(below, what, f"write its {'switches' if layout == 'tree' else 'blocks'}")
            return None
        return self.tree(inner, below) if layout == "tree" else self.block(inner, below)

    def tree(self, tree: dict[str, object], path: Path) -> Chosen:
        self.known(tree, path, "switches")
        switches = []
        for entry, i in self.entries(tree.get("switches"), (*path, "switches")):
            at = (*path, "switches", i)
            self.known(entry, at, "switch", "children", "nodes", "link_speed")
            name = self.name(entry, at, "switch")
            children, nodes = self.text(entry, at, "children"), self.text(entry, at, "nodes")
            if name is not None:
                switches.append(Switch(name.text, name.spot, children, nodes))
        return Chosen("tree", switches=tuple(switches))

    def block(self, tree: dict[str, object], path: Path) -> Chosen:
        self.known(tree, path, "blocks", "block_sizes")
        blocks = []
        for entry, i in self.entries(tree.get("blocks"), (*path, "blocks")):
            at = (*path, "blocks", i)
            self.known(entry, at, "block", "nodes")
            name, nodes = self.name(entry, at, "block"), self.text(entry, at, "nodes")
            if name is not None:
                blocks.append(Block(name.text, name.spot, nodes))
        return Chosen("block", blocks=tuple(blocks), sizes=self.sizes(tree, path))

    def sizes(self, tree: dict[str, object], path: Path) -> Sizes | None:
        values = tree.get("block_sizes")
        if values is None:
            return None
        at = (*path, "block_sizes")
        listed = values if isinstance(values, list) else [values]
        whole = [one for one in listed if isinstance(one, int) and not isinstance(one, bool)]
        if len(whole) != len(listed) or any(abs(one) > 10**9 for one in whole):
            self.fault(at, "block_sizes: expected whole numbers", "write them like [18, 36, 72]")
            return None
        return Sizes(tuple(whole), Spot(self.source, path=at))
