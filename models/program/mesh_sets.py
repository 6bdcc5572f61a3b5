"""Sets of GPUs of a server on which not only their number counts: their rates, and which are disjoint.

A pattern says how many disjoint sets a free mask has of each kind that is asked for; one that has less of
everything than another is left out. Masks that a permutation of alike GPUs makes equal have the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from models.hardware import Nic, ServerModel, bits
from models.instance.cluster import Node
from models.program.packing import LARGEST_MESH_STATE, automorphisms, by_count, subsets
from models.rates.gpu_sets import UnknownRate
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import inside_MBps

Masks = frozenset[int]
"""Sets of as many GPUs each that will do."""

Pattern = tuple[int, ...]
"""For all masks that are asked for, the number of disjoint sets among them."""


def mesh_sets(node: Node) -> MeshSets | None:
    """The sets of such a node; None if only their number counts, a rate is unknown, or there are too many."""
    model = node.model
    if model is None or model.gpus > LARGEST_MESH_STATE or by_count(model, node.effective_nics):
        return None
    return _mesh_sets(model, node.effective_nics)


@lru_cache(maxsize=64)
def _mesh_sets(model: ServerModel, nics: tuple[Nic, ...]) -> MeshSets | None:
    try:
        return MeshSets(model, nics)
    except UnknownRate:
        return None


class MeshSets:
    """The sets of one kind of server, rates in MB/s. Raises UnknownRate where one is unknown.

    ``gpus``: of a server. ``connected``: whether it has NICs.
    """

    def __init__(self, model: ServerModel, nics: tuple[Nic, ...]) -> None:
        every = range(1, model.all_gpus + 1)
        self.gpus, self.connected = model.gpus, bool(nics)
        self._maps = automorphisms(model, nics)
        self._inside = {mask: inside_MBps(model, mask) for mask in every}
        self._network = {mask: nics_MBps(model, nics, mask) for mask in every} if nics else {}
        self._canonical: dict[int, int] = {}
        self._masks: dict[tuple[int, Fraction, Fraction | None], Masks] = {}

    def rates(self, sizes: Iterable[int], over: Fraction | None) -> list[Fraction]:
        """What sets of these sizes give, each value once, the best first. ``over``: see ``rate``."""
        wanted = set(sizes)
        own = (mask for mask in self._inside if mask.bit_count() in wanted)
        return sorted({self.rate(mask, over) for mask in own}, reverse=True)

    def rate(self, mask: int, over: Fraction | None) -> Fraction:
        """What these GPUs give: alone, 0 of one; a gang on several servers whose network shares ``over``."""
        inside = self._inside[mask]
        if over is None:
            return inside or Fraction(0)
        network = self._network[mask] / over
        return network if inside is None else min(inside, network)

    def masks(self, gpus: int, least: Fraction, over: Fraction | None) -> Masks:
        """The sets of so many GPUs that give as much or more."""
        key = gpus, least, over
        if key not in self._masks:
            own = (mask for mask in self._inside if mask.bit_count() == gpus)
            self._masks[key] = frozenset(mask for mask in own if self.rate(mask, over) >= least)
        return self._masks[key]

    def canonical(self, mask: int) -> int:
        """The same for masks with the same patterns."""
        if mask not in self._canonical:
            self._canonical[mask] = min(self._images(mask))
        return self._canonical[mask]

    def alike(self, mask: int, others: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The same masks for all that one permutation makes equal, and the order in which the others are."""
        images = zip(*(self._images(one) for one in (mask, *others)), strict=True)
        first, rest = min(
            (own, sorted((image, at) for at, image in enumerate(more))) for own, *more in images
        )
        return (first, *(image for image, _ in rest)), tuple(at for _, at in rest)

    def _images(self, mask: int) -> Iterable[int]:
        gpus = bits(mask)
        return [sum(1 << one[gpu] for gpu in gpus) for one in self._maps]


@dataclass(frozen=True)
class MeshKind:
    """All nodes of one kind, and their sets."""

    nodes: frozenset[int]
    sets: MeshSets


class MeshPatterns:
    """The patterns of every mask. ``wanted``: what is asked for."""

    def __init__(self, sets: MeshSets, wanted: Sequence[Masks]) -> None:
        self._sets, self._wanted = sets, tuple(wanted)
        self._sizes = sorted({next(iter(own)).bit_count() for own in wanted})
        self._found: dict[int, list[Pattern]] = {0: [(0,) * len(wanted)]}

    def of(self, mask: int) -> list[Pattern]:
        """The patterns of a free mask, none of which has less than another one."""
        own = self._sets.canonical(mask) if mask else 0
        if own not in self._found:
            lowest = own & -own
            found = dict.fromkeys(self.of(own ^ lowest))
            for chosen in self._with(lowest, own):
                worth = self._worth(chosen)
                for pattern in self.of(own ^ chosen):
                    found[tuple(map(sum, zip(pattern, worth, strict=True)))] = None
            self._found[own] = _most(found)
        return self._found[own]

    def choose(self, mask: int, pattern: Pattern) -> list[int] | None:
        """Disjoint sets of a free mask that make up a pattern, or more; None if there are none."""
        if not any(pattern):
            return []
        if not any(covers(one, pattern) for one in self.of(mask)):
            return None
        lowest = mask & -mask
        for chosen in self._with(lowest, mask):
            worth = self._worth(chosen)
            left = tuple(max(0, a - b) for a, b in zip(pattern, worth, strict=True))
            if left != pattern and (found := self.choose(mask ^ chosen, left)) is not None:
                return [chosen, *found]
        return self.choose(mask ^ lowest, pattern)

    def _with(self, gpu: int, mask: int) -> Iterable[int]:
        """Sets of a mask with that GPU, of the sizes that are asked for."""
        return (gpu | own for size in self._sizes for own in subsets(mask ^ gpu, size - 1))

    def _worth(self, chosen: int) -> Pattern:
        return tuple(int(chosen in own) for own in self._wanted)


def _most(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Those of which no other one has as much of everything."""
    found: list[Pattern] = []
    for pattern in sorted(patterns, key=sum, reverse=True):
        if not any(covers(other, pattern) for other in found):
            found.append(pattern)
    return found


def covers(pattern: Pattern, other: Pattern) -> bool:
    """Whether a pattern has as much of everything as another one."""
    return all(a >= b for a, b in zip(pattern, other, strict=True))
