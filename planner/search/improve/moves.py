"""Keep only the moves of a plan that are worth it, and state what each set of moves bought.

No set of moves that remains gains less than the policy's ``minGain``. Sets that are left out are
named in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from models.instance.instance import Instance
from models.instance.solution import GangDecision, MoveSet, Solution, TierResult
from models.program.options import standing_gpus
from models.results.notes import left_out, tier_served, unsettled
from models.tiers import sign
from models.values.relocation import MOVES_UNPROVEN, PlanWorth, move_set, move_sets, plan_worth

Run = Callable[[frozenset[int]], Solution]
"""Search again with these gangs (indices) not allowed to move."""

MAX_SETS = 6
"""Sets of moves assessed separately, with one search each; the others are assessed as one set.

As often rejected sets are left out and other gangs may move instead.
"""


def keep_worthwhile(instance: Instance, first: Solution, run: Run) -> Solution:
    """The plan to return, with ``moves`` filled in.

    ``first``: the best plan with every gang free to move.

    Runs at most (MAX_SETS + 1) x (MAX_SETS + 1) searches, none if nothing moves, and usually one
    per set. A minGain of 0 leaves out nothing, since what a higher gang gains may cost lower gangs
    more GPUs.
    """
    trials = _Trials(instance, run, [first])
    least = instance.policy.moves.min_gain if instance.policy.moves else Fraction(0)
    plan, immovable, notes = first, frozenset[int](), list[str]()
    for number in range(MAX_SETS + 1):
        plan, sets, tier_notes, proven = _assess(trials, plan, immovable)
        rejected = [s for s in sets if least > 0 and s.gain < int(1000 * least)]
        if not rejected:
            proof_notes = (MOVES_UNPROVEN,) if sets and not proven else ()
            return replace(plan, moves=sets, notes=(*plan.notes, *tier_notes, *notes, *proof_notes))
        notes += [left_out(instance, move) for move in rejected]
        immovable |= {gang for move in rejected for gang in move.gangs}
        if number == MAX_SETS - 1:
            notes += [unsettled(instance, move) for move in sets if move not in rejected]
            immovable = trials.movable
        plan = trials.best(immovable)
    raise AssertionError("a plan in which no gang may move has no rejected moves")


def with_moves_as_one(
    instance: Instance, plan: Solution, unmoved: Sequence[GangDecision]
) -> Solution | None:
    """The plan with its moves as one set, compared with a plan in which nothing moves.

    None if the set gains less than the policy's ``minGain``.
    """
    moving = sorted(_moving(plan))
    if not moving:
        return plan
    worth = plan_worth(instance, plan.decisions), plan_worth(instance, unmoved)
    bought = move_set(instance, moving, *worth)
    least = instance.policy.moves.min_gain if instance.policy.moves else Fraction(0)
    if least > 0 and bought.gain < int(1000 * least):
        return None
    return replace(plan, moves=(bought,), notes=(*plan.notes, MOVES_UNPROVEN))


def _assess(
    trials: _Trials, plan: Solution, immovable: frozenset[int]
) -> tuple[Solution, tuple[MoveSet, ...], tuple[str, ...], bool]:
    """The plan, what each set of its moves bought, notes on the tiers they serve, and whether all is proven.

    A set is compared with the best plan in which only the gangs of the other sets move. If a plan
    with fewer moves is as good, it takes the place of the plan.
    """
    instance = trials.instance
    while True:
        sets = bounded(instance, move_sets(instance, plan.decisions))
        moving = frozenset(gang for gangs in sets for gang in gangs)
        worth, assessed, tier_notes, proven = trials.worth(plan), list[MoveSet](), list[str](), True
        for gangs in sets:
            without = trials.best(immovable | (trials.movable - (moving - set(gangs))))
            if trials.comparable and _values(without) >= _values(plan):
                plan = _with_proofs(without, plan)
                break
            assessed.append(move_set(instance, gangs, worth, trials.worth(without)))
            tier_notes += tier_served(instance, assessed[-1], plan.tiers, without.tiers)
            proven = proven and all(tier.gap == 0 for tier in without.tiers)
        else:
            return plan, tuple(assessed), tuple(tier_notes), proven


def bounded(instance: Instance, sets: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """At most MAX_SETS sets, ordered by their first gang; the smallest sets become one."""
    if len(sets) <= MAX_SETS:
        return tuple(sets)

    ordered = sorted(sets, key=lambda own: (-sum(standing_gpus(instance, i) for i in own), own))
    rest = tuple(sorted(gang for gangs in ordered[MAX_SETS - 1 :] for gang in gangs))
    return tuple(sorted((*ordered[: MAX_SETS - 1], rest)))


@dataclass
class _Trials:
    """Plans found so far, by the gangs that must not move, and what they are worth."""

    instance: Instance
    run: Run
    known: list[Solution]
    _searched: dict[frozenset[int], Solution] = field(default_factory=dict)
    _worths: dict[int, tuple[Solution, PlanWorth]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gangs = self.instance.gangs
        self.movable = frozenset(i for i, g in enumerate(gangs) if g.running and g.movable)
        # with a tolerance a lower value may be intended, so no plan replaces another
        self.comparable = not any(o.tolerance for o in self.instance.policy.objectives)

    def best(self, immovable: frozenset[int]) -> Solution:
        """The best plan found in which these gangs do not move, from this search or another.

        Later searches have less effort and may find less than an earlier search with fewer moves.
        """
        if immovable not in self._searched:
            plan = self._searched[immovable] = self.run(immovable)
            assert not _moving(plan) & immovable, "a gang moves that must not"
            self.known.append(plan)
        plan = self._searched[immovable]
        for other in self.known if self.comparable else ():
            if not _moving(other) & immovable and _values(other) > _values(plan):
                plan = _with_proofs(other, plan)
        return plan

    def worth(self, plan: Solution) -> PlanWorth:
        if id(plan) not in self._worths:  # the plan is kept, so that its id stays unique
            self._worths[id(plan)] = (plan, plan_worth(self.instance, plan.decisions))
        return self._worths[id(plan)][1]


def _moving(plan: Solution) -> frozenset[int]:
    return frozenset(i for i, one in enumerate(plan.decisions) if one.decision == "move")


def _values(plan: Solution) -> list[int]:
    """Tier values, larger is better."""
    return [sign(tier.sense) * tier.value for tier in plan.tiers]


def _with_proofs(plan: Solution, other: Solution) -> Solution:
    """A plan that replaces another, with the bounds that still hold for it.

    A bound of the replaced plan holds for every plan as good in the earlier tiers: up to the first
    tier in which ``plan`` is worse. From there its own bounds are stated, and a note says so.
    """
    tiers: list[TierResult] = []
    worse = False
    for tier, replaced in zip(plan.tiers, other.tiers, strict=True):
        factor = sign(tier.sense)
        holds = not worse and factor * replaced.bound >= factor * tier.value
        tiers.append(replace(tier, bound=replaced.bound, proof=replaced.proof) if holds else tier)
        worse = worse or factor * tier.value < factor * replaced.value
    proven = all(tier.gap == 0 for tier in tiers)
    stopped = other.stopped_by if other.stopped_by != "proof" else plan.stopped_by
    note = "some bounds apply only to plans in which fewer gangs may move"
    return replace(
        plan,
        tiers=tuple(tiers),
        stopped_by="proof" if proven and not worse else stopped,
        notes=(*plan.notes, *((note,) if worse else ())),
    )
