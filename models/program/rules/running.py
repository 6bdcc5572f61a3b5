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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from models.instance.disruption_budgets import guards, takings_by_budget
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import PlacementRequests, victims
from models.program.linear_program import Linear, Program
from models.program.options import Choice, Effect, standing_gpus
from models.program.regions import RegionSet
from models.program.variables import GangVariables, Model
from models.queues.queue_shares import queue_of, shares, stated_shares
from models.rules.demands import Demand, RoleDemand
from models.rules.giving_way import Claim, claim, takes, unjustified
from models.values.tier_values import tiers_of


def justify_preemptions(
    instance: Instance, decisions: Sequence[GangDecision], placing: Mapping[int, Demand]
) -> list[GangDecision]:
    """The decisions with pods of moving gangs exchanged where a stopped gang needs an arrival.

    ``placing``: of every gang that places pods, the demand whose pods may be exchanged.
    """
    found = list(decisions)
    given = vacated_nodes(instance, found)
    missing = _unjustified(instance, found, given)
    for index, demand in placing.items():
        if missing and instance.gangs[index].running:
            for pods in _exchanges(instance, demand, found[index].pods):
                other = [*found]
                other[index] = replace(found[index], decision="move", pods=pods)
                left = _unjustified(instance, other, given)
                if len(left) < len(missing):
                    found, missing = other, left
                    break
    return found


def vacated_nodes(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, set[int]]:
    """By gang that needs the arrival of a higher one: the nodes that it vacates."""
    found: dict[int, set[int]] = {}
    for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        there = {(pod.role, pod.index) for pod in decision.pods}
        gone = {p.node for p in gang.running_pods if (p.role, p.index) not in there}
        if gone and (not there or not gang.movable):
            found[index] = {n for n in gone if n is not None}
    return found


def _unjustified(
    instance: Instance, decisions: Sequence[GangDecision], given: Mapping[int, set[int]]
) -> list[int]:
    """Gangs that vacate nodes on which no gang arrives to which they give way."""
    came: list[tuple[int, PodPlacement]] = []
    for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        home = {(p.role, p.index): p.node for p in gang.running_pods}
        came += (
            (index, pod) for pod in decision.pods if home.get((pod.role, pod.index)) != pod.node
        )
    return unjustified(instance, given, came)


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


def add_exchange_variables(program: Program, instance: Instance, gang: GangVariables) -> None:
    """Variables for identical pods of a moving role, if both its nodes and its earlier plan matter.

    For pods k with one present and one planned node: t[k, r] pods of k in region r,
    sum over k of t[k, r] == pods of the role placed in r, sum over r of t[k, r] == pods of k x admit.
    """
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


def may_come_alone(
    instance: Instance, requests: PlacementRequests, cpu_only_follow: Sequence[bool]
) -> bool:
    """Whether only a pod without GPUs that follows others might come where a gang is stopped.

    No row counts such a pod. Where the tiers begin with who runs, nobody is stopped for it, unless that frees
    what a queue may hold: rows allow for that.
    """
    stopped = victims(instance, requests.choices)
    first = next(iter(tiers_of(instance)), None)
    by_running = first is not None and first.row.subject == "admission"
    if not stopped or first is None or (by_running and first.family != "waiting"):
        return False
    return any(
        follows and demand.cpu_only_roles and stopped.give_way_to(demand.gang)
        for demand, follows in zip(requests.demands, cpu_only_follow, strict=True)
    )


Arrivals = dict[int, dict[tuple[Claim, bool], Linear]]


def add(model: Model) -> None:
    program, requests, variables = model.program, model.requests, model.variables
    for choice, admits in zip(requests.choices, variables.admits, strict=True):
        total = Linear().add_all(admits)
        if choice.must:
            program.equal(total, 1)
        elif len(admits) > 1:
            program.at_most(total, 1)
    if victims(model.instance, requests.choices):
        _preemption_rows(model, _arrivals_by_region(model))
    limit_moves(model)
    limit_evictions(model)


def limit_evictions(model: Model) -> None:
    """Evictions that the disruption budgets allow to several gangs together."""
    instance, evicting = model.instance, dict[int, Linear]()
    for choice, own in zip(model.requests.choices, model.variables.admits, strict=True):
        if choice.gang in guards(instance).takings:
            happens = Linear() if choice.must else Linear(constant=1).add_all(own, -1)
            moves = (a for o, a in zip(choice.options, own, strict=True) if o.effect.moved)
            evicting[choice.gang] = happens.add_all(moves)
    for budget, evictions in takings_by_budget(instance, evicting):
        left = instance.cluster.budgets[budget].allowed - model.evicted.get(budget, 0)
        if sum(evictions.values()) > left:
            row = Linear()
            for gang, count in evictions.items():
                row.add_linear(evicting[gang], count)
            model.program.at_most(row, left)


def limit_moves(model: Model) -> None:
    """The policy's limits on moves."""
    program, instance, limits = model.program, model.instance, model.instance.policy.moves
    if limits is None:
        return
    gangs, gpus = Linear(), Linear()
    for choice, own in zip(model.requests.choices, model.variables.admits, strict=True):
        for option, admit in zip(choice.options, own, strict=True):
            if option.effect.moved:
                gangs.add(admit)
                gpus.add(admit, standing_gpus(instance, choice.gang))
    if limits.max_gangs is not None and gangs.terms:
        program.at_most(gangs, limits.max_gangs - model.moved[0])
    if limits.max_gpus is not None and gpus.terms:
        program.at_most(gpus, limits.max_gpus - model.moved[1])


def _preemption_rows(model: Model, arrivals: Arrivals) -> None:
    region_of, followers = model.region_set.region_of, _Followers(model)
    for choice, admits in zip(model.requests.choices, model.variables.admits, strict=True):
        for effect, leaving in _victims(choice, admits):
            regions = sorted({region_of[n] for n in effect.vacates if n in region_of})
            row = leaving
            for number in regions:
                node = model.region_set.regions[number].nodes[0]
                for (own, gpus), coming in arrivals.get(number, {}).items():
                    if takes(model.instance, own, choice.gang, node, gpus=gpus):
                        row.add_linear(coming, -1)
            row.add_all(followers.coming(choice.gang, effect.vacates), -1)
            model.program.at_most(row)
    followers.close()


class _Followers:
    """Pods that no row counts, which might come alone: those without GPUs that follow others of their gang.

    Stopping a gang may free what the queue of another may hold, which puts only such a pod in its place. A
    boolean for each node to which one comes, which are no more than there are such pods.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: list[tuple[int, int, int, set[int]]] = []
        self._coming: dict[int, int] = {}
        if shares(model.instance) is None:
            return
        for number, demand in enumerate(model.requests.demands):
            limited = _limited(model, demand.gang)
            pods = sum(role.count for role in demand.cpu_only_roles)
            if limited and pods and model.region_set.cpu_only_follow[number]:
                choice, option = model.requests.origin[number]
                admit = model.variables.admits[choice][option]
                self._found.append((demand.gang, admit, pods, limited))

    def coming(self, victim: int, nodes: Iterable[int]) -> list[int]:
        """For each of these nodes, whether such a pod comes, if the victim might be stopped for it."""
        own = _limited(self._model, victim) if self._found else set[int]()
        if not any(
            gang != victim
            and own & limited
            and takes(self._model.instance, claim(self._model.instance, gang), victim)
            for gang, _, _, limited in self._found
        ):
            return []
        for n in sorted(nodes):
            if n not in self._coming:
                self._coming[n] = self._model.program.boolean()
        return [self._coming[n] for n in sorted(nodes)]

    def close(self) -> None:
        """No more come than there are."""
        if self._coming:
            row = Linear().add_all(self._coming.values())
            for _, admit, pods, _ in self._found:
                row.add(admit, -pods)
            self._model.program.at_most(row)


def _limited(model: Model, gang: int) -> set[int]:
    """The queues with limits that a gang is in; -1 for what queues do not lend to any managed gang."""
    known = stated_shares(model.instance)
    path = known.path(queue_of(model.instance)[gang])
    found = {q for q in path if any(most[q] is not None for most in known.most.values())}
    return found | ({-1} if known.kept and not model.instance.gangs[gang].unmanaged else set())


def _victims(choice: Choice, admits: Sequence[int]) -> list[tuple[Effect, Linear]]:
    """(effect, 1 if it happens) of every way to vacate nodes for a gang of higher priority."""
    found = []
    if choice.stop.vacates:
        if not choice.must:
            found.append((choice.stop, Linear(constant=1).add_all(admits, -1)))
        for option, admit in zip(choice.options, admits, strict=True):
            if option.effect.vacates:
                found.append((option.effect, Linear().add(admit)))
    return found


def _arrivals_by_region(model: Model) -> Arrivals:
    """By region, and by what it may take and whether it has GPUs: what arrives there."""
    found: Arrivals = {}

    def come(region: int, own: Claim, variable: int, *, gpus: bool = True) -> None:
        found.setdefault(region, {}).setdefault((own, gpus), Linear()).add(variable)

    for group in model.variables.groups:
        for piece in group.pieces:
            come(piece.region, claim(model.instance, group.demands[0].gang), piece.variable)
    for gang in model.variables.gangs:
        add_exchange_variables(model.program, model.instance, gang)
        own = claim(model.instance, gang.demand.gang)
        for region, variable, gpus in _arrivals(model.program, gang, model.region_set):
            come(region, own, variable, gpus=gpus)
    return found


def _arrivals(
    program: Program, gang: GangVariables, region_set: RegionSet
) -> Iterator[tuple[int, int, bool]]:
    """(region, variable, whether with GPUs) of what brings a pod to a node where it does not stand."""
    if gang.gang.running:
        yield from _new_arrivals(program, gang, region_set)
        return
    for piece in gang.pieces:
        yield piece.region, piece.variable, True
    light = gang.demand.cpu_only_roles
    for (position, region), variable in gang.cpu_only_counts.items():
        yield region, variable, light[position].has_parts


def _new_arrivals(
    program: Program, gang: GangVariables, region_set: RegionSet
) -> Iterator[tuple[int, int, bool]]:
    """The same for a gang that runs: some of its pods may stay where they are."""
    for piece in gang.pieces:
        nodes = region_set.regions[piece.region].nodes
        roles = zip(gang.demand.gpu_roles, piece.pods, strict=True)
        if any(
            pods >= _fewest(gang, role, nodes)
            for role, pods in roles
            if role.role not in gang.exchange
        ):
            yield piece.region, piece.variable, True
    for role, identical in gang.exchange.items():
        home = {p.index: p.node for p in gang.gang.running_pods if p.role == role}
        for indices, places in identical:
            for region, variable in places.items():
                if home.get(indices[0]) not in region_set.regions[region].nodes:
                    yield region, variable, True
    for (position, region), variable in gang.cpu_only_counts.items():
        cpu_only = gang.demand.cpu_only_roles[position]
        fewest = _fewest(gang, cpu_only, region_set.regions[region].nodes)
        if fewest == 1:
            yield region, variable, cpu_only.has_parts
        elif fewest <= cpu_only.count:
            enough = program.boolean()
            program.at_least(Linear().add(variable).add(enough, -fewest))
            yield region, enough, cpu_only.has_parts


def _fewest(gang: GangVariables, role: RoleDemand, nodes: Sequence[int]) -> int:
    """The fewest pods of the role there of which one must arrive.

    Pods of a role, or of its only slice, are interchangeable: one that stands elsewhere may take the place.
    """
    home = {p.index: p.node for p in gang.gang.running_pods if p.role == role.role}
    here = sum(home.get(index) in nodes for index in role.indices)
    layers = gang.gang.roles[role.role].slice_layers
    slices = {index // layers[0][0] for index in role.indices} if layers else set()
    return 1 if here < role.count and (not here or len(slices) < 2) else here + 1
