"""Make room for waiting gangs: others stop, shrink or move, at the lowest disruption cost.

The plan obeys section 2 of the contract and the policy's limits on moves, is no worse tier by tier
than the given plan, and stops no gang whose pods still fit where they are.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from models.instance import Instance
from models.program.demand_builder import identity
from models.program.demands import Demand
from models.solution import GangDecision
from models.tier_values import Evaluation, tiers_of
from models.tiers import larger_is_better
from planner.search.concessions import Prices, Reclaimable
from planner.search.free_space import FreeSpace
from planner.search.greedy import (
    QueueKey,
    admit,
    missing_demand,
    node_choices,
    queue,
    queue_key,
)
from planner.search.preemption_rule import is_justified
from planner.search.proposal import Proposal, build_proposal, restore_needless
from planner.search.victim_choice import MoveAllowance, VictimSearch

DOMAINS = 8
"""Domains tried for a gang without a required level: those that lack the fewest GPUs."""

SCOPES_WITH_MOVES = 5
"""Scopes in which gangs may also be moved to make room."""

RETRIES = 4
"""Tests with moves per scope; after each the gang that found no other place stays."""

TESTS = 400
"""Tests with moves in total; each takes a few milliseconds at 512 nodes."""


def reclaim(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """The plan with room reclaimed for waiting gangs, highest priority first."""
    space = FreeSpace(instance, decisions)
    _Reclaimer(space).run()
    found = [
        decision if space.pods[index] == decision.pods else space.decision(index)
        for index, decision in enumerate(decisions)
    ]
    better = is_justified(space) and _worth(instance, found) > _worth(instance, decisions)
    return tuple(found if better else decisions)


def _worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """Values of all tiers, larger is better."""
    return larger_is_better(tiers_of(instance), Evaluation(instance, decisions).vector())


class _Reclaimer:
    """``_failed``: kinds of gang that found no room since the last success.

    ``_unplaced``: gangs that found no other place since then. ``_tests``: tests with moves that remain.
    """

    def __init__(self, space: FreeSpace) -> None:
        self._space = space
        self._instance = space.instance
        self._prices = Prices(space.instance)
        self._reclaimable: tuple[tuple[int, bool], Reclaimable] | None = None
        self._failed: set[object] = set()
        self._unplaced: set[int] = set()
        self._tests = TESTS
        self._moved = space.moved()

    def run(self) -> None:
        """Try every gang that starts or waits, in order: no lower gang blocks a higher one."""
        space, instance = self._space, self._instance
        for gang, original in enumerate(space.original):
            if not original or space.decision(gang).decision == "complete":
                space.set(gang, original)
        turns: list[tuple[QueueKey, int]] = [(queue_key(instance, d), d.gang) for d in queue(space)]
        while turns:
            _, gang = heapq.heappop(turns)
            if space.pods[gang] != space.original[gang]:
                continue
            mark = space.mark()
            self._admit(missing_demand(space, gang))
            changed = space.since(mark)
            for other in changed:
                waits = space.pods[other] == space.original[other] and other != gang
                if waits and (not space.original[other] or other in instance.incomplete):
                    heapq.heappush(
                        turns, (queue_key(instance, missing_demand(space, other)), other)
                    )
            if self._reclaimable is not None:
                self._reclaimable[1].refresh(changed)
        restore_needless(space)

    def _admit(self, demand: Demand) -> None:
        """Place the gang in the free space or in reclaimed space."""
        space, gang = self._space, self._instance.gangs[demand.gang]
        if admit(space, demand):
            return
        kind = (identity(self._instance, demand), gang.priority, self._instance.aged(gang))
        if kind in self._failed:
            return
        proposal = self._best(demand)
        if proposal is None:
            self._failed.add(kind)
            return
        for other, left in proposal.pods.items():
            space.set(other, left)
        self._failed.clear()
        self._unplaced.clear()
        self._moved = space.moved()

    def _best(self, demand: Demand) -> Proposal | None:
        """The cheapest proposal: first without moving other gangs, then with moves."""
        reclaimable, best = self._reclaimable_for(demand), None
        needs_bandwidth = self._instance.min_share(self._instance.gangs[demand.gang]) > 0
        no_moves = self._allowance(no_moves=True)
        for scope in self._scopes(demand, reclaimable.gpus(with_moves=False)):
            for nodes, model in node_choices(self._space, demand, scope):
                found, _ = self._test(demand, nodes, model, reclaimable, best, no_moves)
                best = found or best
        scopes = self._scopes(demand, reclaimable.gpus(with_moves=True))
        for scope in scopes[: SCOPES_WITH_MOVES * (2 if needs_bandwidth else 1)]:
            for nodes, model in node_choices(self._space, demand, scope):
                best = self._best_with_moves(demand, nodes, model, reclaimable, best)
        return best

    def _reclaimable_for(self, demand: Demand) -> Reclaimable:
        gang = self._instance.gangs[demand.gang]
        band = (gang.priority, self._instance.aged(gang))
        if self._reclaimable is None or self._reclaimable[0] != band:
            self._reclaimable = (band, Reclaimable(self._space, self._prices, *band))
        return self._reclaimable[1]

    def _scopes(self, demand: Demand, gpus: Sequence[int]) -> list[frozenset[int]]:
        """Scopes in which to make room: domains of the required level, or all nodes and some domains.

        ``gpus``: reclaimable GPUs per node.
        """
        cluster, gang = self._instance.cluster, self._instance.gangs[demand.gang]
        allowed = demand.nodes
        if not self._gpus_suffice(demand, gpus, allowed):
            return []
        level = gang.required
        if level is None:
            level = gang.preferred if gang.preferred is not None else cluster.node_level - 1
        if demand.standing_nodes or level < 0:
            return [allowed]
        found = self._domains(demand, gpus, allowed, level)
        if gang.required is None:
            found = [allowed, *found[:DOMAINS]]
        if self._instance.min_share(gang):
            # spread over wider domains it may be too slow
            for narrower in range(level + 1, cluster.node_level + 1):
                found += self._domains(demand, gpus, allowed, narrower)[:DOMAINS]
        return found

    def _domains(
        self, demand: Demand, gpus: Sequence[int], allowed: frozenset[int], level: int
    ) -> list[frozenset[int]]:
        """Domains of a level that might hold the gang, those that lack the fewest GPUs first."""
        of = self._instance.cluster.domain_of[level]
        domains: dict[int, list[int]] = {}
        for n in sorted(allowed):
            domains.setdefault(of[n], []).append(n)
        shortages = {
            d: demand.gpus - sum(self._space.by_node[n].free for n in members)
            for d, members in domains.items()
            if self._gpus_suffice(demand, gpus, frozenset(members))
        }
        return [frozenset(domains[d]) for d in sorted(shortages, key=lambda d: (shortages[d], d))]

    def _gpus_suffice(self, demand: Demand, gpus: Sequence[int], scope: frozenset[int]) -> bool:
        """Whether the GPUs suffice for every role if every gang gave all it can."""
        by_node = self._space.by_node
        return all(
            sum(max(0, by_node[n].raw + gpus[n]) // role.gpus for n in role.nodes & scope)
            >= role.count
            for role in demand.gpu_roles
        )

    def _best_with_moves(
        self,
        demand: Demand,
        scope: frozenset[int],
        model: str | None,
        reclaimable: Reclaimable,
        best: Proposal | None,
    ) -> Proposal | None:
        """The best proposal with moves; a gang that finds no other place stays in the next test."""
        idle = sum(node_space.free for node_space in self._space.by_node)
        # with fewer free GPUs than needed some gang has to stop, and moves rarely help
        for _ in range(RETRIES if idle >= demand.gpus else 1):
            if not self._tests:
                return best
            self._tests -= 1
            found, unplaced = self._test(demand, scope, model, reclaimable, best, self._allowance())
            if found is not None or unplaced is None:
                return found or best
            self._unplaced.add(unplaced)
        return best

    def _test(
        self,
        demand: Demand,
        scope: frozenset[int],
        model: str | None,
        reclaimable: Reclaimable,
        best: Proposal | None,
        allowance: MoveAllowance,
    ) -> tuple[Proposal | None, int | None]:
        """A valid proposal cheaper than the best so far, or the gang that found no other place."""
        limit = None if best is None else best.cost
        victims = VictimSearch(self._space, demand, reclaimable, allowance, limit)
        if not victims.run(scope, model):
            return None, None
        return build_proposal(self._space, victims, reclaimable)

    def _allowance(self, *, no_moves: bool = False) -> MoveAllowance:
        """How much may still move."""
        moves, moved = self._instance.policy.moves, self._moved
        gangs = gpus = None
        if moves is not None and moves.max_gangs is not None:
            gangs = moves.max_gangs - len(moved)
        if moves is not None and moves.max_gpus is not None:
            gpus = moves.max_gpus - sum(moved.values())
        return MoveAllowance(gangs, gpus, frozenset(self._unplaced), no_moves)
