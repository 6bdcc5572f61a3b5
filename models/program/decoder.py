"""From an assignment of the variables to nodes, GPU indices and pod indices.

Every piece gets a server and a set of its type, and the pods of a slice one domain. Same values, same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from models.hardware import bits
from models.instance.instance import Instance
from models.instance.occupancy import Room, rooms
from models.instance.solution import GangDecision, PodPlacement, placed
from models.program.base_state import PlacementRequests, outcome
from models.program.packing import Arc, SetType
from models.program.packing_flows import Admits, RegionFlow, slots_in
from models.program.pod_assignment import Layer, arrange_slices, give_own_places
from models.program.regions import Region, RegionSet
from models.program.rules.running import justify_preemptions
from models.program.variables import GangVariables, Piece, Variables
from models.rules.demands import Demand, RoleDemand


@dataclass
class GpuSlot:
    """A set of GPUs carved out of a node: ``mask`` None where the node decides."""

    node: int
    kind: SetType
    mask: int | None


@dataclass
class GangSlots:
    """What one gang gets: (slot, pods of each GPU role), and nodes for its pods without GPUs.

    ``fixed[role]``: for each layer, innermost first, the domain of each slice that has one, by its number.
    ``assigned``: nodes for the pods (role, index) that have variables of their own.
    """

    slots: list[tuple[GpuSlot, tuple[int, ...]]] = field(default_factory=list)
    cpu_only_counts: dict[int, list[int]] = field(default_factory=dict)
    fixed: dict[int, list[dict[int, int]]] = field(default_factory=dict)
    assigned: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)


def decode(
    instance: Instance,
    requests: PlacementRequests,
    region_set: RegionSet,
    variables: Variables,
    values: Sequence[int],
    base: Sequence[GangDecision],
) -> tuple[GangDecision, ...]:
    """One decision a gang. Shape of ``values``: one integer a variable of the program."""
    staying = staying_decisions(instance, requests, variables.admits, values, base)
    left = beside_kept(rooms(instance, staying), requests, variables, values)
    free = [
        carve_slots(region, left, variables.flows[number], values)
        for number, region in enumerate(region_set.regions)
    ]
    granted: dict[int, tuple[Demand, GangSlots]] = {}
    queue: list[tuple[int, int, GangVariables, list[Piece]]] = []
    for gang in variables.gangs:
        if values[gang.admit]:
            granted[gang.demand.gang] = (gang.demand, GangSlots())
            pieces = [p for p in gang.pieces for _ in range(values[p.variable])]
            queue.append((-len(pieces), gang.demand.gang, gang, pieces))
    for _, index, _, pieces in sorted(queue, key=lambda want: want[:2]):
        assign_slots(free, pieces, granted[index][1])
    for gang in variables.gangs:
        if values[gang.admit]:
            slots = granted[gang.demand.gang][1]
            place_cpu_only_pods(region_set, gang, values, slots)
            assign_slices(instance, region_set, gang, values, slots)
            slots.assigned = assigned(region_set, gang, values)
    for group in variables.groups:
        given = [p for p in group.pieces for _ in range(values[p.variable])]
        admitted = [d for d, a in zip(group.demands, group.admits, strict=True) if values[a]]
        for demand, piece in zip(admitted, given, strict=True):
            granted[demand.gang] = (demand, GangSlots())
            assign_slots(free, [piece], granted[demand.gang][1])
    return build_decisions(instance, left, staying, granted)


def beside_kept(
    left: Sequence[Room],
    requests: PlacementRequests,
    variables: Variables,
    values: Sequence[int],
) -> list[Room]:
    """The rooms without GPUs that stay shared because a pod comes to them."""
    found = list(left)
    for one, variable in zip(requests.keeping, variables.keeping, strict=True):
        room = found[one.node]
        if values[variable] and room.mask & one.gpu:
            found[one.node] = replace(
                room,
                mask=room.mask & ~one.gpu,
                free_gpus=max(0, room.free_gpus - 1),
                kept=room.kept | one.gpu,
            )
    return found


def staying_decisions(
    instance: Instance,
    requests: PlacementRequests,
    admits: Admits,
    values: Sequence[int],
    base: Sequence[GangDecision],
) -> list[GangDecision]:
    """The decision about every gang before anything is placed: the pods that stay under its option."""
    found = list(base)
    for choice, own in zip(requests.choices, admits, strict=True):
        admitted = [o for o, admit in zip(choice.options, own, strict=True) if values[admit]]
        stays = admitted[0].demand.stays if admitted else ()
        found[choice.gang] = outcome(
            instance, choice.gang, placed(instance.gangs[choice.gang], stays)
        )
    return found


def build_decisions(
    instance: Instance,
    left: Sequence[Room],
    staying: Sequence[GangDecision],
    granted: Mapping[int, tuple[Demand, GangSlots]],
) -> tuple[GangDecision, ...]:
    """One decision a gang: its pods that stay and those that get places."""
    decisions = list(staying)
    for index, (demand, slots) in granted.items():
        pods = pods_of(instance, left, demand, slots)
        pods = give_own_places(instance, demand, pods, slots.assigned)
        decisions[index] = outcome(instance, index, (*staying[index].pods, *pods))
    placing = {index: demand for index, (demand, _) in sorted(granted.items())}
    return tuple(justify_preemptions(instance, decisions, placing))


def carve_slots(
    region: Region, rooms: Sequence[Room], flow: RegionFlow, values: Sequence[int]
) -> dict[SetType, list[GpuSlot]]:
    """Split the flow into one path a node, in node order, largest state first.

    ``rooms``: what is free next to the pods that stay.
    """
    if flow.meshed:
        taken: dict[SetType, list[GpuSlot]] = {}
        for gpus, kind, variable in flow.sets:
            if values[variable]:
                taken.setdefault(kind, []).append(GpuSlot(region.nodes[0], kind, gpus))
        for _, kind, variable in flow.hidden:
            unknown = [GpuSlot(region.nodes[0], kind, None) for _ in range(values[variable])]
            taken.setdefault(kind, []).extend(unknown)
        return taken
    if flow.held:
        return _carve_one(region, rooms[region.nodes[0]], flow, values)
    waiting: dict[int, list[tuple[int, int]]] = {}
    for n in region.nodes:
        state = region.packing.state(rooms[n].mask, rooms[n].free_gpus)
        waiting.setdefault(state, []).append((n, rooms[n].mask))
    slots: dict[SetType, list[GpuSlot]] = {}

    def carve(source: int, arc: Arc) -> None:
        n, mask = heappop(waiting[source])
        chosen = None if rooms[n].blind else region.packing.choose(mask, arc)
        slots.setdefault(arc.kind, []).append(GpuSlot(n, arc.kind, chosen))
        heappush(waiting.setdefault(arc.target, []), (n, mask & ~(chosen or 0)))

    _carve_paths(region, flow, values, carve)
    for kind, count in _slots_taken(flow, values):
        for _ in range(count):
            source = _least_split(flow, waiting, kind.gpus)
            carve(source, Arc(source, kind, source - kind.gpus))
    return slots


def _carve_paths(
    region: Region, flow: RegionFlow, values: Sequence[int], carve: Callable[[int, Arc], None]
) -> None:
    leaving: dict[int, list[tuple[Arc, int]]] = {}
    for arc, variable in flow.arcs:
        if values[variable]:
            leaving.setdefault(arc.source, []).append((arc, values[variable]))
    for state in sorted(leaving, key=lambda s: (-region.packing.size(s), s)):
        for arc, count in leaving[state]:
            for _ in range(count):
                carve(state, arc)


def _least_split(flow: RegionFlow, waiting: Mapping[int, Sequence[object]], size: int) -> int:
    """The free GPUs of a server on which the smallest slot has to be split for a set of the size."""
    assert flow.slots is not None
    able = [free for free, here in waiting.items() if here and free >= size]
    slots = {free: [slot for slot, _ in slots_in(free, flow.slots.starts)] for free in able}
    return min(able, key=lambda free: (min(s for s in slots[free] if s >= size), free))


def _slots_taken(flow: RegionFlow, values: Sequence[int]) -> list[tuple[SetType, int]]:
    """Sets of each type that take slots, those that stay included: slots that there are and are not left."""
    if flow.slots is None:
        return []
    taken = {size: slots.value(values) for size, slots in flow.slots.starts.items()}
    for size, rest in flow.rests.items():
        taken[size] -= values[rest]
    for source, part, variable in flow.slots.splits:
        taken[source] -= values[variable]
        taken[part] += source // part * values[variable]
    return [(kind, taken[size]) for size, kind in flow.slots.kinds.items()]


def _carve_one(
    region: Region, room: Room, flow: RegionFlow, values: Sequence[int]
) -> dict[SetType, list[GpuSlot]]:
    """The sets of a server where only their sizes count, without those of the pods that stay."""
    staying: dict[int, int] = {}
    for _, gpus, stays in flow.held:
        staying[gpus] = staying.get(gpus, 0) + stays.value(values)
    slots: dict[SetType, list[GpuSlot]] = {}
    mask = room.mask
    taken = [(arc.kind, values[variable]) for arc, variable in flow.arcs]
    taken += _slots_taken(flow, values)
    for kind, count in sorted(taken, key=lambda item: -item[0].gpus):
        for _ in range(count):
            if staying.get(kind.gpus, 0):
                staying[kind.gpus] -= 1
                continue
            chosen = None if room.blind else region.packing.choose(mask, Arc(0, kind, 0))
            mask &= ~(chosen or 0)
            slots.setdefault(kind, []).append(GpuSlot(region.nodes[0], kind, chosen))
    return slots


def assign_slots(
    free: list[dict[SetType, list[GpuSlot]]], pieces: Sequence[Piece], slots: GangSlots
) -> None:
    """Give every piece a slot of its type, on a node that the gang does not use yet where possible."""
    for piece in pieces:
        offers = free[piece.region][piece.kind]
        used = {slot.node for slot, _ in slots.slots}
        best = next((i for i, slot in enumerate(offers) if slot.node not in used), 0)
        slots.slots.append((offers.pop(best), piece.pods))


def place_cpu_only_pods(
    region_set: RegionSet, gang: GangVariables, values: Sequence[int], slots: GangSlots
) -> None:
    """Nodes of the pods without GPUs: next to the gang's GPUs in the same region, else its first node."""
    used = {slot.node for slot, _ in slots.slots} | set(gang.demand.standing_nodes)
    for (position, number), variable in sorted(gang.cpu_only_counts.items()):
        nodes = region_set.regions[number].nodes
        chosen = next((n for n in nodes if n in used), nodes[0])
        slots.cpu_only_counts.setdefault(position, []).extend([chosen] * values[variable])


def assign_slices(
    instance: Instance,
    region_set: RegionSet,
    gang: GangVariables,
    values: Sequence[int],
    slots: GangSlots,
) -> None:
    """The domains of slices that have variables of their own."""
    for role, separate in gang.slices.items():
        slots.fixed[role] = []
        layers = gang.gang.roles[role].slice_layers
        for slices, (size, level) in zip(separate, layers, strict=True):
            own: dict[int, int] = {}
            for indices, options in slices:
                for regions, variable in options:
                    nodes = [n for r in sorted(regions) for n in region_set.regions[r].nodes]
                    domains = {instance.cluster.domain_of[level][n] for n in nodes}
                    if values[variable] and len(domains) == 1:
                        own[indices[0] // size] = domains.pop()
            slots.fixed[role].append(own)


def assigned(
    region_set: RegionSet, gang: GangVariables, values: Sequence[int]
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Nodes of the region that each pod goes to, for roles whose pods have variables of their own."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for role, identical in gang.exchange.items():
        for indices, places in identical:
            regions = [r for r, variable in places.items() for _ in range(values[variable])]
            for index, region in zip(indices, regions, strict=True):
                found[role, index] = region_set.regions[region].nodes
    return found


def pods_of(
    instance: Instance, rooms: Sequence[Room], demand: Demand, slots: GangSlots
) -> list[PodPlacement]:
    of = instance.cluster.domain_of
    filled = sorted(
        slots.slots, key=lambda s: (*(level[s[0].node] for level in of), s[0].mask or 0)
    )
    unused = [list(bits(slot.mask)) if slot.mask is not None else None for slot, _ in filled]
    places: dict[int, list[tuple[int, int | None]]] = {}
    for position, role in enumerate(demand.gpu_roles):
        places[role.role] = []
        for (slot, pods), pool in zip(filled, unused, strict=True):
            for _ in range(pods[position]):
                places[role.role].append((slot.node, _take(instance, rooms, slot.node, role, pool)))
    home = filled[0][0].node if filled else None
    for position, role in enumerate(demand.cpu_only_roles):
        nodes = slots.cpu_only_counts.get(position)
        if nodes is None:
            assert home is not None
            nodes = [home] * role.count
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
    node, room = instance.cluster.nodes[n], rooms[n]
    whole = not room.unknown and role.gpus == node.gpus
    return room.mask if whole else None


def _indexed(
    instance: Instance,
    demand: Demand,
    role: RoleDemand,
    places: list[tuple[int, int | None]],
    chosen: list[dict[int, int]] | None,
) -> list[tuple[int, tuple[int, int | None]]]:
    """Pair pod indices with places so that the pods of every slice share one domain."""
    gang = instance.gangs[demand.gang]
    layers = []
    for number, (size, level) in enumerate(gang.roles[role.role].slice_layers):
        fixed = dict(chosen[number]) if chosen else {}
        if role.layers:
            fixed |= {g[0] // size: d for g, d in role.layers[number] if d is not None}
        of = instance.cluster.domain_of[level]
        layers.append(Layer(size, of, fixed, any_size=bool(role.layers)))
    stood = {
        p.index: p.node for p in gang.running_pods if p.role == role.role and p.node is not None
    }
    wanted = {p.index: p.node for p in gang.planned if p.role == role.role}
    found = arrange_slices(layers[::-1], role.indices, places, [wanted, stood])
    assert found is not None, "the slice rows promise a domain for every slice"
    return sorted(found, key=lambda pair: pair[0])
