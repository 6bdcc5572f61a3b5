"""The server model of a topology: what the tool prints, and what servers of these links agree on.

Nothing is invented: a value that neither the output, the matching servers nor the user gives is
left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, compress, product
from typing import Any, NamedTuple

from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel, slug
from models.rates.catalogue import relative_speed
from models.rates.server_bandwidth import link_count
from planner.errors import Fault, InputError
from planner.read.topo.tools import Topology, near_gpus, numa_ids, switch_groups

Colours = Sequence[Sequence[Hashable]]
"""``[a][b]``: what joins a and b; ``[a][a]``: what a is."""

Matrix = tuple[tuple[str, ...], ...]
Numa = tuple[int | None, ...] | None
Near = Sequence[tuple[int, ...] | None]

ASPECTS = ("pcie", "numa", "nics")
"""What ranks servers of the same links, the most significant first."""

INFERRED = "links inferred"
"""How ``confidence`` begins where nobody printed the links of a server: none is recognised by them."""

MAX_STEPS = 20_000
"""Steps before the search gives up; a server of the catalogue takes a few hundred."""


@dataclass(frozen=True, slots=True)
class Match:
    """A server of the same links. ``gpus[g]``: its number of the GPU printed as g.

    ``same`` and ``differs``: ASPECTS that agree and that do not; the others cannot be compared.
    """

    model: ServerModel
    gpus: tuple[int, ...]
    same: tuple[str, ...]
    differs: tuple[str, ...]

    @property
    def closeness(self) -> tuple[int, ...]:
        """Larger is closer: by aspect, same 2, not known 1, different 0."""
        return tuple(
            2 if aspect in self.same else 0 if aspect in self.differs else 1 for aspect in ASPECTS
        )

    @property
    def renumbered(self) -> bool:
        """Whether its GPUs have other numbers than those printed."""
        return self.gpus != tuple(range(len(self.gpus)))


def matching_servers(topology: Topology, models: Sequence[ServerModel]) -> tuple[Match, ...]:
    """Servers of the same links, the closest first."""
    known = [one for one in models if one.gpus > 1 and not one.confidence.startswith(INFERRED)]
    found = [match for model in known if (match := _match(topology, model)) is not None]
    return tuple(sorted(found, key=lambda match: match.closeness, reverse=True))


def _match(topology: Topology, model: ServerModel) -> Match | None:
    """The match in as many aspects as agree at once; None for other links."""
    if model.vendor != topology.vendor or model.gpus != topology.gpus:
        return None
    if not model.switched and (model.matrix is None or model.gpus > MAX_MESH_GPUS):
        return None
    comparable = list(_comparable(topology, model))
    needed: tuple[str, ...] = ()
    if not any(link_count(path) for row in topology.matrix for path in row):
        # Without links the PCIe paths are all there is to compare.
        if model.fabric != "pcie" or "pcie" not in comparable:
            return None
        needed = ("pcie",)
    near, theirs = near_gpus(topology), [nic.gpus for nic in model.nics]
    numa, paths = numa_ids(topology), known_paths(model)

    def renumbered(aspects: Sequence[str]) -> tuple[int, ...] | None:
        counted = topology.counted
        printed = _colours(topology.matrix, numa, near, aspects, counted=counted)
        return isomorphism(printed, _colours(paths, model.numa, theirs, aspects, counted=counted))

    if renumbered(()) is None:
        return None
    for kept in product((True, False), repeat=len(comparable)):  # earlier aspects count more
        chosen = tuple(compress(comparable, kept))
        if not set(needed) <= set(chosen):
            continue
        gpus = renumbered(chosen)
        if gpus is not None and ("nics" not in chosen or _same_nics(near, model, gpus)):
            differs = tuple(aspect for aspect in comparable if aspect not in chosen)
            return Match(model, gpus, chosen, differs)
    return None


def _comparable(topology: Topology, model: ServerModel) -> Iterator[str]:
    if model.matrix is not None and any(
        not link_count(path) and path != "X" for row in topology.matrix for path in row
    ):
        yield "pcie"
    if all(numa is not None and None not in numa for numa in (numa_ids(topology), model.numa)):
        yield "numa"
    if topology.nics and model.nics:
        yield "nics"


def _colours(
    paths: Matrix, numa: Numa, near: Near, aspects: Sequence[str], *, counted: bool
) -> Colours:
    gpus = range(len(paths))
    nics = [frozenset(n for n, some in enumerate(near) if some is None or g in some) for g in gpus]

    def colour(a: int, b: int) -> Hashable:
        links = link_count(paths[a][b])
        return (
            links if counted else min(1, links),
            paths[a][b] if "pcie" in aspects and not links else "",
            numa is not None and numa[a] == numa[b] if "numa" in aspects else None,
            len(nics[a] & nics[b]) if "nics" in aspects else None,
        )

    return [[colour(a, b) for b in gpus] for a in gpus]


def _same_nics(near: Near, model: ServerModel, gpus: Sequence[int]) -> bool:
    everything = tuple(range(model.gpus))
    here = sorted(
        everything if own is None else tuple(sorted(gpus[g] for g in own)) for own in near
    )
    return here == sorted(everything if nic.gpus is None else nic.gpus for nic in model.nics)


def known_paths(model: ServerModel) -> Matrix:
    """The matrix of a known server; behind a switch every pair has all links."""
    if model.matrix is not None:
        return model.matrix
    gpus = range(model.gpus)
    return tuple(tuple("X" if a == b else f"NV{model.links_per_gpu}" for b in gpus) for a in gpus)


def isomorphism(one: Colours, other: Colours) -> tuple[int, ...] | None:
    """A permutation p with one[a][b] == other[p[a]][p[b]] for all a, b; the identity if it fits.

    None if there is none, or if it was not found in MAX_STEPS steps. ``other`` has the size of
    ``one``; both are symmetric.
    """
    size = len(one)
    if all(list(one[a]) == list(other[a]) for a in range(size)):
        return tuple(range(size))
    mine, theirs = ([_kind(row, v) for v, row in enumerate(some)] for some in (one, other))
    candidates = [[x for x in range(size) if theirs[x] == kind] for kind in mine]
    # Few candidates first, so that a dead end shows early.
    order = sorted(range(size), key=lambda a: (len(candidates[a]), a))
    image = [-1] * size
    used: set[int] = set()
    steps = 0

    def extend(depth: int) -> bool:
        nonlocal steps
        if depth == size:
            return True
        a = order[depth]
        for x in candidates[a]:
            steps += 1
            if steps > MAX_STEPS:
                return False
            if x in used or any(one[a][b] != other[x][image[b]] for b in order[:depth]):
                continue
            image[a] = x
            used.add(x)
            if extend(depth + 1):
                return True
            used.discard(x)
        return False

    return tuple(image) if extend(0) else None


def _kind(row: Sequence[Hashable], vertex: int) -> Hashable:
    counts = Counter(colour for other, colour in enumerate(row) if other != vertex)
    return row[vertex], frozenset(counts.items())


def connected(paths: Matrix) -> bool:
    """Whether links lead from every GPU to every other, over others if need be."""
    group = list(range(len(paths)))
    for a, b in combinations(group, 2):
        if link_count(paths[a][b]):
            old, new = group[b], group[a]
            group = [new if g == old else g for g in group]
    return len(set(group)) == 1


UNKNOWN_GPU = "unknown"
"""GPU model of a server whose matrix servers of several GPU models share."""

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


@dataclass(frozen=True, slots=True)
class Recognition:
    """The server model of a topology.

    ``matches``: servers of the same links, the closest first, of the GPU model that the user names.
    ``gpu``: the GPU model, None if several are possible. ``assumed``: fields that have a default, by
    their name in YAML. ``remarks``: one sentence each.
    """

    topology: Topology
    model: ServerModel
    matches: tuple[Match, ...]
    gpu: str | None
    assumed: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def best(self) -> tuple[Match, ...]:
        """The closest matches, all that are equally close."""
        return _closest(self.matches)

    @property
    def possible_gpus(self) -> list[str]:
        """GPU models of the matches, the closest first."""
        return list(dict.fromkeys(match.model.gpu for match in self.matches))


def recognise(
    topology: Topology,
    catalogue: Sequence[ServerModel],
    *,
    gpu: str | None = None,
    name: str | None = None,
) -> Recognition:
    """The server model of a topology. Raises InputError if no server model can describe it.

    ``gpu``: the GPU model by the user. ``name``: of the server model.
    """
    found = matching_servers(topology, catalogue)
    near = near_gpus(topology)
    matches, known = _choose(topology, found, gpu)
    matrix, counted = _counted(topology, matches)
    generation = None if known is None else generation_of(known)
    fabric = _fabric(topology, matrix, matches, generation)
    speeds = _speeds(near, matches, topology.gpus)
    link, pcie = _agreed(matches, "link_MBps"), _agreed(matches, "pcie_MBps")
    sockets = _agreed(matches, "sys_MBps")
    if generation is not None:
        link, pcie = link or generation.link_MBps, pcie or generation.pcie_MBps
    model = ServerModel(
        name=name or _name(topology, matches, known),
        gpu=known or UNKNOWN_GPU,
        gpus=topology.gpus,
        fabric=fabric,
        vendor=topology.vendor,
        matrix=matrix,
        link_MBps=None if fabric == "pcie" else link,
        links_per_gpu=_links_per_gpu(matrix, fabric, matches),
        numa=numa_ids(topology),
        pcie_switch=switch_groups(topology),
        nics=tuple(map(Nic, (nic.name for nic in topology.nics), speeds, near)),
        nvlink_domain_nodes=_agreed(matches, "nvlink_domain_nodes") or 1,
        pcie_MBps=pcie or PCIE_MBPS,
        sys_MBps=sockets or SYS_MBPS,
        relative_speed=None if known is None else relative_speed(known),
    )
    assumed = [name for name, rate in (("pcieMBps", pcie), ("sysMBps", sockets)) if rate is None]
    remarks = list(topology.remarks)
    if far := [nic.name for nic, own in zip(topology.nics, near, strict=True) if own == ()]:
        remarks.append(f"near no GPU, SYS to all: {', '.join(far)}")
    if gpu is not None and found and not matches:
        remarks.append(f"no known server with these links has GPU model {_without_brand(gpu)}")
    remarks += counted
    return Recognition(topology, model, matches, known, tuple(assumed), tuple(remarks))


def _choose(
    topology: Topology, found: Sequence[Match], stated: str | None
) -> tuple[tuple[Match, ...], str | None]:
    """The servers it may be, and its GPU model if that is certain."""
    if stated is None:
        # GPU memory with a NUMA node of its own is that of a Grace superchip, and no other's.
        coherent = topology.own_numa is not None and None not in topology.own_numa
        grace = ("GB", "GH")
        pool = tuple(one for one in found if one.model.gpu.startswith(grace) == coherent)
        return pool, _agreed(pool, "gpu")
    words = set(slug(stated).split("-"))
    gpus = (match.model.gpu for match in found)
    named = {gpu for gpu in gpus if set(slug(gpu).split("-")) <= words}
    # The longest name whose every word the user says: H100 NVL before H100.
    gpu = max(named, key=lambda one: (len(one), one), default=None)
    if gpu is None:
        return (), _without_brand(stated)
    return tuple(match for match in found if match.model.gpu == gpu), gpu


def _without_brand(name: str) -> str:
    name = " ".join(name.split())
    for brand in _BRANDS:
        if name.lower().startswith(brand) and len(name) > len(brand):
            name = name[len(brand) :]
    return name


def _closest(matches: Sequence[Match]) -> tuple[Match, ...]:
    return tuple(match for match in matches if match.closeness == matches[0].closeness)


def _agreed(matches: Sequence[Match], name: str) -> Any:  # noqa: ANN401  # an attribute
    """What all their models have; None if they differ."""
    values = {getattr(match.model, name) for match in matches}
    return values.pop() if len(values) == 1 else None


def _counted(topology: Topology, matches: Sequence[Match]) -> tuple[Matrix, tuple[str, ...]]:
    """The matrix with the links counted as on the one closest server, if the tool does not count."""
    matrix = topology.matrix
    if topology.counted or not any(link_count(path) for row in matrix for path in row):
        return matrix, ()
    best = _closest(matches)
    if best and all(
        link_count(path) <= 1 for match in best for row in known_paths(match.model) for path in row
    ):
        return matrix, ()
    # Under another numbering several GPUs could be meant, with other counts.
    if len(best) == 1 and not best[0].renumbered and "numa" in best[0].same:
        paths = known_paths(best[0].model)
        counted = tuple(
            tuple(paths[a][b] if link_count(path) else path for b, path in enumerate(row))
            for a, row in enumerate(matrix)
        )
        return counted, (f"rocm-smi does not count links: counted as on {best[0].model.name}",)
    return matrix, (_UNCOUNTED,)


def _fabric(
    topology: Topology,
    matrix: Matrix,
    matches: Sequence[Match],
    generation: Generation | None,
) -> Fabric:
    """How the GPUs are linked. Raises InputError where a switch reaches only some of them."""
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
    if len(pairs) == 1 and _agreed(matches, "fabric") == "nvswitch":
        return "nvswitch"
    if topology.gpus > MAX_MESH_GPUS:
        what = f"{topology.gpus} GPUs without a switch"
        hint = f"a server without NVSwitch may have at most {MAX_MESH_GPUS}"
        raise InputError(Fault(what, hint, *place))
    if not any(pairs):
        return "pcie"
    fabrics = {match.model.fabric for match in _closest(matches)}
    if len(fabrics) == 1:
        return fabrics.pop()
    return "direct" if connected(matrix) else "bridges"


def _least_linked(counts: list[list[int]]) -> tuple[int, int]:
    gpus = range(len(counts))
    first = min(gpus, key=lambda g: (sum(counts[g]), -g))
    return first, min((g for g in gpus if g != first), key=lambda g: (counts[first][g], g))


def _links_per_gpu(matrix: Matrix, fabric: Fabric, matches: Sequence[Match]) -> int | None:
    if fabric == "nvswitch":
        return max(link_count(path) for path in matrix[0]) or None
    if fabric == "pcie":
        return None
    links = _agreed(matches, "links_per_gpu")
    most = max(sum(link_count(path) for path in row) for row in matrix)
    return links if links is not None and links >= most else None


def _speeds(near: Near, matches: Sequence[Match], gpus: int) -> list[int | None]:
    """Mbit/s of each NIC, where the closest servers have the same NICs and agree on the speed."""
    best = _closest(matches)
    alike = best if all("nics" in match.same for match in best) else ()
    speeds = []
    for own in near:
        found: set[int | None] = set()
        for match in alike:
            place = None if own is None else tuple(sorted(match.gpus[g] for g in own))
            found |= {
                nic.megabits
                for nic in match.model.nics
                if nic.gpus == place or (place is None and len(nic.gpus or ()) == gpus)
            }
        speeds.append(found.pop() if len(found) == 1 else None)
    return speeds


def _name(topology: Topology, matches: Sequence[Match], gpu: str | None) -> str:
    best = _closest(matches)
    if len(best) == 1:
        how = "numbered otherwise" if best[0].renumbered else "as read"
        return f"{best[0].model.name} ({how})"
    return f"{topology.gpus}x {gpu or 'GPU'}"


class Generation(NamedTuple):
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
