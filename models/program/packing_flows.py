"""The flow of a region's servers through packing states.

A server starts with what is free next to the pods that stay there under the chosen options. The flow offers
every GPU set of the sizes in demand that the packing has, each with a variable that counts it. Where only
the number of GPUs matters, arcs are needed only for sizes that do not divide one another: sets of sizes such
as 1, 2, 4 and 8 fit on a server whenever as many GPUs are free. What is free is then so many slots of each of
these sizes; a set takes one, and a slot splits into smaller ones. That is as exact, with fewer variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from models.hardware import bits
from models.instance.occupancy import Room
from models.program.linear_program import Linear, Program
from models.program.packing import Arc, CountPacking, MaskPacking, SetType, subsets
from models.program.regions import Region
from models.program.server_cases import Case, CasePacking, NodeUsage

Admits = Sequence[Sequence[int]]
"""The variable of every option of every choice."""


@dataclass
class Slots:
    """Slots by size, largest first. ``starts``: how many there are; ``kinds``: type of a set that takes one.

    ``splits``: (size, size of the parts, variable). ``ends[state]``: servers that the arcs leave so.
    """

    starts: dict[int, Linear]
    kinds: dict[int, SetType]
    splits: list[tuple[int, int, int]]
    ends: dict[int, int]


@dataclass
class RegionFlow:
    """Integer flow of a region's servers through packing states.

    ``sets``: where the region is one mesh server (``meshed``), its GPU sets (mask, type, boolean) instead of
    arcs: 255 booleans for eight GPUs instead of some 1,700 arcs. ``rests[state]``: servers that end so.
    ``starts[state]``: servers that start so. ``held``: where several gangs may stay on the one server, (mask,
    GPUs, 1 if they stay) of what each may leave. ``cases``: of a server with cases, each case and its
    boolean; ``hidden``: sets of unknown GPUs carved there (position of the case, type, how many).
    ``slots``: what the arcs leave, if it is counted in slots; ``rests`` are then slots left, by size.
    """

    starts: dict[int, Linear]
    arcs: list[tuple[Arc, int]] = field(default_factory=list)
    sets: list[tuple[int, SetType, int]] = field(default_factory=list)
    rests: dict[int, int] = field(default_factory=dict)
    held: list[tuple[int, int, Linear]] = field(default_factory=list)
    meshed: bool = False
    cases: list[tuple[Case, int]] = field(default_factory=list)
    hidden: list[tuple[int, SetType, int]] = field(default_factory=list)
    slots: Slots | None = None

    @property
    def kinds(self) -> list[SetType]:
        """Types of every set that may be carved out."""
        carved = [arc.kind for arc, _ in self.arcs]
        if self.slots is not None:
            carved += self.slots.kinds.values()
        return carved + [kind for _, kind, _ in self.sets] + [kind for _, kind, _ in self.hidden]


def start_flow(
    program: Program, region: Region, rooms: Sequence[Room], admits: Admits
) -> RegionFlow:
    """A flow that has only its start."""
    if len(region.node_usages) > 1:
        room = rooms[region.nodes[0]]
        if _most_left(region, room.mask) > room.free_gpus:
            return RegionFlow(_starts_by_total(program, region, room, admits))
        starts = {state_with(region, room, NodeUsage()): Linear(constant=1)}
        return RegionFlow(starts, held=staying_sets(region, room.mask, admits))
    return RegionFlow(_starts_by_choice(region, rooms, admits))


def state_with(region: Region, room: Room, left: NodeUsage) -> int:
    """The packing state of a server of the region with this usage."""
    mask = room.mask & ~left.known
    free = max(0, mask.bit_count() - room.unknown - left.blind) if room.free_gpus else 0
    return region.packing.state(mask, free)


def gpus_used(left: NodeUsage, mask: int) -> int:
    """GPUs that could be free but are held under this usage."""
    return (left.known & mask).bit_count() + left.blind


def staying_sets(region: Region, mask: int, admits: Admits) -> list[tuple[int, int, Linear]]:
    """(mask, GPUs, 1 if they stay) of what each choice may leave; ``mask``: free without any of it."""
    found: dict[tuple[int, int, int], Linear] = {}
    for number, options in region.node_usages.items():
        for position, left in enumerate(options):
            gpus = gpus_used(left, mask)
            if gpus:
                key = (number, left.known & mask, gpus)
                found.setdefault(key, Linear()).add(admits[number][position])
    return [(known, gpus, stays) for (_, known, gpus), stays in found.items()]


def _starts_by_choice(region: Region, rooms: Sequence[Room], admits: Admits) -> dict[int, Linear]:
    """Start states of servers on each of which at most one choice decides."""
    starts: dict[int, Linear] = {}
    for n in region.nodes:
        gone = starts.setdefault(state_with(region, rooms[n], NodeUsage()), Linear())
        gone.constant += 1
        for number, options in region.usages.get(n, {}).items():
            for position, left in enumerate(options):
                own = starts.setdefault(state_with(region, rooms[n], left), Linear())
                own.add(admits[number][position])
                gone.add(admits[number][position], -1)
    return dict(sorted(starts.items()))


def _most_left(region: Region, mask: int) -> int:
    """The most GPUs that the choices may leave on the server."""
    node_usages = region.node_usages.values()
    return sum(max(gpus_used(left, mask) for left in options) for options in node_usages)


def _starts_by_total(
    program: Program, region: Region, room: Room, admits: Admits
) -> dict[int, Linear]:
    """Start states of a server on which more may be left than it has, where only numbers matter.

    One boolean z for each number of GPUs held, the last for a full server:
    sum of z == 1, sum of t x z[t] + excess == GPUs held. The readers let no two pods hold one GPU.
    """
    room_for = max(0, room.mask.bit_count() - room.unknown) if room.free_gpus else 0
    if not room_for:
        return {region.packing.state(room.mask, 0): Linear(constant=1)}
    held = Linear()
    for number, options in region.node_usages.items():
        for admit, left in zip(admits[number], options, strict=True):
            held.add(admit, gpus_used(left, room.mask))
    totals = [program.boolean() for _ in range(room_for + 1)]
    program.equal(Linear().add_all(totals), 1)
    excess = program.integer(0, max(0, _most_left(region, room.mask) - room_for))
    program.at_most(Linear().add(excess).add(totals[-1], -program.upper[excess]))
    held.add(excess, -1)
    starts: dict[int, Linear] = {}
    for total, chosen in enumerate(totals):
        held.add(chosen, -total)
        state = region.packing.state(room.mask, room_for - total)
        starts.setdefault(state, Linear()).add(chosen)
    program.equal(held)
    return dict(sorted(starts.items()))


def mesh_start(program: Program, region: Region, room: Room, admits: Admits) -> RegionFlow:
    """The flow of one mesh server by its sets: all that may be free, less what stays."""
    assert isinstance(region.packing, MaskPacking)
    if isinstance(region.packing, CasePacking):
        return _case_start(program, region, region.packing, admits)
    held = staying_sets(region, room.mask, admits)
    return RegionFlow({room.mask: Linear(constant=1)}, held=held, meshed=True)


def _case_start(
    program: Program, region: Region, packing: CasePacking, admits: Admits
) -> RegionFlow:
    """Exactly one case holds: the one with the known and unknown GPUs that the options leave."""
    cases = [(case, program.boolean()) for case in packing.cases]
    program.equal(Linear().add_all(variable for _, variable in cases), 1)
    blind, known = Linear(), dict[int, Linear]()
    for case, variable in cases:
        blind.add(variable, -case.blind)
        for gpu in bits(case.known):
            known.setdefault(gpu, Linear()).add(variable, -1)
    for number, options in region.node_usages.items():
        for left, admit in zip(options, admits[number], strict=True):
            blind.add(admit, left.blind)
            for gpu in bits(left.known):
                known[gpu].add(admit)
    for row in (blind, *known.values()):
        program.equal(row)
    return RegionFlow({}, meshed=True, cases=cases)


def flow_of(
    program: Program,
    region: Region,
    rooms: Sequence[Room],
    admits: Admits,
    sizes: set[int],
    requests: Iterable[int] = (),
) -> RegionFlow:
    """``sizes``: GPUs of the sets that a demand may take there; ``requests``: of those that may come next."""
    if _by_sets(region, sizes):
        return _sets(program, region, rooms[region.nodes[0]], admits, sizes)
    flow = start_flow(program, region, rooms, admits)
    sizes = sizes | {gpus for _, gpus, _ in flow.held}
    chain = _chain(region, sizes, requests)
    odd = sizes.difference(chain)
    arcs = arcs_of(region, flow.starts, odd)
    servers = len(region.nodes)
    flow.arcs = [(arc, program.integer(0, servers)) for arc in arcs]
    states = dict.fromkeys(
        [*flow.starts, *(arc.target for arc in arcs)] if arcs or not chain else ()
    )
    ends = {state: program.integer(0, servers) for state in states}
    if chain:
        _add_slots(program, region, flow, ends, sizes - odd, chain)
    else:
        flow.rests = ends
    return flow


def _by_sets(region: Region, sizes: set[int]) -> bool:
    """Whether this is one mesh server with anything to decide."""
    if isinstance(region.packing, CasePacking):
        return True
    mesh = isinstance(region.packing, MaskPacking) and len(region.nodes) == 1
    return mesh and bool(sizes or len(region.node_usages) > 1)


def _chain(region: Region, sizes: set[int], requests: Iterable[int]) -> list[int]:
    """The sizes of slots, largest first, each a multiple of the next, all requests among them.

    Empty where there are none, and where it matters which GPUs are free.
    """
    whole = region.model.gpus
    if not whole or not isinstance(region.packing, CountPacking):
        return []
    own = {size for size in requests if size <= whole}
    chain: list[int] = []
    for size in sorted({1, whole, *sizes, *own}, reverse=True):
        if not chain or chain[-1] % size == 0:
            chain.append(size)
    return chain if own.issubset(chain) else []


def _add_slots(
    program: Program,
    region: Region,
    flow: RegionFlow,
    ends: dict[int, int],
    sizes: set[int],
    chain: Sequence[int],
) -> None:
    """Slots for what the arcs leave, of which sets of these sizes are taken."""
    starts = {size: Linear() for size in chain}
    room = {size: Linear() for size in chain}
    left = {s: Linear().add(end) for s, end in ends.items()} if ends else flow.starts
    for state, servers in left.items():
        free = region.packing.size(state)
        for size in chain:
            room[size].add_linear(servers, free // size)
        for size, count in slots_in(free, chain):
            starts[size].add_linear(servers, count)
    most = {size: program.bound_above(room[size]) for size in chain}
    kinds = {size: _kind(region, size) for size in chain if size in sizes and most[size]}
    splits = [
        (size, part, program.integer(0, most[size]))
        for size, part in pairwise(chain)
        if part >= min(kinds, default=size) and most[size]
    ]
    flow.slots = Slots(starts, kinds, splits, ends)
    flow.rests = {size: program.integer(0, most[size]) for size in chain if most[size]}


def slots_in(free: int, chain: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(size, how many) of the fewest slots that make up so many free GPUs, largest first."""
    for size in chain:
        if free >= size:
            yield size, free // size
            free %= size


def _kind(region: Region, size: int) -> SetType:
    (arc,) = region.packing.carve(size, size)
    return arc.kind


def _sets(
    program: Program, region: Region, room: Room, admits: Admits, sizes: set[int]
) -> RegionFlow:
    packing = region.packing
    assert isinstance(packing, MaskPacking)
    flow = mesh_start(program, region, room, admits)
    indexed = not flow.cases or not all(case.hidden for case, _ in flow.cases)
    flow.sets = [
        (chosen, packing.kind(chosen), program.boolean())
        for size in sorted(sizes)
        for chosen in (subsets(room.mask, size) if indexed else ())
    ]
    # only the size of a rest matters: any mask of that size stands for it
    most = room.mask.bit_count()
    flow.rests = {(1 << left) - 1: program.boolean() for left in range(most + 1)}
    if isinstance(packing, CasePacking):
        flow.hidden = [
            (position, packing.unknown(case, size), program.integer(0, case.free // size))
            for position, case in enumerate(packing.cases)
            for size in sorted(sizes)
            if case.hidden and size <= case.free
        ]
    return flow


def arcs_of(region: Region, starts: Iterable[int], sizes: Iterable[int]) -> list[Arc]:
    """Every arc reachable from the start states by carving sets of these sizes."""
    wanted = sorted(set(sizes), reverse=True)
    seen = set(starts)
    stack = sorted(seen)
    arcs: list[Arc] = []
    while stack:
        state = stack.pop()
        for size in wanted:
            for arc in region.packing.carve(state, size):
                arcs.append(arc)
                if arc.target not in seen:
                    seen.add(arc.target)
                    stack.append(arc.target)
    return arcs
