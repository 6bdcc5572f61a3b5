"""Instances and parts of GPUs in the program of slots: all that there are, for all that ask for them.

For each resource: what is chosen uses at most what is left of it on all nodes, and what GPUs have that are
partitioned or shared. Nodes whose GPUs may become the same count together: as many of their GPUs get each
geometry, or each set of parts, as is best, and are not given whole. Where there are too many sets, parts that
few ask for count as smaller ones. Where that would say little, memory, cores and pods of all GPUs suffice for
all parts together, and each has at most one that takes more than half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from models.gpu_shares import CORES, MOST_FILLINGS, SHARE, Size, fits, less, times_in
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

MOST_LOST = 1
"""Permille of the GPUs that may be lost where parts count as smaller ones."""


@dataclass
class Reshaped:
    """Nodes whose GPUs may become the same. ``opened``: how many of their GPUs are not given whole.

    ``one``: what they may become. ``resources``: those of it that stand for others, too, and all that do not.
    ``fillings``: by variable, what GPUs get of which there are so many.
    """

    nodes: frozenset[int]
    one: Reshaping
    resources: tuple[str, ...]
    opened: Linear = field(default_factory=Linear)
    fillings: dict[int, Filling] = field(default_factory=dict)


@dataclass
class Parts:
    """``short``: what is asked for beyond what is there, by resource: none in a solution.

    ``alike``: by resource, the one that it counts as; ``asked``: of these, what is chosen.
    """

    groups: list[Reshaped] = field(default_factory=list)
    short: dict[str, Linear] = field(default_factory=dict)
    alike: dict[str, str] = field(default_factory=dict)
    asked: dict[str, Linear] = field(default_factory=dict)

    def fillings(self, values: Sequence[int]) -> Iterator[tuple[Reshaped, list[Filling]]]:
        """What GPUs get that a solution partitions or shares; nothing that it can spare."""
        spare = {resource: -short.value(values) for resource, short in self.short.items()}
        asked = {resource: own.value(values) for resource, own in self.asked.items()}
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
                yield group, [self._told_apart(group, filling, asked) for filling in found]

    def _told_apart(self, group: Reshaped, filling: Filling, asked: dict[str, int]) -> Filling:
        """With parts that count as smaller ones in the place of these, as far as there is room.

        ``asked``: of such parts, how many have no place yet.
        """
        one, (room, counts) = group.one, filling
        if not asked or not isinstance(one, Sharing):
            return filling
        found = dict.fromkeys(one.resources, 0) | dict(zip(group.resources, counts, strict=True))
        sizes = dict(zip(one.resources, one.sizes, strict=True))
        left = one.empty if room is None or len(room) != len(one.empty) else cast(Size, room)
        for resource, count in found.items():
            left = less(left, sizes[resource], count)
        for resource in one.resources:
            if resource in asked and (smaller := found[self.alike[resource]]):
                more = less(sizes[resource], sizes[self.alike[resource]])
                most = times_in(more, left) if any(more) else smaller
                count = min(smaller, asked[resource], most)
                found[self.alike[resource]] -= count
                found[resource] += count
                asked[resource] -= count
                left = less(left, more, count)
        return room, tuple(found.values())


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
    groups = _groups(instance)
    alike = _alike(instance, groups, rooms, used)
    asked = {resource: used.pop(resource) for resource in alike if resource in used}
    for resource, expression in asked.items():
        used.setdefault(alike[resource], Linear()).add_linear(expression)
    supplied = {resource: Linear() for resource in used}
    for n, node in enumerate(instance.cluster.nodes):
        could = dict(node.reshapable)
        offered = Counter({r: count - could.get(r, 0) for r, count in rooms[n].left})
        for resource in {*used, *alike}:
            # pods that stay may hold more than there is
            count = max(0, offered[resource], staying[n, resource])
            if (own := supplied.get(alike.get(resource, resource))) is not None:
                own.constant += count
    found = []
    for one, nodes in groups:
        coarse = _coarse(one, alike)
        found.append(reshaped := Reshaped(frozenset(nodes), one, coarse.resources))
        kinds = _kinds(instance, nodes, rooms)
        sets = _sets(coarse, kinds)
        if sets is not None:
            _fill(program, kinds, sets, reshaped, supplied)
        else:
            assert isinstance(coarse, Sharing), "geometries are few"
            _share(program, instance, coarse, kinds[None], reshaped, supplied)
    for resource, expression in used.items():
        program.at_most(expression.add_linear(supplied[resource], -1))
    return Parts(found, used, alike, asked)


Kinds = Mapping[GpuRoom | None, int]
"""How many GPUs have so much room left; None: are idle."""


def _kinds(instance: Instance, nodes: Iterable[int], rooms: Sequence[Room]) -> Kinds:
    known = reshaping(instance)
    kinds: dict[GpuRoom | None, int] = {None: sum(rooms[n].free_gpus for n in nodes)}
    return kinds | Counter(room for n in nodes for room in known[n].rooms)


def _alike(
    instance: Instance,
    groups: Sequence[tuple[Reshaping, Sequence[int]]],
    rooms: Sequence[Room],
    used: Mapping[str, Linear],
) -> dict[str, str]:
    """By resource, a smaller one that a part counts as, where GPUs have more than MOST_FILLINGS sets.

    Those come first by which least is lost. None if there are too many sets when MOST_LOST is.
    """
    sharing = [(one, _kinds(instance, n, rooms)) for one, n in groups if isinstance(one, Sharing)]
    asked = {resource: sum(own.terms.values()) for resource, own in used.items()}
    left = MOST_LOST * sum(sum(kinds.values()) for _, kinds in sharing)
    found: dict[str, str] = {}
    while any(_sets(_coarse(one, found), kinds) is None for one, kinds in sharing):
        losses = [(one.resources, _losses(one)) for one in (_coarse(o, found) for o, _ in sharing)]
        costs = {
            (larger, smaller): asked.get(larger, 0) * loss
            for _, own in losses
            for (larger, smaller), loss in own.items()
            if all((larger, smaller) in others or larger not in has for has, others in losses)
        }
        larger, smaller = min(costs, key=lambda pair: (costs[pair], pair), default=("", ""))
        left -= costs.get((larger, smaller), left + 1)
        if left < 0:
            return {}
        asked[smaller] = asked.get(smaller, 0) + asked.get(larger, 0)
        found = {r: smaller if instead == larger else instead for r, instead in found.items()}
        found[larger] = smaller
    return found


def _losses(one: Reshaping) -> dict[tuple[str, str], int]:
    """Permille of a GPU that are lost where a part counts as another, no larger one; by both."""
    if not isinstance(one, Sharing):
        return {}
    parts = list(zip(one.resources, one.sizes, strict=True))
    return {
        (a, b): max(
            -(-CORES * (s - t) // most) for s, t, most in zip(own, other, one.empty, strict=True)
        )
        for a, own in parts
        for b, other in parts
        if a != b and fits(other, own)
    }


def _coarse(one: Reshaping, alike: Mapping[str, str]) -> Reshaping:
    """The same without parts that count as others."""
    if not isinstance(one, Sharing) or alike.keys().isdisjoint(one.resources):
        return one
    kept = [k for k, resource in enumerate(one.resources) if resource not in alike]
    return Sharing(
        tuple(one.resources[k] for k in kept),
        tuple(one.there[k] for k in kept),
        tuple(one.most[k] for k in kept),
        tuple(one.sizes[k] for k in kept),
        tuple(one.each[k] for k in kept),
        one.empty,
        rooms=one.rooms,
    )


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
    reshaped: Reshaped,
    supplied: Mapping[str, Linear],
) -> None:
    """GPUs that are idle, or have the same room left, get what they can have."""
    for room, own in sets.items():
        total = Linear()
        for counts in own:
            gpus = program.integer(0, kinds[room])
            total.add(gpus)
            reshaped.fillings[gpus] = room, counts
            for resource, count in zip(reshaped.resources, counts, strict=True):
                if resource in supplied and count:
                    supplied[resource].add(gpus, count)
        program.at_most(Linear(dict(total.terms)), kinds[room])
        if room is None:
            reshaped.opened = total


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
        room for n in reshaped.nodes if isinstance(own := known[n], Sharing) for room in own.shared
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
