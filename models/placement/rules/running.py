"""What becomes of gangs that run (contract 2.7, 2.8): one option each, and for whom room is given.

For every choice: sum over its options of admit == 1, or <= 1 where the gang may be stopped or waits.
A gang of priority P that is stopped, or shrunk without being movable, gives room on its nodes N:
    1 - sum of admit (or the option's admit) <= sum of pieces and pods of gangs above P placed on N,
pieces left out of which every pod stands there already, whichever of its role they are (``arriving``).
Moves: sum of admit over options that move a gang <= maxGangs; times its GPUs <= maxGPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance import Instance
from models.placement.asking import Asked, may_stop
from models.placement.demands import RoleDemand
from models.placement.options import Choice, Effect, standing_gpus
from models.placement.pieces import Piece
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.rules.exchange import tell_apart
from models.placement.variables import GangVariables, Variables

Coming = dict[int, dict[int, Linear]]


def add(
    program: Program,
    instance: Instance,
    asks: Asked,
    variables: Variables,
    pools: Pools,
    *,
    moved: tuple[int, int] = (0, 0),
    pooled: Sequence[tuple[int | None, Sequence[Piece]]] = (),
) -> None:
    """``moved``: gangs and GPUs that are moved beside these choices.

    ``pooled``: pieces of many gangs, with the highest of their priorities (the admission program).
    """
    for choice, admits in zip(asks.choices, variables.admits, strict=True):
        total = Linear().add_all(admits)
        if choice.must:
            program.equal(total, 1)
        elif len(admits) > 1:
            program.at_most(total, 1)
    if may_stop(asks.choices):
        coming = _coming(program, instance, variables, pools, pooled)
        _arrivals(program, instance, asks, variables, pools, coming)
    moves(program, instance, asks, variables.admits, moved)


def moves(
    program: Program,
    instance: Instance,
    asks: Asked,
    admits: Sequence[Sequence[int]],
    moved: tuple[int, int],
) -> None:
    """The policy's limits on what restarts elsewhere."""
    limits = instance.policy.moves
    if limits is None:
        return
    gangs, gpus = Linear(), Linear()
    for choice, own in zip(asks.choices, admits, strict=True):
        for option, admit in zip(choice.options, own, strict=True):
            if option.effect.moved:
                gangs.add(admit)
                gpus.add(admit, standing_gpus(instance, choice.gang))
    if limits.max_gangs is not None and gangs.terms:
        program.at_most(gangs, limits.max_gangs - moved[0])
    if limits.max_gpus is not None and gpus.terms:
        program.at_most(gpus, limits.max_gpus - moved[1])


def _arrivals(
    program: Program,
    instance: Instance,
    asks: Asked,
    variables: Variables,
    pools: Pools,
    coming: Coming,
) -> None:
    region_of = {n: region.number for region in pools.regions for n in region.nodes}
    for choice, admits in zip(asks.choices, variables.admits, strict=True):
        for effect, leaving in _leaving(choice, admits):
            regions = sorted({region_of[n] for n in effect.gives if n in region_of})
            row = leaving
            for number in regions:
                for priority, own in coming.get(number, {}).items():
                    if priority > instance.gangs[choice.gang].priority:
                        row.add_linear(own, -1)
            program.at_most(row)


def _leaving(choice: Choice, admits: Sequence[int]) -> list[tuple[Effect, Linear]]:
    """(what gives room, 1 if it comes true) of every way to give up room for a higher gang."""
    found = []
    if choice.stop.gives:
        if not choice.must:
            found.append((choice.stop, Linear(constant=1).add_all(admits, -1)))
        for option, admit in zip(choice.options, admits, strict=True):
            if option.effect.gives:
                found.append((option.effect, Linear().add(admit)))
    return found


def _coming(
    program: Program,
    instance: Instance,
    variables: Variables,
    pools: Pools,
    pooled: Sequence[tuple[int | None, Sequence[Piece]]],
) -> Coming:
    """By region and priority: what is newly placed there."""
    found: Coming = {}

    def come(region: int, priority: int, variable: int) -> None:
        found.setdefault(region, {}).setdefault(priority, Linear()).add(variable)

    for highest, pieces in pooled:
        for piece in pieces:
            come(piece.region, highest or 0, piece.variable)
    for group in variables.groups:
        for piece in group.pieces:
            come(piece.region, group.gangs[0].priority, piece.variable)
    for gang in variables.gangs:
        tell_apart(program, instance, gang)
        for region, variable in _arriving(program, gang, pools):
            come(region, gang.gang.priority, variable)
    return found


def _arriving(program: Program, gang: GangVariables, pools: Pools) -> Iterator[tuple[int, int]]:
    """(region, variable) of what brings a pod of the gang to a node where it does not stand."""
    for piece in gang.pieces:
        nodes = pools.regions[piece.region].nodes
        roles = zip(gang.demand.gpu_roles, piece.pods, strict=True)
        if any(
            pods >= _fewest(gang, role, nodes)
            for role, pods in roles
            if role.role not in gang.exchange
        ):
            yield piece.region, piece.variable
    for role, alike in gang.exchange.items():
        home = {p.index: p.node for p in gang.gang.standing if p.role == role}
        for indices, places in alike:
            for region, variable in places.items():
                if home.get(indices[0]) not in pools.regions[region].nodes:
                    yield region, variable
    for (position, region), variable in gang.zeros.items():
        zero = gang.demand.zero_roles[position]
        fewest = _fewest(gang, zero, pools.regions[region].nodes)
        if fewest == 1:
            yield region, variable
        elif fewest <= zero.count:
            enough = program.boolean()
            program.at_least(Linear().add(variable).add(enough, -fewest))
            yield region, enough


def _fewest(gang: GangVariables, role: RoleDemand, nodes: Sequence[int]) -> int:
    """Of so many pods of the role there one does not stand there now, or need not.

    Pods of a role, or of its only slice, are interchangeable: one that stands elsewhere may come there.
    """
    home = {p.index: p.node for p in gang.gang.standing if p.role == role.role}
    here = sum(home.get(index) in nodes for index in role.indices)
    layers = gang.gang.roles[role.role].slice_layers
    slices = {index // layers[0][0] for index in role.indices} if layers else set()
    return 1 if here < role.count and (not here or len(slices) < 2) else here + 1
