"""From an assignment of the variables to nodes, GPU indices and pod indices.

Every piece gets a server and a set of its type, and the pods of a slice one domain. Same values, same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.hardware import bits
from models.instance.instance import Instance
from models.instance.occupancy import Room, rooms
from models.instance.solution import GangDecision, PodPlacement, placed
from models.program.base_state import outcome
from models.program.packing import CountSets, SetType
from models.program.pod_assignment import Layer, arrange_slices, give_own_places
from models.program.rules.running import justify_preemptions
from models.program.servers import Server, Supply
from models.program.variables import GangVariables, Model
from models.rules.demands import Demand, RoleDemand


@dataclass
class GpuSlot:
    """A set of GPUs carved out of a node: ``mask`` None where the node decides."""

    node: int
    mask: int | None


@dataclass
class GangSlots:
    """What one gang gets: (slot, pods of each GPU role), and nodes for its pods without GPUs.

    ``fixed[role]``: for each layer, innermost first, the domain of each slice that has one, by its number.
    """

    slots: list[tuple[GpuSlot, tuple[int, ...]]] = field(default_factory=list)
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
    granted = {
        gang.demand.gang: (gang.demand, _granted(instance, free, gang, values))
        for gang in variables.gangs
        if values[gang.admit]
    }
    for index, (demand, slots) in granted.items():
        pods = pods_of(instance, left, demand, slots)
        pods = give_own_places(instance, demand, pods)
        staying[index] = outcome(instance, index, (*staying[index].pods, *pods))
    placing = {index: demand for index, (demand, _) in sorted(granted.items())}
    return tuple(justify_preemptions(instance, staying, placing))


def _granted(
    instance: Instance,
    free: Mapping[int, dict[SetType, list[GpuSlot]]],
    gang: GangVariables,
    values: Sequence[int],
) -> GangSlots:
    """What an option gets of the slots that are free, by node and type."""
    slots = GangSlots()
    for piece in gang.pieces:
        if values[piece.variable]:
            slots.slots.append((free[piece.n][piece.kind].pop(0), piece.pods))
    for (role, n), variable in sorted(gang.cpu_only_counts.items()):
        slots.cpu_only_counts.setdefault(role, []).extend([n] * values[variable])
    assign_slices(instance, gang, values, slots)
    return slots


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
) -> dict[SetType, list[GpuSlot]]:
    """A slot for each of these sets, the largest first. ``room``: next to the pods that stay."""
    slots: dict[SetType, list[GpuSlot]] = {}
    if isinstance(server.sets, CountSets):
        mask = room.mask
        for kind in sorted(kinds, key=lambda kind: -kind.gpus):
            chosen = None if room.blind else server.sets.fastest(mask, kind.gpus)
            mask &= ~(chosen or 0)
            slots.setdefault(kind, []).append(GpuSlot(server.n, chosen))
        return slots
    for gpus, kind, variable in supply.sets:
        if values[variable]:
            slots.setdefault(kind, []).append(GpuSlot(server.n, gpus))
    for _, kind, variable in supply.hidden:
        slots.setdefault(kind, []).extend(GpuSlot(server.n, None) for _ in range(values[variable]))
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
