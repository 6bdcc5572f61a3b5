"""Lists of machines that came with published traces, as Cluster documents: those of Philly and openb.

The lists say how many GPUs a machine has and of which kind, and no more. Assumed are PCIe servers of two
sockets with one NIC of 100 Gb/s and GPUs of unknown relative speed, without racks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.documents.base import API_VERSION
from models.documents.cluster import (
    ClusterDocument,
    ClusterMetadata,
    ClusterSpec,
    NodeDocument,
)
from models.documents.server import MAX_GPUS, NicDocument, ServerModelDocument
from models.hardware import MAX_MESH_GPUS
from planner.read.findings import MAX_FAULTS, Findings
from planner.read.sources import Malformed, Source
from planner.read.traces.formats import GPU_MODEL_LABEL
from planner.read.traces.rows import Row, Table, read_table


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a list of machines; ``kind``: what tells GPUs apart."""

    title: str
    name: str
    gpus: str
    kind: str
    more: tuple[str, str] | None = None


_LISTS = (
    _Columns("openb", "node", "gpus", "gpu_model", ("cpu_milli", "memory_mib")),
    _Columns("openb", "sn", "gpu", "model", ("cpu_milli", "memory_mib")),
    _Columns("Philly", "machine", "gpus", "gpu_mem_gb"),
    _Columns("Philly", "machineid", "number of gpus", "single gpu mem"),
)


def is_table(source: Source) -> bool:
    """Whether a text is a table: its name, as the user gave it, ends in ``.csv`` or ``.csv.gz``."""
    return source.named and source.name.lower().removesuffix(".gz").endswith(".csv")


def machines(source: Source, findings: Findings) -> ClusterDocument | None:
    """The cluster of a table of machines; None where ``findings`` have what is wrong with it."""
    known = len(findings.placed)
    try:
        cluster = _cluster(source, findings)
    except Malformed as fault:
        findings.malformed(source, fault)
    return None if len(findings.placed) > known else cluster


def _cluster(source: Source, findings: Findings) -> ClusterDocument:
    table = read_table(source)
    columns = _known(table)
    models: dict[str, ServerModelDocument] = {}
    nodes: dict[str, NodeDocument] = {}
    for row in table.rows:
        try:
            node = _node(row, columns, models)
            if node.name in nodes:
                what = f"{columns.name}: {node.name} is there twice"
                raise row.malformed(columns.name, what, "every machine has its own name")
        except Malformed as fault:
            findings.malformed(source, fault)
            if len(findings.placed) >= MAX_FAULTS:
                break
        else:
            nodes[node.name] = node
    return ClusterDocument.model_construct(
        api_version=API_VERSION,
        kind="Cluster",
        metadata=ClusterMetadata(name=columns.title),
        spec=ClusterSpec.model_construct(
            server_models=tuple(models.values()), nodes=tuple(nodes.values())
        ),
    )


def _known(table: Table) -> _Columns:
    for one in _LISTS:
        if all(name in table.columns for name in (one.name, one.gpus, one.kind, *(one.more or ()))):
            return one
    known = "; ".join(f"{one.title}: {one.name}, {one.gpus}, {one.kind}" for one in _LISTS)
    what = "no list of machines: its columns are not known"
    raise Malformed(what, 1, 1, f"{known}; a table of jobs is for gangplan replay")


def _node(row: Row, columns: _Columns, models: dict[str, ServerModelDocument]) -> NodeDocument:
    gpus = row.whole(columns.gpus, min(MAX_GPUS, MAX_MESH_GPUS))
    fields: dict[str, Any] = {"name": row.name(columns.name)}
    if columns.more is not None:
        cpu, memory = columns.more
        fields["allocatable"] = {
            "cpu": row.amount("cpu", cpu, "m"),
            "memory": row.amount("memory", memory, "Mi"),
        }
    if gpus:
        kind = row.label_value(columns.kind)
        name = f"{columns.title} {kind} x {gpus}"
        if name not in models:
            models[name] = _server(name, f"{columns.title} {kind}", gpus)
        fields |= {"model": name, "labels": {GPU_MODEL_LABEL: kind}}
    return NodeDocument.model_construct(**fields)


def _server(name: str, gpu: str, gpus: int) -> ServerModelDocument:
    """GPUs in pairs below PCIe switches, half of the pairs on either socket."""
    half = -(-gpus // 4) * 2

    def link(a: int, b: int) -> str:
        if a == b:
            return "X"
        if a // 2 == b // 2:
            return "PIX"
        return "PXB" if (a < half) == (b < half) else "SYS"

    return ServerModelDocument.model_construct(
        name=name,
        gpu=gpu,
        gpus=gpus,
        fabric="pcie",
        matrix=tuple(tuple(link(a, b) for b in range(gpus)) for a in range(gpus)),
        numa=tuple(int(a >= half) for a in range(gpus)),
        pcie_switch=tuple(a // 2 for a in range(gpus)),
        nics=(NicDocument.model_construct(name="eth0", megabits=100_000),),
        confidence="assumed",
    )
