"""Who comes to the nodes that a stopped or shrunk gang gives up (contract 2.7), pod by pod.

Pods of a role are interchangeable until one of them has to come to a node where it does not stand now.
Promises: the same places, two pods of a gang that moves exchanged where only that brings someone there.
Called by ``decoding``; the rows that make it possible are in ``rules.running``.

Pods of a role that moves, told apart by where they stand and where an earlier plan had them.

Needed only where both matter: one pod may have to come to a node (contract 2.7) that another was planned on.
For a role of GPU pods and its pods k of one home and one planned node: t[k, r] pods of k in region r,
    sum over k of t[k, r] == pods of the role placed in r, sum over r of t[k, r] == pods of k x admit.

What becomes of gangs that run (contract 2.7, 2.8): one option each, and for whom room is given.

For every choice: sum over its options of admit == 1, or <= 1 where the gang may be stopped or waits.
A gang of priority P that is stopped, or shrunk without being movable, gives room on its nodes N:
    1 - sum of admit (or the option's admit) <= sum of pieces and pods of gangs above P placed on N,
pieces left out of which every pod stands there already, whichever of its role they are (``arriving``).
Moves: sum of admit over options that move a gang <= maxGangs; times its GPUs <= maxGPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from models.instance import Instance
from models.program.base_state import Asked, may_stop
from models.program.demands import Demand, RoleDemand
from models.program.linear_program import Linear, Program
from models.program.options import Choice, Effect, standing_gpus
from models.program.pieces import Piece
from models.program.regions import Pools
from models.program.variables import GangVariables, Variables
from models.solution import GangDecision, PodPlacement

Key = tuple[int, int]


def with_arrivals(
    instance: Instance, decisions: Sequence[GangDecision], placing: Mapping[int, Demand]
) -> list[GangDecision]:
    """``placing``: of every gang that places pods, the demand whose pods may be exchanged."""
    found = list(decisions)
    given = given_up(instance, found)
    missing = _missing(instance, found, given)
    for index, demand in placing.items():
        if missing and instance.gangs[index].running:
            for pods in _exchanges(instance, demand, found[index].pods):
                other = [*found]
                other[index] = replace(found[index], decision="move", pods=pods)
                left = _missing(instance, other, given)
                if len(left) < len(missing):
                    found, missing = other, left
                    break
    return found


def given_up(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, set[int]]:
    """By gang that needs a higher one to come: the nodes on which it gives room."""
    found: dict[int, set[int]] = {}
    for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        there = {(pod.role, pod.index) for pod in decision.pods}
        gone = {p.node for p in gang.running_pods if (p.role, p.index) not in there}
        if gone and (not there or not gang.movable):
            found[index] = {n for n in gone if n is not None}
    return found


def _missing(
    instance: Instance, decisions: Sequence[GangDecision], given: Mapping[int, set[int]]
) -> list[int]:
    """Gangs that give room for nobody."""
    came: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        home = {(p.role, p.index): p.node for p in gang.running_pods}
        for pod in decision.pods:
            if home.get((pod.role, pod.index)) != pod.node:
                came[pod.node] = max(came.get(pod.node, gang.priority), gang.priority)
    return [
        index
        for index, nodes in given.items()
        if not any(n in came and came[n] > instance.gangs[index].priority for n in nodes)
    ]


def _exchanges(
    instance: Instance, demand: Demand, pods: Sequence[PodPlacement]
) -> list[tuple[PodPlacement, ...]]:
    """The pods with the places of two of one role, and of one slice if it has them, exchanged."""
    found = []
    for role in demand.roles:
        layers = instance.gangs[demand.gang].roles[role.role].slice_layers
        size = layers[0][0] if layers else role.indices[-1] + 1
        own = [p for p in pods if p.role == role.role and p.index in role.indices]
        for one, two in product(own, own):
            same = one.index // size == two.index // size
            if same and one.index < two.index and one.node != two.node:
                changed = {
                    one: replace(one, node=two.node, gpus=two.gpus),
                    two: replace(two, node=one.node, gpus=one.gpus),
                }
                found.append(tuple(changed.get(p, p) for p in pods))
    return found


def tell_apart(program: Program, instance: Instance, gang: GangVariables) -> None:
    """Fills ``gang.exchange`` where the tier of stickiness is asked for."""
    if not gang.effect.moved or not instance.policy.lists("stability"):
        return
    for position, role in enumerate(gang.demand.gpu_roles):
        planned = {p.index: p.node for p in gang.gang.planned if p.role == role.role}
        home = {p.index: p.node for p in gang.gang.running_pods if p.role == role.role}
        if gang.gang.roles[role.role].slice_layers or not planned.keys() & set(role.indices):
            continue
        alike: dict[tuple[int | None, int | None], list[int]] = {}
        for index in role.indices:
            alike.setdefault((home.get(index), planned.get(index)), []).append(index)
        regions = [r for r in gang.gpu_regions if gang.gpu_pods(position, [r]).terms]
        placed = {r: gang.gpu_pods(position, [r]) for r in regions}
        found = gang.exchange[role.role] = []
        for indices in alike.values():
            here = {r: program.integer(0, len(indices)) for r in regions}
            found.append((tuple(indices), here))
            program.equal(Linear().add_all(here.values()).add(gang.admit, -len(indices)))
            for r, variable in here.items():
                placed[r].add(variable, -1)
        for row in placed.values():
            program.equal(row)


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
        home = {p.index: p.node for p in gang.gang.running_pods if p.role == role}
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
    home = {p.index: p.node for p in gang.gang.running_pods if p.role == role.role}
    here = sum(home.get(index) in nodes for index in role.indices)
    layers = gang.gang.roles[role.role].slice_layers
    slices = {index // layers[0][0] for index in role.indices} if layers else set()
    return 1 if here < role.count and (not here or len(slices) < 2) else here + 1
