"""From an assignment of the variables to nodes, GPU indices and pod indices. Same values, same plan.

Every piece gets a server and a set of its type. Pods keep their own or planned place where possible, and the
pods of every slice, in every layer, share a domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeVar

from models.hardware import bits
from models.instance.instance import Instance
from models.instance.occupancy import Room, rooms
from models.instance.solution import GangDecision, PodPlacement, placed
from models.program.base_state import outcome
from models.program.packing import CountSets, SetType
from models.program.rules.running import justify_preemptions
from models.program.servers import Server, Supply
from models.program.variables import GangVariables, Model
from models.rules.demands import Demand, RoleDemand, groups_of

Place = tuple[int, int | None]
"""Node, and mask of the GPUs there; None where the node decides."""

Slots = dict[SetType, list[Place]]
"""Sets of GPUs carved out of a node, by type."""


@dataclass
class GangSlots:
    """What one gang gets: (slot, pods of each GPU role), and nodes for its pods without GPUs.

    ``fixed[role]``: for each layer, innermost first, the domain of each slice that has one, by its number.
    """

    slots: list[tuple[Place, tuple[int, ...]]] = field(default_factory=list)
    cpu_only_counts: dict[int, list[int]] = field(default_factory=dict)
    fixed: dict[int, list[dict[int, int]]] = field(default_factory=dict)


def decode(model: Model, values: Sequence[int]) -> tuple[GangDecision, ...]:
    """One decision a gang. Shape of ``values``: one integer a variable of the program."""
    instance, variables = model.instance, model.variables
    staying = _staying_decisions(model, values)
    left = _beside_kept(model, rooms(instance, staying), values)
    wanted: dict[int, list[SetType]] = {}
    for piece in variables.pieces:
        if values[piece.variable]:
            wanted.setdefault(piece.n, []).extend([piece.kind] * values[piece.variable])
    free = {
        n: carve_slots(model.servers[n], left[n], variables.supplies[n], kinds, values)
        for n, kinds in wanted.items()
    }
    placing: dict[int, Demand] = {}
    for gang in variables.gangs:
        for demand, slots in _granted(instance, free, gang, values):
            index, pods = demand.gang, pods_of(instance, left, demand, slots)
            pods = give_own_places(instance, demand, pods)
            staying[index] = outcome(instance, index, (*staying[index].pods, *pods))
            placing[index] = demand
    return tuple(justify_preemptions(instance, staying, dict(sorted(placing.items()))))


def _granted(
    instance: Instance,
    free: Mapping[int, Slots],
    gang: GangVariables,
    values: Sequence[int],
) -> Iterator[tuple[Demand, GangSlots]]:
    """What an option, or each gang that shares its pieces, gets of the slots that are ``free``, by node."""
    if gang.group:
        given = [piece for piece in gang.pieces for _ in range(values[piece.variable])]
        admitted = [demand for demand, admit in gang.group if values[admit]]
        for demand, piece in zip(admitted, given, strict=True):
            nodes = {role.role: [piece.n] * role.count for role in demand.cpu_only_roles}
            yield demand, GangSlots([(free[piece.n][piece.kind].pop(0), piece.pods)], nodes)
    elif values[gang.admit]:
        slots = GangSlots()
        for piece in gang.pieces:
            if values[piece.variable]:
                slots.slots.append((free[piece.n][piece.kind].pop(0), piece.pods))
        for (role, n), variable in sorted(gang.cpu_only_counts.items()):
            slots.cpu_only_counts.setdefault(role, []).extend([n] * values[variable])
        assign_slices(instance, gang, values, slots)
        yield gang.demand, slots


def _beside_kept(model: Model, left: Sequence[Room], values: Sequence[int]) -> list[Room]:
    """The rooms without GPUs that stay shared because a pod comes to them."""
    found = list(left)
    for one, variable in zip(model.state.keeping, model.variables.keeping, strict=True):
        room = found[one.node]
        if values[variable] and room.mask & one.gpu:
            found[one.node] = replace(
                room,
                mask=room.mask & ~one.gpu,
                free_gpus=max(0, room.free_gpus - 1),
                kept=room.kept | one.gpu,
            )
    return found


def _staying_decisions(model: Model, values: Sequence[int]) -> list[GangDecision]:
    """The decision about every gang before anything is placed: the pods that stay under its option."""
    found = list(model.state.base)
    for choice, own in model.decided:
        admitted = [o for o, admit in zip(choice.options, own, strict=True) if values[admit]]
        stays = admitted[0].demand.stays if admitted else ()
        pods = placed(model.instance.gangs[choice.gang], stays)
        found[choice.gang] = outcome(model.instance, choice.gang, pods)
    return found


def carve_slots(
    server: Server, room: Room, supply: Supply, kinds: Sequence[SetType], values: Sequence[int]
) -> Slots:
    """A slot for each of these sets, the largest first. ``room``: next to the pods that stay."""
    slots: Slots = {}
    if isinstance(server.sets, CountSets):
        mask = room.mask
        for kind in sorted(kinds, key=lambda kind: -kind.gpus):
            chosen = None if room.blind else server.sets.fastest(mask, kind.gpus)
            mask &= ~(chosen or 0)
            slots.setdefault(kind, []).append((server.n, chosen))
        return slots
    for gpus, kind, variable in supply.sets:
        if values[variable]:
            slots.setdefault(kind, []).append((server.n, gpus))
    for _, kind, variable in supply.hidden:
        slots.setdefault(kind, []).extend([(server.n, None)] * values[variable])
    return slots


def assign_slices(
    instance: Instance, gang: GangVariables, values: Sequence[int], slots: GangSlots
) -> None:
    """The domains of slices that have variables of their own."""
    for role, separate in gang.slices.items():
        slots.fixed[role] = []
        layers = gang.gang.roles[role].slice_layers
        for slices, (size, level) in zip(separate, layers, strict=True):
            of = instance.cluster.domain_of[level]
            slots.fixed[role].append(
                {
                    indices[0] // size: of[min(nodes)]
                    for indices, options in slices
                    for nodes, variable in options
                    if values[variable]
                }
            )


def pods_of(
    instance: Instance, rooms: Sequence[Room], demand: Demand, slots: GangSlots
) -> list[PodPlacement]:
    of = instance.cluster.domain_of
    filled = sorted(slots.slots, key=lambda s: (*(level[s[0][0]] for level in of), s[0][1] or 0))
    unused = [None if mask is None else list(bits(mask)) for (_, mask), _ in filled]
    places: dict[int, list[Place]] = {}
    for position, role in enumerate(demand.gpu_roles):
        places[role.role] = [
            (n, _take(instance, rooms, n, role, pool))
            for ((n, _), pods), pool in zip(filled, unused, strict=True)
            for _ in range(pods[position])
        ]
    for role in demand.cpu_only_roles:
        nodes = slots.cpu_only_counts[role.role]
        places[role.role] = [(n, 0) for n in sorted(nodes, key=lambda n: [lv[n] for lv in of])]
    placed = []
    for role in demand.roles:
        ordered = _indexed(instance, demand, role, places[role.role], slots.fixed.get(role.role))
        placed += [PodPlacement(role.role, i, n, gpus) for i, (n, gpus) in ordered]
    return placed


def _take(
    instance: Instance, rooms: Sequence[Room], n: int, role: RoleDemand, pool: list[int] | None
) -> int | None:
    """The next GPUs of the slot; where the node chooses, only a pod of the whole node has indices."""
    if pool is not None:
        chosen, pool[: role.gpus] = pool[: role.gpus], []
        return sum(1 << i for i in chosen)
    whole = not rooms[n].unknown and role.gpus == instance.cluster.nodes[n].gpus
    return rooms[n].mask if whole else None


def _indexed(
    instance: Instance,
    demand: Demand,
    role: RoleDemand,
    places: list[Place],
    chosen: list[dict[int, int]] | None,
) -> list[tuple[int, Place]]:
    """Pair pod indices with places so that the pods of every slice share one domain."""
    gang = instance.gangs[demand.gang]
    layers = []
    for number, (size, level) in enumerate(gang.roles[role.role].slice_layers):
        fixed = dict(chosen[number]) if chosen else {}
        if role.layers:
            fixed |= {g[0] // size: d for g, d in role.layers[number] if d is not None}
        of = instance.cluster.domain_of[level]
        layers.append(Layer(size, of, fixed, any_size=bool(role.layers)))
    own = (p for p in gang.running_pods if p.role == role.role)
    stood = {p.index: p.node for p in own if p.node is not None}
    wanted = {p.index: p.node for p in gang.planned if p.role == role.role}
    found = arrange_slices(layers[::-1], role.indices, places, [wanted, stood])
    assert found is not None, "the slice rows promise a domain for every slice"
    return sorted(found, key=lambda pair: pair[0])


Key = tuple[int, int]
AnyKey = TypeVar("AnyKey")


def give_own_places(
    instance: Instance, demand: Demand, pods: Sequence[PodPlacement]
) -> list[PodPlacement]:
    """A permutation of the places in which pods get their own places as far as possible."""
    gang = instance.gangs[demand.gang]
    planned = {(pod.role, pod.index): pod.node for pod in gang.planned}
    where = {(p.role, p.index): p.node for p in gang.running_pods if p.node is not None}
    exact = {
        (p.role, p.index): (p.node, p.gpus if gang.roles[p.role].gpus else 0)
        for p in gang.running_pods
        if p.node is not None
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
    orders = _any_order if layer.any_size else _in_order
    for option in orders(layer, groups, counts):
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
        yield {
            domain: [g for g, d in heads if d == domain]
            + [next(rest) for _ in range(left[domain] // size)]
            + [g for g, d in tails if d == domain]
            for domain in order
        }


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
