"""Which pod of a role takes which of its places.

Pods keep their own or planned place where possible, and the pods of every slice, in every layer, share a
domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rules.demands import Demand, groups_of

Key = tuple[int, int]
AnyKey = TypeVar("AnyKey")

Place = tuple[int, int | None]
"""Node, and the GPUs there."""


def give_own_places(
    instance: Instance,
    demand: Demand,
    pods: Sequence[PodPlacement],
) -> list[PodPlacement]:
    """A permutation of the places in which pods get their own places as far as possible."""
    gang = instance.gangs[demand.gang]
    planned = {(pod.role, pod.index): pod.node for pod in gang.planned}
    stood = {(p.role, p.index): p for p in gang.running_pods if p.node is not None}
    where = {key: pod.node for key, pod in stood.items() if pod.node is not None}
    exact = {
        key: (pod.node, pod.gpus if gang.roles[key[0]].gpus else 0)
        for key, pod in stood.items()
        if pod.node is not None
    }
    found: list[PodPlacement] = []
    for role in demand.roles:
        own = [pod for pod in pods if pod.role == role.role]
        if gang.roles[role.role].slice_layers:
            found += own
        else:
            keys = [(pod.role, pod.index) for pod in own]
            wishes: list[Mapping[Key, object]] = [planned or exact, where]
            given = _preferred(keys, [(pod.node, pod.gpus) for pod in own], wishes)
            found += sorted(PodPlacement(*key, *place) for key, place in given)
    return found


Group = list[int]
"""Indices of the pods of one slice."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Slices of one size. ``of[n]``: domain of node n at their level.

    ``fixed``: domain by slice number, where pods of the slice stand. ``any_size``: any slice may have any
    number of pods; otherwise all are whole but the first and the last.
    """

    size: int
    of: Sequence[int]
    fixed: Mapping[int, int]
    any_size: bool


def arrange_slices(
    layers: Sequence[Layer],
    indices: Sequence[int],
    places: Sequence[Place],
    homes: Sequence[Mapping[int, int]],
) -> list[tuple[int, Place]] | None:
    """(index, place) of every pod; None if slices do not fit these places. Layers: outermost first.

    ``homes``: preferred node by index, the most important preference first, within the places of its slice.
    """
    if not layers:
        return _preferred(indices, places, homes)
    layer, by_domain = layers[0], dict[int, list[Place]]()
    for place in places:
        by_domain.setdefault(layer.of[place[0]], []).append(place)
    counts = {domain: len(by_domain[domain]) for domain in sorted(by_domain)}
    groups = groups_of(indices, layer.size)
    options = (
        _any_order(layer, groups, counts) if layer.any_size else _in_order(layer, groups, counts)
    )
    for option in options:
        found: list[tuple[int, Place]] = []
        for domain, members in option.items():
            inside = [index for group in members for index in group]
            below = arrange_slices(layers[1:], inside, by_domain[domain], homes)
            if below is None:
                break
            found += below
        else:
            return found
    return None


def _preferred(
    keys: Sequence[AnyKey], places: Sequence[Place], preferences: Sequence[Mapping[AnyKey, object]]
) -> list[tuple[AnyKey, Place]]:
    """(key, place), those first that get the place or the node that the first preferences have for them."""
    found: list[tuple[AnyKey, Place]] = []
    left, rest = list(places), list(keys)
    for preference in preferences:
        for key in list(rest):
            own = next((place for place in left if preference.get(key) in (place, place[0])), None)
            if own is not None:
                left.remove(own)
                rest.remove(key)
                found.append((key, own))
    return [*found, *zip(rest, left, strict=True)]


def _in_order(
    layer: Layer, groups: list[Group], counts: Mapping[int, int]
) -> Iterator[dict[int, list[Group]]]:
    """Slices by domain: whole slices fill the domains in order, short ones go where they fit.

    A domain whose places are no multiple of the size has a short slice; if none is, both are in one.
    """
    size = layer.size
    short = [group for group in groups if len(group) < size]
    whole = [group for group in groups if len(group) == size]
    odd = [domain for domain, count in counts.items() if count % size]
    for chosen in product(odd or counts, repeat=len(short)):
        left = dict(counts)
        for group, domain in zip(short, chosen, strict=True):
            left[domain] -= len(group)
        if any(count < 0 or count % size for count in left.values()):
            continue
        heads = [(g, d) for g, d in zip(short, chosen, strict=True) if g[0] % size]
        tails = [(g, d) for g, d in zip(short, chosen, strict=True) if not g[0] % size]
        first, last = {d for _, d in heads}, {d for _, d in tails}
        order = sorted(counts, key=lambda d: (d not in first, d in last, d))
        rest = iter(whole)
        option = {
            domain: [g for g, d in heads if d == domain]
            + [next(rest) for _ in range(left[domain] // size)]
            + [g for g, d in tails if d == domain]
            for domain in order
        }
        yield option


def _any_order(
    layer: Layer, groups: list[Group], counts: Mapping[int, int]
) -> Iterator[dict[int, list[Group]]]:
    """Every way to give each slice a domain with places for it; slices with standing pods first."""

    def fixed(group: Group) -> int | None:
        return layer.fixed.get(group[0] // layer.size)

    ordered = sorted(groups, key=lambda g: (fixed(g) is None, -len(g), g))
    left, chosen = dict(counts), dict[int, list[Group]]()

    def search(position: int) -> Iterator[dict[int, list[Group]]]:
        if position == len(ordered):
            yield {domain: list(members) for domain, members in chosen.items()}
            return
        group, own = ordered[position], fixed(ordered[position])
        for domain in left if own is None else [own]:
            if left.get(domain, 0) >= len(group):
                left[domain] -= len(group)
                chosen.setdefault(domain, []).append(group)
                yield from search(position + 1)
                chosen[domain].pop()
                left[domain] += len(group)

    yield from search(0)
