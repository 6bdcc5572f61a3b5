"""Whether the moves of a plan are worth it: what each set of them bought, and the plan without the poor ones.

Promises: a plan that moves gangs leaves here with its ``moves``, none of which gains less than the policy's
minGain; each set left out is named in the notes with what it would have bought; few searches.
Called by ``solve``, which lends the search itself as ``run``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from models.instance import Instance
from models.relocation import Worth, bought, move_sets, worth
from models.solution import MoveSet, Solution, TierResult
from planner.search.shortage import counted

Run = Callable[[frozenset[int]], Solution]
"""Search again with these gangs (indices) not allowed to move. The same gangs, the same plan."""

MOST_SETS = 6
"""Sets of moves judged apart, a search each; what is beyond is judged as one."""

MOST_ROUNDS = 3
"""How often poor sets are left out and other gangs may move instead; then only those that were worth it."""

MOST_NAMED = 5
"""Gangs named in one note."""

TOLD = ("aged", "aged-waiting", "admission", "waiting", "defragment", "bandwidth")
"""Families of tiers in which a set of moves gains what its figures tell."""

UNPROVEN = (
    "what moves buy is counted against the best plan found without them; that there is none better is not "
    "proven"
)


def worthwhile(instance: Instance, first: Solution, run: Run) -> Solution:
    """The plan to state, its ``moves`` filled in.

    ``first``: the best plan found, every gang free to move. At most (MOST_ROUNDS + 3) x (MOST_SETS + 1)
    searches, none where nothing moves; mostly one a set. Each is asked for once. A minGain of 0 leaves out
    nothing: what a higher gang gets may well cost lower ones more GPUs.
    """
    trials = _Trials(instance, run, [first])
    movable = trials.movable
    least = instance.policy.moves.min_gain if instance.policy.moves else Fraction(0)
    plan, still, notes = first, frozenset[int](), list[str]()
    for number in range(MOST_ROUNDS + 3):
        plan, sets, sakes, proven = _judged(trials, plan, still)
        poor = [s for s in sets if least > 0 and s.gain < int(1000 * least)]
        if not poor:
            doubts = (UNPROVEN,) if sets and not proven else ()
            return replace(plan, moves=sets, notes=(*plan.notes, *sakes, *notes, *doubts))
        notes += [_left_out(instance, move) for move in poor]
        still |= {gang for move in poor for gang in move.gangs}
        if number >= MOST_ROUNDS:  # enough of others instead
            still |= movable - {gang for move in sets if move not in poor for gang in move.gangs}
        if number > MOST_ROUNDS:
            notes += [_unsettled(instance, move) for move in sets if move not in poor]
            still = movable
        plan = trials.best(still)
    raise AssertionError("a plan in which no gang may move has no poor moves")


def _judged(
    trials: _Trials, plan: Solution, still: frozenset[int]
) -> tuple[Solution, tuple[MoveSet, ...], tuple[str, ...], bool]:
    """The plan and what each set of its moves bought, or a plan with fewer moves that is as good.

    What a set bought is told by the best plan in which only the gangs of the other sets move: a set that
    another could stand in for has still bought what it bought. Also, in sentences, for which tier sets
    are moved whose figures do not tell, and whether all these plans are proven.
    """
    instance = trials.instance
    while True:
        sets = bounded(instance, move_sets(instance, plan.decisions))
        moving = frozenset(gang for gangs in sets for gang in gangs)
        mine, judged, sakes, proven = trials.worth(plan), list[MoveSet](), list[str](), True
        for gangs in sets:
            without = trials.best(still | (trials.movable - (moving - set(gangs))))
            if trials.comparable and _signed(without) >= _signed(plan):
                plan = _instead(without, plan)
                break
            judged.append(bought(instance, gangs, mine, trials.worth(without)))
            sakes += _sake(instance, judged[-1], plan, without)
            proven = proven and all(tier.gap == 0 for tier in without.tiers)
        else:
            return plan, tuple(judged), tuple(sakes), proven


def _sake(instance: Instance, move: MoveSet, plan: Solution, without: Solution) -> tuple[str, ...]:
    """Which tier a set is moved for, where GPUs, bandwidth and whole nodes gained are not the reason."""
    for mine, theirs in zip(plan.tiers, without.tiers, strict=True):
        sign = 1 if mine.sense == "max" else -1
        if sign * mine.value > sign * theirs.value:
            if move.gain > 0 and mine.name.partition("/")[0] in TOLD:
                return ()
            names = _named(instance, move.gangs)
            verb = "moves" if len(move.gangs) == 1 else "move"
            values = f"{mine.value:,} with, {theirs.value:,} without"
            return (f"{names} {verb} for the sake of {mine.name}: {values}",)
    return ()


def bounded(instance: Instance, sets: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """At most MOST_SETS sets, by their first gang: those of the fewest GPUs become one."""
    if len(sets) <= MOST_SETS:
        return tuple(sets)

    def size(gangs: tuple[int, ...]) -> int:
        standing = ((instance.gangs[g], pod) for g in gangs for pod in instance.gangs[g].standing)
        return sum(gang.roles[pod.role].gpus for gang, pod in standing)

    ordered = sorted(sets, key=lambda gangs: (-size(gangs), gangs))
    rest = tuple(sorted(gang for gangs in ordered[MOST_SETS - 1 :] for gang in gangs))
    return tuple(sorted((*ordered[: MOST_SETS - 1], rest)))


@dataclass
class _Trials:
    """Plans found so far, those that were searched for by the gangs that had to stay, and their worth."""

    instance: Instance
    run: Run
    known: list[Solution]
    _searched: dict[frozenset[int], Solution] = field(default_factory=dict)
    _worths: dict[int, tuple[Solution, Worth]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gangs = self.instance.gangs
        self.movable = frozenset(i for i, g in enumerate(gangs) if g.running and g.movable)
        # with a tolerance a lower value may be meant: no plan takes the place of another
        self.comparable = not any(o.tolerance for o in self.instance.policy.objectives)

    def best(self, still: frozenset[int]) -> Solution:
        """The best plan found in which these gangs do not move, by this search or another.

        Searches get less and less effort: one that was cut may find less than one for fewer moves did.
        """
        if still not in self._searched:
            plan = self._searched[still] = self.run(still)
            assert not _moving(plan) & still, "a gang moves that must not"
            self.known.append(plan)
        plan = self._searched[still]
        for other in self.known:
            if self.comparable and not _moving(other) & still and _signed(other) > _signed(plan):
                plan = _instead(other, plan)
        return plan

    def worth(self, plan: Solution) -> Worth:
        if id(plan) not in self._worths:  # the plan is kept beside it, so that its id stays its own
            self._worths[id(plan)] = (plan, worth(self.instance, plan.decisions))
        return self._worths[id(plan)][1]


def _moving(plan: Solution) -> frozenset[int]:
    """Gangs that move."""
    return frozenset(i for i, one in enumerate(plan.decisions) if one.decision == "move")


def _signed(plan: Solution) -> list[int]:
    """Tier values, larger is better."""
    return [tier.value if tier.sense == "max" else -tier.value for tier in plan.tiers]


def _instead(plan: Solution, other: Solution) -> Solution:
    """A plan that is as good, with what is proven of the one it takes the place of.

    A bound of the other holds for every plan that is as good in the earlier tiers: up to the first tier in
    which ``plan`` is worse. From there on its own bounds are stated, and a note says what they are of.
    """
    tiers: list[TierResult] = []
    worse = False
    for mine, theirs in zip(plan.tiers, other.tiers, strict=True):
        sign = 1 if mine.sense == "max" else -1
        holds = not worse and sign * theirs.bound >= sign * mine.value
        tiers.append(replace(mine, bound=theirs.bound, proof=theirs.proof) if holds else mine)
        worse = worse or sign * mine.value < sign * theirs.value
    proven = all(tier.gap == 0 for tier in tiers)
    stopped = other.stopped_by if other.stopped_by != "proof" else plan.stopped_by
    note = "some bounds are of the plans in which fewer gangs may move"
    return replace(
        plan,
        tiers=tuple(tiers),
        stopped_by="proof" if proven and not worse else stopped,
        notes=(*plan.notes, *((note,) if worse else ())),
    )


def _left_out(instance: Instance, move: MoveSet) -> str:
    assert instance.policy.moves is not None
    least = float(instance.policy.moves.min_gain)
    return (
        f"not moved: {_named(instance, move.gangs)} ({counted(move.moved_gpus, 'GPU')}); that would buy "
        f"{_would_buy(instance, move)}: a gain of {move.gain / 1000:.3f}, below minGain {least:g}; "
        "bounds are of the plans without it"
    )


def _unsettled(instance: Instance, move: MoveSet) -> str:
    return (
        f"not moved, since others in their stead kept buying too little: {_named(instance, move.gangs)} "
        f"({counted(move.moved_gpus, 'GPU')}); that would buy {_would_buy(instance, move)}: a gain of "
        f"{move.gain / 1000:.3f}"
    )


def _would_buy(instance: Instance, move: MoveSet) -> str:
    admitted = f" ({_named(instance, move.admitted)})" if move.admitted else ""
    parts = [
        f"{_more(move.gpus, 'GPU')} admitted{admitted}" if move.gpus or admitted else "",
        f"{move.bandwidth / 1000:+,.3f} GPUs' worth of bandwidth" if move.bandwidth else "",
        _more(move.whole_nodes, "whole node") if move.whole_nodes else "",
        _more(move.whole_domains, "whole domain") if move.whole_domains else "",
    ]
    return ", ".join(part for part in parts if part) or "nothing of that kind"


def _more(count: int, noun: str) -> str:
    return f"{count:+} {noun}" if abs(count) == 1 else f"{count:+} {noun}s"


def _named(instance: Instance, gangs: Sequence[int]) -> str:
    names = ["/".join(instance.gangs[gang].key) for gang in gangs[:MOST_NAMED]]
    rest = len(gangs) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")
