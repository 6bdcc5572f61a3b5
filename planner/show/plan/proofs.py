"""How good a plan is proven to be: in one line, and what ``verify`` says of an accepted plan.

Nothing that is merely stated is called verified: a bound that no count gives rests on its engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.documents.plan import PlanDocument, PlanObjective
from models.documents.stated import Unchecked
from models.instance.solution import Proof, StoppedBy
from models.results.plan_gpus import gained, most_effective_gpus
from models.units import first_of, plural
from planner.show.text import number, percent
from planner.untrusted_text import safe

MAX_NAMED = 4
"""Tiers, or priorities, named in one line."""


def more_work(plan: PlanDocument) -> str | None:
    """How much more work a better plan can do: ``5.23 %``, ``0 %``; None if no share of it is known."""
    most, effective = most_effective_gpus(plan), plan.status.effective_gpus
    if most is None or effective is None or not effective.after:
        return None
    return percent(most / effective.after - 1)


def bought(plan: PlanDocument) -> str | None:
    """What a plan with fewer effective GPUs than one gang after another has for them.

    ``8 fewer than one after another: +8 at priority 50, -16 at priority 0``.
    """
    differ = gained(plan)
    if not differ:
        return None
    said = [f"{gpus:+,.10g} at priority {priority}" for priority, gpus in differ.items()]
    fewer = number(-sum(differ.values()))
    return f"{fewer} fewer than one after another: {first_of(said, MAX_NAMED)}"


def tiers_proven(plan: PlanDocument) -> str:
    """``14 of 23 tiers proven best``."""
    tiers = plan.status.objectives
    return f"{sum(t.proven for t in tiers):,} of {plural(len(tiers), 'tier')} proven best"


def outcome(plan: PlanDocument) -> str:
    """How far from the best the plan is: one sentence where that is proven, else the work and the tiers."""
    if plan.status.outcome == "optimal":
        numerical = any(tier.proof != "exact" for tier in plan.status.objectives)
        within = ", within the tolerance of the solver" * numerical
        return f"optimal: it is proven that no plan is better{within}"
    parts = [tiers_proven(plan), f"the search was {_STOPPED[plan.status.search.stopped_by]}"]
    more = more_work(plan)
    if more == "0 %":
        parts.insert(0, "no better plan does more work")
    elif more is not None:
        parts.insert(0, f"a better plan does at most {more} more work")
    return f"feasible: {'; '.join(parts)}"


_STOPPED: Mapping[StoppedBy, str] = {
    "proof": "ended",
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


_PROVEN: Mapping[Proof | None, str] = {
    "exact": "stated as proven best in integer arithmetic (CP-SAT, or rounded duals)",
    "numerical": "stated as proven best in floating point (HiGHS)",
    None: "not proven best",
}


def proofs(plan: PlanDocument, unknown: Sequence[Unchecked] = ()) -> list[str]:
    """The lines. ``unknown``: what nobody checked, a line for each cause."""
    tiers = plan.status.objectives
    values = f"; the values of {plural(len(tiers), 'tier')} are as stated" if tiers else ""
    supposed = plan.instance.what_if
    bound = "" if supposed is None else f"; a what-if {safe(supposed)}: it cannot be applied"
    lines = [f"verified: {plural(len(plan.spec.gangs), 'gang')} break no rule{values}{bound}"]
    for proof, what in _PROVEN.items():
        own = [safe(one.name) for one in tiers if (one.proof if one.proven else None) == proof]
        if own:
            lines.append(f"{what}: {plural(len(own), 'tier')} ({first_of(own, MAX_NAMED)})")
    if tiers:
        lines.append(
            "tried with bounded work: starts, one gang in the room of another, gangs as they were"
        )
    by_why: dict[str, list[str]] = {}
    for one in unknown:
        codes = f" ({', '.join(one.codes)})" if one.codes else ""
        by_why.setdefault(one.why, []).append(safe(one.field + codes))
    return lines + [f"not checked: {', '.join(own)}: {why}" for why, own in by_why.items()]
