"""The server model of a topology: what the tool prints, and the rates of the GPU that the user names.

Nothing is invented: a value that neither the output nor the user gives is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel, slug
from models.rates.catalogue import relative_speed
from models.rates.server_bandwidth import link_count
from planner.errors import Fault, InputError
from planner.read.topo.topology import Topology, near_gpus, numa_ids, switch_groups

UNKNOWN_GPU = "unknown"
"""GPU model of a server where the user names none."""

PCIE_MBPS = 20000
SYS_MBPS = 10000
"""Defaults of a server model (``models.documents.server``)."""

MAX_LINKS = 18
"""Most NVLinks of any GPU: pairs that together have more go through a switch."""

_UNCOUNTED = (
    "rocm-smi does not count links, so each linked pair is taken to have one;"
    " edit the matrix if they have more"
)
_BRANDS = ("nvidia ", "amd ", "tesla ", "instinct ")

Matrix = tuple[tuple[str, ...], ...]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PrintedServer:
    """The server model of a topology. ``gpu``: the GPU model, None if the user names none.

    ``assumed``: fields that have a default, by their name in YAML. ``remarks``: one sentence each.
    """

    topology: Topology
    model: ServerModel
    gpu: str | None
    assumed: tuple[str, ...]
    remarks: tuple[str, ...]


def printed_server(
    topology: Topology,
    catalogue: Sequence[ServerModel],
    *,
    gpu: str | None = None,
    name: str | None = None,
) -> PrintedServer:
    """The server model of a topology. Raises InputError if no server model can describe it.

    ``gpu``: the GPU model by the user. ``name``: of the server model.
    """
    gpu = None if gpu is None else _gpu_name(gpu, catalogue)
    alike = [model for model in catalogue if gpu is not None and model.gpu == gpu]
    generation = None if gpu is None else generation_of(gpu)
    near = near_gpus(topology)
    fabric = _fabric(topology, generation)
    pcie = _agreed(model.pcie_MBps for model in alike)
    link = _agreed(model.link_MBps for model in alike if model.link_MBps is not None)
    if generation is not None:
        pcie, link = pcie or generation.pcie_MBps, link or generation.link_MBps
    model = ServerModel(
        name=name or f"{topology.gpus}x {gpu or 'GPU'}",
        gpu=gpu or UNKNOWN_GPU,
        gpus=topology.gpus,
        fabric=fabric,
        vendor=topology.vendor,
        matrix=topology.matrix,
        link_MBps=None if fabric == "pcie" else link,
        links_per_gpu=max(map(link_count, topology.matrix[0])) if fabric == "nvswitch" else None,
        numa=numa_ids(topology),
        pcie_switch=switch_groups(topology),
        nics=tuple(
            Nic(nic.name, None, gpus) for nic, gpus in zip(topology.nics, near, strict=True)
        ),
        pcie_MBps=pcie or PCIE_MBPS,
        sys_MBps=SYS_MBPS,
        relative_speed=None if gpu is None else relative_speed(gpu),
    )
    assumed = ("sysMBps",) if pcie else ("pcieMBps", "sysMBps")
    return PrintedServer(topology, model, gpu, assumed, tuple(_remarks(topology, near)))


def _gpu_name(stated: str, catalogue: Sequence[ServerModel]) -> str:
    """The GPU model of the catalogue with the longest name whose every word the user says, else as stated."""
    words = set(slug(stated).split("-"))
    named = {one.gpu for one in catalogue if set(slug(one.gpu).split("-")) <= words}
    if named:
        return max(named, key=lambda one: (len(one), one))  # H100 NVL before H100
    name = " ".join(stated.split())
    for brand in _BRANDS:
        if name.lower().startswith(brand) and len(name) > len(brand):
            name = name[len(brand) :]
    return name


def _agreed(values: Iterable[Value]) -> Value | None:
    """The one value among them; None if there are several, or none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _fabric(topology: Topology, generation: Generation | None) -> Fabric:
    """How the GPUs are linked. Raises InputError where a switch reaches only some of them."""
    matrix = topology.matrix
    counts = [[link_count(path) for path in row] for row in matrix]
    most = (generation.links if generation else None) or MAX_LINKS
    pairs = {n for a, row in enumerate(counts) for b, n in enumerate(row) if a != b}
    place = (topology.file, topology.line)
    if any(sum(row) > most for row in counts):
        if len(pairs) > 1:
            a, b = _least_linked(counts)
            what = (
                f"the GPUs are linked through a switch with NV{max(pairs)},"
                f" but GPU{a} and GPU{b} with {matrix[a][b]}"
            )
            hint = "are links or the fabric manager down? use a healthy server of this kind"
            raise InputError(Fault(what, hint, *place))
        return "nvswitch"
    if topology.gpus > MAX_MESH_GPUS:
        what = f"{topology.gpus} GPUs without a switch"
        hint = f"a server without NVSwitch may have at most {MAX_MESH_GPUS}"
        raise InputError(Fault(what, hint, *place))
    if not any(pairs):
        return "pcie"
    return "direct" if _connected(matrix) else "bridges"


def _least_linked(counts: list[list[int]]) -> tuple[int, int]:
    """Two GPUs that have the fewest links between them: one that many have few to, and another."""
    gpus = range(len(counts))
    first = min(gpus, key=lambda g: (sum(counts[g]), -g))
    return first, min((g for g in gpus if g != first), key=lambda g: (counts[first][g], g))


def _connected(paths: Matrix) -> bool:
    """Whether links lead from every GPU to every other, over others if need be."""
    group = list(range(len(paths)))
    for a, b in combinations(group, 2):
        if link_count(paths[a][b]):
            old, new = group[b], group[a]
            group = [new if g == old else g for g in group]
    return len(set(group)) == 1


def _remarks(topology: Topology, near: Sequence[tuple[int, ...] | None]) -> list[str]:
    remarks = list(topology.remarks)
    far = [nic.name for nic, gpus in zip(topology.nics, near, strict=True) if gpus == ()]
    if far:
        remarks.append(f"near no GPU, SYS to all: {', '.join(far)}")
    linked = any(link_count(path) for row in topology.matrix for path in row)
    return [*remarks, _UNCOUNTED] if linked and not topology.counted else remarks


@dataclass(frozen=True, slots=True)
class Generation:
    """MB/s of one NVLink and links of one GPU, None without NVLink; MB/s below one PCIe switch."""

    link_MBps: int | None
    links: int | None
    pcie_MBps: int


_GENERATIONS = {
    "p100": Generation(18000, 4, 10000),
    "v100 v100s": Generation(20000, 6, 10000),
    "2080 8000": Generation(20000, 2, 10000),
    "a100 a100x": Generation(20000, 12, 20000),
    "a800": Generation(20000, 8, 20000),
    "a30": Generation(20000, 4, 20000),
    "a40 a6000 a5500 a5000 a4500 3090": Generation(12000, 4, 20000),
    "h100 h200 h20 gh200": Generation(20600, 18, 40000),
    "h800": Generation(20600, 8, 40000),
    "b100 b200 b300 gb200 gb300": Generation(40100, 18, 40000),
    "k80 p4 p40 t4": Generation(None, None, 10000),
    "a2 a10 a10g a16 l4 l20 l40 l40s 4090": Generation(None, None, 20000),
    "5090": Generation(None, None, 40000),
}
"""Planning rates of the contract, section 1, by words of a GPU's name."""


def generation_of(gpu: str) -> Generation | None:
    """By a word of the name: ``NVIDIA H100 80GB HBM3``, ``RTX A6000``; None if no word is known."""
    words = slug(gpu).split("-")
    found = (one for names, one in _GENERATIONS.items() if set(names.split()) & set(words))
    return next(found, None)
