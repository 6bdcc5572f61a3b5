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
    rng = random.Random(ledger.instance.policy.solve.seed)  # noqa: S311  # a search, not a secret
    effort = budget.effort + budget.effort_left() * part
    seconds = budget.seconds_left() * (1 - part)
    base = base_decisions(ledger.instance)
    innermost = ledger.instance.cluster.domain_of[max(0, ledger.instance.cluster.node_level - 1)]
    idle = step = 0
    while idle < PATIENCE and budget.effort < effort and not budget.exhausted():
        if budget.seconds_left() < seconds:
            budget.clocked = True
            budget.record_limit()
            break
        freed, nodes = _neighbourhood(
            ledger, base, rng, step, SIZES if idle < STAGNATION else LARGE_SIZES
        )
        step += 1
        if not freed:
            break
        if ledger.offer(_solve_neighbourhood(ledger, budget, base, freed, nodes, immovable)):
            idle = 0
            _report(ledger, progress)
        else:
            idle += 1
        budget.spend(PAIR_EFFORT * len(freed) * len({innermost[n] for n in nodes}))


def _report(ledger: Ledger, progress: Progress) -> None:
    """Report the first open tier that can change."""
    for position in range(ledger.closed, len(ledger.tiers)):
        if ledger.tiers[position].row.subject != "disruption":
            progress.update(ledger.tiers[position].name, ledger.incumbent.values[position], None)
            return


def _solve_neighbourhood(
    ledger: Ledger,
    budget: Budget,
    base: tuple[GangDecision, ...],
    freed: frozenset[int],
    nodes: frozenset[int],
    immovable: frozenset[int],
) -> tuple[GangDecision, ...]:
    """The best placement found for the freed gangs with everything else fixed, as a whole plan."""
    decisions = ledger.incumbent.decisions
    without = tuple(base[i] if i in freed else d for i, d in enumerate(decisions))
    meshed = any(_meshed(ledger.instance, n) for n in nodes)
    part = formulate(
        ledger.instance,
        base=without,
        only=freed,
        within=nodes,
        immovable=immovable,
        split=meshed,
        cache=ledger.cache,
    )
    for admits in part.variables.admits:
        part.program.equal(Linear().add_all(admits), 1)
    trial = ledger.trial()
    TierSearch(part, trial, budget, NullProgress(), len(ledger.tiers), brief=True).run()
    return trial.incumbent.decisions


def _neighbourhood(
    ledger: Ledger,
    base: tuple[GangDecision, ...],
    rng: random.Random,
    step: int,
    sizes: tuple[tuple[int, int], ...],
) -> tuple[frozenset[int], frozenset[int]]:
    """Gangs to free and the nodes they may use: a gang that loses something, its domains and a few more."""
    instance, decisions = ledger.instance, ledger.incumbent.decisions
    placed = [
        i
        for i, d in enumerate(decisions)
        if d.pods and (d.pods != base[i].pods or instance.gangs[i].elastic)
    ]
    if not placed:
        return frozenset(), frozenset()
    level = max(0, instance.cluster.node_level - 1)
    of = instance.cluster.domain_of[level]
    first = _pick_gang(ledger, placed, rng, step)
    domains, gangs = rng.choice(sizes)
    if any(_meshed(instance, p.node) for p in decisions[first].pods):
        domains, gangs = MESH_SIZE
    opened = set(sorted({of[p.node] for p in decisions[first].pods})[:domains])
    opened |= set(
        _extra_domains(instance, of[decisions[first].pods[0].node], level, rng, domains - 1)
    )
    freed = [first]
    others = [
        i for i in placed if i != first and any(of[p.node] in opened for p in decisions[i].pods)
    ]
    rng.shuffle(others)
    freed += others[: gangs - 1]
    nodes = {n for n, domain in enumerate(of) if domain in opened}
    meshed = [n for n in sorted(nodes) if _meshed(instance, n)]
    nodes -= set(meshed) - set(rng.sample(meshed, min(MESH_NODES, len(meshed))))
    nodes |= {p.node for i in freed for p in decisions[i].pods}
    return frozenset(freed), frozenset(nodes)


def _meshed(instance: Instance, n: int) -> bool:
    model = instance.cluster.nodes[n].model
    return model is not None and not model.switched


def _extra_domains(
    instance: Instance, domain: int, level: int, rng: random.Random, most: int
) -> Iterator[int]:
    """Further domains to open: half of the time siblings, half of the time any."""
    cluster = instance.cluster
    everywhere = range(len(cluster.domains[level]))
    near = list(everywhere)
    if level > 0 and rng.random() < 0.5:  # siblings or any
        parent = cluster.domains[level][domain].path[:level]
        near = [d for d in everywhere if cluster.domains[level][d].path[:level] == parent]
    for _ in range(rng.randint(1, most)):
        yield rng.choice(near)


def _pick_gang(ledger: Ledger, placed: list[int], rng: random.Random, step: int) -> int:
    """A placed gang, drawn with a probability proportional to its loss in one tier. The tiers take turns."""
    evaluation = ledger.evaluate(ledger.incumbent.decisions)
    losses = [_loss(ledger.instance, evaluation, i, step % 4) for i in placed]
    if not any(losses):
        return rng.choice(placed)
    return rng.choices(placed, weights=losses)[0]


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
