"""A topology and what is known of servers like it, to a server model and what to say of it.

Promises: a model that ``models.documents.server`` accepts (but for one of NUMA nodes alone, which
has no matrix), nothing invented: what neither the text nor the servers of these links tell is left
out. Called by the verb ``topo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel
from planner.errors import Fault, InputError
from planner.reading.matrices.choosing import Known, choose
from planner.reading.matrices.generations import MOST_LINKS, generation
from planner.reading.matrices.nearness import near_gpus, numa_ids, switch_groups
from planner.reading.matrices.recognising import (
    Likeness,
    Near,
    Printed,
    connected,
    known_paths,
    recognise,
)
from planner.reading.matrices.topology import Topology, link_count, runs

UNKNOWN_GPU = "unknown"
"""GPU model of a server whose matrix servers of several GPU models share."""

PCIE_MBPS = 20000
SYS_MBPS = 10000
"""What a server model has that does not say it (``models.documents.server``)."""

_UNCOUNTED = (
    "rocm-smi does not count links, so each linked pair is taken to have one;"
    " add the output of `rocm-smi --shownodesbw` if they have more"
)

Matrix = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user says of the server: the GPU model, and a name for the server model."""

    gpu: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Possible:
    """The model that it is if its GPUs are those of ``gpus``."""

    gpus: tuple[str, ...]
    model: ServerModel


@dataclass(frozen=True, slots=True)
class Reading:
    """One topology as a server model. ``known``: the servers it may be, as far as told apart.

    ``assumed``: fields of the model that nothing tells, by their name in YAML; it has the defaults.
    ``remarks``: what was concluded, left out or odd, one sentence each. ``possible``: the model
    by GPUs that it may have, where the rate of its links depends on them (see ``possible``).
    """

    topology: Topology
    model: ServerModel
    known: Known
    assumed: tuple[str, ...]
    remarks: tuple[str, ...]
    possible: tuple[Possible, ...] = ()


def read_model(topology: Topology, choice: Choice, catalogue: Sequence[ServerModel]) -> Reading:
    """The server model of a topology. Raises InputError for one that no server model can tell."""
    numa = numa_ids(topology)
    if topology.matrix is None:
        return _by_nodes(topology, numa, choice, catalogue)
    near = near_gpus(topology)
    printed = Printed(topology.maker, topology.matrix, topology.counted, numa, near)
    return by_matrix(topology, topology.matrix, recognise(printed, catalogue), choice)


def by_matrix(
    topology: Topology, printed: Matrix, found: Sequence[Likeness], choice: Choice
) -> Reading:
    """The server model of the matrix of a topology. ``found``: known servers of the same links.

    Raises InputError as ``read_model``.
    """
    numa, near = numa_ids(topology), near_gpus(topology)
    known = choose(topology, found, choice.gpu)
    matrix, counted = _counted(topology, printed, known)
    fabric = _fabric(topology, matrix, known)
    told = None if known.gpu is None else generation(known.gpu)
    pcie = known.agreed(lambda model: model.pcie_MBps) or (told.pcie_MBps if told else None)
    sockets = known.agreed(lambda model: model.sys_MBps)
    speeds = _speeds(near, known, topology.gpus)
    model = ServerModel(
        name=choice.name or _name(topology, known),
        gpu=known.gpu or UNKNOWN_GPU,
        gpus=topology.gpus,
        fabric=fabric,
        vendor=topology.maker,
        matrix=matrix,
        link_MBps=_link_rate(fabric, known),
        links_per_gpu=_links_per_gpu(matrix, fabric, known),
        numa=numa,
        pcie_switch=switch_groups(topology),
        nics=tuple(
            Nic(nic.name, speed, gpus)
            for nic, speed, gpus in zip(topology.nics, speeds, near, strict=True)
        ),
        nvlink_domain_nodes=_domain_nodes(fabric, known),
        pcie_MBps=pcie or PCIE_MBPS,
        sys_MBps=sockets or SYS_MBPS,
    )
    rates = {"pcieMBps": pcie, "sysMBps": sockets}
    assumed = tuple(name for name, rate in rates.items() if rate is None)
    remarks = (*_remarks(topology, near, known), *counted)
    return Reading(topology, model, known, assumed, remarks)


def _counted(topology: Topology, matrix: Matrix, known: Known) -> tuple[Matrix, tuple[str, ...]]:
    """The matrix with the links counted, where the tool does not and the one known server does."""
    if topology.counted or all(link_count(path) == 0 for row in matrix for path in row):
        return matrix, ()
    best = known.best
    if len(best) == 1 and best[0].whole:
        paths = known_paths(best[0].model)
        # Under another numbering several GPUs could be meant, with other counts.
        if all(link_count(path) <= 1 for row in paths for path in row):
            return matrix, ()
        if not best[0].renumbered and "numa" in best[0].same:
            counted = tuple(
                tuple(paths[a][b] if link_count(path) else path for b, path in enumerate(row))
                for a, row in enumerate(matrix)
            )
            name = best[0].model.name
            return counted, (f"rocm-smi does not count links: counted as on {name}",)
    if best and all(
        link_count(path) <= 1 for like in best for row in known_paths(like.model) for path in row
    ):
        return matrix, ()
    return matrix, (_UNCOUNTED,)


def _fabric(topology: Topology, matrix: Matrix, known: Known) -> Fabric:
    """How the GPUs are linked. Raises InputError where a switch reaches only some of them."""
    counts = [[link_count(path) for path in row] for row in matrix]
    told = None if known.gpu is None else generation(known.gpu)
    most = (told.links if told else None) or MOST_LINKS
    pairs = {n for a, row in enumerate(counts) for b, n in enumerate(row) if a != b}
    place = (topology.file, topology.line)
    if any(sum(row) > most for row in counts):
        if len(pairs) > 1:
            a, b = _least_linked(counts)
            here, there = topology.numbers[a], topology.numbers[b]
            what = (
                f"the GPUs are linked through a switch with NV{max(pairs)},"
                f" but GPU{here} and GPU{there} with {matrix[a][b]}"
            )
            hint = "are links or the fabric manager down? take a server of this kind that is sound"
            raise InputError(Fault(what, hint, *place))
        return "nvswitch"
    if len(pairs) == 1 and known.agreed(lambda model: model.fabric) == "nvswitch":
        return "nvswitch"
    if topology.gpus > MAX_MESH_GPUS:
        what = f"{topology.gpus} GPUs without a switch"
        hint = f"a server without NVSwitch may have at most {MAX_MESH_GPUS}"
        raise InputError(Fault(what, hint, *place))
    if not any(pairs):
        return "pcie"
    whole = {like.model.fabric for like in known.best if like.whole}
    if len(whole) == 1:
        return whole.pop()
    return "direct" if connected(matrix) else "bridges"


def _least_linked(counts: list[list[int]]) -> tuple[int, int]:
    """Two GPUs that have the fewest links between them: one that many have few to, and another."""
    gpus = range(len(counts))
    first = min(gpus, key=lambda g: (sum(counts[g]), -g))
    return first, min((g for g in gpus if g != first), key=lambda g: (counts[first][g], g))


def _link_rate(fabric: Fabric, known: Known) -> int | None:
    """MB/s of one link: of all servers of these links, or of the generation of the GPU."""
    if fabric == "pcie":
        return None
    rate = known.agreed(lambda model: model.link_MBps)
    if rate is None and known.gpu is not None and (told := generation(known.gpu)) is not None:
        return told.link_MBps
    return rate


def _links_per_gpu(matrix: Matrix, fabric: Fabric, known: Known) -> int | None:
    if fabric == "nvswitch":
        return max(link_count(path) for path in matrix[0]) or None
    if fabric == "pcie":
        return None
    links = known.agreed(lambda model: model.links_per_gpu)
    most = max(sum(link_count(path) for path in row) for row in matrix)
    return links if links is not None and links >= most else None


def _domain_nodes(fabric: Fabric, known: Known) -> int:
    """Servers of one NVLink domain, where it is certain that all of the server's GPUs are seen."""
    if fabric != "nvswitch" or known.parts:
        return 1
    return known.agreed(lambda model: model.nvlink_domain_nodes) or 1


def _speeds(near: Near, known: Known, gpus: int) -> tuple[int | None, ...]:
    """Mbit/s of each NIC: where the closest servers have the same NICs and agree on the speed."""
    alike = known.best if known.best and all("nics" in like.same for like in known.best) else ()
    told = []
    for own in near:
        speeds: set[int | None] = set()
        for like in alike:
            place = None if own is None else tuple(sorted(like.gpus[g] for g in own))
            speeds |= {
                nic.megabits
                for nic in like.model.nics
                if nic.gpus == place or (place is None and len(nic.gpus or ()) == gpus)
            }
        told.append(speeds.pop() if len(speeds) == 1 else None)
    return tuple(told)


def _name(topology: Topology, known: Known) -> str:
    best = known.best
    if len(best) == 1 and best[0].whole:
        how = "numbered otherwise" if best[0].renumbered else "as read"
        return f"{best[0].model.name} ({how})"
    plain = f"{topology.gpus}x {known.gpu or 'GPU'}"
    return f"{plain} (part of {best[0].model.name})" if len(best) == 1 else plain


def _remarks(topology: Topology, near: Near, known: Known) -> tuple[str, ...]:
    remarks = list(topology.remarks)
    if topology.numbers != tuple(range(topology.gpus)):
        remarks.append(
            f"GPUs are numbered {runs(topology.numbers)} here, 0 to {topology.gpus - 1} in the model"
        )
    far = [nic.name for nic, gpus in zip(topology.nics, near, strict=True) if gpus == ()]
    if far:
        remarks.append(f"near no GPU, SYS to all: {', '.join(far)}")
    if known.by == "text":
        remarks.append(f"GPU model {known.gpu} by the text beside the matrix")
    if known.by == "option" and not known.all and known.others:
        remarks.append(f"no known server with these links has GPU model {known.gpu}")
    return tuple(remarks)


def _by_nodes(
    topology: Topology,
    numa: tuple[int | None, ...] | None,
    choice: Choice,
    catalogue: Sequence[ServerModel],
) -> Reading:
    """A model of NUMA nodes alone; its links are known where the user says the GPU model."""
    gpus = tuple(range(topology.gpus))
    found = [
        Likeness(model, gpus, whole=True, same=("numa",), differs=())
        for model in catalogue
        if model.vendor == topology.maker and model.gpus == topology.gpus and model.numa == numa
    ]
    known = choose(topology, found, choice.gpu)
    name = choice.name or (
        f"{topology.gpus}x {known.gpu if known.by == 'option' and known.gpu else 'GPU'}"
    )
    remarks = [*_remarks(topology, (), known), "NUMA nodes alone: rocm-smi --showtopo prints links"]
    if known.by == "option" and len(known.whole) == 1:
        like = known.whole[0].model
        model = replace(like, name=name, aliases=(), nics=(), sources=(), confidence="")
        return Reading(
            topology, model, known, (), (*remarks[:-1], f"links are those of {like.name}")
        )
    model = ServerModel(name, known.gpu or UNKNOWN_GPU, topology.gpus, "direct",
                        vendor=topology.maker, numa=numa)  # fmt: skip
    if known.by == "links":  # NUMA nodes alone do not tell a GPU
        known = replace(known, gpu=None, by=None)
        model = replace(model, gpu=UNKNOWN_GPU)
    return Reading(topology, model, known, ("pcieMBps", "sysMBps"), tuple(remarks))
