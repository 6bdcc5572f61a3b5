"""What a server has for the pods that come: its GPUs without those of pods that stay there.

Where only the number of GPUs counts, nothing else is decided. Elsewhere there is a boolean for each set of
GPUs of a size that is asked for, 255 for eight GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.hardware import bits
from models.program.linear_program import Linear, Program
from models.program.packing import CountSets, MaskSets, SetType, subsets
from models.program.server_cases import Case, CaseSets
from models.program.servers import Server, gpus_used

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
    assert isinstance(server.sets, MaskSets)
    if not supply.cases or not all(case.hidden for case, _ in supply.cases):
        supply.sets = [
            (chosen, server.sets.kind(chosen), program.boolean())
            for gpus in sorted(sizes)
            for chosen in subsets(server.room.mask, gpus)
        ]
    if isinstance(server.sets, CaseSets):
        supply.hidden = [
            (position, server.sets.unknown(case, gpus), program.integer(0, case.free // gpus))
            for position, case in enumerate(server.sets.cases)
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
    if server.most_left <= gpus:
        return Supply(free, gpus, held)
    beyond, full = server.most_left - gpus, program.boolean()
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
