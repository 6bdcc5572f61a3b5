"""All-reduce bandwidth among GPUs of one server: a switch, rings and chains of a mesh, or PCIe.

Promises: exact ``Fraction`` MB/s, computed when first asked for, kept per matrix and rates.
Called through ``models.rates``.

Bandwidth out of one server for a set of its GPUs: near NICs, or else the fastest far ones.

Promises: exact ``Fraction`` MB/s before division by oversubscription; kept per distinct NICs.
Called through ``models.rates``.

The worst and the best set of so many GPUs of one server.

Promises: exact ``Fraction`` MB/s; of many sets those that cheap bounds rule out are not priced.
Called through ``models.rates``.

The best bandwidth that so many GPUs can reach on servers of one model, as made.

Promises: exact ``Fraction`` MB/s; health and a node's own NICs play no part.
Called through ``models.rates``.

The bandwidth table of one server model, row by row, for people to read.

Promises: every set of GPUs is in exactly one row, unless the caller bounds the sizes.
Called through ``models.rates`` by ``planner.show.server_model``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import comb

from models.hardware import Nic, ServerModel
from models.rates.gpu_sets import UnknownRate, check_choice, mask_of, members
from models.rates.rings import Links, Shape, chain_in_links, shape

_SWITCH_SHARE = {
    "PIX": Fraction(1),
    "PXB": Fraction(1),
    "PHB": Fraction(9, 10),
    "NODE": Fraction(8, 10),
}
"""Share of ``pcie_MBps`` by the nvidia-smi name of a path inside one socket."""

_KEPT = 4096
"""Models remembered by identity before that shortcut is dropped and rebuilt."""


@dataclass(slots=True)
class Known:
    """What has been computed for one distinct inside: link matrix and rates.

    ``neighbours``: mask of the GPUs each one has NVLinks to. ``pairs``: p(a, b) in tenths of MB/s,
    None where the link rate is not known. All empty where a switch makes them irrelevant.
    """

    links: Links
    neighbours: tuple[int, ...]
    pairs: tuple[tuple[int | None, ...], ...]
    values: dict[int, Fraction | None] = field(default_factory=dict)
    extremes: dict[tuple[str, int, int], Fraction] = field(default_factory=dict)


def inside_MBps(model: ServerModel, mask: int) -> Fraction | None:
    """All-reduce bandwidth among the GPUs of ``mask`` in one server; None = unlimited (one GPU).

    Raises UnknownRate if a rate or matrix it needs is not known, ValueError on an empty mask.
    """
    known = known_of(model)
    try:
        return known.values[mask]
    except KeyError:
        value = known.values[mask] = _inside_value(model, mask)
        return value


_INSIDE_BY_ID: dict[int, tuple[ServerModel, Known]] = {}
_INSIDE: dict[tuple[object, ...], Known] = {}


def known_of(model: ServerModel) -> Known:
    """What has been computed for models with the same matrix and rates."""
    # Identity first: hashing a matrix at each of millions of calls would cost more than the rest.
    kept = _INSIDE_BY_ID.get(id(model))
    if kept is not None:
        return kept[1]
    rates = (model.link_MBps, model.pcie_MBps, model.sys_MBps)
    # A switch makes the matrix irrelevant, a matrix the number of links.
    key = (
        model.gpus,
        model.switched,
        model.links_per_gpu if model.switched else model.matrix,
        rates,
    )
    found = _INSIDE.get(key)
    if found is None:
        found = _INSIDE[key] = _fresh(model)
    if len(_INSIDE_BY_ID) >= _KEPT:
        _INSIDE_BY_ID.clear()
    # The model is kept too, so that its id is not given to another.
    _INSIDE_BY_ID[id(model)] = (model, found)
    return found


def _fresh(model: ServerModel) -> Known:
    if model.switched or model.matrix is None:
        return Known((), (), ())
    links = tuple(tuple(link_count(cell) for cell in row) for row in model.matrix)
    neighbours = tuple(mask_of(b for b, count in enumerate(row) if count) for row in links)
    gpus = range(model.gpus)
    pairs = tuple(tuple(_tenths(model, a, b) for b in gpus) for a in gpus)
    return Known(links, neighbours, pairs)


def _tenths(model: ServerModel, a: int, b: int) -> int | None:
    if a == b or (model.link_MBps is None and link_count(_path(model, a, b))):
        return None
    tenths = 10 * pair_MBps(model, a, b)
    assert tenths.denominator == 1, "shares of a path are tenths"
    return tenths.numerator


def link_count(cell: str) -> int:
    """Links named by a cell of the matrix: ``NV2`` is 2, every other path 0."""
    return int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0


def _inside_value(model: ServerModel, mask: int) -> Fraction | None:
    if mask <= 0 or mask >> model.gpus:
        raise ValueError(
            f"GPU set {mask:#x} is empty or outside the {model.gpus} GPUs of {model.name}"
        )
    count = mask.bit_count()
    if count == 1:
        return None
    if model.switched:
        return switched_MBps(model)
    packed = shape_of(model, mask)
    if packed.best:
        return packed.best * link_rate(model)
    return slowest_pair_MBps(model, mask)


def slowest_pair_MBps(model: ServerModel, mask: int) -> Fraction:
    """The smallest p(a, b) over pairs of the GPUs of ``mask``, two or more."""
    pairs = known_of(model).pairs
    tenths = [pairs[a][b] for a, b in combinations(members(mask), 2)]
    if None in tenths:
        link_rate(model)  # raises: it is not known
    return Fraction(min(rate for rate in tenths if rate is not None), 10)


def shape_of(model: ServerModel, mask: int) -> Shape:
    """The links among two or more GPUs of a server with a link matrix."""
    links = known_of(model).links
    if not links:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    gpus = members(mask)
    return shape(tuple(tuple(links[a][b] for b in gpus) for a in gpus))


def _path(model: ServerModel, a: int, b: int) -> str:
    if model.matrix is None:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    return model.matrix[a][b]


def pair_MBps(model: ServerModel, a: int, b: int) -> Fraction:
    """p(a, b): what one path between two GPUs carries, by its nvidia-smi name."""
    cell = _path(model, a, b)
    links = link_count(cell)
    if links:
        return Fraction(links * link_rate(model))
    if cell == "SYS":
        return min(Fraction(model.sys_MBps), _SWITCH_SHARE["NODE"] * model.pcie_MBps)
    if cell not in _SWITCH_SHARE:
        raise ValueError(f"{cell!r} between GPUs {a} and {b} of {model.name} names no path")
    return _SWITCH_SHARE[cell] * model.pcie_MBps


def link_rate(model: ServerModel) -> int:
    """MB/s of one link. Raises UnknownRate if it is not known."""
    if model.link_MBps is None:
        raise UnknownRate(f"the rate of one link of server model {model.name} is not known")
    return model.link_MBps


def switched_MBps(model: ServerModel) -> Fraction:
    """What every GPU of a switched server, or of an NVLink domain of servers, reaches."""
    return Fraction(_links_per_gpu(model) * link_rate(model))


def _links_per_gpu(model: ServerModel) -> int:
    if model.links_per_gpu is None:
        raise UnknownRate(f"the number of links a GPU of server model {model.name} is not known")
    return model.links_per_gpu


FAR_NIC_MBPS = Fraction(25000)
"""Most that one NIC brings to GPUs it is not near, whatever its line rate."""

MOST_STATES = 200_000
"""Most different sets of NICs that a choice of GPUs is followed through."""

_Near = tuple[int, int]
"""Sum and fastest of the rates of some NICs, Mbit/s; (0, 0) for no NIC."""

_KEPT_OUTSIDE = 4096
"""NIC tuples remembered by identity before that shortcut is dropped and rebuilt."""


@dataclass(slots=True)
class _Known:
    """What has been computed for one distinct list of NICs. ``near[n]``: mask, -1 = every GPU."""

    nics: tuple[Nic, ...]
    near: tuple[int, ...]
    pcie_MBps: int
    values: dict[int, Fraction] = field(default_factory=dict)
    reaches: dict[int, dict[_Near, int]] = field(default_factory=dict)
    extremes: dict[tuple[int, int], tuple[Fraction, Fraction]] = field(default_factory=dict)


def nics_MBps(model: ServerModel, nics: Sequence[Nic], mask: int) -> Fraction:
    """N(S): what the NICs bring out of (and into) one server for the GPUs of ``mask``.

    Before division by oversubscription. Raises UnknownRate if a speed it needs is not known,
    ValueError on an empty mask.
    """
    known = _outside(model, nics)
    try:
        return known.values[mask]
    except KeyError:
        if mask <= 0:
            raise ValueError("an empty set of GPUs has no NIC bandwidth") from None
        near = [
            _speed(nic) for nic, gpus in zip(known.nics, known.near, strict=True) if gpus & mask
        ]
        together = (sum(near), max(near, default=0))
        value = known.values[mask] = _value(known, together, mask.bit_count())
        return value


_OUTSIDE: dict[tuple[int, tuple[Nic, ...]], _Known] = {}
_OUTSIDE_BY_ID: dict[tuple[int, int], tuple[Sequence[Nic], _Known]] = {}


def _outside(model: ServerModel, nics: Sequence[Nic]) -> _Known:
    by_id = (model.pcie_MBps, id(nics))
    kept = _OUTSIDE_BY_ID.get(by_id)
    if kept is not None:
        return kept[1]
    key = (model.pcie_MBps, tuple(nics))
    known = _OUTSIDE.get(key)
    if known is None:
        near = tuple(-1 if nic.gpus is None else mask_of(nic.gpus) for nic in key[1])
        known = _OUTSIDE[key] = _Known(key[1], near, model.pcie_MBps)
    if isinstance(nics, tuple):  # what may change is not remembered by identity
        if len(_OUTSIDE_BY_ID) >= _KEPT_OUTSIDE:
            _OUTSIDE_BY_ID.clear()
        _OUTSIDE_BY_ID[by_id] = (nics, known)
    return known


def _value(known: _Known, near: _Near, count: int) -> Fraction:
    """N of so many GPUs beside NICs of that sum and that fastest rate, in Mbit/s; (0, 0): none."""
    total, fastest = near
    if total:
        # gbps x 125 MB/s is Mbit/s over 8; a far NIC counts half of its rate.
        return min(Fraction(total, 8), count * max(Fraction(known.pcie_MBps), Fraction(fastest, 8)))
    far = sorted((_speed(nic) for nic in known.nics), reverse=True)[:count]
    return sum((min(FAR_NIC_MBPS, Fraction(speed, 16)) for speed in far), Fraction(0))


def _speed(nic: Nic) -> int:
    if nic.megabits is None:
        raise UnknownRate(f"the speed of NIC {nic.name} is not known")
    return nic.megabits


def worst_nics_MBps(
    model: ServerModel, nics: Sequence[Nic], candidates: int, count: int
) -> Fraction:
    """The smallest ``nics_MBps`` over sets of ``count`` GPUs within the mask ``candidates``."""
    return extreme_nics_MBps(model, nics, candidates, count)[0]


def extreme_nics_MBps(
    model: ServerModel, nics: Sequence[Nic], candidates: int, count: int
) -> tuple[Fraction, Fraction]:
    """The smallest and the largest ``nics_MBps`` over sets of ``count`` GPUs of ``candidates``."""
    check_choice(candidates, count)
    known = _outside(model, nics)
    key = (candidates, count)
    if key not in known.extremes:
        if candidates not in known.reaches:
            known.reaches[candidates] = _reaches(known, candidates)
        values = [
            _value(known, near, count)
            for near, counts in known.reaches[candidates].items()
            if counts >> count & 1
        ]
        known.extremes[key] = min(values), max(values)
    return known.extremes[key]


def _reaches(known: _Known, candidates: int) -> dict[_Near, int]:
    """Sum and fastest rate of every set of NICs that GPUs of ``candidates`` can be near together.

    Each with the counts of GPUs that do, as bits: bit k for k GPUs. GPUs beside the same NICs are
    taken together; a NIC that no later group is near is folded into the sum, so few states remain.
    """
    groups: dict[frozenset[int], int] = {}
    for gpu in members(candidates):
        near = frozenset(n for n, gpus in enumerate(known.near) if gpus >> gpu & 1)
        groups[near] = groups.get(near, 0) + 1
    ordered = sorted(groups.items(), key=lambda group: sorted(group[0]))
    last = {nic: g for g, (near, _) in enumerate(ordered) for nic in near}
    states: dict[tuple[frozenset[int], _Near], int] = {(frozenset(), (0, 0)): 1}
    for g, (near, size) in enumerate(ordered):
        following: dict[tuple[frozenset[int], _Near], int] = {}
        for (open_nics, folded), counts in states.items():
            for reached, more in (
                (open_nics, counts),
                (open_nics | near, _one_or_more(counts, size)),
            ):
                closed = [_speed(known.nics[n]) for n in reached if last[n] == g]
                total = folded[0] + sum(closed), max(folded[1], *closed, 0)
                state = frozenset(n for n in reached if last[n] > g), total
                following[state] = following.get(state, 0) | more
        if len(following) > MOST_STATES:
            raise ValueError(f"{len(groups)} groups of GPUs beside different NICs are too many")
        states = following
    return _merged(states)


def _one_or_more(counts: int, size: int) -> int:
    """Counts after taking one GPU of a group of ``size``, or two, ... or all of them."""
    taken = 0
    for more in range(1, size + 1):
        taken |= counts << more
    return taken


def _merged(states: dict[tuple[frozenset[int], _Near], int]) -> dict[_Near, int]:
    merged: dict[_Near, int] = {}
    for (_, near), counts in states.items():
        merged[near] = merged.get(near, 0) | counts
    return merged


FEW_SETS = 100
"""So many sets are simply priced: every choice among 8 GPUs."""


def worst_inside_MBps(model: ServerModel, candidates: int, count: int) -> Fraction | None:
    """The smallest ``inside_MBps`` over sets of ``count`` GPUs within the mask ``candidates``.

    None = unlimited (one GPU). Raises UnknownRate if a rate or matrix it needs is not known.
    """
    check_choice(candidates, count)
    if count == 1 or model.switched:
        return inside_MBps(model, mask_of(members(candidates)[:count]))
    extremes = known_of(model).extremes
    key = ("worst", candidates, count)
    if key not in extremes:
        sets = [mask_of(gpus) for gpus in combinations(members(candidates), count)]
        few = len(sets) <= FEW_SETS
        extremes[key] = min(_each(model, sets)) if few else _worst(model, sets, count)
    return extremes[key]


def best_inside_MBps(model: ServerModel, count: int) -> Fraction | None:
    """The largest ``inside_MBps`` over sets of ``count`` GPUs of the server; None = unlimited.

    Raises UnknownRate if a rate or matrix it needs is not known.
    """
    check_choice(model.all_gpus, count)
    if count == 1 or model.switched:
        return inside_MBps(model, (1 << count) - 1)
    extremes = known_of(model).extremes
    key = ("best", model.all_gpus, count)
    if key not in extremes:
        sets = [mask_of(gpus) for gpus in combinations(range(model.gpus), count)]
        few = comb(model.gpus, count) <= FEW_SETS
        extremes[key] = max(_each(model, sets)) if few else _best(model, sets, count)
    return extremes[key]


def _each(model: ServerModel, sets: list[int]) -> list[Fraction]:
    return [_value_of_extremes(model, mask) for mask in sets]


def _value_of_extremes(model: ServerModel, mask: int) -> Fraction:
    value = inside_MBps(model, mask)
    assert value is not None, "two or more GPUs have a bandwidth"
    return value


def _worst(model: ServerModel, sets: list[int], count: int) -> Fraction:
    """Sets that NVLink leaves apart first, for they are cheap and slow; then the thinly linked."""
    bounded = sorted((_most_links(model, mask, count), mask) for mask in sets)
    worst = min(
        (slowest_pair_MBps(model, mask) for links, mask in bounded if not links), default=None
    )
    for links, mask in bounded:
        if not links:
            continue
        rate = link_rate(model)
        # Linked sets have a chain at least, or they are as fast as their slowest pair.
        least = min(slowest_pair_MBps(model, mask), rate * chain_in_links(count))
        if worst is None or (worst > least and not shape_of(model, mask).surely(worst / rate)):
            value = _value_of_extremes(model, mask)
            worst = value if worst is None else min(worst, value)
    assert worst is not None, "there is a set"
    return worst


def _best(model: ServerModel, sets: list[int], count: int) -> Fraction:
    """The most promising sets first, until none that is left can be better."""
    bounded = []
    for mask in sets:
        links = _most_links(model, mask, count)
        bound = slowest_pair_MBps(model, mask)
        bounded.append((max(bound, links * link_rate(model)) if links else bound, -mask))
    best = Fraction(0)
    for bound, negative in sorted(bounded, reverse=True):
        if bound <= best:
            break
        best = max(best, _value_of_extremes(model, -negative))
    return best


def _most_links(model: ServerModel, mask: int, count: int) -> Fraction:
    """Upper bound of rings and chains through the set, in links; 0 where NVLink leaves it apart."""
    links = known_of(model).links
    gpus = members(mask)
    degrees = [sum(links[a][b] for b in gpus) for a in gpus]
    if not all(degrees) or not _joined(known_of(model).neighbours, mask):
        return Fraction(0)
    chains = min(sum(degrees) // 2 // (count - 1), *degrees)
    return max(Fraction(min(degrees)), chains * chain_in_links(count))


def _joined(neighbours: tuple[int, ...], mask: int) -> bool:
    """Whether NVLinks among the GPUs of the mask join them all."""
    seen = frontier = mask & -mask
    while frontier:
        around = 0
        for gpu in members(frontier):
            around |= neighbours[gpu]
        frontier = around & mask & ~seen
        seen |= frontier
    return seen == mask


def ideal_MBps(model: ServerModel, count: int) -> Fraction | None:
    """The best that ``count`` GPUs reach on servers of this model; None = unlimited (one GPU).

    Raises UnknownRate if a rate it needs is not known.
    """
    if count < 1:
        raise ValueError(f"no ideal for {count} GPUs")
    if count <= model.gpus:
        return best_inside_MBps(model, count)
    if count <= model.gpus * model.nvlink_domain_nodes:
        return switched_MBps(model)
    out = nics_MBps(model, model.nics, model.all_gpus)
    inside = inside_MBps(model, model.all_gpus)
    return out if inside is None else min(inside, out)


@dataclass(frozen=True, slots=True)
class TableRow:
    """Sets of ``gpus`` GPUs that reach the same: how many there are, and the first of them.

    ``inside`` in MB/s, None = unlimited (one GPU). ``rings`` and ``chains`` are None where no
    link matrix decides (one GPU, or a switch). ``out``: least and most N(S) of these sets through
    the model's own NICs, None where a speed it needs is not known.
    """

    gpus: int
    inside: Fraction | None
    rings: int | None
    chains: int | None
    subsets: int
    example: tuple[int, ...]
    out: tuple[Fraction, Fraction] | None


def table(model: ServerModel, sizes: Iterable[int] | None = None) -> tuple[TableRow, ...]:
    """Rows by size, the fastest sets first. ``sizes``: only sets of so many GPUs (default: all).

    Raises UnknownRate if a link rate or the link matrix it needs is not known.
    """
    rows: list[TableRow] = []
    for size in sizes if sizes is not None else range(1, model.gpus + 1):
        if size > 1 and not model.switched:
            rows.extend(_mesh_rows(model, size))
            continue
        first = tuple(range(size))
        inside = inside_MBps(model, mask_of(first))
        out = _extremes(model, size)
        rows.append(TableRow(size, inside, None, None, comb(model.gpus, size), first, out))
    return tuple(rows)


def _extremes(model: ServerModel, size: int) -> tuple[Fraction, Fraction] | None:
    try:
        return extreme_nics_MBps(model, model.nics, model.all_gpus, size)
    except UnknownRate:
        return None


def _mesh_rows(model: ServerModel, size: int) -> list[TableRow]:
    groups: dict[tuple[Fraction, int, int], list[int]] = {}
    for gpus in combinations(range(model.gpus), size):
        mask = mask_of(gpus)
        packed = shape_of(model, mask)
        inside = inside_MBps(model, mask)
        assert inside is not None, "two or more GPUs have a bandwidth"
        groups.setdefault((inside, packed.rings, packed.chains), []).append(mask)
    return [
        TableRow(size, *key, len(masks), members(masks[0]), _range(model, masks))
        for key, masks in sorted(groups.items(), reverse=True)
    ]


def _range(model: ServerModel, masks: list[int]) -> tuple[Fraction, Fraction] | None:
    try:
        values = [nics_MBps(model, model.nics, mask) for mask in masks]
    except UnknownRate:
        return None
    return min(values), max(values)
