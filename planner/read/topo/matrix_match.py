"""One small matrix inside another, up to the numbering: exact, with colours, bounded.

Promises: the first embedding in lexicographic order, or None; never more than MOST_STEPS steps.
Called by ``recognising``.

Which known servers have this matrix, whatever their GPUs are numbered: by links, then by paths.

Promises: links must agree exactly up to a permutation; PCIe paths, NUMA nodes and NICs break ties;
bounded time on any matrix. Reads the catalogue. Called by ``modelling``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.read.topo.topology import link_count

Colours = Sequence[Sequence[Hashable]]
"""``[a][b]``: what joins a and b; ``[a][a]``: what a is."""

MOST_STEPS = 20_000
"""Steps before the search gives up; a known server under any numbering takes a few hundred."""


def embedding(small: Colours, large: Colours) -> tuple[int, ...] | None:
    """p, one-to-one, with small[a][b] == large[p[a]][p[b]] for all a, b; None if none was found.

    Of two matrices of one size this is an isomorphism. The identity is preferred.
    """
    size = len(small)
    if size > len(large):
        return None
    if all(list(row) == list(large[a])[:size] for a, row in enumerate(small)):
        return tuple(range(size))
    candidates = _candidates(small, large)
    if candidates is None:
        return None
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
            if steps > MOST_STEPS:
                return False
            if x in used or any(
                small[a][b] != large[x][image[b]] or small[b][a] != large[image[b]][x]
                for b in order[:depth]
            ):
                continue
            image[a] = x
            used.add(x)
            if extend(depth + 1):
                return True
            used.discard(x)
        return False

    return tuple(image) if extend(0) else None


def _candidates(small: Colours, large: Colours) -> list[list[int]] | None:
    """Vertices of ``large`` that each of ``small`` may be; None if one may be nothing."""
    if len(small) == len(large):
        own, others = _refined(small, large)
        found = [[x for x, theirs in enumerate(others) if theirs == mine] for mine in own]
        if Counter(own) != Counter(others):
            return None
    else:
        joins = [Counter(row[x] for x in range(len(row)) if x != v) for v, row in enumerate(large)]
        found = []
        for a, row in enumerate(small):
            mine = Counter(row[b] for b in range(len(row)) if b != a)
            found.append(
                [x for x, theirs in enumerate(joins) if row[a] == large[x][x] and mine <= theirs]
            )
    return found if all(found) else None


def _refined(small: Colours, large: Colours) -> tuple[list[int], list[int]]:
    """Numbers of the vertices of both, equal where no count of neighbours tells two apart."""
    numbers: dict[Hashable, int] = {}
    own = [numbers.setdefault(row[a], len(numbers)) for a, row in enumerate(small)]
    others = [numbers.setdefault(row[x], len(numbers)) for x, row in enumerate(large)]
    distinct = len(numbers)
    while True:
        names: dict[Hashable, int] = {}

        def renamed(
            matrix: Colours, told: list[int], names: dict[Hashable, int] = names
        ) -> list[int]:
            return [
                names.setdefault(
                    (
                        told[v],
                        frozenset(
                            Counter((row[w], told[w]) for w in range(len(row)) if w != v).items()
                        ),
                    ),
                    len(names),
                )
                for v, row in enumerate(matrix)
            ]

        own, others = renamed(small, own), renamed(large, others)
        if len(names) == distinct:
            return own, others
        distinct = len(names)


if TYPE_CHECKING:
    from models.hardware import ServerModel

Numa = tuple[int | None, ...] | None
Near = tuple[tuple[int, ...] | None, ...]

ASPECTS = ("pcie", "numa", "nics")
"""What breaks ties among servers of the same links, the most telling first."""

MOST_MESH_GPUS = 16


@dataclass(frozen=True, slots=True)
class Printed:
    """What is compared: paths, NUMA node and near NICs of every GPU. ``counted``: see Topology."""

    maker: str
    paths: tuple[tuple[str, ...], ...]
    counted: bool
    numa: Numa
    near: Near

    @property
    def gpus(self) -> int:
        """How many GPUs."""
        return len(self.paths)

    @property
    def linked(self) -> bool:
        """Whether any two GPUs are linked."""
        return any(link_count(path) for row in self.paths for path in row)


@dataclass(frozen=True, slots=True)
class Likeness:
    """A known server of the same links. ``gpus[g]``: its GPU that GPU g of the text is.

    ``same``: those of ASPECTS that agree; ``differs``: those that do not; the rest is not known of
    one of the two. ``whole``: all of its GPUs, otherwise the text shows a part of it.
    """

    model: ServerModel
    gpus: tuple[int, ...]
    whole: bool
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
        """Whether its GPUs have other numbers than those of the text."""
        return self.gpus != tuple(range(len(self.gpus)))


def recognise(printed: Printed, models: Sequence[ServerModel]) -> tuple[Likeness, ...]:
    """Known servers of the same links: whole ones, the closest first, then those it may be part of."""
    found = []
    for model in models:
        likeness = _likeness(printed, model)
        if likeness is not None:
            found.append(likeness)
    return tuple(sorted(found, key=lambda like: (not like.whole, _negative(like.closeness))))


def _negative(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-value for value in values)


def _likeness(printed: Printed, model: ServerModel) -> Likeness | None:
    if model.vendor != printed.maker or (model.matrix is None and not model.switched):
        return None
    whole = model.gpus == printed.gpus
    if not whole and (model.gpus < printed.gpus or not connected(printed.paths)):
        return None
    if not printed.linked:
        # Without links the PCIe paths are all there is, and only whole ones tell anything.
        if not whole or model.fabric != "pcie":
            return None
        return _closest(printed, model, ("pcie",))
    if model.gpus > MOST_MESH_GPUS and not model.switched:
        return None
    return _closest(printed, model, ())


def _closest(printed: Printed, model: ServerModel, needed: tuple[str, ...]) -> Likeness | None:
    """The likeness in as many aspects as agree at once."""
    whole = model.gpus == printed.gpus
    if embedding(_colours_printed(printed, ()), _colours_known(printed, model, ())) is None:
        return None
    tellable = [aspect for aspect in ASPECTS if _tellable(aspect, printed, model, whole=whole)]
    if any(aspect not in tellable for aspect in needed):
        return None
    # Of the sets of aspects the best first: pcie before numa before nics.
    for choice in range(2 ** len(tellable) - 1, -1, -1):
        chosen = tuple(
            aspect
            for place, aspect in enumerate(reversed(tellable))
            if choice >> place & 1
        )[::-1]  # fmt: skip
        if any(aspect not in chosen for aspect in needed):
            continue
        gpus = embedding(_colours_printed(printed, chosen), _colours_known(printed, model, chosen))
        if gpus is not None and ("nics" not in chosen or _same_nics(printed, model, gpus)):
            differs = tuple(aspect for aspect in tellable if aspect not in chosen)
            return Likeness(model, gpus, whole, chosen, differs)
    return None


def _tellable(aspect: str, printed: Printed, model: ServerModel, *, whole: bool) -> bool:
    if aspect == "pcie":
        return model.matrix is not None and any(
            not link_count(path) and path != "X" for row in printed.paths for path in row
        )
    if aspect == "numa":
        return _groups(printed.numa) and _groups(model.numa)
    return whole and bool(printed.near) and bool(model.nics)


def _groups(numa: Numa) -> bool:
    return numa is not None and None not in numa


_Colour = tuple[object, ...]


def _colours_printed(printed: Printed, aspects: Sequence[str]) -> list[list[_Colour]]:
    return _colours(printed.paths, printed.numa, printed.near, aspects, counted=printed.counted)


def _colours_known(
    printed: Printed, model: ServerModel, aspects: Sequence[str]
) -> list[list[_Colour]]:
    near = tuple(nic.gpus for nic in model.nics)
    return _colours(known_paths(model), model.numa, near, aspects, counted=printed.counted)


def _colours(
    paths: Sequence[Sequence[str]], numa: Numa, near: Near, aspects: Sequence[str], *, counted: bool
) -> list[list[_Colour]]:
    gpus = range(len(paths))
    beside = [frozenset(n for n, near_gpus in enumerate(near) if near_gpus is None or g in near_gpus)
              for g in gpus]  # fmt: skip
    return [
        [
            (
                _links(paths[a][b], counted=counted),
                _pcie(paths[a][b]) if "pcie" in aspects else "",
                numa is not None and numa[a] == numa[b] if "numa" in aspects else None,
                len(beside[a] & beside[b]) if "nics" in aspects else None,
            )
            for b in gpus
        ]
        for a in gpus
    ]


def _links(path: str, *, counted: bool) -> int:
    return link_count(path) if counted else min(1, link_count(path))


def _pcie(path: str) -> str:
    return "" if link_count(path) else path


def _same_nics(printed: Printed, model: ServerModel, gpus: Sequence[int]) -> bool:
    everything = tuple(range(model.gpus))
    here = sorted(
        everything if near is None else tuple(sorted(gpus[g] for g in near))
        for near in printed.near
    )
    there = sorted(everything if nic.gpus is None else nic.gpus for nic in model.nics)
    return here == there


def known_paths(model: ServerModel) -> tuple[tuple[str, ...], ...]:
    """The matrix of a known server; behind a switch every pair has all links."""
    if model.matrix is not None:
        return model.matrix
    gpus = range(model.gpus)
    return tuple(tuple("X" if a == b else f"NV{model.links_per_gpu}" for b in gpus) for a in gpus)


def connected(paths: Sequence[Sequence[str]]) -> bool:
    """Whether links lead from every GPU to every other, over others if need be."""
    reached, ahead = {0}, [0]
    while ahead:
        row = paths[ahead.pop()]
        new = [b for b, path in enumerate(row) if link_count(path) and b not in reached]
        reached.update(new)
        ahead += new
    return len(reached) == len(paths)
