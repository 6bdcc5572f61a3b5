"""Server models as YAML or JSON documents, ready for ``spec.serverModels`` of a Cluster.

Promises: read back they are the same models; what is not known is left out. Called by ``topo``.

A server model for people: what it is, its link matrix, and what every set of its GPUs reaches.

Promises: pure tables from a ServerModel, no terminal; rates are MB/s.
Called by the verb ``topo``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import yaml

from models.canonical import server_model_document
from models.hardware import ServerModel
from planner.show.bandwidth_table import (
    bandwidths,
    gpu_choices,
    listed,
    possible_bandwidths,
    reading_facts,
    unrated,
)
from planner.show.table import Cell, Column, Table
from planner.show.text import number
from planner.untrusted_text import document_safe

_WITHOUT = {"aliases": [], "vendor": "", "sources": [], "confidence": "", "nics": [],
            "nvlinkDomainNodes": 1}  # fmt: skip
"""Fields that say nothing at these values."""


def model_document(model: ServerModel, assumed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document of a model without what is not known. ``assumed``: fields to leave out."""
    document = server_model_document(model)
    document["nics"] = [
        {key: value for key, value in nic.items() if value is not None} for nic in document["nics"]
    ]
    return {
        key: value
        for key, value in document.items()
        if key not in assumed and (key not in _WITHOUT or value != _WITHOUT[key])
    }


def model_yaml(document: dict[str, Any]) -> str:
    """The document with a row of the matrix and a NIC a line, as in the catalogue."""
    return "".join(
        _matrix(value) if key == "matrix" else _field(key, value) for key, value in document.items()
    )


def _matrix(rows: list[list[str]]) -> str:
    width = max(len(cell) for row in rows for cell in row) + 1
    lines = [
        "".join(f"{cell},".ljust(width + 1) for cell in row[:-1]) + row[-1] for row in rows
    ]  # fmt: skip
    return "matrix:\n" + "".join(f"- [{line}]\n" for line in lines)


_MAP = "tag:yaml.org,2002:map"
_LIST = "tag:yaml.org,2002:seq"


class _FlowMapping(dict[str, object]):
    """A mapping that is written in one line."""


class _FlowList(list[object]):
    """A list that is written in one line."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _FlowMapping, lambda dumper, data: dumper.represent_mapping(_MAP, data, flow_style=True)
)
_Dumper.add_representer(
    _FlowList, lambda dumper, data: dumper.represent_sequence(_LIST, data, flow_style=True)
)


def _field(key: str, value: object) -> str:
    if key == "nics" and isinstance(value, list):
        value = [_FlowMapping(nic) for nic in value]
    elif key in ("numa", "pcieSwitch") and isinstance(value, list):
        value = _FlowList(value)
    text = _dumped({key: value}, unicode=True)
    return text if document_safe(text) else _dumped({key: value}, unicode=False)


def _dumped(document: dict[str, object], *, unicode: bool) -> str:
    return yaml.dump(
        document,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=unicode,
        width=10**6,
    )


if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.read.topo.server_model import Reading


def topology_text(model: ServerModel, reading: Reading | None = None) -> str:
    """Everything about the model, as plain text: facts, link matrix, bandwidth table."""
    parts = topology_tables(model, reading)
    return "\n".join("".join(table.plain() for table in part) for part in parts)


def topology_tables(model: ServerModel, reading: Reading | None = None) -> list[tuple[Table, ...]]:
    """Facts, link matrix, bandwidth table, or several below their headings.

    What stands in one tuple belongs together, without a blank line. ``reading``: of a model read
    from a tool's output.
    """
    matrix = links(model, reading)
    parts = [(facts(model, reading),), *([(matrix,)] if matrix is not None else [])]
    if reading is None or not reading.possible:
        return [*parts, (bandwidths(model),)]
    return [*parts, *possible_bandwidths(model, reading.possible, unrated(reading))]


def facts(model: ServerModel, reading: Reading | None = None) -> Table:
    """Name and value of what the model states."""
    linked = model.fabric != "pcie" and (reading is None or model.matrix is not None)
    rows = [
        ("server model", model.name),
        *(() if reading is None else reading_facts(reading)),
        ("also", ", ".join(model.aliases)),
        ("vendor", model.vendor),
        ("GPUs", _gpus(model, reading)),
        ("fabric", _fabric(model) if linked or model.fabric == "pcie" else ""),
        (_link(model), _link_rate(model, reading) if linked else ""),
        ("PCIe", _pcie(model, reading)),
        ("NICs", _nic_summary(model)),
        ("NVLink domain", _domain(model)),
        *(("source", source) for source in model.sources),
        ("confidence", model.confidence),
    ]
    shown = tuple((Cell(name, "dim"), Cell(value)) for name, value in rows if value)
    return Table((Column("fact"), Column("value", fold=True)), shown, headless=True)


def _gpus(model: ServerModel, reading: Reading | None) -> str:
    """How many, and which: every one that it may have, if it is recognised."""
    if reading is None or reading.known.gpu is not None:
        return f"{model.gpus} x {model.gpu}"
    if not reading.known.telling or model.matrix is None:
        return f"{model.gpus}, model not known"
    return f"{model.gpus} x {listed(gpu_choices(reading))}"


def _link_rate(model: ServerModel, reading: Reading | None) -> str:
    if model.link_MBps is not None:
        return f"{number(model.link_MBps)} MB/s a link"
    if reading is None or not (reading.possible and reading.known.telling):
        return "not known"
    return f"{_one_of(one.model.link_MBps for one in reading.possible)} MB/s a link"


def _pcie(model: ServerModel, reading: Reading | None) -> str:
    assumed = () if reading is None else reading.assumed
    switch = f"{number(model.pcie_MBps)} MB/s under one switch"
    sockets = f"{number(model.sys_MBps)} MB/s between sockets"
    if "pcieMBps" not in assumed:
        return f"{switch}, {sockets}"
    if "sysMBps" in assumed:
        return f"taken to be {switch}, {sockets}"
    if reading is not None and reading.possible:
        switch = f"{_one_of(one.model.pcie_MBps for one in reading.possible)} MB/s under one switch"
        return f"{switch}, {sockets}"
    return f"{switch} (assumed), {sockets}"


def _one_of(rates: Iterable[int | None]) -> str:
    """``20,600 or 40,100``."""
    return listed([number(rate) for rate in sorted({rate for rate in rates if rate is not None})])


def _link(model: ServerModel) -> str:
    """What the vendor calls the links that the matrix writes NVn."""
    return {"AMD": "xGMI", "Intel": "RoCE"}.get(model.vendor or "", "NVLink")


def _fabric(model: ServerModel) -> str:
    link = _link(model)
    words = {
        "nvswitch": f"{link} through a switch: any set of GPUs reaches the full rate",
        "direct": f"{link} from GPU to GPU, no switch: which GPUs are chosen matters",
        "bridges": f"{link} bridges between some GPUs: which GPUs are chosen matters",
        "pcie": "PCIe only",
    }
    return words[model.fabric]


def _nic_summary(model: ServerModel) -> str:
    """``8 x 400 Gb/s`` by speed, fastest first."""
    speeds: dict[int | None, int] = {}
    for nic in model.nics:
        speeds[nic.megabits] = speeds.get(nic.megabits, 0) + 1
    ordered = sorted(speeds.items(), key=lambda item: -(item[0] or 0))
    return ", ".join(f"{count} x {_gigabits(speed)}" for speed, count in ordered) or "none"


def _gigabits(megabits: int | None) -> str:
    if megabits is None:
        return "unknown speed"
    whole, rest = divmod(megabits, 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + " Gb/s"


def _domain(model: ServerModel) -> str:
    if model.nvlink_domain_nodes == 1:
        return ""
    gpus = model.gpus * model.nvlink_domain_nodes
    return f"{model.nvlink_domain_nodes} such servers, {gpus} GPUs, share one NVLink fabric"


def links(model: ServerModel, reading: Reading | None = None) -> Table | None:
    """The link matrix with the NUMA node, CPUs, PCIe switch and near NICs of every GPU.

    Where the matrix is not known, NUMA nodes alone if a tool told them, otherwise None; behind a
    switch without one, every pair has all links.
    """
    matrix = model.matrix
    cpus = None if reading is None else reading.topology.cpus
    if matrix is None and reading is not None:
        matrix = ((),) * model.gpus
    if matrix is None:
        if not model.switched or model.gpus > MOST_COLUMNS:
            return None
        pair = f"NV{model.links_per_gpu}"
        gpus = range(model.gpus)
        matrix = tuple(tuple("X" if a == b else pair for b in gpus) for a in gpus)
    rows = tuple(
        (
            Cell(f"GPU{g}", "head"),
            *(Cell(cell, None if cell.startswith("NV") else "dim") for cell in row),
            Cell(_group(model.numa, g)),
            Cell((cpus[g] if cpus is not None else None) or ""),
            Cell(_group(model.pcie_switch, g)),
            Cell(_near(model, g)),
        )
        for g, row in enumerate(matrix)
    )
    columns = (f"GPU{g}" for g in range(len(matrix[0])))
    told = (
        Column("NUMA"),
        Column("CPUs", optional=True),
        Column("switch", optional=True),
        Column("near NICs", fold=True),
    )
    titles = (Column(""), *map(Column, columns), *told)
    return Table(titles, rows).without_empty_columns()


MOST_COLUMNS = 32
"""Most GPUs whose matrix is drawn where it says the same for every pair."""


def _group(groups: tuple[int | None, ...] | None, gpu: int) -> str:
    group = None if groups is None else groups[gpu]
    return "" if group is None else str(group)


def _near(model: ServerModel, gpu: int) -> str:
    """The NICs near a GPU by name; ``all`` if that is every one."""
    near = [nic.name for nic in model.nics if nic.gpus is None or gpu in nic.gpus]
    return "all" if len(near) == len(model.nics) > 1 else " ".join(near)
