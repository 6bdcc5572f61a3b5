"""A server model as tables for people, and as a YAML or JSON document for ``spec.serverModels``.

Rates are rounded down. Read back, a document is the same model.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from models.documents.canonical import server_model_document
from models.rates.gpu_sets import UnknownRate
from models.rates.server_bandwidth import link_count, table
from models.units import number as exact
from planner.read.topo.server_model import known_paths
from planner.show.table import Cell, Column, Table, columns_of, pairs, row_of
from planner.show.text import gigabytes, listed, number, ranges, yaml_text

if TYPE_CHECKING:
    from fractions import Fraction

    from models.hardware import ServerModel
    from models.rates.server_bandwidth import TableRow
    from planner.read.topo.server_model import Recognition

MAX_PRICED = 8
"""Most GPUs without a switch of which every set is priced: 16 have 12,870 sets of eight."""

_ASPECTS = {"pcie": "PCIe paths", "numa": "NUMA nodes", "nics": "NICs"}

_LISTS = ("matrix", "numa", "pcieSwitch", "nics")
"""Fields whose innermost lists stand on a line each in YAML."""

_FABRICS = {
    "nvswitch": "through a switch: any set of GPUs reaches the full rate",
    "direct": "from GPU to GPU, no switch: which GPUs are chosen matters",
    "bridges": "bridges between some GPUs: which GPUs are chosen matters",
}


def topology_tables(model: ServerModel, found: Recognition | None) -> list[Table]:
    """Facts, link matrix and bandwidth table. ``found``: of a tool's output."""
    parts = (facts(model, found), links(model, found), bandwidth_table(model, found))
    return [part for part in parts if part is not None]


def facts(model: ServerModel, found: Recognition | None = None) -> Table:
    """Name and value of what the model states."""
    assumed = () if found is None else found.assumed
    switch = _rate(model.pcie_MBps, assumed="pcieMBps" in assumed)
    sockets = _rate(model.sys_MBps, assumed="sysMBps" in assumed)
    link = {"AMD": "xGMI", "Intel": "RoCE"}.get(model.vendor, "NVLink")
    linked = model.fabric != "pcie"
    gpu = model.gpu
    if found is not None and found.gpu is None:
        gpu = listed(found.possible_gpus) or "unknown model"
    domain = model.nvlink_domain_nodes
    speed = model.relative_speed
    rows = [
        ("server model", model.name),
        *([] if found is None else _recognised(found)),
        ("also", ", ".join(model.aliases)),
        ("vendor", model.vendor),
        ("GPUs", f"{model.gpus} x {gpu}"),
        ("fabric", f"{link} {_FABRICS[model.fabric]}" if linked else "PCIe only"),
        (link, f"{_links_a_gpu(model)} a GPU" if linked else ""),
        ("PCIe", f"{switch} under one switch, {sockets} between sockets"),
        ("NICs", _nics(model)),
        (
            "NVLink domain",
            f"{domain} such servers, {domain * model.gpus} GPUs, share one NVLink fabric"
            if domain > 1
            else "",
        ),
        ("GPU speed", "" if speed is None else f"{exact(speed)}, relative to other models"),
        *(("source", source) for source in model.sources),
        ("confidence", model.confidence),
    ]
    return pairs((name, value) for name, value in rows if value)


def _recognised(found: Recognition) -> list[tuple[str, str]]:
    """Where it was read, the known servers that are closest, and which GPU is which of theirs."""
    read = found.topology
    source = ("read from", f"{read.file}:{read.line}, {read.tool}")
    best = sorted(found.best, key=lambda match: commonness(match.model))
    if not best:
        return [source, ("recognised as", "no server of the catalogue")]
    first = best[0]
    names = listed([match.model.name for match in best])
    same = ["links", *(_ASPECTS[aspect] for aspect in first.same)]
    text = f"{names}: the same {listed(same, 'and')}"
    if first.differs:
        text += f", other {listed([_ASPECTS[aspect] for aspect in first.differs], 'and')}"
    rows = [source, ("recognised as", text)]
    if first.renumbered:
        theirs = ",".join(map(str, first.gpus))
        text = f"GPU 0 to {len(first.gpus) - 1} here are GPU {theirs} of {first.model.name}"
        rows.append(("numbering", text))
    return rows


def commonness(model: ServerModel) -> int:
    """Sorts the vendor's own servers first, then others, then the names that clouds give them."""
    if model.name.startswith(("DGX", "HGX")):
        return 0
    clouds = ("AWS ", "Azure ", "GCP ", "OCI ")
    return 2 if model.name.startswith(clouds) or "cloud VM" in model.name else 1


def _rate(MBps: int | None, *, assumed: bool = False) -> str:
    known = "?" if MBps is None else gigabytes(MBps)
    return f"{known} GB/s (assumed)" if assumed else f"{known} GB/s"


def _links_a_gpu(model: ServerModel) -> str:
    """``18 x 20.6 GB/s``: number and rate of the links, as far as they are known."""
    if model.fabric == "pcie":
        return "-"
    return f"{model.links_per_gpu or '?'} x {_rate(model.link_MBps)}"


def _nics(model: ServerModel) -> str:
    """``8 x 400 Gb/s`` by speed, fastest first."""
    speeds = Counter(nic.megabits or 0 for nic in model.nics)
    shown = [
        f"{count} x " + (f"{speed / 1000:g} Gb/s" if speed else "unknown speed")
        for speed, count in sorted(speeds.items(), reverse=True)
    ]
    return ", ".join(shown) or "none"


def advice(found: Recognition) -> list[str]:
    """What the user can do: name the GPU model, or use the known server as it is."""
    model = found.model
    lines = []
    if found.gpu is None:
        names = listed([shlex.quote(gpu) for gpu in found.possible_gpus])
        lines.append(f"hint: say which GPU it has with --gpu{names and f': {names}'}")
    elif model.fabric != "pcie" and model.link_MBps is None:
        lines.append("hint: -o yaml writes the model; add linkMBps, the MB/s of one link, to it")
    if len(found.best) == 1:
        (best,) = found.best
        if not (best.renumbered or best.differs) and bool(model.nics) == bool(best.model.nics):
            lines.append(f"next: nodes of this kind may say `model: {best.model.name}`")
    return lines


def links(model: ServerModel, found: Recognition | None = None) -> Table | None:
    """The link matrix with the NUMA node, CPUs, PCIe switch and near NICs of every GPU.

    Behind a switch without a matrix every pair has all links; None for other models without one.
    """
    if model.matrix is None and not model.switched:
        return None
    cpus = None if found is None else found.topology.cpus
    rows = tuple(
        row_of(
            Cell(f"GPU{g}", "head"),
            *(Cell(path, None if link_count(path) else "dim") for path in paths),
            *(
                "" if values is None or values[g] is None else str(values[g])
                for values in (model.numa, cpus, model.pcie_switch)
            ),
            _near(model, g),
        )
        for g, paths in enumerate(known_paths(model))
    )
    gpus = (Column(f"GPU{g}") for g in range(model.gpus))
    columns = (Column(""), *gpus, *columns_of("NUMA|CPUs?|switch?|near NICs~"))
    return Table(columns, rows).without_empty_columns()


def _near(model: ServerModel, gpu: int) -> str:
    """The NICs near a GPU by name; ``all`` if that is every one."""
    near = [nic.name for nic in model.nics if nic.gpus is None or gpu in nic.gpus]
    return "all" if len(near) == len(model.nics) > 1 else " ".join(near)


def bandwidth_table(model: ServerModel, found: Recognition | None = None) -> Table:
    """One row for the sets of one size that reach the same: inside, and over several servers.

    If the rate of a link depends on which GPU of ``found`` it is: at the slowest rates.
    """
    slowest = None if found is None else _slowest(found)
    notes = []
    if slowest is not None:
        link, pcie = slowest.link_MBps, slowest.pcie_MBps
        model = replace(model, link_MBps=link, pcie_MBps=pcie)
        notes.append(
            f"If its GPUs are {slowest.gpu}: {_rate(link)} a link, {_rate(pcie)} under one PCIe"
            " switch. --gpu shows the table of another."
        )
    every = model.switched or model.gpus <= MAX_PRICED
    sizes = range(1, model.gpus + 1) if every else (1, 2, model.gpus)
    try:
        rows = table(model, sizes)
    except UnknownRate as unknown:
        return Table((), (), (f"no bandwidth table: {unknown}",))
    columns = columns_of(">GPUs|>inside|>rings|>chains?|>sets|such as|>NICs|>several servers")
    cells = tuple(_row(row, has_nics=bool(model.nics)) for row in rows)
    shown = Table(columns, cells).without_empty_columns()
    notes.append("MB/s, one direction, rounded down; `inside`: among these GPUs of one server.")
    if shown.columns[-1].title == "several servers":
        notes.append(
            "`NICs`: out of the server; `several servers`: this many GPUs on each of two or more,"
            " no oversubscription between them."
        )
    if not every:
        notes.append(f"Not listed: sets of 3 to {model.gpus - 1} GPUs.")
    if not model.nics or any(nic.megabits is None for nic in model.nics):
        notes.append(
            "NICs or their speeds are not known: give nodes of this model their own `nics`."
        )
    return replace(shown, notes=tuple(notes))


def _slowest(found: Recognition) -> ServerModel | None:
    """If its GPU model and the rate of its links are open: the known server with the slowest links."""
    if found.gpu is not None or found.model.link_MBps is not None:
        return None
    rated = [match.model for match in found.matches if match.model.link_MBps is not None]
    return min(rated, key=lambda one: (one.link_MBps or 0, one.pcie_MBps), default=None)


def _row(row: TableRow, *, has_nics: bool) -> tuple[Cell, ...]:
    out = row.out if has_nics else None
    return row_of(
        str(row.gpus),
        "unlimited" if row.inside is None else number(math.floor(row.inside)),
        str(row.rings or "-"),
        str(row.chains or "-"),
        number(row.subsets),
        ranges(row.example),
        _range(out),
        _range(out, row.inside),
    )


def _range(rates: tuple[Fraction, Fraction] | None, most: Fraction | None = None) -> str:
    """``12,500-25,000``, neither above ``most``; once if equal."""
    if rates is None:
        return "-"
    within = [rate if most is None else min(rate, most) for rate in rates]
    return "-".join(dict.fromkeys(number(math.floor(rate)) for rate in within))


def catalogue_table(models: Sequence[ServerModel]) -> Table:
    """One row a server model."""
    rows = [
        row_of(
            Cell(model.name, "head"),
            str(model.gpus),
            model.gpu,
            model.fabric,
            _links_a_gpu(model),
            ", ".join(model.aliases),
        )
        for model in models
    ]
    return Table(columns_of("SERVER MODEL|>GPUS|GPU|FABRIC?|>LINKS A GPU?|ALIASES~"), tuple(rows))


def model_document(model: ServerModel) -> dict[str, Any]:
    """The document of a model without what a reader takes anyway."""
    document = server_model_document(model)
    return document.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def model_yaml(document: dict[str, Any]) -> str:
    """The document with a row of the matrix a line."""
    return "".join(
        yaml_text({field: value}, flow=None if field in _LISTS else False)
        for field, value in document.items()
    )
