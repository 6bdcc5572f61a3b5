"""The objective tiers, one row each: the only list of tier names in the project.

A tier's value is in ``models.values.tier_values``, its expression in ``models.program.tier_expressions``,
its bound by counting slots in ``models.program.slots.slot_program``; the judge computes its own value
in ``models.verify``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Literal, get_args

Sense = Literal["max", "min"]

Subject = Literal["admission", "disruption", "placement", "growth", "cluster"]
"""What a tier judges: which gangs run, what that costs running gangs, where gangs are (a sum over
gangs), how large they are, or the cluster as a whole."""

Main = Literal["goodput", "admission"]
"""Objectives that say what running gangs are worth; a policy lists at most one of them."""

MAINS: tuple[Main, ...] = get_args(Main)

Condition = Literal["guaranteed", "may_lose_gpus", "aged", "elastic", "elastic_without_gpus"]
"""A tier with a condition is stated for a priority only if one of its gangs meets it."""

MAX_RANKS = 16
"""Most tiers of a family that is stated once for each number of queues."""


@dataclass(frozen=True, slots=True)
class TierFamily:
    """One row of the table.

    ``objective``: the policy objective that lists the tier and gives its tolerance; None: the one of
    ``MAINS`` that the policy lists, which decides its value too.
    ``per_priority``: stated once for each priority, ``per_queue``: for each number of queues, else once for
    the plan. ``first``: before all tiers of other families, wherever its objective is listed.
    ``default``: part of a policy that lists no objectives.
    ``pays_for_moves``: an improvement shows in the figures that are weighed against ``minGain``.
    """

    name: str
    sense: Sense
    objective: str | None
    subject: Subject
    per_priority: bool = False
    condition: Condition | None = None
    default: bool = True
    pays_for_moves: bool = False
    per_queue: bool = False
    first: bool = False

    @property
    def fused(self) -> bool:
        """Whether the tiers of a priority that are of this kind come one after another."""
        return self.subject == "admission" and self.per_priority


def _admission(
    name: str,
    objective: str | None,
    condition: Condition | None = None,
    *,
    default: bool = True,
    first: bool = False,
) -> TierFamily:
    """A tier about which gangs run."""
    return TierFamily(
        name,
        "max",
        objective,
        "admission",
        per_priority=True,
        condition=condition,
        default=default,
        pays_for_moves=name not in ("guarantee", "kept"),
        first=first,
    )


TIERS: tuple[TierFamily, ...] = (
    _admission("guarantee", None, "guaranteed", first=True),
    _admission("kept", None, "may_lose_gpus"),
    _admission("aged", None, "aged"),
    _admission("aged-waiting", "waiting", "aged"),
    _admission("goodput", "goodput"),
    _admission("admission", "admission", default=False),
    _admission("waiting", "waiting"),
    TierFamily("fair", "max", "fair", "admission", default=False, per_queue=True),
    TierFamily("disruption", "min", "disruption", "disruption"),
    TierFamily("preference", "max", "preference", "placement"),
    TierFamily("bandwidth", "max", "bandwidth", "placement", pays_for_moves=True),
    TierFamily("growth", "max", "growth", "growth", per_priority=True, condition="elastic"),
    TierFamily(
        "growth-pods",
        "max",
        "growth",
        "growth",
        per_priority=True,
        condition="elastic_without_gpus",
    ),
    TierFamily("span", "min", "span", "placement"),
    TierFamily("stranded", "min", "stranded", "cluster"),
    TierFamily(
        "defragment",
        "max",
        "defragment",
        "cluster",
        default=False,
        pays_for_moves=True,
    ),
    TierFamily("suspect", "max", "suspect", "cluster", default=False),
    TierFamily("stability", "min", "stability", "cluster", default=False),
)
"""In the order in which the tiers of one priority, and the default objectives, are solved."""


@cache
def family(name: str) -> TierFamily:
    """The row of a tier, from its name, ``name/priority`` or ``name/rank``."""
    bare = name.partition("/")[0]
    return next(row for row in TIERS if row.name == bare)


def objective_names(*, default_only: bool = False) -> tuple[str, ...]:
    """Names a policy may list, the default objectives first and in their order."""
    listed = (row for row in TIERS if row.name == row.objective)
    ordered = sorted(listed, key=lambda row: not row.default)
    return tuple(row.name for row in ordered if row.default or not default_only)


@dataclass(frozen=True, slots=True)
class Tier:
    """One objective: its family, priority where it has one, sense, tolerance.

    ``rank``: number of queues that it is about, those with the least.
    """

    family: str
    priority: int | None
    sense: Sense
    tolerance: Fraction
    rank: int | None = None

    @property
    def name(self) -> str:
        number = self.priority if self.rank is None else self.rank
        return self.family if number is None else f"{self.family}/{number}"

    @property
    def row(self) -> TierFamily:
        return family(self.family)


def sign(sense: Sense) -> int:
    """1 where a larger value is better, -1 where a smaller one is."""
    return 1 if sense == "max" else -1


def larger_is_better(tiers: Iterable[Tier], values: Iterable[int]) -> tuple[int, ...]:
    """The values of these tiers with the sign that makes larger ones better."""
    return tuple(sign(tier.sense) * value for tier, value in zip(tiers, values, strict=True))


def stated_tiers(
    objectives: Iterable[tuple[str, Fraction]],
    met: Mapping[int, Collection[str]],
    queues: int = 0,
) -> Iterator[Tier]:
    """The tiers that a plan states, in order.

    ``objectives``: (name, tolerance) as the policy lists them. ``met``: for every priority in the
    input, the conditions that its gangs meet. ``queues``: number of queues that gangs name.
    """
    listed = dict(objectives)
    main = next((name for name in MAINS if name in listed), None)
    priorities = sorted(met, reverse=True)

    def of(rows: Iterable[TierFamily], priority: int) -> Iterator[Tier]:
        for row in rows:
            if row.condition is None or row.condition in met[priority]:
                yield Tier(row.name, priority, row.sense, listed[row.objective or main or ""])

    fused = [row for row in TIERS if row.fused and (row.objective or main) in listed]
    for priority in priorities:
        yield from of((row for row in fused if row.first), priority)
    for name, tolerance in listed.items():
        row = family(name)
        if not row.per_priority:
            ranks = range(1, min(queues, MAX_RANKS) + 1) if row.per_queue else (None,)
            yield from (Tier(name, None, row.sense, tolerance, rank) for rank in ranks)
            continue
        # each of the others of its objective is stated for all priorities after those before it
        others = ([r] for r in TIERS if r.objective == row.name and r != row and not r.fused)
        groups = [[row], *others]
        if row.fused and main is not None:  # its place decides where all of them go
            groups = [[r for r in fused if not r.first]] if name == main else []
        for rows, priority in product(groups, priorities):
            yield from of(rows, priority)
