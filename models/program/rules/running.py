"""Running gangs (contract 2.7, 2.8): one option each, limits on moves, and for whom a gang is stopped.

For every choice: sum of admit == 1, or <= 1 if the gang may be stopped or waits. A gang that is stopped, or
shrunk without being movable, vacates nodes N: 1 - sum of admit (or the option's admit) <= sum of the pieces
and pods of gangs to which it gives way (``models.rules.giving_way``) that arrive on N. A piece does not
arrive if all its pods may be those that stand there. Moves: sum of admit over options that move a gang <=
maxGangs; times its GPUs <= maxGPUs. Disruption budgets, each: (the same sum, plus 1 - sum of admit if it may
be stopped) x the running pods of the gang that the budget counts, over all gangs, <= allowed. A gang that is
too much for a budget by itself has none of these options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from models.instance.disruption_budgets import guards, takings_by_budget
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.linear_program import Linear, Program
from models.program.options import Choice, standing_gpus
from models.program.variables import GangVariables, Model
from models.rules.demands import Demand, RoleDemand
from models.rules.giving_way import Claim, claim, takes, unjustified_victims


def justify_preemptions(
    instance: Instance, decisions: Sequence[GangDecision], placing: Mapping[int, Demand]
) -> list[GangDecision]:
    """The decisions with pods of moving gangs exchanged where a stopped gang needs an arrival.

    ``placing``: of every gang that places pods, the demand whose pods may be exchanged.
    """
    found = list(decisions)
    missing = unjustified_victims(instance, found)
    for index, demand in placing.items():
        if missing and instance.gangs[index].running:
            for pods in _exchanges(instance, demand, found[index].pods):
                other = [*found]
                other[index] = replace(found[index], decision="move", pods=pods)
                left = unjustified_victims(instance, other)
                if len(left) < len(missing):
                    found, missing = other, left
                    break
    return found


def _exchanges(
    instance: Instance, demand: Demand, pods: Sequence[PodPlacement]
) -> list[tuple[PodPlacement, ...]]:
    """The pods after two pods of one role (and slice) have swapped places."""
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


Arrivals = dict[int, dict[tuple[Claim, bool], Linear]]


def add(model: Model) -> None:
    program = model.program
    for choice, admits in model.decided:
        total = Linear().add_all(admits)
        if choice.must:
            program.equal(total, 1)
        elif len(admits) > 1:
            program.at_most(total, 1)
    if any(choice.yields for choice in model.state.choices):
        _preemption_rows(model)
    limit_moves(model)
    limit_evictions(model)


def limit_evictions(model: Model) -> None:
    """Evictions that the disruption budgets allow to several gangs together."""
    instance, evicting = model.instance, dict[int, Linear]()
    for choice, own in model.decided:
        if choice.gang in guards(instance).takings:
            happens = Linear() if choice.must else Linear(constant=1).add_all(own, -1)
            moves = (a for o, a in zip(choice.options, own, strict=True) if o.effect.moved)
            evicting[choice.gang] = happens.add_all(moves)
    for budget, evictions in takings_by_budget(instance, evicting):
        left = instance.cluster.budgets[budget].allowed
        if sum(evictions.values()) > left:
            row = Linear()
            for gang, count in evictions.items():
                row.add_linear(evicting[gang], count)
            model.program.at_most(row, left)


def limit_moves(model: Model) -> None:
    program, instance, limits = model.program, model.instance, model.instance.policy.moves
    if limits is None:
        return
    gangs, gpus = Linear(), Linear()
    for choice, own in model.decided:
        for option, admit in zip(choice.options, own, strict=True):
            if option.effect.moved:
                gangs.add(admit)
                gpus.add(admit, standing_gpus(instance, choice.gang))
    if limits.max_gangs is not None and gangs.terms:
        program.at_most(gangs, limits.max_gangs)
    if limits.max_gpus is not None and gpus.terms:
        program.at_most(gpus, limits.max_gpus)


def _preemption_rows(model: Model) -> None:
    arrivals = _arrivals_by_node(model)
    for choice, admits in model.decided:
        for nodes, row in _victims(choice, admits):
            for n in nodes:
                for (own, gpus), coming in arrivals.get(n, {}).items():
                    if takes(model.instance, own, choice.gang, n, gpus=gpus):
                        row.add_linear(coming, -1)
            model.program.at_most(row)


def _victims(choice: Choice, admits: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Linear]]:
    """(nodes, 1 if it happens) of every way to vacate nodes for a gang of higher priority."""
    if choice.vacates and not choice.must:
        yield choice.vacates, Linear(constant=1).add_all(admits, -1)
    for option, admit in zip(choice.options, admits, strict=True):
        if option.effect.vacates:
            yield option.effect.vacates, Linear().add(admit)


def _arrivals_by_node(model: Model) -> Arrivals:
    """By node, and by what it may take and whether it has GPUs: what arrives there."""
    found: Arrivals = {}
    for gang in model.variables.gangs:
        own = claim(model.instance, gang.demand.gang)
        for n, variable, gpus in _arrivals(model.program, gang):
            found.setdefault(n, {}).setdefault((own, gpus), Linear()).add(variable)
    return found


def _arrivals(program: Program, gang: GangVariables) -> Iterator[tuple[int, int, bool]]:
    """(node, variable, whether with GPUs) of what brings a pod to a node where it does not stand."""
    for piece in gang.pieces:
        roles = zip(gang.demand.gpu_roles, piece.pods, strict=True)
        if any(pods >= _fewest(gang, role, piece.n) for role, pods in roles):
            yield piece.n, piece.variable, True
    for (number, n), variable in gang.cpu_only_counts.items():
        cpu_only = gang.roles[number]
        fewest = _fewest(gang, cpu_only, n)
        if fewest == 1:
            yield n, variable, cpu_only.has_parts
        elif fewest <= cpu_only.count:
            enough = program.boolean()
            program.at_least(Linear().add(variable).add(enough, -fewest))
            yield n, enough, cpu_only.has_parts


def _fewest(gang: GangVariables, role: RoleDemand, n: int) -> int:
    """The fewest pods of the role there of which one must arrive.

    Pods of a role, or of its only slice, are interchangeable: one that stands elsewhere may take the place.
    """
    if not gang.gang.running:
        return 1
    home = {p.index: p.node for p in gang.gang.running_pods if p.role == role.role}
    here = sum(home.get(index) == n for index in role.indices)
    layers = gang.gang.roles[role.role].slice_layers
    slices = {index // layers[0][0] for index in role.indices} if layers else set()
    return 1 if here < role.count and (not here or len(slices) < 2) else here + 1
