"""Every topology in a text, whatever stands around it: prompts, prose, legends, other output.

Promises: all of them in order, or InputError with at most one fault a topology, 20 in all.
Called through ``planner.read.topo``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.units import shown
from planner.errors import Fault, InputError
from planner.read.topo import nvidia_smi as nvidia
from planner.read.topo import rocm_smi as rocm
from planner.read.topo.text_tables import MOST_CHARACTERS, Table, clean_lines, longest_line, tables
from planner.read.topo.topology import Topology

MOST_FAULTS = 20
MOST_TOPOLOGIES = 256
"""Most servers of one text: each is priced and shown in full."""

_TOPO = "save what `nvidia-smi topo -m` or `rocm-smi --showtopo` prints"
_SIGNS = (
    (
        re.compile(
            r"nvidia-smi has failed|failed to initialize nvml|no devices were found", re.IGNORECASE
        ),
        "nvidia-smi itself failed: {}",
    ),
    (
        re.compile(r"^[ \t]*GPU[0-9]+[ \t]+(?:X|NV[0-9]+|PIX|SYS|NODE)\b", re.MULTILINE),
        "the matrix is cut off: the line of labels above it, GPU0 GPU1 ..., is missing",
    ),
    (re.compile(r"\"\(Topology\)"), "JSON of rocm-smi: print it without --json"),
    (re.compile(r"\bTABLE:"), "amd-smi prints its tables in another form"),
    (
        re.compile(r"NVIDIA-SMI\s+[0-9]|\(UUID: GPU-|<nvidia_smi_log>|GPU\[[0-9]+\]"),
        "output of nvidia-smi or rocm-smi, but no topology in it",
    ),
)
"""What a text without a topology may be, the most telling first."""

_WORDS = re.compile(
    r"nvidia-smi|rocm-smi|amd-smi|ROCm System Management|between two GPUs|\bGPU[0-9]+\s+X\b"
    r"|NVIDIA-SMI|\(Topology\)|\bTABLE:",
    re.IGNORECASE,
)


def holds_topologies(text: str) -> bool:
    """Whether the text is a tool's output, whole or broken, and no document."""
    lines = clean_lines(text)
    found = tables(lines)
    if any(table.rows for table in found) or any(rocm.tells_nodes(line) for line in lines):
        return True
    return _WORDS.search(text) is not None or bool(found and len(found[0].gpus) > 1)


def read_topologies(file: str, text: str) -> tuple[Topology, ...]:
    """Every topology of the text, in order. Raises InputError if there is none or one is broken."""
    lines = clean_lines(text)
    found = tables(lines)
    faults = [_no_rows(table, file) for table in found if not table.rows]
    found = [table for table in found if table.rows]
    amd = [table for table in found if table.heading in rocm.KINDS]
    other = [table for table in found if table.heading not in rocm.KINDS]
    matrices = [table for table in other if not nvidia.is_peer_access(table)]
    machines = rocm.machines(amd, lines)
    if len(machines) + len(matrices) > MOST_TOPOLOGIES:
        what = f"{len(machines) + len(matrices)} servers in one text, more than {MOST_TOPOLOGIES}"
        raise InputError(Fault(what, "one file a server will do", file))
    topologies: list[Topology] = []
    for machine in machines:
        try:
            topologies.append(rocm.read_machine(machine, file))
        except InputError as error:
            faults += error.faults
    ends = [0, *(table.end for table in found)]
    for table in matrices:
        place = found.index(table)
        last = place + 1 == len(found)
        before = lines[ends[place] : table.line - 1]
        after = lines[table.end : len(lines) if last else found[place + 1].line - 1]
        try:
            topologies.append(nvidia.read_table(table, before, after, file, last=last))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults[:MOST_FAULTS])
    if not topologies:
        raise InputError(_nothing(file, text, other))
    return tuple(sorted(topologies, key=lambda topology: topology.line))


def _no_rows(table: Table, file: str) -> Fault:
    more = (
        f"{table.labels[0]} and more head" if len(table.labels) > 1 else f"{table.labels[0]} heads"
    )
    what = f"the matrix is cut off: {more} columns, but there are no rows"
    return Fault(what, _TOPO, file, table.line, table.column)


def _nothing(file: str, text: str, other: Sequence[Table]) -> Fault:
    """Why a text holds no topology, as far as it can be told."""
    if other:
        what = "this is `nvidia-smi topo -p2p`, which names no paths"
        return Fault(what, _TOPO, file, other[0].line, other[0].column)
    for pattern, what in _SIGNS:
        if (sign := pattern.search(text)) is not None:
            line = text.count("\n", 0, sign.start()) + 1
            return Fault(what.format(shown(_line(text, line))), _TOPO, file, line)
    number, length = longest_line(text)
    if length > MOST_CHARACTERS:
        what = f"no topology in this file, and line {number} has {length} characters"
        return Fault(what, _TOPO, file, number)
    return Fault("no topology and no server model in this file", _TOPO, file)


def _line(text: str, number: int) -> str:
    return text.split("\n")[number - 1].strip()[:100]
