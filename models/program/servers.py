"""Servers: the nodes that gangs may use or leave, what their GPU sets are worth, and which they give.

Where GPU indices matter and some are unknown, the value of a GPU set depends on which pods stay: one case for
every combination of known and unknown GPUs. Pods that stay under every option are part of a node's room.

What a server has for the pods that come is its GPUs without those of pods that stay there. Where only the
number of GPUs counts, nothing else is decided. Elsewhere there is a boolean for each set of GPUs of a size
that is asked for, 255 for eight GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.hardware import Nic, ServerModel, bits
from models.instance.cluster import Node
from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.program.base_state import BaseState, NodeUsage, needs_cases
from models.program.linear_program import Linear, Program, Question, check, never
from models.program.options import MAX_WAYS
from models.program.packing import (
    LARGEST_MESH_STATE,
    CountSets,
    MaskSets,
    SetType,
    by_count,
    subsets,
)
from models.rates.gang_bandwidth import ServerSet


@dataclass(frozen=True, slots=True)
class Case:
    """``known``, ``blind``: what the choices leave. ``held``: all GPUs known to be held.

    ``mask``: healthy GPUs not known to be held; ``free``: how many may be given. ``hidden``: pods
    placed there get no indices.
    """

    known: int
    blind: int
    held: int
    mask: int
    free: int
    hidden: bool


def server_cases(
    node: Node, room: Room, held: int, usages: Mapping[int, Sequence[NodeUsage]]
) -> tuple[Case, ...] | None:
    """Every case, the emptiest first; None beyond MAX_WAYS. ``held``: known under every option."""
    found = {(0, 0)}
    for options in usages.values():
        plain = {(left.known, left.blind) for left in options} | {(0, 0)}
        found = {(k | known, b + blind) for k, b in found for known, blind in plain}
        if len(found) > MAX_WAYS:
            return None
    cases = list[Case]()
    for known, blind in sorted(found):
        mask = node.givable & ~(held | known)
        free = max(0, mask.bit_count() - room.unknown - blind) if room.free_gpus else 0
        cases.append(Case(known, blind, held | known, mask, free, room.blind or blind > 0))
    return tuple(cases)


class CaseSets(MaskSets):
    """One server by its GPU sets. ``unknown``: in every case, those of GPUs with unknown indices."""

    def __init__(
        self, node: Node, cases: tuple[Case, ...], with_standing: tuple[ServerSet, ...] = ()
    ) -> None:
        super().__init__(node, with_standing)
        self.cases = cases
        self.unknown = [
            CountSets(node, case.mask, blind=True, relaxed=False, with_standing=with_standing)
            for case in cases
        ]


GpuSets = CountSets | MaskSets
"""The sets of GPUs of a server. ``exact`` False: a relaxation."""


@dataclass(frozen=True, slots=True)
class Server:
    """``room``: next to the pods that stay under every option.

    ``standing``: demands (by index) with GPUs that stay there, and their position in
    ``SetType.with_standing``. ``usages``: what each choice may leave there.
    """

    n: int
    node: Node
    room: Room
    sets: GpuSets
    standing: Mapping[int, int] = field(default_factory=dict)
    usages: Mapping[int, tuple[NodeUsage, ...]] = field(default_factory=dict)


def gpus_used(left: NodeUsage, mask: int) -> int:
    """GPUs that could be free but are held under this usage."""
    return (left.known & mask).bit_count() + left.blind


def build_servers(
    instance: Instance, base: BaseState, interrupted: Question = never
) -> dict[int, Server]:
    """By node, every one that a demand may use or a choice may empty."""
    demands, nodes = base.demands, instance.cluster.nodes
    standing: dict[int, dict[ServerSet, int]] = {}
    positions: dict[int, dict[int, int]] = {}
    for number, demand in enumerate(demands):
        for n, chosen in demand.standing:
            found = standing.setdefault(n, {})
            positions.setdefault(n, {})[number] = found.setdefault(chosen, len(found))
    used = frozenset(base.node_usages).union(*(role.nodes for d in demands for role in d.roles))
    packings, servers = Packings(), dict[int, Server]()
    for n in sorted(used):
        check(interrupted)
        room, usages = base.rooms[n], base.node_usages.get(n, {})
        own, held = tuple(standing.get(n, ())), base.held[n]
        sets = sets_of(nodes[n], room, own, usages=usages, held=held, packings=packings)
        servers[n] = Server(n, nodes[n], room, sets, positions.get(n, {}), usages)
    return servers


Packings = dict[tuple[ServerModel, tuple[Nic, ...]], GpuSets]
"""Sets that depend on the hardware alone, which servers share: they remember what they compute."""


def sets_of(
    node: Node,
    room: Room,
    with_standing: tuple[ServerSet, ...] = (),
    *,
    usages: Mapping[int, tuple[NodeUsage, ...]] | None = None,
    held: int = 0,
    packings: Packings | None = None,
) -> GpuSets:
    """The sets of the free GPUs of such a node.

    ``usages``: what the choices leave there. ``held``: mask of GPUs known to be held under every option.
    """
    if node.model is None:
        return CountSets(node, 0, blind=False, relaxed=False)
    counted, blind, mask = by_count(node.model, node.effective_nics), room.blind, room.mask
    relaxed = not counted and not blind and mask.bit_count() > LARGEST_MESH_STATE
    if usages and needs_cases(node, room, usages):
        cases = server_cases(node, room, held, usages)
        indexed = [case.mask.bit_count() for case in cases or () if not case.hidden]
        if cases is not None and max(indexed, default=0) <= LARGEST_MESH_STATE:
            return CaseSets(node, cases, with_standing)
        relaxed = True
    if blind or relaxed:
        return CountSets(node, mask, blind=blind, relaxed=relaxed, with_standing=with_standing)
    found: GpuSets = (
        CountSets(node, 0, blind=False, relaxed=False, with_standing=with_standing)
        if counted
        else MaskSets(node, with_standing)
    )
    if packings is None or with_standing:
        return found
    return packings.setdefault((node.model, node.effective_nics), found)


Admits = Sequence[Sequence[int]]
"""The variable of every option of every choice."""


@dataclass
class Supply:
    """``free``: GPUs that may be given; ``most``: at most, whoever stays.

    ``held``: (mask, GPUs, 1 if they stay) of what each choice may leave there, unless that may be more than
    there is. ``kinds``: types of sets by size. ``sets``: where it matters which GPUs they are, each with its
    type and boolean. ``cases``: each with its boolean; ``hidden``: sets of unknown GPUs there (position of
    the case, type, how many).
    """

    free: Linear
    most: int
    held: list[tuple[int, int, Linear]] = field(default_factory=list)
    kinds: dict[int, list[SetType]] = field(default_factory=dict)
    sets: list[tuple[int, SetType, int]] = field(default_factory=list)
    cases: list[tuple[Case, int]] = field(default_factory=list)
    hidden: list[tuple[int, SetType, int]] = field(default_factory=list)


def supply_of(program: Program, server: Server, admits: Admits, sizes: set[int]) -> Supply:
    """``sizes``: GPUs of the sets that may be asked for."""
    if isinstance(server.sets, CaseSets):
        supply = _by_case(program, server, server.sets, admits)
    else:
        supply = _by_number(program, server, admits)
    if isinstance(server.sets, CountSets):
        supply.kinds = {gpus: [server.sets.kind(gpus)] for gpus in sizes if gpus <= supply.most}
        return supply
    if not supply.cases or not all(case.hidden for case, _ in supply.cases):
        supply.sets = [
            (chosen, server.sets.kind(chosen), program.boolean())
            for gpus in sorted(sizes)
            for chosen in subsets(server.room.mask, gpus)
        ]
    if isinstance(server.sets, CaseSets):
        supply.hidden = [
            (position, unknown.kind(gpus), program.integer(0, case.free // gpus))
            for position, (case, unknown) in enumerate(
                zip(server.sets.cases, server.sets.unknown, strict=True)
            )
            for gpus in sorted(sizes)
            if case.hidden and gpus <= case.free
        ]
    for _, kind, _ in (*supply.sets, *supply.hidden):
        own = supply.kinds.setdefault(kind.gpus, [])
        if kind not in own:
            own.append(kind)
    return supply


def _by_number(program: Program, server: Server, admits: Admits) -> Supply:
    """The free GPUs without those that stay; none if more stay than there are.

    Where that may be, with a boolean y:  free = GPUs - held + excess,  excess <= M y,  free <= GPUs (1 - y).
    """
    room = server.room
    gpus = max(0, room.mask.bit_count() - room.unknown) if room.free_gpus else 0
    held, free = _held(server, admits), Linear(constant=gpus)
    if not gpus:
        return Supply(free, 0)
    for _, count, stays in held:
        free.add_linear(stays, -count)
    options = server.usages.values()
    most_left = sum(max(gpus_used(left, room.mask) for left in one) for one in options)
    if most_left <= gpus:
        return Supply(free, gpus, held)
    beyond, full = most_left - gpus, program.boolean()
    excess = program.integer(0, beyond)
    free.add(excess)
    program.at_most(Linear().add(excess).add(full, -beyond))
    program.at_most(Linear().add_linear(free).add(full, gpus), gpus)
    program.at_least(free, 0)
    return Supply(free, gpus)


def _held(server: Server, admits: Admits) -> list[tuple[int, int, Linear]]:
    """(mask, GPUs, 1 if they stay) of what each choice may leave."""
    found: dict[tuple[int, int, int], Linear] = {}
    for number, options in server.usages.items():
        for left, admit in zip(options, admits[number], strict=True):
            gpus = gpus_used(left, server.room.mask)
            if gpus:
                key = (number, left.known & server.room.mask, gpus)
                found.setdefault(key, Linear()).add(admit)
    return [(known, gpus, stays) for (_, known, gpus), stays in found.items()]


def _by_case(program: Program, server: Server, sets: CaseSets, admits: Admits) -> Supply:
    """Exactly one case holds: the one with the known and unknown GPUs that the options leave."""
    cases = [(case, program.boolean()) for case in sets.cases]
    program.equal(Linear().add_all(variable for _, variable in cases), 1)
    blind, known, free = Linear(), dict[int, Linear](), Linear()
    for case, variable in cases:
        free.add(variable, case.free)
        blind.add(variable, -case.blind)
        for gpu in bits(case.known):
            known.setdefault(gpu, Linear()).add(variable, -1)
    for number, options in server.usages.items():
        for left, admit in zip(options, admits[number], strict=True):
            blind.add(admit, left.blind)
            for gpu in bits(left.known):
                known[gpu].add(admit)
    for row in (blind, *known.values()):
        program.equal(row)
    return Supply(free, max(case.free for case in sets.cases), cases=cases)
