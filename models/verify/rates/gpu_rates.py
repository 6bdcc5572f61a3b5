"""Rates of GPU sets for the judge, computed naively and independently of ``models.rates``.

Rings and chains of up to 8 GPUs are packed by brute force. For more GPUs, or where that takes too much
work, the rate is a range whose upper end comes from counting links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import factorial

from models.hardware import Nic, ServerModel, bits

MAX_LISTED = 8
"""Most GPUs whose rings and chains are listed."""

MAX_TOURS = 64
"""Most rings or chains that are searched for at once."""

MAX_WORK = 50_000
"""Effort of one search: how often it compares a ring or chain with the links left."""

MAX_SEARCHED = 100
"""Of more sets than this, at most so many sets of 6 GPUs are searched, and fewer of larger ones."""

CHAIN = Fraction(92, 100)
"""Share of a chain's rate that NCCL's protocol leaves."""

_PATHS = {"PIX": 10, "PXB": 10, "PHB": 9, "NODE": 8}
"""Tenths of the PCIe rate."""

Links = tuple[tuple[int, ...], ...]
Tour = tuple[tuple[int, int], ...]
"""Edges of a ring (directed) or of a chain (the smaller GPU first)."""


class RateNotKnownError(ValueError):
    """A rate of the server model that the value depends on is not in the document."""


@dataclass(frozen=True, slots=True)
class Range:
    """MB/s from ``low`` to ``high``; both the same where the rate is known exactly."""

    low: Fraction
    high: Fraction

    def over(self, divisor: Fraction) -> Range:
        return Range(self.low / divisor, self.high / divisor)


def exactly(rate: Fraction) -> Range:
    return Range(rate, rate)


def smallest(ranges: Iterable[Range]) -> Range:
    low, high = zip(*((one.low, one.high) for one in ranges), strict=True)
    return Range(min(low), min(high))


def largest(ranges: Iterable[Range]) -> Range:
    low, high = zip(*((one.low, one.high) for one in ranges), strict=True)
    return Range(max(low), max(high))


def inside(model: ServerModel, mask: int) -> Range | None:
    """Rate inside one server of the GPUs of a mask; None = unlimited (one GPU)."""
    if mask.bit_count() < 2:
        return None
    if model.switched:
        return exactly(fabric_rate(model))
    return _mesh_rate(model, mask)


def worst_inside(model: ServerModel, known: int, candidates: int, unknown: int) -> Range | None:
    """The smallest inside(S) over S = ``known`` and ``unknown`` more GPUs of ``candidates``."""
    if known.bit_count() + unknown < 2:
        return None
    if model.switched:
        return exactly(fabric_rate(model))
    if not unknown:
        return inside(model, known)
    return _worst(model, known, candidates & ~known, unknown)


@lru_cache(maxsize=4096)
def _worst(model: ServerModel, known: int, candidates: int, unknown: int) -> Range:
    masks = [known | extra for extra in _subsets(candidates, unknown)]
    return smallest(_rates(model, masks, slowest_first=True))


@lru_cache(maxsize=4096)
def best_inside(model: ServerModel, count: int) -> Range:
    """The largest inside(S) over sets of two or more GPUs of the server."""
    if model.switched:
        return exactly(fabric_rate(model))
    return largest(_rates(model, list(_subsets((1 << model.gpus) - 1, count)), slowest_first=False))


def fabric_rate(model: ServerModel) -> Fraction:
    """The rate of every GPU behind an NVLink switch."""
    if model.links_per_gpu is None or model.link_MBps is None:
        raise RateNotKnownError(f"the NVLink rate of server model {model.name} is not known")
    return Fraction(model.links_per_gpu * model.link_MBps)


def network(model: ServerModel, nics: Sequence[Nic], mask: int) -> Fraction:
    """N(S) of the GPUs of one server, MB/s."""
    near = [nic for nic in nics if nic.gpus is None or any(mask >> gpu & 1 for gpu in nic.gpus)]
    count = mask.bit_count()
    if near:
        rates = [Fraction(_megabits(nic), 8) for nic in near]
        return min(sum(rates, Fraction(0)), count * max(Fraction(model.pcie_MBps), *rates))
    rates = sorted(min(Fraction(25000), Fraction(_megabits(nic), 16)) for nic in nics)
    return sum(rates[-count:], Fraction(0))


def worst_network(
    model: ServerModel, nics: Sequence[Nic], known: int, candidates: int, unknown: int
) -> Fraction:
    """The smallest N(S) over S = ``known`` and ``unknown`` more GPUs of ``candidates``.

    GPUs near the same NICs are interchangeable: only the groups present in S matter.
    """
    if not unknown:
        return network(model, nics, known)
    groups: dict[tuple[bool, ...], list[int]] = {}
    for gpu in bits(candidates & ~known):
        near = tuple(nic.gpus is not None and gpu in nic.gpus for nic in nics)
        groups.setdefault(near, []).append(1 << gpu)
    rates = []
    for present in range(min(len(groups), unknown) + 1):
        for chosen in combinations(groups.values(), present):
            rest = [bit for group in chosen for bit in group[1:]]
            if present + len(rest) >= unknown:
                extra = sum(group[0] for group in chosen) + sum(rest[: unknown - present])
                rates.append(network(model, nics, known | extra))
    return min(rates)


def _megabits(nic: Nic) -> int:
    if nic.megabits is None:
        raise RateNotKnownError(f"the speed of NIC {nic.name} is not known")
    return nic.megabits


def _subsets(candidates: int, count: int) -> Iterator[int]:
    for chosen in combinations([1 << gpu for gpu in bits(candidates)], count):
        yield sum(chosen)


def _rates(model: ServerModel, masks: list[int], *, slowest_first: bool) -> Iterator[Range]:
    """Rates of all sets; of many, those first in the order of their upper bounds are searched."""
    if len(masks) <= MAX_SEARCHED:
        yield from (_mesh_rate(model, mask) for mask in masks)
        return
    ordered = [(_bounded_rate(model, mask), mask) for mask in masks]
    ordered.sort(key=lambda pair: pair[0].high, reverse=not slowest_first)
    searched = max(8, MAX_SEARCHED * factorial(6) // factorial(masks[0].bit_count()))
    reached = Fraction(-1)
    for position, (rate, mask) in enumerate(ordered):
        if not slowest_first and rate.high <= reached:
            return
        search = rate.low < rate.high and position < searched
        known = _mesh_rate(model, mask) if search else rate
        reached = max(reached, known.low)
        yield known


@lru_cache(maxsize=65536)
def _mesh_rate(model: ServerModel, mask: int) -> Range:
    return _rate(model, mask, _reach(_sorted(_links(model, mask))))


def _bounded_rate(model: ServerModel, mask: int) -> Range:
    """As ``_mesh_rate``, from the links at each GPU alone."""
    links = _links(model, mask)
    degrees = [sum(row) for row in links] if _connected(links) else [0]
    chains = min(sum(degrees) // 2 // (len(links) - 1), *degrees)
    most = max(Fraction(min(degrees)), chains * _chain_links(len(links)))
    return _rate(model, mask, (Fraction(0), most))


def _rate(model: ServerModel, mask: int, reach: tuple[Fraction, Fraction]) -> Range:
    """MB/s of so many links' worth of rings or chains; without any, of the slowest pair."""
    low, high = reach
    paths = {_path(model, a, b) for a, b in combinations(bits(mask), 2)}
    slowest = min(_path_rate(model, path) for path in paths)
    if not high:
        return exactly(slowest)
    one_link = Fraction(_link_rate(model))
    if low:
        return Range(low * one_link, high * one_link)
    return Range(min(slowest, one_link), max(slowest, high * one_link))


def _path_rate(model: ServerModel, path: str) -> Fraction:
    if count := _count(path):
        return Fraction(count * _link_rate(model))
    if path == "SYS":
        return min(Fraction(model.sys_MBps), Fraction(8 * model.pcie_MBps, 10))
    return Fraction(_PATHS[path] * model.pcie_MBps, 10)


def _path(model: ServerModel, a: int, b: int) -> str:
    if model.matrix is None:
        raise RateNotKnownError(f"the link matrix of server model {model.name} is not known")
    return model.matrix[a][b]


def _link_rate(model: ServerModel) -> int:
    if model.link_MBps is None:
        raise RateNotKnownError(f"the rate of one link of server model {model.name} is not known")
    return model.link_MBps


def _count(path: str) -> int:
    return int(path[2:]) if path.startswith("NV") else 0


def _links(model: ServerModel, mask: int) -> Links:
    gpus = bits(mask)
    return tuple(tuple(_count(_path(model, a, b)) if a != b else 0 for b in gpus) for a in gpus)


def _sorted(links: Links) -> Links:
    """The GPUs in the order of their links: many sets become the same matrix."""
    order = sorted(range(len(links)), key=lambda gpu: sorted(links[gpu]))
    return tuple(tuple(links[a][b] for b in order) for a in order)


def _chain_links(size: int) -> Fraction:
    return CHAIN * Fraction(2 * (size - 1), size)


@lru_cache(maxsize=65536)
def _reach(links: Links) -> tuple[Fraction, Fraction]:
    """Least and most links' worth of the better of rings and chains."""
    size = len(links)
    one = _chain_links(size)
    if size == 2:
        return Fraction(links[0][1]), Fraction(links[0][1])
    fewest, most = _ring_packing(links)
    chains = min(sum(map(sum, links)) // 2 // (size - 1), _ring_bound(links))
    if chains * one <= fewest:
        return Fraction(fewest), Fraction(most)
    fewest_chains, most_chains = _packing(links, chains, _chains)
    return max(Fraction(fewest), fewest_chains * one), max(Fraction(most), most_chains * one)


FULL_MESH_RINGS = {(6, 1): 4}
"""Rings of a full mesh, by GPUs and links of a pair, that neither theory nor a short search gives."""


def _ring_packing(links: Links) -> tuple[int, int]:
    """(least, most) rings. A full mesh splits into rings but on 4 and 6 GPUs (Tillson 1980)."""
    size, each = len(links), links[0][1]
    if all(links[a][b] == each for a in range(size) for b in range(size) if a != b):
        if size not in (4, 6) or each % 2 == 0:
            return each * (size - 1), each * (size - 1)
        if (size, each) in FULL_MESH_RINGS:
            return FULL_MESH_RINGS[size, each], FULL_MESH_RINGS[size, each]
    return _packing(links, _ring_bound(links), _rings)


def _ring_bound(links: Links) -> int:
    """Every ring enters and leaves every GPU, and crosses every cut both ways."""
    return min(*map(sum, links), _smallest_cut(links))


def _smallest_cut(links: Links) -> int:
    """Fewest links out of a part of the GPUs; of many GPUs, only parts of one are counted."""
    size = len(links)
    if not _connected(links):
        return 0
    if size > MAX_LISTED:
        return min(map(sum, links))
    return min(
        sum(links[a][b] for a in range(size) for b in range(size) if part >> a & 1 > part >> b & 1)
        for part in range(1, (1 << size) - 1, 2)
    )


def _connected(links: Links) -> bool:
    seen, ahead = {0}, [0]
    while ahead:
        for other, count in enumerate(links[ahead.pop()]):
            if count and other not in seen:
                seen.add(other)
                ahead.append(other)
    return len(seen) == len(links)


def _rings(links: Links) -> list[Tour]:
    """Every directed Hamiltonian ring, from GPU 0."""
    return [
        (*zip(path, path[1:], strict=False), (path[-1], 0))
        for path in _paths(links, (0,))
        if links[path[-1]][0]
    ]


def _chains(links: Links) -> list[Tour]:
    """Every undirected Hamiltonian path, once."""
    return [
        tuple((min(a, b), max(a, b)) for a, b in zip(path, path[1:], strict=False))
        for start in range(len(links))
        for path in _paths(links, (start,))
        if path[0] < path[-1]
    ]


def _paths(links: Links, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(path) == len(links):
        yield path
        return
    for gpu, count in enumerate(links[path[-1]]):
        if count and gpu not in path:
            yield from _paths(links, (*path, gpu))


def _packing(links: Links, bound: int, listed: Callable[[Links], list[Tour]]) -> tuple[int, int]:
    """(least, most) number of these tours that fit together."""
    if len(links) > MAX_LISTED or bound > MAX_TOURS:
        return 0, bound
    search, tours = _Search(), listed(links)
    edges = {edge: links[edge[0]][edge[1]] for tour in tours for edge in tour}
    most = bound
    for wanted in range(bound, 0, -1):
        try:
            if search.fits(tours, edges, wanted):
                return wanted, most
        except _TooMuchWorkError:
            break
        most = wanted - 1
    return 0, most


class _TooMuchWorkError(Exception):
    pass


class _Search:
    """Brute force, which gives up when ``work`` exceeds ``MAX_WORK``."""

    def __init__(self) -> None:
        self.work = 0
        self.failed: set[tuple[int, ...]] = set()

    def fits(self, tours: list[Tour], left: dict[tuple[int, int], int], wanted: int) -> bool:
        """Whether ``wanted`` tours fit in the links left: each of those over one edge, or none."""
        if wanted == 0:
            return True
        self.work += len(tours)
        if self.work > MAX_WORK:
            raise _TooMuchWorkError
        tours = [tour for tour in tours if all(left[edge] for edge in tour)]
        state = (wanted, *left.values())
        if not tours or state in self.failed:
            return False
        uses = Counter(edge for tour in tours for edge in tour)
        scarce = min(uses, key=lambda edge: (uses[edge], edge))
        for tour in tours:
            if scarce in tour:
                after = {edge: count - (edge in tour) for edge, count in left.items()}
                if self.fits(tours, after, wanted - 1):
                    return True
        if self.fits(tours, {**left, scarce: 0}, wanted):
            return True
        self.failed.add(state)
        return False
