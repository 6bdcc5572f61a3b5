"""Large-neighbourhood search: open a few domains, decide anew about the gangs there, keep the rest.

A neighbourhood is an instance of its own (``models.program.part``), so that gangs start, move, shrink and
give way in it as they do in the whole. Every round solves several that share no node, on an executor; the
same seed and budget take the same steps, however many workers there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.formulation import formulate
from models.program.interruption import TooLarge
from models.program.part import Part, Standing
from models.values.tier_values import Evaluation
from planner.search.bound.tier_search import TierSearch
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.executors import Workers
from planner.search.ledger import Ledger

ROUND = 8
"""Neighbourhoods of one round, whatever the number of workers."""

MOST_BESIDE = 64
"""Most neighbourhoods that are improved beside one step of the search."""

DOMAINS_BESIDE = 10
"""One of them for so many innermost domains."""

SIZES = ((1, 8), (2, 10), (2, 10), (3, 12), (4, 16))
"""(innermost domains opened, gangs freed) of a neighbourhood, drawn at random."""

LARGE_SIZES = ((3, 14), (5, 20), (7, 24))
"""Sizes drawn after ``STAGNATION`` rounds in a row without improvement."""

STAGNATION = 8
"""Rounds in a row without improvement after which larger neighbourhoods are tried."""

STEP_EFFORT = 4
"""The most effort of one neighbourhood."""

PART_EFFORT = 0.05
"""Effort of one neighbourhood beside that of its solver calls: two workers solve about ten a second."""

CANDIDATES = 6
"""Waiting gangs that a neighbourhood may start, the most urgent first."""

MESH_NODES = 4
"""Mesh servers of one neighbourhood, which have up to 255 GPU sets each."""


def improve(
    ledger: Ledger,
    budget: Budget,
    progress: Progress,
    workers: Workers,
    *,
    immovable: frozenset[int] = frozenset(),
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Improve the incumbent until the budget ends or ``until`` holds, which is asked every round.

    ``immovable``: gangs that must not move.
    """
    search = _NeighborhoodSearch(ledger, immovable)
    idle = 0
    while not until() and not budget.exhausted():
        parts = search.round(SIZES if idle < STAGNATION else LARGE_SIZES)
        if not parts:
            return
        plans, effort, calls = [], 0.0, 0
        for part, found in zip(parts, workers.run(solve_part, parts, budget), strict=False):
            effort += found.effort
            calls += found.calls
            if found.decisions != part.start:
                plans.append(part.merged(found.decisions))
        # Only after the round: the effort must not end a round that other workers have finished.
        budget.spend(effort, calls)
        better = search.adopt(plans)
        if better:
            _report(ledger, progress)
        idle = 0 if better else idle + 1
    budget.record_limit()


class Beside:
    """Improves neighbourhoods while an engine solves something else: two cores are at work.

    What is adopted, and when, follows from the steps of the search and not from the clock.
    """

    def __init__(
        self, ledger: Ledger, budget: Budget, workers: Workers, immovable: frozenset[int]
    ) -> None:
        self._ledger = ledger
        self._budget = budget
        self._workers = workers
        self._search = _NeighborhoodSearch(ledger, immovable)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Neighbourhoods are begun with before the block, and their plans offered after it.

        Plans are dropped where the block changed what they rest on.
        """
        if self._budget.exhausted():
            yield
            return
        before = self._ledger.incumbent.decisions
        parts = self._search.round(SIZES, most=self._search.beside)
        results = self._workers.begin(solve_part, parts, self._budget)
        yield
        changed = self._search.changed_since(before)
        plans, effort, calls = [], 0.0, 0
        for part, found in zip(parts, results(), strict=False):
            effort += found.effort
            calls += found.calls
            if found.decisions != part.start and not changed(part):
                plans.append(part.merged(found.decisions))
        self._budget.spend(effort, calls)
        self._search.adopt(plans)


@dataclass(frozen=True, slots=True)
class PartPlan:
    """The best plan found for a part, not worse than its start. ``calls``: of solvers."""

    decisions: tuple[GangDecision, ...]
    effort: float
    calls: int = 0


def solve_part(part: Part, seconds: float) -> PartPlan:
    """Search a part for at most so many seconds."""
    budget = Budget(part.instance.policy.solve, seconds=seconds)
    ledger = Ledger(part.instance, part.start)
    mesh = any(_is_mesh(part.instance, n) for n in range(len(part.nodes)))
    try:
        program = formulate(part.instance, split=True if mesh else None)
    except TooLarge:
        return PartPlan(part.start, PART_EFFORT)
    last = len(ledger.tiers)
    TierSearch(program, ledger, budget, NullProgress(), last, brief=True).run()
    return PartPlan(ledger.incumbent.decisions, PART_EFFORT + budget.effort, budget.calls)


def _is_mesh(instance: Instance, n: int) -> bool:
    model = instance.cluster.nodes[n].model
    return model is not None and not model.switched


def _report(ledger: Ledger, progress: Progress) -> None:
    """Report the first tier that is not proven."""
    position = ledger.gap()
    if position is not None:
        tier, known = ledger.tiers[position], ledger.known(position)
        bound = None if known.proof is None else known.value
        progress.update(tier.name, ledger.incumbent.values[position], bound)


class _NeighborhoodSearch:
    """``_turn``: number of neighbourhoods drawn so far."""

    def __init__(self, ledger: Ledger, immovable: frozenset[int]) -> None:
        self._ledger = ledger
        self._instance = instance = ledger.instance
        if immovable:
            gangs = tuple(
                replace(gang, movable=False) if index in immovable else gang
                for index, gang in enumerate(instance.gangs)
            )
            instance = replace(instance, gangs=gangs)
        self._standing = Standing(instance, ledger.incumbent.decisions)
        cluster = instance.cluster
        self._level = cluster.counted_levels[-1] if cluster.counted_levels else cluster.node_level
        self._of = cluster.domain_of[self._level]
        self._rng = random.Random(instance.policy.solve.seed)  # noqa: S311  # not a secret
        self._limits = SolveLimits(budget=STEP_EFFORT, workers=1, seed=instance.policy.solve.seed)
        self._turn = 0
        self._children: dict[tuple[str, ...], list[int]] = {}
        for number, domain in enumerate(cluster.domains[self._level]):
            self._children.setdefault(domain.path[: self._level], []).append(number)
        self._decidable = [
            gang.hold is None
            and (
                not gang.running
                or gang.preemptible
                or gang.movable
                or gang.elastic
                or index in instance.incomplete
            )
            for index, gang in enumerate(instance.gangs)
        ]
        self._queue = sorted(
            (i for i, g in enumerate(instance.gangs) if not g.running and g.hold is None),
            key=lambda i: (-instance.gangs[i].priority, -instance.age(instance.gangs[i]), i),
        )

    def adopt(self, plans: Sequence[dict[int, GangDecision]]) -> bool:
        """Offer the whole plan with these decisions about disjoint parts; returns whether it is better.

        What a part leaves free may be worth less in the whole: then the parts are offered one by one.
        """
        if not plans:
            return False
        better = self._offer(plans)
        if not better and len(plans) > 1:
            better = bool(sum(self._offer([plan]) for plan in plans))
        if better:
            self._standing.update(self._ledger.incumbent.decisions)
        return better

    def _offer(self, plans: Sequence[dict[int, GangDecision]]) -> bool:
        plan = list(self._ledger.incumbent.decisions)
        for changed in plans:
            for gang, decision in changed.items():
                if plan[gang].pods != decision.pods:
                    plan[gang] = decision
        return self._ledger.offer(plan)

    @property
    def beside(self) -> int:
        """Neighbourhoods that are improved beside one step of the search."""
        domains = len(self._instance.cluster.domains[self._level])
        return max(ROUND, min(MOST_BESIDE, domains // DOMAINS_BESIDE))

    def changed_since(self, before: Sequence[GangDecision]) -> Callable[[Part], bool]:
        """Whether a part of the plan has changed since the plan was that one."""
        gangs, nodes = set[int](), set[int]()
        for index, (old, new) in enumerate(
            zip(before, self._ledger.incumbent.decisions, strict=True)
        ):
            if old is not new and old.pods != new.pods:
                gangs.add(index)
                nodes.update(pod.node for pod in (*old.pods, *new.pods))
        return lambda part: not (gangs.isdisjoint(part.gangs) and nodes.isdisjoint(part.nodes))

    def round(self, sizes: tuple[tuple[int, int], ...], most: int = ROUND) -> list[Part]:
        """Neighbourhoods that share no node and no gang."""
        self._standing.update(self._ledger.incumbent.decisions)
        losses = self._losses()
        taken_nodes: set[int] = set()
        taken: set[int] = set()
        parts = []
        for _ in range(2 * most):
            self._turn += 1
            nodes = self._nodes(losses[self._turn % len(losses)], *self._rng.choice(sizes)[:1])
            if nodes & taken_nodes:
                continue
            freed = self._freed(nodes, taken, self._rng.choice(sizes)[1])
            if not freed:
                continue
            taken_nodes |= nodes
            taken |= freed
            part = self._standing.part(nodes, freed, self._limits)
            if part.gangs:
                parts.append(part)
            if len(parts) == most:
                break
        return parts

    def _losses(self) -> list[list[tuple[int, int]]]:
        """For every turn, (gang, what it loses): gangs that wait, and losses in the placement tiers."""
        decisions = self._ledger.incumbent.decisions
        evaluation = self._ledger.evaluate(decisions)
        waiting = [
            (i, self._instance.gangs[i].weight_gpus) for i in self._queue if not decisions[i].pods
        ]
        turns = [waiting] if waiting else []
        placed = [i for i, d in enumerate(decisions) if d.pods and self._decidable[i]]
        for loss in _LOSSES:
            found = [(i, loss(self._instance, evaluation, i)) for i in placed]
            turns.append([(i, lost) for i, lost in found if lost] or [(i, 1) for i in placed])
        return [turn for turn in turns if turn] or [[]]

    def _nodes(self, losses: list[tuple[int, int]], domains: int) -> set[int]:
        """Nodes of a few innermost domains: those of a gang with a loss, and others."""
        of, rng, cluster = self._of, self._rng, self._instance.cluster
        opened: list[int] = []
        if losses:
            gangs, weights = zip(*losses, strict=True)
            first = rng.choices(gangs, weights)[0]
            opened = sorted({of[n] for n in self._standing.nodes(first)})
            rng.shuffle(opened)
            opened = opened[:domains]
        near = rng.random() < 0.5
        for _ in range(4 * domains):
            if len(opened) >= domains:
                break
            candidates: Sequence[int] = range(len(cluster.domains[self._level]))
            if near and opened and self._level > 0:
                path = cluster.domains[self._level][opened[0]].path[: self._level]
                candidates = self._children[path]
            one = rng.choice(candidates)
            if one not in opened:
                opened.append(one)
        return {n for d in opened for n in self._members(d)}

    def _members(self, domain: int) -> list[int]:
        nodes = list(self._instance.cluster.domains[self._level][domain].nodes)
        mesh = [n for n in nodes if _is_mesh(self._instance, n)]
        if len(mesh) > MESH_NODES:
            return self._rng.sample(mesh, MESH_NODES)
        return nodes

    def _freed(self, nodes: set[int], taken: set[int], most: int) -> set[int]:
        """Gangs that may change there: some of those that are there with all pods, and some that wait."""
        standing, decisions = self._standing, self._ledger.incumbent.decisions
        here = sorted({g for n in nodes for g in standing.by_node[n]})
        inside = [
            g for g in here if self._decidable[g] and g not in taken and standing.nodes(g) <= nodes
        ]
        self._rng.shuffle(inside)
        freed = self._standing.returnable(set(inside[:most]))
        waiting = [g for g in self._queue if not decisions[g].pods and g not in taken]
        urgent = waiting[: CANDIDATES // 2]
        rest = waiting[CANDIDATES // 2 :]
        drawn = self._rng.sample(rest, min(len(rest), CANDIDATES - len(urgent)))
        return freed | set(urgent) | set(drawn) if freed or urgent else set()


def _unmet_preference(instance: Instance, evaluation: Evaluation, index: int) -> int:
    gang, value = instance.gangs[index], evaluation.lines[index].value
    unmet = value is not None and gang.preferred is not None and value.domains[gang.preferred] > 1
    return gang.weight_gpus * unmet


def _lost_bandwidth(instance: Instance, evaluation: Evaluation, index: int) -> int:
    gang, value = instance.gangs[index], evaluation.lines[index].value
    lost = 0 if value is None or value.share is None else 1000 - value.share
    return 0 if gang.pattern == "none" else gang.weight_gpus * lost


def _spanned(instance: Instance, evaluation: Evaluation, index: int) -> int:
    gang, value = instance.gangs[index], evaluation.lines[index].value
    return 0 if value is None else gang.weight_gpus * sum(used - 1 for used in value.domains)


_LOSSES: tuple[Callable[[Instance, Evaluation, int], int], ...] = (
    _unmet_preference,
    _lost_bandwidth,
    _spanned,
    lambda _instance, _evaluation, _index: 1,
)
"""What a gang loses in one placement tier; the last draws any gang."""
