"""The worst and the best set of so many GPUs of one server.

Promises: exact ``Fraction`` MB/s; of many sets those that cheap bounds rule out are not priced.
Called through ``models.bandwidth``.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

from models.bandwidth.inside import inside_MBps, known_of, link_rate, shape_of, slowest_pair_MBps
from models.bandwidth.packing import chain_in_links
from models.bandwidth.sets import check_choice, mask_of, members
from models.hardware import ServerModel

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
    return [_value(model, mask) for mask in sets]


def _value(model: ServerModel, mask: int) -> Fraction:
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
            value = _value(model, mask)
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
        best = max(best, _value(model, -negative))
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
