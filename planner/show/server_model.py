"""A server model as tables for people, and as a YAML or JSON document for ``spec.serverModels``.

Rates are MB/s. Read back, a document is the same model; what is not known is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from models.documents.canonical import server_model_document
from models.hardware import slug
from models.units import number as exact
from models.units import plural
from planner.show.bandwidth_table import bandwidth_table, bandwidth_tables
from planner.show.cluster_map import natural
from planner.show.table import Cell, Column, Table, columns_of, pairs, row_of
from planner.show.text import gigabytes, listed, number, yaml_text

if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.read.topo.server_match import Match
    from planner.read.topo.server_model import Recognition

MAX_COLUMNS = 32
"""Most GPUs whose matrix is drawn where it says the same for every pair."""

MAX_NAMES = 6
"""Most servers listed by name before the rest is counted."""

_ASPECTS = {"pcie": "PCIe paths", "numa": "NUMA nodes", "nics": "NICs"}


def topology_tables(
    model: ServerModel, found: Recognition | None, *, wide: bool = False
) -> list[tuple[Table, ...]]:
    """Facts, link matrix, bandwidth table, or several below their headings.

    The tables of one tuple have no blank line between them. ``found``: of a tool's output.
    ``wide``: with predicted speeds even in a wide table.
    """
    matrix = links(model, found)
    parts = [(facts(model, found),), *([(matrix,)] if matrix is not None else [])]
    if found is None or not found.candidates:
        return [*parts, (bandwidth_table(model, wide=wide),)]
    rated = {gpu for one in found.candidates for gpu in one.gpus}
    unrated = [gpu for gpu in _gpu_choices(found) if gpu not in rated]
    return [*parts, *bandwidth_tables(model, found.candidates, unrated)]


def facts(model: ServerModel, found: Recognition | None = None) -> Table:
    """Name and value of what the model states."""
    recognised = []
    if found is not None:
        read, others = found.topology, [match for match in found.matches if match not in found.best]
        recognised = [
            ("read from", f"{read.file}:{read.line}, {read.tool}"),
            ("recognised as", _recognised(found)),
            ("numbering", _numbering(found.matches)),
            ("same links", _names(others)),
        ]
    rows = [
        ("server model", model.name),
        *recognised,
        ("also", ", ".join(model.aliases)),
        ("vendor", model.vendor),
        ("GPUs", _gpus(model, found)),
        ("fabric", _fabric(model)),
        (_link(model), _link_rate(model, found) if model.fabric != "pcie" else ""),
        ("PCIe", _pcie(model, found)),
        ("NICs", _nics(model)),
        ("NVLink domain", _domain(model)),
        ("GPU speed", _relative_speed(model)),
        *(("source", source) for source in model.sources),
        ("confidence", model.confidence),
    ]
    return pairs((name, value) for name, value in rows if value)


def _recognised(found: Recognition) -> str:
    if not found.best:
        what = "this matrix" if found.model.fabric == "pcie" else "these links"
        # Servers of other GPUs than the one the user names may have them.
        server = f"server of {found.gpu}" if found.excluded and found.gpu else "server"
        return f"nothing: no known {server} has {what}"
    best = found.best[0]
    links = [] if found.model.fabric == "pcie" else ["links"]
    text = f"the same {listed([*links, *(_ASPECTS[aspect] for aspect in best.same)], 'and')}"
    if best.differs:
        text += f", other {listed([_ASPECTS[aspect] for aspect in best.differs], 'and')}"
    return f"{_names(found.best)}: {text}"


def _numbering(matches: Sequence[Match]) -> str:
    """Which of the best known server's GPUs these are, where the numbers differ."""
    match = next(iter(_vendors_first(matches)), None)
    if match is None or not match.renumbered:
        return ""
    theirs = ",".join(map(str, match.gpus))
    return f"GPU 0 to {len(match.gpus) - 1} here are GPU {theirs} of {match.model.name}"


def _names(matches: Iterable[Match]) -> str:
    names = [match.model.name for match in _vendors_first(matches)]
    if len(names) > MAX_NAMES + 1:
        names = [*names[:MAX_NAMES], plural(len(names) - MAX_NAMES, "other")]
    return listed(names)


def _vendors_first(matches: Iterable[Match]) -> list[Match]:
    return sorted(matches, key=lambda match: commonness(match.model))


def commonness(model: ServerModel) -> int:
    """Sorts the vendor's own servers first, then others, then the names that clouds give them."""
    if model.name.startswith(("DGX", "HGX")):
        return 0
    clouds = ("AWS ", "Azure ", "GCP ", "OCI ")
    return 2 if model.name.startswith(clouds) or "cloud VM" in model.name else 1


def catalogue_table(models: Sequence[ServerModel]) -> Table:
    """One row a server model, 2xlarge before 12xlarge; aliases that its name does not contain."""
    rows = [
        row_of(
            Cell(model.name, "head"),
            str(model.gpus),
            model.gpu,
            model.fabric if model.fabric == "pcie" else f"{model.fabric}, {_link(model)}",
            _links_a_gpu(model),
            ", ".join(one for one in model.aliases if slug(one) not in slug(model.name)),
        )
        for model in sorted(models, key=lambda model: natural(model.name))
    ]
    return Table(columns_of("SERVER MODEL|>GPUS|GPU|FABRIC|>LINKS A GPU|ALIASES~"), tuple(rows))


def catalogue_document(model: ServerModel) -> dict[str, Any]:
    """What the catalogue's table says of a model, in the names of a server model's fields."""
    fields = ("name", "aliases", "vendor", "gpu", "gpus", "fabric", "linkMBps", "linksPerGpu")
    document = server_model_document(model).to_json()
    return {field: document.get(field) for field in fields}


def _links_a_gpu(model: ServerModel) -> str:
    """``18 x 20.6 GB/s``: number and rate of the links, as far as they are known."""
    if model.fabric == "pcie":
        return "-"
    count = "?" if model.links_per_gpu is None else str(model.links_per_gpu)
    return f"{count} x {'?' if model.link_MBps is None else gigabytes(model.link_MBps)} GB/s"


def _gpu_choices(found: Recognition) -> list[str]:
    """GPU models of the servers it may be, by link rate."""
    rated = [gpu for one in found.candidates for gpu in one.gpus]
    return list(dict.fromkeys([*rated, *(match.model.gpu for match in found.matches)]))


def advice(found: Recognition) -> list[str]:
    """What the user can do: name the GPU model, or use the known server as it is."""
    model = found.model
    lines = []
    linked = model.fabric != "pcie"
    if found.gpu is None and found.matches:
        choices = [f'"{gpu}"' if " " in gpu else gpu for gpu in _gpu_choices(found)]
        lines.append(f"hint: say which GPU it has with --gpu: {listed(choices)}")
    elif found.gpu is None and (found.assumed or (linked and model.link_MBps is None)):
        example = "MI210" if model.vendor == "AMD" else "A100"
        lines.append(f"hint: say which GPU it has, such as --gpu {example}")
    elif linked and model.link_MBps is None:
        lines.append("hint: -o yaml writes the model; add linkMBps, the MB/s of one link, to it")
    best = found.best
    if len(best) == 1 and not (best[0].renumbered or best[0].differs):
        theirs = best[0].model
        if bool(model.nics) == bool(theirs.nics):
            lines.append(f"next: nodes of this kind may say `model: {theirs.name}`")
    return lines


def _gpus(model: ServerModel, found: Recognition | None) -> str:
    """How many, and which; every GPU model it may have, if it is recognised."""
    if found is None or found.gpu is not None:
        return f"{model.gpus} x {model.gpu}"
    if not found.matches:
        return f"{model.gpus}, model not known"
    return f"{model.gpus} x {listed(_gpu_choices(found))}"


def _link_rate(model: ServerModel, found: Recognition | None) -> str:
    if model.link_MBps is not None:
        return f"{number(model.link_MBps)} MB/s a link"
    if found is None or not found.candidates:
        return "not known"
    return f"{_one_of(one.model.link_MBps for one in found.candidates)} MB/s a link"


def _pcie(model: ServerModel, found: Recognition | None) -> str:
    assumed = () if found is None else found.assumed
    switch = f"{number(model.pcie_MBps)} MB/s under one switch"
    sockets = f"{number(model.sys_MBps)} MB/s between sockets"
    if "pcieMBps" not in assumed:
        return f"{switch}, {sockets}"
    if "sysMBps" in assumed:
        return f"assumed: {switch}, {sockets}"
    if found is not None and found.candidates:
        rates = _one_of(one.model.pcie_MBps for one in found.candidates)
        return f"{rates} MB/s under one switch, {sockets}"
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


def _nics(model: ServerModel) -> str:
    """``8 x 400 Gb/s`` by speed, fastest first."""
    speeds: dict[int | None, int] = {}
    for nic in model.nics:
        speeds[nic.megabits] = speeds.get(nic.megabits, 0) + 1
    ordered = sorted(speeds.items(), key=lambda item: -(item[0] or 0))
    return (
        ", ".join(
            f"{count} x " + ("unknown speed" if speed is None else f"{speed / 1000:g} Gb/s")
            for speed, count in ordered
        )
        or "none"
    )


def _domain(model: ServerModel) -> str:
    if model.nvlink_domain_nodes == 1:
        return ""
    gpus = model.gpus * model.nvlink_domain_nodes
    return f"{model.nvlink_domain_nodes} such servers, {gpus} GPUs, share one NVLink fabric"


def _relative_speed(model: ServerModel) -> str:
    return (
        ""
        if model.relative_speed is None
        else f"{exact(model.relative_speed)}, relative to other models"
    )


def links(model: ServerModel, found: Recognition | None = None) -> Table | None:
    """The link matrix with the NUMA node, CPUs, PCIe switch and near NICs of every GPU.

    Behind a switch without a matrix every pair has all links; None for other models without one.
    """
    matrix = model.matrix
    cpus = None if found is None else found.topology.cpus
    if matrix is None:
        if not model.switched or model.gpus > MAX_COLUMNS:
            return None
        pair = f"NV{model.links_per_gpu}"
        gpus = range(model.gpus)
        matrix = tuple(tuple("X" if a == b else pair for b in gpus) for a in gpus)
    rows = tuple(
        row_of(
            Cell(f"GPU{g}", "head"),
            *(Cell(cell, None if cell.startswith("NV") else "dim") for cell in row),
            _group(model.numa, g),
            (cpus[g] if cpus is not None else None) or "",
            _group(model.pcie_switch, g),
            _near(model, g),
        )
        for g, row in enumerate(matrix)
    )
    columns = (
        Column(""),
        *(Column(f"GPU{g}") for g in range(len(matrix))),
        *columns_of("NUMA|CPUs?|switch?|near NICs~"),
    )
    return Table(columns, rows).without_empty_columns()


def _group(groups: tuple[int | None, ...] | None, gpu: int) -> str:
    group = None if groups is None else groups[gpu]
    return "" if group is None else str(group)


def _near(model: ServerModel, gpu: int) -> str:
    """The NICs near a GPU by name; ``all`` if that is every one."""
    near = [nic.name for nic in model.nics if nic.gpus is None or gpu in nic.gpus]
    return "all" if len(near) == len(model.nics) > 1 else " ".join(near)


_WITHOUT = {"aliases": [], "vendor": "", "sources": [], "confidence": "", "nics": [],
            "nvlinkDomainNodes": 1}  # fmt: skip
"""Fields that say nothing at these values."""


def model_document(model: ServerModel, assumed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document of a model without what is not known. ``assumed``: fields to leave out."""
    document = server_model_document(model).to_json()
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
    text = ""
    for key, value in document.items():
        if key == "matrix":
            width = max(len(cell) for row in value for cell in row) + 1
            rows = (
                "".join(f"{cell},".ljust(width + 1) for cell in row[:-1]) + row[-1] for row in value
            )
            text += "matrix:\n" + "".join(f"- [{row}]\n" for row in rows)
        elif key == "nics":
            text += "nics:\n" + "".join(f"- {yaml_text(nic, flow=True)}" for nic in value)
        else:
            text += yaml_text({key: value}, flow=None if key in ("numa", "pcieSwitch") else False)
    return text
