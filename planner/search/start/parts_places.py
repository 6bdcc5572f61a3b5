"""Instances and parts of GPUs where a solution of the slots has them: which GPUs get which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence

import numpy as np

from models.instance.reshaping import Filling, GpuRoom, reshaping
from models.instance.solution import PodPlacement
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_state import MAX_UNITS
from models.rules.demands import Demand
from planner.search.free_arrays import IntArray
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import permitted


def is_free(space: FreeSpace, demand: Demand) -> bool:
    """Whether all pods ask for the same, and no rule is about which nodes they use together."""
    gang = space.instance.gangs[demand.gang]
    roles = [gang.roles[role.role] for role in demand.roles]
    held = [gang.required, *(role.required for role in roles)]
    ruled = demand.gang in space.rules.of or any(role.slice_layers for role in roles)
    return len(roles) == 1 and not ruled and not any(level is not None for level in held)


def on_few_nodes(space: FreeSpace, demand: Demand) -> tuple[PodPlacement, ...] | None:
    """Pods on the fewest nodes of one innermost domain, those with least room to spare; None without room."""
    if space.closed.active:
        demand = space.closed.narrowed(demand)
    (role,), tree = demand.roles, space.arrays.tree
    room = space.capacity(demand.gang, role, None).pods
    nodes = np.flatnonzero(room)
    of = tree.domain_of[tree.levels - 1][nodes] if tree.levels else np.zeros_like(nodes)
    order = np.lexsort((nodes, -room[nodes], of))
    nodes, of, room = nodes[order], of[order], room[nodes[order]]
    first = np.searchsorted(of, of)  # of the domain of each
    before = np.concatenate(([0], np.cumsum(room)))[:-1]
    left = role.count - (before - before[first])  # beside those with more room in the domain
    enough = np.flatnonzero((left > 0) & (room >= left))
    if not len(enough):
        return None
    number = np.arange(len(nodes)) - first
    last = enough[np.lexsort((room[enough] - left[enough], number[enough]))[0]]
    chosen = nodes[first[last] : last].repeat(room[first[last] : last]).tolist()
    closest = np.flatnonzero((of == of[last]) & (room >= left[last]))[-1]
    chosen += [int(nodes[closest])] * int(left[last])
    pods = tuple(
        PodPlacement(role.role, i, n, 0) for i, n in zip(role.indices, chosen, strict=True)
    )
    holds = space.holds(pods, space.instance.gangs[demand.gang].roles)
    return pods if holds and permitted(space, demand.gang, pods) else None


def withdraw(space: FreeSpace, nodes: Iterable[int], gangs: Container[int]) -> None:
    """Gangs leave nodes whose GPUs have room for all their parts, but nobody finds how."""
    known = space.instance.gangs
    for n in nodes:
        while space.by_node[n].raw < 0:
            mine = {gang for gang, _, _ in space.by_node[n].tenants if gang in gangs}
            leaving = [gang for gang in mine if not known[gang].running]
            if not leaving:
                break
            space.set(min(leaving, key=lambda gang: (known[gang].priority, -gang)), ())


def fillings_of(
    model: SlotModel, values: Sequence[int], space: FreeSpace
) -> dict[int, list[Filling]]:
    """By node, what its GPUs get, as many as in the solution.

    First idle GPUs that are too few for a large pod on their node, then those of nodes with few of them, and
    last those of whose slots the solution has large pods.
    """
    found, free = dict[int, list[Filling]](), space.arrays.free
    needed = _needed(model, values, free)
    rooms = {n: one.rooms for n, one in reshaping(model.instance).items()}
    sizes = {role.gpus for mode in model.modes for role in mode.option.demand.gpu_roles}
    large = sorted(sizes)[-MAX_UNITS:]
    for group, fillings in model.parts.fillings(values):
        nodes = np.array(sorted(group.nodes))
        nodes = nodes[np.lexsort((nodes, needed[nodes], free[nodes]))]
        places = defaultdict[GpuRoom | None, list[int]](list)
        taken = np.zeros_like(nodes)
        for left in (*(free[nodes] % size for size in large), free[nodes]):
            places[None] += np.repeat(nodes, np.maximum(left - taken, 0)).tolist()
            taken = np.maximum(left, taken)
        for n in nodes.tolist():
            for room in rooms[n]:
                places[room].append(n)
        given = {room: iter(own) for room, own in places.items()}
        for filling in fillings:
            n = next(given[filling[0]], None)
            if n is not None:
                found.setdefault(n, []).append(filling)
    return found


def _needed(model: SlotModel, values: Sequence[int], free: IntArray) -> IntArray:
    """By node 1 for as many of each innermost domain as have the large slots that it has in a solution."""
    needed = np.zeros_like(free)
    for nodes, slots in model.large_taken(values):
        own = np.array(nodes)
        there = free[own] // model.units[0]
        order = np.argsort(-there, kind="stable")
        before = np.cumsum(there[order]) - there[order]
        needed[own[order[(before < slots) & (there[order] > 0)]]] = 1
    return needed
