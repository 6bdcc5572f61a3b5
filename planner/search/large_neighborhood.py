"""Large-neighbourhood search: free a few gangs, keep the rest fixed, solve what is free.

Admissions do not change. Every step solves a small instance of the same formulation. The same seed
and budget take the same steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from models.instance import Instance
from models.program.base_state import base_decisions
from models.program.formulation import formulate
from models.program.linear_program import Linear
from models.solution import GangDecision
from models.tier_values import Evaluation
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.ledger import Ledger
from planner.search.tier_search import TierSearch

SHARE_OF_BUDGET = 0.5
"""Share of the remaining effort and time for this search."""

PATIENCE = 300
"""Steps without improvement after which the search ends."""

SIZES = ((2, 6), (2, 6), (3, 8), (4, 11), (5, 14))
"""(innermost domains opened, gangs freed) of a step, drawn at random: small steps are about five
times cheaper (512 nodes, 30 s: 396 against 83), large ones find what small ones cannot.
"""

LARGE_SIZES = ((4, 11), (5, 14), (7, 20))
"""Sizes drawn after ``STAGNATION`` steps in a row without improvement."""

STAGNATION = 60
"""Steps in a row without improvement after which only large neighbourhoods are tried."""

MESH_SIZE = (2, 3)
"""Size of a step on mesh servers, which have up to 255 GPU sets each."""

MESH_NODES = 4
"""Mesh servers opened in one step in addition to those of the freed gangs."""

PAIR_EFFORT = 0.0016
"""Effort recorded for every (gang freed, innermost domain opened) of a step."""


def improve(
    ledger: Ledger,
    budget: Budget,
    progress: Progress,
    part: float = SHARE_OF_BUDGET,
    immovable: frozenset[int] = frozenset(),
) -> None:
    """Improve the open tiers of the incumbent within this share of the budget.

    ``immovable``: gangs that must not move.
    """
    effort = budget.effort + budget.effort_left() * part
    seconds = budget.seconds_left() * (1 - part)
    search = _NeighborhoodSearch(ledger, budget, immovable)
    idle = step = 0
    while idle < PATIENCE and budget.effort < effort and not budget.exhausted():
        if budget.seconds_left() < seconds:
            budget.clocked = True
            budget.record_limit()
            break
        freed, nodes = search.neighborhood(step, SIZES if idle < STAGNATION else LARGE_SIZES)
        step += 1
        if not freed:
            break
        if ledger.offer(search.solve(freed, nodes)):
            idle = 0
            _report(ledger, progress)
        else:
            idle += 1
        budget.spend(PAIR_EFFORT * len(freed) * len({search.domain_of[n] for n in nodes}))


def _report(ledger: Ledger, progress: Progress) -> None:
    """Report the first open tier that can change."""
    for position in range(ledger.closed, len(ledger.tiers)):
        if ledger.tiers[position].row.subject != "disruption":
            progress.update(ledger.tiers[position].name, ledger.incumbent.values[position], None)
            return


class _NeighborhoodSearch:
    """``domain_of[n]``: the innermost domain of node n."""

    def __init__(self, ledger: Ledger, budget: Budget, immovable: frozenset[int]) -> None:
        cluster = ledger.instance.cluster
        self._level = max(0, cluster.node_level - 1)
        self.domain_of = cluster.domain_of[self._level]
        self._ledger = ledger
        self._instance = ledger.instance
        self._budget = budget
        self._immovable = immovable
        self._base = base_decisions(ledger.instance)
        self._rng = random.Random(ledger.instance.policy.solve.seed)  # noqa: S311  # not a secret

    def solve(self, freed: frozenset[int], nodes: frozenset[int]) -> tuple[GangDecision, ...]:
        """The best placement found for the freed gangs with everything else fixed, as a whole plan."""
        decisions = self._ledger.incumbent.decisions
        program = formulate(
            self._instance,
            base=tuple(self._base[i] if i in freed else d for i, d in enumerate(decisions)),
            only=freed,
            within=nodes,
            immovable=self._immovable,
            split=any(self._is_mesh(n) for n in nodes),
            cache=self._ledger.cache,
        )
        for admits in program.variables.admits:
            program.program.equal(Linear().add_all(admits), 1)
        trial = self._ledger.trial()
        TierSearch(program, trial, self._budget, NullProgress(), len(trial.tiers), brief=True).run()
        return trial.incumbent.decisions

    def neighborhood(
        self, step: int, sizes: tuple[tuple[int, int], ...]
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Gangs to free and the nodes they may use: a gang with a loss, its domains and a few more."""
        of, rng, decisions = self.domain_of, self._rng, self._ledger.incumbent.decisions
        placed = [
            i
            for i, d in enumerate(decisions)
            if d.pods and (d.pods != self._base[i].pods or self._instance.gangs[i].elastic)
        ]
        if not placed:
            return frozenset(), frozenset()
        first = self._pick_gang(placed, step)
        pods = decisions[first].pods
        domains, gangs = rng.choice(sizes)
        if any(self._is_mesh(pod.node) for pod in pods):
            domains, gangs = MESH_SIZE
        opened = set(sorted({of[pod.node] for pod in pods})[:domains])
        opened |= set(self._extra_domains(of[pods[0].node], domains - 1))
        others = [
            i for i in placed if i != first and any(of[p.node] in opened for p in decisions[i].pods)
        ]
        rng.shuffle(others)
        freed = [first, *others[: gangs - 1]]
        nodes = {n for n, domain in enumerate(of) if domain in opened}
        mesh = [n for n in sorted(nodes) if self._is_mesh(n)]
        nodes -= set(mesh) - set(rng.sample(mesh, min(MESH_NODES, len(mesh))))
        nodes |= {p.node for i in freed for p in decisions[i].pods}
        return frozenset(freed), frozenset(nodes)

    def _is_mesh(self, n: int) -> bool:
        model = self._instance.cluster.nodes[n].model
        return model is not None and not model.switched

    def _extra_domains(self, domain: int, limit: int) -> Iterator[int]:
        """Further domains to open: half of the time siblings, half of the time any."""
        domains, level, rng = self._instance.cluster.domains[self._level], self._level, self._rng
        candidates = list(range(len(domains)))
        if level > 0 and rng.random() < 0.5:  # siblings or any
            parent = domains[domain].path[:level]
            candidates = [d for d in candidates if domains[d].path[:level] == parent]
        for _ in range(rng.randint(1, limit)):
            yield rng.choice(candidates)

    def _pick_gang(self, placed: list[int], step: int) -> int:
        """A placed gang, drawn in proportion to its loss in one tier. The tiers take turns."""
        evaluation = self._ledger.evaluate(self._ledger.incumbent.decisions)
        losses = [_loss(self._instance, evaluation, i, step % 4) for i in placed]
        if not any(losses):
            return self._rng.choice(placed)
        return self._rng.choices(placed, weights=losses)[0]


def _loss(instance: Instance, evaluation: Evaluation, index: int, turn: int) -> int:
    gang, value = instance.gangs[index], evaluation.values[index]
    if value is None:
        return 0
    if turn == 0:
        unmet = gang.preferred is not None and value.domains[gang.preferred] > 1
        return gang.weight_gpus if unmet else 0
    if turn == 1:
        return 0 if value.share is None else gang.weight_gpus * (1000 - value.share)
    if turn == 2:  # span
        return gang.weight_gpus * sum(used - 1 for used in value.domains[:-1])
    return 1
