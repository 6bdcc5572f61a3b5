"""Which of the servers with these links it is: by what the user says, or the text beside the matrix.

Promises: a GPU model is named only if it was said or if all servers of these links have it.
Called by ``modelling``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from models.hardware import ServerModel, slug
from planner.reading.matrices.generations import MOST_LINKS
from planner.reading.matrices.recognising import Likeness
from planner.reading.matrices.topology import Topology, link_count

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
