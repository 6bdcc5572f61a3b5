"""``--require``: finds the gangs, and proves for those left out whether they could be admitted.

The plan does not change. The proof is another search, only for which gangs run.
"""

from __future__ import annotations

import difflib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from models.documents.policy import Objective
from models.instance.disruption_budgets import fixed, may_stop
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import NEVER, Solution, TierResult
from models.queues.queue_shares import shares
from models.tiers import TIERS, family
from models.values.tier_values import admitted, tiers_of
from planner.errors import Fault, UsageError
from planner.show.reason_words import words

_BELOW_ALL = -(10**18)


@dataclass(frozen=True, slots=True)
class Required:
    """A required gang that the plan leaves out. ``proven``: no plan as good in earlier tiers admits it."""

    name: str
    proven: bool
    why: str


def resolve(name: str, instance: Instance, option: str = "--require") -> int:
    """Index of the gang ``[NAMESPACE/]NAME`` that an option names.

    Raises UsageError if there is none, or if a bare name exists in several namespaces.
    """
    namespace, slash, bare = name.rpartition("/")
    found = [
        index
        for index, gang in enumerate(instance.gangs)
        if gang.name == bare and (not slash or gang.namespace == namespace)
    ]
    if len(found) == 1:
        return found[0]
    full = [f"{gang.namespace}/{gang.name}" for gang in instance.gangs]
    if found:
        meant = ", ".join(full[index] for index in found[:5])
        raise UsageError(Fault(f"{option} {name} is ambiguous", f"say which: {meant}"))
    names = full if slash else [gang.name for gang in instance.gangs]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else "the input has no gang of that name"
    raise UsageError(Fault(f"{option} {name}: no such gang", hint))


def unmet(
    required: tuple[int, ...], instance: Instance, solution: Solution, stop: threading.Event
) -> tuple[Required, ...]:
    """The required gangs that the plan does not admit, in the given order.

    Proven: the gang is held; or it does not fit even without all other waiting gangs and all
    running gangs that may be stopped; or the tiers down to its priority are proven and a plan that
    admits it is worse in one of them. Moves that were left out because of ``minGain`` count as
    possible.
    """
    instance = replace(instance, policy=replace(instance.policy, now=instance.now))
    asked = [
        index
        for index in dict.fromkeys(required)
        if not admitted(instance, index, solution.decisions[index])
    ]
    moves, gangs = instance.policy.moves, instance.gangs
    picky = moves is not None and moves.min_gain > 0 and any(g.running and g.movable for g in gangs)
    best = _admit(instance, stop) if asked and picky else solution
    left_out = []
    for index in asked:
        gang, decision = instance.gangs[index], solution.decisions[index]
        why = words(decision.reason) if decision.reason else "the plan leaves it out"
        proven = (
            gang.hold is not None
            or (decision.reason is not None and decision.reason.code == NEVER)
            or _no_room_alone(index, instance, stop)
            or (
                not admitted(instance, index, best.decisions[index])
                and _tiers_proven(gang.priority, best)
                and not _others_as_good_with_it(index, instance, best, stop)
            )
        )
        left_out.append(Required(f"{gang.namespace}/{gang.name}", proven, why))
    return tuple(left_out)


def _tiers_proven(priority: int, solution: Solution) -> bool:
    """Whether the tiers of every priority are proven down to this one."""
    tiers = [tier for tier in solution.tiers if _priority(tier) >= priority]
    return bool(tiers) and all(tier.bound == tier.best and tier.proof for tier in tiers)


def _priority(tier: TierResult) -> int:
    """Priority of a tier; below every priority for tiers without one."""
    priority = tier.name.partition("/")[2]
    return int(priority) if priority and family(tier.name).fused else _BELOW_ALL


def _no_room_alone(index: int, instance: Instance, stop: threading.Event) -> bool:
    """Whether the gang provably does not fit, whatever happens to the others and however slow it is.

    The other waiting gangs, and the running gangs that may be stopped, are removed. The gang gets
    the highest priority, so that the remaining gangs move and shrink for it. Any plan that admits
    it, less the removed gangs, is a plan here too.
    """
    known = shares(instance)  # what queues hold before the plan, removed gangs included
    highest = max(gang.priority for gang in instance.gangs)

    def below(gang: Gang) -> bool:
        """Whether some gang may have a right to stop it."""
        return gang.priority < highest or known is not None

    first = replace(instance.gangs[index], priority=highest + 1)
    stays = fixed(instance)
    gangs = tuple(
        first if i == index else gang if i in stays else replace(gang, preemptible=False)
        for i, gang in enumerate(instance.gangs)
        if i == index or (gang.running and not (may_stop(instance, i) and below(gang)))
    )
    known = None if known is None else replace(known, within=frozenset())
    alone = replace(instance, gangs=gangs, shares=known)
    solution = _admit(alone, stop, (Objective("admission"),))
    at = gangs.index(first)
    return not admitted(alone, at, solution.decisions[at]) and _tiers_proven(
        first.priority, solution
    )


def _others_as_good_with_it(
    index: int, instance: Instance, solution: Solution, stop: threading.Event
) -> bool:
    """Whether some plan may admit the gang and be as good in every tier down to its priority.

    The gang gets a priority just above its peers: the search then admits it whenever the higher
    priorities allow, and does its best for the peers afterwards. It counts full speed wherever it is,
    so that its place is the best for the peers: no plan that admits it is worth more than this one.
    Nothing is known where tiers about queues come first: what they count is not a sum over peers.
    """
    if any(tier.row.first or tier.row.per_queue for tier in tiers_of(instance)):
        return True
    gang = instance.gangs[index]
    doubled = [replace(g, priority=2 * g.priority) for g in instance.gangs]
    doubled[index] = replace(
        gang, priority=2 * gang.priority + 1, fraction=Fraction(0), counts_speed=False
    )
    with_it = _admit(replace(instance, gangs=tuple(doubled)), stop)
    if not admitted(instance, index, with_it.decisions[index]):
        return not _tiers_proven(2 * gang.priority + 1, with_it)
    if not _tiers_proven(2 * gang.priority, with_it):
        return True

    def totals(tiers: Iterable[TierResult], at_least: int) -> tuple[int, ...]:
        """The sum of each kind of tier, in the order of the tiers of one priority; more is better."""
        sums: Counter[str] = Counter()
        for tier in tiers:
            if _priority(tier) >= at_least:
                sums[tier.name.partition("/")[0]] += tier.value
        return tuple(sums[row.name] for row in TIERS if row.fused)

    # The tiers above are equal in both plans, so the sums compare the peers.
    return totals(with_it.tiers, 2 * gang.priority) >= totals(solution.tiers, gang.priority)


def _admit(
    instance: Instance, stop: threading.Event, objectives: tuple[Objective, ...] = ()
) -> Solution:
    """A search for which gangs run alone, without ``minGain``; ``objectives``: for these instead."""
    from planner.search.solve import solve

    moves = instance.policy.moves
    listed = tuple(o for o in instance.policy.objectives if family(o.name).fused)
    policy = replace(
        instance.policy,
        objectives=objectives or listed or (Objective("admission"),),
        moves=None if moves is None else replace(moves, min_gain=Fraction(0)),
    )
    return solve(replace(instance, policy=policy), stop=stop)
