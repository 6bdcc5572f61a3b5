"""Which known servers have this matrix, whatever their GPUs are numbered: by links, then by paths.

Promises: links must agree exactly up to a permutation; PCIe paths, NUMA nodes and NICs break ties;
bounded time on any matrix. Reads the catalogue. Called by ``modelling``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.reading.matrices.embedding import embedding
from planner.reading.matrices.topology import link_count

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
