"""Instances and parts of GPUs in the program of slots: all that there are, for all that ask for them.

For each resource: what is chosen uses at most what is left of it on all nodes, and what GPUs have that are
partitioned or shared. Nodes whose GPUs may become the same count together: as many of their GPUs get each
geometry, or each set of parts, as is best, and are not given whole. Where there are too many sets, memory,
cores and pods of all GPUs suffice for all parts together, and each has at most one that takes more than half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from models.gpu_shares import MOST_FILLINGS, SHARE
from models.instance.gang import ExistingPod
from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.instance.reshaping import (
    Amounts,
    Filling,
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


@dataclass
class Reshaped:
    """Nodes whose GPUs may become the same. ``opened``: how many of their GPUs are not given whole.

    ``fillings``: by variable, what GPUs get of which there are so many.
    """

    nodes: frozenset[int]
    resources: tuple[str, ...]
    opened: Linear = field(default_factory=Linear)
    fillings: dict[int, Filling] = field(default_factory=dict)


@dataclass
class Parts:
    """What is asked for beyond what is there, by resource: none in a solution."""

    groups: list[Reshaped] = field(default_factory=list)
    short: dict[str, Linear] = field(default_factory=dict)

    def fillings(self, values: Sequence[int]) -> Iterator[tuple[Reshaped, list[Filling]]]:
        """What GPUs get that a solution partitions or shares; nothing that it can spare."""
        spare = {resource: -short.value(values) for resource, short in self.short.items()}
        for group in self.groups:
            found = list[Filling]()
            for variable, filling in group.fillings.items():
                counts = dict(zip(group.resources, filling[1], strict=True))
                own = {r: count for r, count in counts.items() if count and r in spare}
                gone = min([values[variable], *(spare[r] // count for r, count in own.items())])
                for r, count in own.items():
                    spare[r] -= gone * count
                found += [filling] * (values[variable] - gone)
            if found:
                yield group, found


def hold_parts(
    instance: Instance,
    program: Program,
    choices: Sequence[Choice],
    modes: Iterable[Mode],
    rooms: Sequence[Room],
) -> Parts:
    """Add the rows. ``rooms``: next to the pods that stay under every option."""
    used, staying = _used(instance, choices, modes)
    if not used:
        return Parts()
    supplied = {resource: Linear() for resource in used}
    for n, node in enumerate(instance.cluster.nodes):
        offered, could = dict(rooms[n].left), dict(node.reshapable)
        for resource, supply in supplied.items():
            there = offered.get(resource, 0) - could.get(resource, 0)
            # pods that stay may hold more than there is
            supply.constant += max(0, there, staying[n, resource])
    found = []
    for one, nodes in _groups(instance):
        reshaped = Reshaped(frozenset(nodes), one.resources)
        idle = sum(rooms[n].free_gpus for n in nodes)
        if not _fill(program, instance, one, idle, reshaped, supplied):
            assert isinstance(one, Sharing), "geometries are few"
            _share(program, instance, one, idle, reshaped, supplied)
        found.append(reshaped)
    for resource, expression in used.items():
        program.at_most(expression.add_linear(supplied[resource], -1))
    return Parts(found, used)


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


def _fill(
    program: Program,
    instance: Instance,
    one: Reshaping,
    idle: int,
    reshaped: Reshaped,
    supplied: Mapping[str, Linear],
) -> bool:
    """GPUs that are idle, or have the same room left, get what they can have; False if that is too much."""
    known = reshaping(instance)
    kinds: dict[GpuRoom | None, int] = {None: idle}
    kinds |= Counter(room for n in reshaped.nodes for room in known[n].rooms)
    found: dict[GpuRoom | None, tuple[Amounts, ...]] = {}
    left = MOST_FILLINGS
    for room in kinds:
        own = one.fillings(room)
        if own is None or (isinstance(one, Sharing) and len(own) > left):
            return False
        found[room] = own
        left -= len(own)
    for room, own in found.items():
        total = Linear()
        for counts in own:
            gpus = program.integer(0, kinds[room])
            total.add(gpus)
            reshaped.fillings[gpus] = room, counts
            for resource, count in zip(one.resources, counts, strict=True):
                if resource in supplied:
                    supplied[resource].add(gpus, count)
        program.at_most(Linear(dict(total.terms)), kinds[room])
        if room is None:
            reshaped.opened = total
    return True


def _share(
    program: Program,
    instance: Instance,
    one: Sharing,
    idle: int,
    reshaped: Reshaped,
    supplied: Mapping[str, Linear],
) -> None:
    known = reshaping(instance)
    rooms = [
        room for n in reshaped.nodes if isinstance(own := known[n], Sharing) for room in own.rooms
    ]
    opened = program.integer(0, idle)
    reshaped.opened.add(opened)
    held = [Linear({opened: -most}) for most in one.empty]
    large = [Linear({opened: -1}) for _ in one.empty]
    for resource, size, most in zip(one.resources, one.sizes, one.most, strict=True):
        if resource not in supplied:
            continue
        count = program.integer(0, most * len(reshaped.nodes))
        supplied[resource].add(count)
        for row, halves, amount, whole in zip(held, large, size, one.empty, strict=True):
            row.add(count, amount)
            halves.add(count, int(2 * amount > whole))
    for k, (row, halves) in enumerate(zip(held, large, strict=True)):
        program.at_most(row, sum(room[k] for room in rooms))
        program.at_most(halves, len(rooms))
