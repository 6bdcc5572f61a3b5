"""Blocks of nodes to levels: the blocks, and what consecutive ones add up to.

Promises: every level nests in the next wider one; a size that does not fit is remarked. A block is
not taken for an NVLink domain by itself. Called by ``planner.reading.slurm``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.cluster import Level
from models.documents.cluster import MAX_LEVELS
from models.quantities import shown
from planner.reading.findings import Findings
from planner.reading.remarks import Remarks
from planner.reading.slurm.forms import SlurmTopology
from planner.reading.slurm.hostlists import Holders, is_name
from planner.reading.slurm.spots import Block, Sizes


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
