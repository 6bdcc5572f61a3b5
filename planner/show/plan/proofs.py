"""How good a plan is proven to be: in one line, and what ``verify`` says of an accepted plan.

Nothing that is merely stated is called verified: a bound that no count gives rests on its engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

from models.documents.plan import PlanDocument, PlanObjective
from models.documents.stated import Unchecked
from models.instance.solution import Decision
from models.results.plan_gpus import gained, most_effective_gpus
from models.units import first_of, plural
from planner.show.text import number, percent
from planner.untrusted_text import safe

MAX_NAMED = 4
"""Tiers named in one line."""

TRIED = "tried with bounded work: starts, one gang in the room of another, gangs as they were"


def more_work(plan: PlanDocument) -> str | None:
    """How much more work a better plan can do: ``5.23 %``, ``0 %``; None if no share of it is known."""
    most, effective = most_effective_gpus(plan), plan.status.effective_gpus
    if most is None or effective is None or not effective.after:
        return None
    return percent(most / effective.after - 1)


def bought(plan: PlanDocument) -> str | None:
    """What a plan with fewer effective GPUs than one gang after another has for them.

    ``721 fewer than one after another: +141 at priority 50 and above, -862 below, 94 gangs stopped``. Above:
    of the highest priorities that have all more, or all fewer.
    """
    differ = gained(plan)
    if not differ:
        return None
    more = next(iter(differ.values())) > 0
    above = list(takewhile(lambda one: (differ[one] > 0) == more, differ))
    top = round(sum(differ[one] for one in above), 3)
    total = round(sum(differ.values()), 3)
    parts = [f"{top:+,.10g} at priority {above[-1]} and above"]
    if below := round(total - top, 3):
        parts.append(f"{below:+,.10g} below")
    of = Counter(gang.decision for gang in plan.spec.gangs)
    touched: tuple[tuple[Decision, str], ...] = (("preempt", "stopped"), ("move", "moved"))
    parts += [f"{plural(of[one], 'gang')} {word}" for one, word in touched if of[one]]
    return f"{number(-total)} fewer than one after another: {', '.join(parts)}"


def tiers_proven(plan: PlanDocument) -> str:
    """``14 of 23 tiers proven best``."""
    tiers = plan.status.objectives
    return f"{sum(t.proven for t in tiers):,} of {plural(len(tiers), 'tier')} proven best"


def outcome(plan: PlanDocument) -> str:
    """How far from the best the plan is: one sentence where that is proven, else the work and the tiers."""
    stopped = f"the search was {_STOPPED.get(plan.status.search.stopped_by, 'ended')}"
    if plan.status.outcome == "optimal":
        numerical = any(tier.proof != "exact" for tier in plan.status.objectives)
        return "optimal: it is proven that no plan is better" + (
            ", within the tolerance of the solver" * numerical
        )
    parts = [tiers_proven(plan), stopped]
    more = more_work(plan)
    if more is not None:
        none = more == "0 %"
        bound = f"{'no' if none else 'a'} better plan does {'' if none else f'at most {more} '}more work"
        parts.insert(0, bound)
    return f"feasible: {'; '.join(parts)}"


_STOPPED = {
    "budget": "ended by the budget",
    "time": "ended by the time limit",
    "signal": "interrupted",
}


_POSSIBLE: dict[str, str] = {
    "guarantee": "more of what queues are guaranteed",
    "kept": "more GPUs that running gangs keep",
    "aged": "more work of gangs that waited too long",
    "aged-waiting": "longer waits ended of gangs that waited too long",
    "goodput": "more work",
    "admission": "more GPUs for gangs that run",
    "waiting": "longer waits ended",
    "fair": "fairer between queues",
    "disruption": "less of running gangs restarted",
    "preference": "more preferred places",
    "bandwidth": "more bandwidth",
    "growth": "more GPUs beyond the minimum of elastic gangs",
    "growth-pods": "more pods beyond the minimum of elastic gangs",
    "span": "less spread over nodes and domains",
    "stranded": "fewer free GPUs that the next gangs cannot use",
    "defragment": "more free whole nodes and racks",
    "suspect": "more GPUs left free on nodes that failed lately",
    "stability": "fewer GPUs on other nodes than in the earlier plan",
}
"""What a better plan can have of a tier, by its family."""


def still_possible(tier: PlanObjective) -> str:
    """``at most 0.1 % more work at priority 50``, ``perhaps`` without a bound; empty for a proven tier."""
    if tier.proven:
        return ""
    what = _POSSIBLE.get(tier.family, f"better {tier.family}")
    _, slash, priority = tier.name.partition("/")
    if slash and tier.family != "fair":
        what += f" at priority {priority}"
    known = tier.bounded and 0 < tier.gap <= 1
    return f"{f'at most {percent(tier.gap)}' if known else 'perhaps'} {what}"


def proofs(plan: PlanDocument, unknown: Sequence[Unchecked] = ()) -> list[str]:
    """The lines. ``unknown``: what nobody checked."""
    tiers = plan.status.objectives
    exact = [tier.name for tier in tiers if tier.proven and tier.proof == "exact"]
    numerical = [tier.name for tier in tiers if tier.proven and tier.proof == "numerical"]
    open_ = [tier.name for tier in tiers if not tier.proven]
    gangs = plural(len(plan.spec.gangs), "gang")
    values = f"; the values of {plural(len(tiers), 'tier')} are as stated" if tiers else ""
    integers = ": stated as proven in integer arithmetic (CP-SAT, or rounded duals)"
    floats = ": stated as proven in floating point"
    lines = (
        ("best if the planner's formulation is right", exact, integers),
        ("best if HiGHS is right as well", numerical, floats),
        ("not proven best", open_, ""),
    )
    supposed = plan.instance.what_if
    bound = "" if supposed is None else f"; a what-if {safe(supposed)}: it cannot be applied"
    stated = (gang.reason for gang in plan.spec.gangs if gang.reason is not None)
    unread = sum(reason.fields is None for reason in stated)
    return [
        f"verified: {gangs} break no rule{values}{bound}",
        *(
            f"{what}: {plural(len(of), 'tier')} ({first_of([*map(safe, of)], MAX_NAMED)}){why}"
            for what, of, why in lines
            if of
        ),
        *[TRIED] * bool(tiers),
        *[f"only the code is checked of {plural(unread, 'reason')} without fields"] * bool(unread),
        *_not_checked(unknown),
    ]


def _not_checked(unknown: Sequence[Unchecked]) -> Iterator[str]:
    """A line for each cause, with the fields: ``not checked (words for people): status.notes, ...``."""
    by_why: dict[str, list[str]] = {}
    for one in unknown:
        codes = f" ({', '.join(one.codes)})" if one.codes else ""
        by_why.setdefault(one.why, []).append(safe(one.field + codes))
    for why, fields in by_why.items():
        yield f"not checked: {', '.join(fields)}: {why}"
