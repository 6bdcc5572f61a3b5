"""A search against the exhaustive planner on one instance: values, bounds, and what the checker says.

Promises: returns sentences, one a difference, none where they agree; raises nothing of its own.
Called by the comparison test and by the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from effort import briefly
from exhaustive import Best, moves_of, plan
from exhaustive_gangs import least_counts
from exhaustive_values import Tiers, tier_values

from models.instance.instance import Instance
from models.instance.solution import Solution
from models.results.plan import compose
from models.values.relocation import MOVES_UNPROVEN
from models.verify.check import check, derive
from planner.search.solve import solve

DAY = "2026-11-21T00:00:00Z"


def wrong(seeds: Iterable[int], faults: Callable[[int], Sequence[object]]) -> dict[int, object]:
    """What is wrong at which seed; samples leave out those at which trying every plan takes long."""
    found: dict[int, object] = {}
    for seed in seeds:
        with briefly():
            if what := faults(seed):
                found[seed] = what
    return found


def differences(instance: Instance) -> list[str]:
    """What sets the search apart from the best plan, and either of them from the checker's view."""
    best = plan(instance)
    solution = solve(instance)
    return [
        *_tiers(best, solution),
        *_valued(instance, solution),
        *_bought(instance, best, solution),
        *misstated("search", instance, solution),
        *misstated("exhaustive", instance, best.solution(moves_of(instance, best))),
    ]


def misjudged(instance: Instance) -> list[str]:
    """What the judge says against the best plan, and where its values of the tiers are others."""
    best = plan(instance)
    document = _document(instance, best.solution(moves_of(instance, best)))
    found = [f"{one.rule} {one.gang}: {one.message}" for one in check(document)]
    values = tuple(derive(document).items())
    return found if values == best.tiers else [*found, f"values {_apart(values, best.tiers)}"]


def _tiers(best: Best, solution: Solution) -> Iterator[str]:
    """Every tier stated, in order, with the best value, the same bound, and an exact proof."""
    stated = tuple((tier.name, tier.value) for tier in solution.tiers)
    if stated != best.tiers:
        yield f"values {_apart(stated, best.tiers)}"
    for tier in solution.tiers:
        if not tier.value == tier.best == tier.bound:
            yield f"{tier.name}: value {tier.value}, best {tier.best}, bound {tier.bound}"
        if tier.proof != "exact":
            yield f"{tier.name}: proof {tier.proof}"
    if solution.stopped_by != "proof":
        yield f"stopped by {solution.stopped_by}"


def _valued(instance: Instance, solution: Solution) -> Iterator[str]:
    """The search's plan is worth what the search says it is."""
    stated = tuple((tier.name, tier.value) for tier in solution.tiers)
    worth = tier_values(instance, solution.decisions)
    if stated != worth:
        yield f"stated against worth {_apart(stated, worth)}"


def _bought(instance: Instance, best: Best, solution: Solution) -> Iterator[str]:
    """Each set of moves is worth something: without it the best plan is worse, by the GPUs it states.

    Without it: nobody moves but the gangs of the other sets. Those GPUs follow from the tiers.
    """
    if MOVES_UNPROVEN in solution.notes:
        return  # after two more searches figures are against the best plan found
    moving = {g for one in solution.moves for g in one.gangs}
    for one in solution.moves:
        others = moving - set(one.gangs)
        without = plan(instance, immovable=frozenset(range(len(instance.gangs))) - others).tiers
        if without == best.tiers:
            yield f"moves of {one.gangs}: a plan without them is as good"
        if any(name.startswith("admission/") for name, _ in without):
            gpus = _admitted(best.tiers) - _admitted(without)
            # a gang that counts nothing weighs one in these tiers
            uncounted = sum(not least_counts(gang) for gang in instance.gangs)
            if abs(one.gpus - gpus) > uncounted:
                yield f"moves of {one.gangs}: bought {gpus} GPUs, said to be {one.gpus}"


def _admitted(tiers: Tiers) -> int:
    """GPUs of admitted gangs, all priorities together."""
    return sum(value for name, value in tiers if name.startswith("admission/"))


def misstated(who: str, instance: Instance, solution: Solution) -> Iterator[str]:
    for violation in check(_document(instance, solution)):
        yield f"{who}: {violation.rule} {violation.gang}: {violation.message}"


def _document(instance: Instance, solution: Solution) -> dict[str, Any]:
    return compose(instance, solution, name="tiny", created_at=DAY, generator="gangplan test")


def _apart(first: tuple[tuple[str, int], ...], second: tuple[tuple[str, int], ...]) -> str:
    """Only the entries that differ."""
    if [name for name, _ in first] != [name for name, _ in second]:
        return f"{[name for name, _ in first]} != {[name for name, _ in second]}"
    return ", ".join(
        f"{name}: {a} != {b}" for (name, a), (_, b) in zip(first, second, strict=True) if a != b
    )
