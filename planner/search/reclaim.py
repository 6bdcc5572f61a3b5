"""A proposal of who gives way for a gang, put to the test on the ground.

Promises: what it returns obeys the contract's section 2 on every node it touches; every gang that gives
way does so because the winner is where its pods stood, and gives no more than that. The ground is left as
it was. Called by ``reclaiming``.

Room for gangs that wait although they need not: others stop, shrink or move, the least harm first.

Promises: the plan it returns obeys the contract's section 2 and the policy's limits on moves, is no worse
tier by tier than the one it was given, and stops nobody whose pods would still fit where they stood.
Called by ``solve`` after the greedy start.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from models.instance import Instance
from models.program.demands import Demand, identity
from models.solution import GangDecision
from models.tier_values import Evaluation, tiers_of
from planner.search.free_space import Ground, Pods
from planner.search.greedy import Turn, admit, fast_enough, lacking, models_of, queue, turn
from planner.search.preemption_rule import put_back, relieve, restart, settle, unjustified
from planner.search.reclaimable import Concession, Prices, Yields
from planner.search.victim_choice import Allowance, Opening


@dataclass(frozen=True, slots=True)
class Proposal:
    """Pods of every gang it changes, and what that costs."""

    cost: int
    pods: dict[int, Pods]


def put_to_test(
    ground: Ground, opening: Opening, yields: Yields
) -> tuple[Proposal | None, int | None]:
    """What holds, or None; and the gang that finds no other place, where it failed for that."""
    mark = ground.mark()
    given, proposal, stuck = dict(opening.given), None, None
    before = {gang: ground.pods[gang] for gang in given}
    if _put_down(ground, opening, before):
        _put_back(ground, given, before, yields)
        movers = [gang for gang in given if given[gang].again]
        movers.sort(key=lambda gang: (-len(before[gang]), gang))
        stuck = next((g for g in movers if not restart(ground, g, before[g])), None)
        gave = (g for g, pods in enumerate(ground.pods) if pods != ground.stood[g])
        if stuck is None and not unjustified(ground, gave):
            cost = sum(concession.cost for concession in given.values())
            proposal = Proposal(cost, ground.since(mark))
    ground.undo(mark)
    return proposal, stuck


def _put_down(ground: Ground, opening: Opening, before: dict[int, Pods]) -> bool:
    """The winner where the opening wants it, everything given gone; whether that holds."""
    winner = opening.demand.gang
    for gang, concession in opening.given.items():
        ground.set(gang, concession.left)
    if any(gpus > ground.plots[n].free for n, gpus in opening.gpus.items()):
        return False
    pods = opening.pods()
    if not fast_enough(ground, winner, pods):
        return False
    ground.set(winner, (*ground.pods[winner], *pods))
    held = {pod.node for pods in before.values() for pod in pods}
    return settle(ground, held | {pod.node for pod in pods})


def _put_back(
    ground: Ground, given: dict[int, Concession], before: dict[int, Pods], yields: Yields
) -> None:
    """Take from ``given``, the costliest first, what need not be given, or not so much of it."""
    for gang in sorted(given, key=lambda g: (-given[g].cost, g)):
        if put_back(ground, gang, before[gang]):
            del given[gang]
            continue
        for less in yields.options[gang]:
            if (
                not less.again
                and less.cost < given[gang].cost
                and put_back(ground, gang, less.left)
            ):
                given[gang] = less
                break


DOMAINS = 8
"""Domains tried for a gang that need not stay in one: those that lack least."""

SHUFFLED = 5
"""Scopes in which gangs may also be put elsewhere to make room."""

RETRIES = 4
"""Tests of that in one scope: after each the gang that found no other place stays."""

TESTS = 400
"""Tests of that in all; each takes a few milliseconds at 512 nodes."""


def reclaim(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """The plan with room taken back for gangs that wait, highest band first."""
    ground = Ground(instance, decisions)
    _Reclaim(ground).run()
    found = [
        decision if ground.pods[index] == decision.pods else ground.decision(index)
        for index, decision in enumerate(decisions)
    ]
    if unjustified(ground, range(len(found))):
        return tuple(decisions)
    return (
        tuple(found)
        if _signed(instance, found) > _signed(instance, decisions)
        else tuple(decisions)
    )


def _signed(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """Values of all tiers, larger is better."""
    values = Evaluation(instance, decisions).vector()
    return tuple(
        value if tier.sense == "max" else -value
        for tier, value in zip(tiers_of(instance), values, strict=True)
    )


class _Reclaim:
    """``_failed``: kinds of gang that found no room since some was last given.

    ``_stuck``: gangs that found no other place since then. ``_tests``: how often one may still be sought.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._instance = ground.instance
        self._prices = Prices(ground.instance)
        self._yields: tuple[tuple[int, bool], Yields] | None = None
        self._failed: set[object] = set()
        self._stuck: set[int] = set()
        self._tests = TESTS
        self._moved = ground.moved()

    def run(self) -> None:
        """Every gang that starts or waits, in its turn: nothing lower is in the way of a higher one."""
        ground, instance = self._ground, self._instance
        for gang, stood in enumerate(ground.stood):
            if not stood or ground.decision(gang).decision == "complete":
                ground.set(gang, stood)
        turns: list[tuple[Turn, int]] = [(turn(instance, d), d.gang) for d in queue(ground)]
        while turns:
            _, gang = heapq.heappop(turns)
            if ground.pods[gang] != ground.stood[gang]:
                continue
            mark = ground.mark()
            self._admit(lacking(ground, gang))
            changed = ground.since(mark)
            for other in changed:
                waits = ground.pods[other] == ground.stood[other] and other != gang
                if waits and (not ground.stood[other] or other in instance.incomplete):
                    heapq.heappush(turns, (turn(instance, lacking(ground, other)), other))
            if self._yields is not None:
                self._yields[1].refresh(changed)
        relieve(ground)

    def _admit(self, demand: Demand) -> None:
        """Put the gang down, on what is free or on what others give."""
        ground, gang = self._ground, self._instance.gangs[demand.gang]
        if admit(ground, demand):
            return
        kind = (identity(self._instance, demand), gang.priority, self._instance.aged(gang))
        if kind in self._failed:
            return
        proposal = self._best(demand)
        if proposal is None:
            self._failed.add(kind)
            return
        for other, left in proposal.pods.items():
            ground.set(other, left)
        self._failed.clear()
        self._stuck.clear()
        self._moved = ground.moved()

    def _best(self, demand: Demand) -> Proposal | None:
        """The cheapest way found to make room: where gangs only give way, then by putting some elsewhere."""
        yields, best = self._given_up_for(demand), None
        slow = self._instance.min_share(self._instance.gangs[demand.gang]) > 0
        firm = self._allowance(none=True)
        for scope in self._scopes(demand, yields.firm):
            for model in models_of(self._ground, demand, scope):
                best = self._test(demand, scope, model, yields, best, firm)[0] or best
        for scope in self._scopes(demand, yields.most)[: 2 * SHUFFLED if slow else SHUFFLED]:
            for model in models_of(self._ground, demand, scope):
                best = self._shuffled(demand, scope, model, yields, best)
        return best

    def _given_up_for(self, demand: Demand) -> Yields:
        gang = self._instance.gangs[demand.gang]
        band = (gang.priority, self._instance.aged(gang))
        if self._yields is None or self._yields[0] != band:
            self._yields = (band, Yields(self._ground, self._prices, *band))
        return self._yields[1]

    def _scopes(self, demand: Demand, most: Sequence[int]) -> list[frozenset[int]]:
        """Where to make room: the domains of its required level, else everything and then some domains.

        ``most``: GPUs that could be given, a node.
        """
        cluster, gang = self._instance.cluster, self._instance.gangs[demand.gang]
        allowed = frozenset().union(*(role.nodes for role in demand.roles))
        if not self._countable(demand, most, allowed):
            return []
        level = gang.required
        if level is None:
            level = gang.preferred if gang.preferred is not None else cluster.node_level - 1
        if demand.standing_nodes or level < 0:
            return [allowed]
        found = self._domains(demand, most, allowed, level)
        if gang.required is None:
            found = [allowed, *found[:DOMAINS]]
        if self._instance.min_share(gang):
            # spread over the wider ones it may be too slow
            for narrower in range(level + 1, cluster.node_level + 1):
                found += self._domains(demand, most, allowed, narrower)[:DOMAINS]
        return found

    def _domains(
        self, demand: Demand, most: Sequence[int], allowed: frozenset[int], level: int
    ) -> list[frozenset[int]]:
        """Domains of a level in which the gang might fit, those that lack least first."""
        of = self._instance.cluster.domain_of[level]
        domains: dict[int, list[int]] = {}
        for n in sorted(allowed):
            domains.setdefault(of[n], []).append(n)
        lacks = {
            d: demand.gpus - sum(self._ground.plots[n].free for n in members)
            for d, members in domains.items()
            if self._countable(demand, most, frozenset(members))
        }
        return [frozenset(domains[d]) for d in sorted(lacks, key=lambda d: (lacks[d], d))]

    def _countable(self, demand: Demand, most: Sequence[int], scope: frozenset[int]) -> bool:
        """Whether the GPUs would do for every role if everybody gave what it can."""
        plots = self._ground.plots
        return all(
            sum(max(0, plots[n].raw + most[n]) // role.gpus for n in role.nodes & scope)
            >= role.count
            for role in demand.gpu_roles
        )

    def _shuffled(
        self,
        demand: Demand,
        scope: frozenset[int],
        model: str | None,
        yields: Yields,
        best: Proposal | None,
    ) -> Proposal | None:
        """The same with gangs put elsewhere, if that is cheaper; one that finds no place stays then."""
        idle = sum(plot.free for plot in self._ground.plots)
        # where less is free than the gang needs somebody has to stop: then shuffling rarely helps
        for _ in range(RETRIES if idle >= demand.gpus else 1):
            if not self._tests:
                return best
            self._tests -= 1
            found, stuck = self._test(demand, scope, model, yields, best, self._allowance())
            if found is not None or stuck is None:
                return found or best
            self._stuck.add(stuck)
        return best

    def _test(
        self,
        demand: Demand,
        scope: frozenset[int],
        model: str | None,
        yields: Yields,
        best: Proposal | None,
        allowance: Allowance,
    ) -> tuple[Proposal | None, int | None]:
        """What makes room at less cost than the best so far, if it holds; else who found no place."""
        limit = None if best is None else best.cost
        opening = Opening(self._ground, demand, yields, allowance, limit)
        if not opening.run(scope, model):
            return None, None
        return put_to_test(self._ground, opening, yields)

    def _allowance(self, *, none: bool = False) -> Allowance:
        """What may still move."""
        moves, moved = self._instance.policy.moves, self._moved
        gangs = gpus = None
        if moves is not None and moves.max_gangs is not None:
            gangs = moves.max_gangs - len(moved)
        if moves is not None and moves.max_gpus is not None:
            gpus = moves.max_gpus - sum(moved.values())
        return Allowance(gangs, gpus, frozenset(self._stuck), none)
