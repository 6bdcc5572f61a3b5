"""Servers of the catalogue that have the links of a topology, whatever their GPUs are numbered.

Links agree exactly up to a permutation; PCIe paths, NUMA nodes and NICs rank the matches. The
search is bounded on any matrix. No rate is derived here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, compress, product

from models.hardware import MAX_MESH_GPUS, ServerModel
from models.rates.server_bandwidth import link_count
from planner.read.topo.topology import Topology, near_gpus, numa_ids

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
    """The aspects known of both servers."""
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
    """What a vertex is, and how many neighbours it has by each colour."""
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
