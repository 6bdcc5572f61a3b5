"""Instances and parts of GPUs in the program of slots: all that there are, for all that ask for them.

For each resource: what is chosen uses at most what is left of it on all nodes, and what GPUs have that are
partitioned or shared. Nodes whose GPUs may become the same count together: as many of their GPUs get each
geometry, or each set of parts, as is best, and are not given whole. Where there are too many sets, memory,
cores and pods of all GPUs suffice for all parts together, and each has at most one that takes more than half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from models.gpu_shares import MOST_FILLINGS, SHARE
from models.instance.gang import ExistingPod
from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.instance.reshaping import (
    Amounts,
    GpuRoom,
    Partitioning,
    Reshaping,
    Sharing,
    reshaping,
)
from models.mig import RESOURCE
from models.program.linear_program import Linear, Program
from models.program.options import Choice
from models.program.slots.slot_rooms import Mode


@dataclass(frozen=True)
class Reshaped:
    """Nodes whose GPUs may become the same. ``opened``: how many of their GPUs are not given whole."""

    nodes: frozenset[int]
    opened: Linear


def hold_parts(
    instance: Instance,
    program: Program,
    choices: Sequence[Choice],
    modes: Iterable[Mode],
    rooms: Sequence[Room],
) -> list[Reshaped]:
    """Add the rows. ``rooms``: next to the pods that stay under every option."""
    used, staying = _used(instance, choices, modes)
    if not used:
        return []
    supplied = {resource: Linear() for resource in used}
    for n, node in enumerate(instance.cluster.nodes):
        could = dict(node.reshapable)
        offered = Counter({r: count - could.get(r, 0) for r, count in rooms[n].left})
        for resource, own in supplied.items():
            # pods that stay may hold more than there is
            own.constant += max(0, offered[resource], staying[n, resource])
    found, known = [], reshaping(instance)
    for one, nodes in _groups(instance):
        kinds: dict[GpuRoom | None, int] = {None: sum(rooms[n].free_gpus for n in nodes)}
        kinds |= Counter(room for n in nodes for room in known[n].rooms)
        sets = _sets(one, kinds)
        if sets is not None:
            opened = _fill(program, kinds, sets, one.resources, supplied)
        else:
            assert isinstance(one, Sharing), "geometries are few"
            opened = _share(program, instance, one, kinds[None], nodes, supplied)
        found.append(Reshaped(frozenset(nodes), opened))
    for resource, expression in used.items():
        program.at_most(expression.add_linear(supplied[resource], -1))
    return found


Kinds = Mapping[GpuRoom | None, int]
"""How many GPUs have so much room left; None: are idle."""


def _used(
    instance: Instance, choices: Sequence[Choice], modes: Iterable[Mode]
) -> tuple[dict[str, Linear], Counter[tuple[int, str]]]:
    """By resource what is chosen uses; by node and resource what pods use that may stay or leave."""
    used: dict[str, Linear] = {}
    staying = Counter[tuple[int, str]]()
    always = {choice.gang: frozenset(choice.always) for choice in choices}
    seen = set[tuple[int, ExistingPod]]()
    for mode in modes:
        demand = mode.option.demand
        roles = instance.gangs[demand.gang].roles
        amounts = Counter[str]()
        for role in demand.roles:
            amounts.update({r: amount * role.count for r, amount in role.requests})
        for pod in demand.stays:
            if pod in always[demand.gang] or pod.node is None:
                continue
            own = dict(roles[pod.role].requests)
            amounts.update(own)
            if (demand.gang, pod) not in seen:
                seen.add((demand.gang, pod))
                staying.update({(pod.node, r): amount for r, amount in own.items()})
        for resource, amount in amounts.items():
            if resource.startswith((RESOURCE, SHARE)):
                used.setdefault(resource, Linear()).add(mode.variable, amount)
    return used, staying


def _groups(instance: Instance) -> list[tuple[Reshaping, list[int]]]:
    found: dict[object, tuple[Reshaping, list[int]]] = {}
    for n, one in reshaping(instance).items():
        kind: object = one.resources
        if isinstance(one, Partitioning):
            kind = (one.board, one.resources)
        elif isinstance(one, Sharing):
            kind = (one.empty, one.resources)
        found.setdefault(kind, (one, []))[1].append(n)
    return list(found.values())


Sets = Mapping[GpuRoom | None, tuple[Amounts, ...]]
"""By room, what GPUs that have it can get."""


def _sets(one: Reshaping, kinds: Kinds) -> Sets | None:
    """None if there are more sets of parts."""
    found, left = dict[GpuRoom | None, tuple[Amounts, ...]](), MOST_FILLINGS
    for room in kinds:
        own = one.fillings(room)
        if own is None or (isinstance(one, Sharing) and len(own) > left):
            return None
        found[room] = own
        left -= len(own)
    return found


def _fill(
    program: Program,
    kinds: Kinds,
    sets: Sets,
    resources: Sequence[str],
    supplied: Mapping[str, Linear],
) -> Linear:
    """GPUs that are idle, or have the same room left, get what they can have; how many idle ones do."""
    opened = Linear()
    for room, own in sets.items():
        total = Linear()
        for counts in own:
            gpus = program.integer(0, kinds[room])
            total.add(gpus)
            for resource, count in zip(resources, counts, strict=True):
                if resource in supplied and count:
                    supplied[resource].add(gpus, count)
        program.at_most(Linear(dict(total.terms)), kinds[room])
        if room is None:
            opened = total
    return opened


def _share(
    program: Program,
    instance: Instance,
    one: Sharing,
    idle: int,
    nodes: Sequence[int],
    supplied: Mapping[str, Linear],
) -> Linear:
    """GPUs share their memory, cores and pods in any way; how many idle ones do."""
    known = reshaping(instance)
    rooms = [room for n in nodes if isinstance(own := known[n], Sharing) for room in own.shared]
    opened = program.integer(0, idle)
    held = [Linear({opened: -most}) for most in one.empty]
    large = [Linear({opened: -1}) for _ in one.empty]
    for resource, size, most in zip(one.resources, one.sizes, one.most, strict=True):
        if resource not in supplied:
            continue
        count = program.integer(0, most * len(nodes))
        supplied[resource].add(count)
        for row, halves, amount, whole in zip(held, large, size, one.empty, strict=True):
            row.add(count, amount)
            halves.add(count, int(2 * amount > whole))
    for k, (row, halves) in enumerate(zip(held, large, strict=True)):
        program.at_most(row, sum(room[k] for room in rooms))
        program.at_most(halves, len(rooms))
    return Linear({opened: 1})
