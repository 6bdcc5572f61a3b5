"""A ``topology.yaml``: several topologies in one file, of which the cluster's default is read.

The chosen one is read strictly; a remark names each of the others.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from models.documents.base import Many, Name, Path
from models.units import described, shown
from planner.read.findings import Finding, Findings, Remarks
from planner.read.parser import parse
from planner.read.slurm.definitions import Block, BlockSizes, Definitions, HostList, Spot, Switch
from planner.read.sources import Source
from planner.read.validation import validate

LAYOUTS = ("tree", "block", "flat", "ring", "torus3d")
READ = ("tree", "block", "flat")


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


Text = Annotated[str, Field(min_length=1)]


class _Topology(_Entry):
    """A named topology of any layout."""

    topology: Text
    cluster_default: bool = False
    tree: Any = None
    block: Any = None
    flat: Any = None
    ring: Any = None
    torus3d: Any = None


class _Switch(_Entry):
    switch: Name
    children: Text | None = None
    nodes: Text | None = None
    link_speed: Any = None


class _Switches(_Entry):
    switches: Many[_Switch] | None = None


class _Block(_Entry):
    block: Name
    nodes: Text | None = None


def _listed(value: object) -> object:
    return value if isinstance(value, list) or value is None else [value]


class _Blocks(_Entry):
    blocks: Many[_Block] | None = None
    block_sizes: Annotated[
        Many[Annotated[int, Field(ge=-(10**9), le=10**9)]] | None, BeforeValidator(_listed)
    ] = None


class _TreeLayout(_Entry):
    tree: _Switches


class _BlockLayout(_Entry):
    block: _Blocks


Layout = Literal["tree", "block", "flat"]


def read_yaml(
    source: Source, findings: Findings, remarks: Remarks
) -> tuple[Layout, Definitions] | None:
    """The default topology of the file, or the first; None where nothing can be read."""
    found = _topologies(source, findings)
    if not found:
        if not findings:
            hint = "write a list with `topology:`"
            findings.add(Finding(source, (0,), "no topology in this file", hint))
        return None
    defaults = [one for one in found if one[0].cluster_default]
    for _, path, _ in defaults[1:]:
        what = "a second default topology"
        findings.add(Finding(source, (*path, "cluster_default"), what, "keep one"))
    chosen = defaults[0] if defaults else found[0]
    for topology, _, _ in found:
        if topology is not chosen[0]:
            what = f"not used: the topology of the cluster is {shown(chosen[0].topology)}"
            hint = "mark another one with `cluster_default: true`"
            remarks.add(f"topology {topology.topology}", what, hint)
    return _definitions(*chosen, source, findings)


def _topologies(source: Source, findings: Findings) -> list[tuple[_Topology, Path, dict[str, Any]]]:
    """Every named topology of the file, its path and its fields."""
    parsed = parse(source)
    for malformed in parsed.faults:
        findings.malformed(source, malformed)
    found: list[tuple[_Topology, Path, dict[str, Any]]] = []
    for number, document in enumerate([] if parsed.faults else parsed.documents):
        if document is not None and not isinstance(document, list):
            what = f"expected a list, not {described(document)}"
            findings.add(Finding(source, (number,), what, "write `- ` before each"))
            continue
        for i, tree in enumerate(document or ()):
            entry = validate(_Topology, tree, source, (number, i), findings)
            if entry is not None:
                found.append((entry.document, (number, i), tree))
    return found


def _definitions(
    topology: _Topology, path: Path, tree: dict[str, Any], source: Source, findings: Findings
) -> tuple[Layout, Definitions] | None:
    """What the chosen topology defines."""
    layouts = [layout for layout in LAYOUTS if layout in tree]
    name = shown(topology.topology)
    if len(layouts) != 1:
        what = f"topology {name} has {' and '.join(layouts) or 'no layout'}"
        findings.add(Finding(source, path, what, f"give it one of {', '.join(READ)}"))
        return None
    if layouts[0] not in READ:
        what = f"a {layouts[0]} has no levels: topology {name} is not read"
        hint = f"{', '.join(READ)} are; mark one with `cluster_default: true`"
        findings.add(Finding(source, (*path, layouts[0]), what, hint, at_key=True))
        return None
    if layouts[0] == "tree":
        return _tree(tree, path, source, findings)
    if layouts[0] == "block":
        return _blocks(tree, path, source, findings)
    return "flat", Definitions()


def _tree(
    tree: dict[str, Any], path: Path, source: Source, findings: Findings
) -> tuple[Layout, Definitions] | None:
    entry = validate(_TreeLayout, {"tree": tree["tree"]}, source, path, findings)
    if entry is None:
        return None
    switches = [
        Switch(
            one.switch,
            Spot(source, path=(*path, "tree", "switches", i, "switch")),
            _hosts(one.children, source, (*path, "tree", "switches", i, "children")),
            _hosts(one.nodes, source, (*path, "tree", "switches", i, "nodes")),
        )
        for i, one in enumerate(entry.document.tree.switches or ())
    ]
    return "tree", Definitions(switches=switches)


def _blocks(
    tree: dict[str, Any], path: Path, source: Source, findings: Findings
) -> tuple[Layout, Definitions] | None:
    entry = validate(_BlockLayout, {"block": tree["block"]}, source, path, findings)
    if entry is None:
        return None
    layout = entry.document.block
    blocks = [
        Block(
            one.block,
            Spot(source, path=(*path, "block", "blocks", i, "block")),
            _hosts(one.nodes, source, (*path, "block", "blocks", i, "nodes")),
        )
        for i, one in enumerate(layout.blocks or ())
    ]
    sizes = None
    if layout.block_sizes is not None:
        spot = Spot(source, path=(*path, "block", "block_sizes"))
        sizes = BlockSizes(layout.block_sizes, spot)
    return "block", Definitions(blocks=blocks, sizes=sizes)


def _hosts(text: str | None, source: Source, path: Path) -> HostList | None:
    return None if text is None else HostList(text, Spot(source, path=path))
