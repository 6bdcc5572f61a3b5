"""A topology and what is known of servers like it, to a server model and what to say of it.

Promises: a model that ``models.documents.server`` accepts (but for one of NUMA nodes alone, which
has no matrix), nothing invented: what neither the text nor the servers of these links tell is left
out. Called by the verb ``topo``.

Which of the servers with these links it is: by what the user says, or the text beside the matrix.

Promises: a GPU model is named only if it was said or if all servers of these links have it.
Called by ``modelling``.

The server model by every GPU model it may have, where the matrix leaves the rate of a link open.

Promises: each is what ``--gpu`` would make of it, but for its name and NICs; none is invented where
the text or the user names the GPU. Called by ``planner.read.model_files``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel, slug
from planner.errors import Fault, InputError
from planner.read.topo.generations import (
    MOST_LINKS,
    generation,
    linkable,
    near_gpus,
    numa_ids,
    switch_groups,
)
from planner.read.topo.matrix_match import (
    Likeness,
    Near,
    Printed,
    connected,
    known_paths,
    recognise,
)
from planner.read.topo.topology import Topology, link_count, runs

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


Value = TypeVar("Value")
Source = Literal["option", "text", "links"]

_BRANDS = ("nvidia ", "amd ", "tesla ", "instinct ")


@dataclass(frozen=True, slots=True)
class Known:
    """Servers of the same links, those of another GPU than was said left out.

    ``whole``: all of their GPUs, the closest first. ``parts``: larger ones it may be a part of.
    ``telling``: whether the links leave little doubt that it is one of these. ``others``: those
    left out. ``gpu``: the GPU model, None if not known; ``by``: who says so.
    """

    whole: tuple[Likeness, ...]
    parts: tuple[Likeness, ...]
    others: tuple[Likeness, ...]
    telling: bool
    gpu: str | None
    by: Source | None

    @property
    def all(self) -> tuple[Likeness, ...]:
        """Whole ones, then parts."""
        return (*self.whole, *self.parts)

    @property
    def best(self) -> tuple[Likeness, ...]:
        """The closest, all that are equally close; none if the links leave it open."""
        if not self.telling:
            return ()
        first = self.all[0]
        group = self.whole or self.parts
        return tuple(like for like in group if like.closeness == first.closeness)

    def agreed(self, value: Callable[[ServerModel], Value | None]) -> Value | None:
        """What all of them say; None if they differ, or leave it open whether it is one of them."""
        values = [value(like.model) for like in self.all] if self.telling else []
        return values[0] if values and all(other == values[0] for other in values) else None


def choose(topology: Topology, found: Sequence[Likeness], said: str | None) -> Known:
    """Those of ``found`` that it may be. ``said``: the GPU model by the user, who is believed."""
    pool = _coherent(topology, found)
    name = said or topology.product
    by: Source | None = None if name is None else ("option" if said else "text")
    gpu = None
    if name is not None:
        gpu = _named(name, {like.model.gpu for like in pool})
        if gpu is None and by == "text" and pool and _is_telling(topology, pool):
            by = None  # the text beside may be of another machine, the matrix is not
        elif gpu is None:
            gpu, pool = _without_brand(name), []
        else:
            pool = [like for like in pool if like.model.gpu == gpu]
    telling = bool(pool) and (by is not None or _is_telling(topology, pool))
    if by is None and telling and len({like.model.gpu for like in pool}) == 1:
        gpu, by = pool[0].model.gpu, "links"
    return Known(
        whole=tuple(like for like in pool if like.whole),
        parts=tuple(like for like in pool if not like.whole),
        others=tuple(like for like in found if like not in pool),
        telling=telling,
        gpu=gpu,
        by=by,
    )


def _coherent(topology: Topology, found: Sequence[Likeness]) -> list[Likeness]:
    """GPU memory that is a NUMA node of its own is that of a Grace superchip."""
    grace = [like for like in found if like.model.gpu.startswith(("GB", "GH"))]
    own = topology.own_numa
    return grace if grace and own is not None and None not in own else list(found)


def _named(name: str, gpus: set[str]) -> str | None:
    """The GPU model whose every word is in the name, the longest: H100 NVL before H100."""
    words = set(slug(name).split("-"))
    fitting = [gpu for gpu in gpus if set(slug(gpu).split("-")) <= words]
    return max(fitting, key=lambda gpu: (len(gpu), gpu), default=None)


def _without_brand(name: str) -> str:
    name = " ".join(name.split())
    for brand in _BRANDS:
        if name.lower().startswith(brand) and len(name) > len(brand):
            name = name[len(brand) :]
    return name


def _is_telling(topology: Topology, pool: Sequence[Likeness]) -> bool:
    """Whether links like these are found in such servers alone.

    A whole server is told by its links. Of a part three GPUs or more, that are linked unequally or
    by more links than a GPU has for its neighbours, so that there is a switch: two linked GPUs
    stand in any workstation.
    """
    if any(like.whole for like in pool):
        return True
    if topology.matrix is None or topology.gpus < 3:
        return False
    counts = [[link_count(path) for path in row] for row in topology.matrix]
    unequal = len({n for a, row in enumerate(counts) for b, n in enumerate(row) if a != b}) > 1
    return unequal or sum(counts[0]) > MOST_LINKS


def possibilities(reading: Reading) -> tuple[Possible, ...]:
    """One for every distinct model, the slowest links first; none if the rate is known, or no GPU is.

    Of a server that is recognised the GPUs of the servers it may be. So few links as tell little
    may also be those of any common GPU that is linked like this.
    """
    matrix, model = reading.topology.matrix, reading.model
    if matrix is None or reading.known.gpu is not None:
        return ()
    if model.link_MBps is not None or model.fabric == "pcie":
        return ()
    groups: dict[ServerModel, list[str]] = {}
    for gpu in dict.fromkeys(_gpus(reading, matrix)):
        possible = _by_gpu(reading, matrix, gpu)
        if possible is not None:
            groups.setdefault(possible, []).append(gpu)
    found = [Possible(tuple(gpus), possible) for possible, gpus in groups.items()]
    return tuple(sorted(found, key=lambda possible: _rates(possible.model)))


def _rates(model: ServerModel) -> tuple[int, int, int]:
    return (model.link_MBps or 0, model.pcie_MBps, model.sys_MBps)


def _gpus(reading: Reading, matrix: Matrix) -> Iterable[str]:
    yield from (like.model.gpu for like in reading.known.all)
    if not reading.known.telling and reading.topology.maker == "NVIDIA":
        counts = [[link_count(path) for path in row] for row in matrix]
        pairs = {count for row in counts for count in row if count}
        yield from linkable(pairs, max(map(sum, counts)))


def _by_gpu(reading: Reading, matrix: Matrix, gpu: str) -> ServerModel | None:
    """The model with this GPU; None if that has no such links, or the rate of one is not known."""
    known = reading.known
    found = (*known.all, *known.others)
    try:
        model = by_matrix(reading.topology, matrix, found, Choice(gpu)).model
    except InputError:
        return None  # a switch that reaches some: this GPU has fewer links than the others have
    if model.link_MBps is None:
        return None
    # Which NICs it has does not depend on the GPU; the speeds are those of the closest servers.
    return replace(
        model,
        name=reading.model.name,
        gpu=reading.model.gpu,
        links_per_gpu=model.links_per_gpu if model.switched else reading.model.links_per_gpu,
        nics=reading.model.nics,
        nvlink_domain_nodes=reading.model.nvlink_domain_nodes,
    )
