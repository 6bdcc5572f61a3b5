"""The report of one ``run``: summary line, summary event, metrics and the note in the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.apply.outcomes import GangVerdict, Outcome, Verdict
from models.results.plan_gpus import gained
from models.units import plural
from planner.show.apply import MAX_NAMES, counts, say_undo, sizes
from planner.show.metrics import Metrics
from planner.show.plan.proofs import bought, more_work, tiers_proven
from planner.show.text import number
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from planner.show.console import Console

Undo = Callable[[GangVerdict], list[str]]
"""Commands that undo a gang that is half there; empty for others."""

WAITING = ("wait", "preempt")
"""Decisions that leave a gang waiting."""

STARTING = ("place", "complete")

_COUNTED = ("keep", *STARTING)
"""Decisions after which a plan counts a gang as running whole, wherever it stood."""

_NOT_RUNNING = (Outcome.pending, Outcome.partial, Outcome.halted, Outcome.skipped, Outcome.undone)
"""Outcomes of gangs that do not run whole, although the plan counts on them."""

_WORDS = {
    Outcome.started: "started",
    Outcome.pending: "not fully bound yet",
    Outcome.stopped: "stopped",
    Outcome.resized: "resized",
    Outcome.skipped: "skipped",
    Outcome.partial: "partial",
    Outcome.undone: "undone",
    Outcome.halted: "halted",
    Outcome.withheld: "withheld",
    Outcome.advised: "to be resized by hand",
}
"""In the order of the summary line, which omits unchanged gangs."""


@dataclass(slots=True)
class RunReport:
    """Filled in during the run. ``recovered``: verdict on gangs that earlier runs left incomplete.

    ``applied``: verdict on this run's plan. ``plan``: its id; ``decided``: the plan itself; ``unbound``: pods
    (namespace, name) that hold room before it and are not bound.
    ``cluster``: uid. ``seconds``: of each phase, summed if it runs twice. ``warnings``: as printed.
    """

    status: str = "failed"
    exit_code: int = 1
    context: str | None = None
    cluster: str | None = None
    plan: str | None = None
    replanned: bool = False
    decided: PlanDocument | None = None
    unbound: Collection[tuple[str, str]] = ()
    recovered: Verdict | None = None
    applied: Verdict | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def verdicts(self) -> list[GangVerdict]:
        """The last verdict on every gang, in order of first appearance."""
        last: dict[tuple[str, str], GangVerdict] = {}
        for verdict in (self.recovered, self.applied):
            for gang in () if verdict is None else verdict.gangs:
                before = last.get(gang.gang)
                # A recovered gang is unchanged afterwards: the first verdict says what was done.
                if before is None or gang.outcome is not Outcome.unchanged:
                    last[gang.gang] = gang
        return list(last.values())

    @property
    def counts(self) -> dict[Outcome, int]:
        """Gangs per outcome."""
        found = Counter(gang.outcome for gang in self.verdicts)
        return {outcome: found[outcome] for outcome in Outcome if found[outcome]}

    @property
    def writes(self) -> int:
        """Requests that changed something, without those of the lock."""
        return sum(one.writes for one in (self.recovered, self.applied) if one is not None)

    @property
    def evicted(self) -> int:
        return sum(one.evicted for one in (self.recovered, self.applied) if one is not None)

    @property
    def started(self) -> int:
        """Gangs whose pods were started, bound or not."""
        return self.counts.get(Outcome.started, 0) + self.counts.get(Outcome.pending, 0)

    @property
    def waiting(self) -> int | None:
        return None if self.decided is None else self._count(WAITING)

    @property
    def never(self) -> int | None:
        """Of those that wait, the gangs that could not start even if nothing else ran."""
        return None if self.decided is None else sum(g.never for g in self.decided.spec.gangs)

    @property
    def gap(self) -> float | None:
        """The largest of all tiers; None without a plan."""
        if self.decided is None:
            return None
        return max((tier.gap for tier in self.decided.status.objectives), default=0.0)

    @property
    def effective(self) -> dict[str, float] | None:
        """Effective GPUs: before, after, one_at_a_time; None if its plan states none.

        Those of the plan, without gangs that it starts or counts as running and that do not run whole.
        """
        stated = None if self.decided is None else self.decided.status.effective_gpus
        if stated is None:
            return None
        found = stated.known()
        for name, gpus in (
            ("before", self._not_running(("keep",))),
            ("after", self._not_running(_COUNTED)),
        ):
            found[name] = round(max(0.0, found[name] - gpus), 3)
        return found

    def _not_running(
        self, decisions: Collection[str], outcomes: Collection[Outcome] = _NOT_RUNNING
    ) -> float:
        """Effective GPUs of gangs of these decisions with such an outcome, as the plan counts them."""
        if self.decided is None:
            return 0.0
        away = {one.gang for one in self.verdicts if one.outcome in outcomes}
        gpus = {gang.key: gang.min_gpus for gang in self.decided.instance.gangs}
        if (
            Outcome.pending in outcomes
        ):  # perhaps since an earlier run: nothing was done with it now
            touched = {one.gang for one in self.verdicts if one.outcome is not Outcome.unchanged}
            kept = (g for g in self.decided.spec.gangs if g.decision == "keep")
            unbound = {g.key for g in kept for p in g.pods if (g.namespace, p.name) in self.unbound}
            away |= unbound - touched
        gangs = (g for g in self.decided.spec.gangs if g.key in away and g.decision in decisions)
        return (
            sum(
                (gpus[gang.key] if gang.gpus is None else gang.gpus) * (gang.speed or 0)
                for gang in gangs
            )
            / 1000
        )

    def _count(self, decisions: Iterable[str]) -> int:
        gangs = () if self.decided is None else self.decided.spec.gangs
        return sum(gang.decision in decisions for gang in gangs)

    def line(self, seconds: float) -> str:
        """The summary line."""
        parts = [
            f"{self.counts[one]:,} {word}" for one, word in _WORDS.items() if one in self.counts
        ]
        facts = [f"gangs: {', '.join(parts)}" if parts else "nothing changed"]
        if self.evicted:
            facts.append(f"{plural(self.evicted, 'pod')} evicted")
        if self.waiting is not None:
            never = f" ({self.never:,} can never start)" if self.never else ""
            facts.append(f"{self.waiting:,} waiting{never}")
        if self.effective is not None:
            after, before = (number(self.effective[name]) for name in ("after", "before"))
            bound = self._not_running(_COUNTED, (Outcome.pending,))
            more = f"; {number(bound)} more once all pods are bound" if bound else ""
            facts.append(f"{after} effective GPUs ({before} before{more})")
        if self.decided is not None:
            fewer = bought(self.decided)
            facts += [] if fewer is None else [f"its plan has {fewer}"]
            possible = more_work(self.decided)
            if possible is not None and possible != "0 %":
                facts.append(f"at most {possible} more possible")
            facts.append(tiers_proven(self.decided))
        if self.replanned:
            facts.append("planned twice")
        facts.append(f"{seconds:.1f} s")
        plan = f" plan {self.plan};" if self.plan else ""
        return f"run {self.status} (exit {self.exit_code}):{plan} {'; '.join(facts)}"

    def print_summary(self, console: Console, seconds: float) -> None:
        """A line in text logs, an event in JSON logs."""
        console.say(self.line(seconds))
        digests = None if self.decided is None else self.decided.status.digests.model_dump()
        console.event(
            "summary",
            verb="run",
            status=self.status,
            exit_code=self.exit_code,
            context=self.context,
            cluster=self.cluster,
            plan=self.plan,
            replanned=self.replanned,
            gap=self.gap,
            placed=None if self.decided is None else self._count(STARTING),
            waiting=self.waiting,
            never=self.never,
            effective_gpus=self.effective,
            gained_by_priority=None if self.decided is None else gained(self.decided),
            gangs={outcome.value: float(count) for outcome, count in self.counts.items()},
            writes=self.writes,
            evicted=self.evicted,
            seconds={**self.seconds, "total": round(seconds, 3)},
            digests=digests,
            warnings=[safe(line) for line in self.warnings[:MAX_NAMES]],
        )

    def note(self, finished: str) -> dict[str, Any]:
        """The note about the last run in the lock. ``finished``: RFC 3339 UTC."""
        effective = self.effective
        return {
            "status": self.status,
            "exit_code": self.exit_code,
            "finished": finished,
            "plan": self.plan,
            "counts": {
                **{outcome.value: count for outcome, count in self.counts.items()},
                **({} if self.waiting is None else {"waiting": self.waiting}),
                "evicted": self.evicted,
            },
            **({} if effective is None else {"effective_gpus": effective["after"]}),
        }

    def metrics(self, finished: float) -> Metrics:
        known = self.decided is not None
        return Metrics(
            exit_code=self.exit_code,
            finished=finished,
            gap=self.gap,
            pending=self.waiting,
            never=self.never,
            started=self.started if known else None,
            evicted=self.evicted if known else None,
            effective=self.effective or {},
            queues=() if self.decided is None else self.decided.status.queues,
            seconds=self.seconds,
            outcomes={}
            if self.applied is None
            else {one: self.counts.get(one, 0) for one in Outcome},
            **({} if self.decided is None else _gaps_and_waits(self.decided)),
        )


def _gaps_and_waits(plan: PlanDocument) -> dict[str, dict[str, Any]]:
    """Of ``Metrics``: gaps by family of tiers, and what waits by reason."""
    gaps: dict[str, float] = {}
    for tier in plan.status.objectives:
        gaps[tier.family] = max(gaps.get(tier.family, 0.0), tier.gap)
    asked = {gang.key: gang.min_gpus for gang in plan.instance.gangs}
    gangs: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for gang in plan.spec.gangs:
        if gang.decision in WAITING:
            reason = "Unknown" if gang.reason is None else gang.reason.code
            gangs[reason] += 1
            gpus[reason] += asked.get(gang.key, 0)
    return {"tier_gaps": gaps, "waiting_gangs": gangs, "waiting_gpus": gpus}


def show_verdict(
    console: Console,
    plan: str | None,
    verdict: Verdict,
    undo: Undo,
    *,
    shown: Collection[GangVerdict] = (),
) -> None:
    """Print the outcome of each gang. ``plan``: None while recovering. ``shown``: printed before."""
    changed = [one for one in verdict.gangs if one.outcome is not Outcome.unchanged]
    partial = [one for one in changed if one.outcome is Outcome.partial]
    for one in changed:
        if one in shown:
            continue
        said = "; ".join(filter(None, (sizes(one), one.why)))
        why = f": {said}" if said else ""
        console.say(f"{'/'.join(one.gang)}: {_WORDS[one.outcome]}{why}")
        say_undo(console, one, undo(one))
    if plan is None and not changed and verdict.stop is None:
        return
    whys = [one for one in changed if one.why][:MAX_NAMES]
    console.event(
        "apply_done",
        plan=plan,
        gangs={name: float(count) for name, count in counts(verdict).items()},
        partial=[safe("/".join(one.gang)) for one in partial],
        why={safe("/".join(one.gang)): safe(one.why) for one in whys},
        undo=[safe(line) for one in partial[:MAX_NAMES] for line in undo(one)],
        writes=verdict.writes,
        evicted=verdict.evicted,
        stop=None if verdict.stop is None else safe(verdict.stop),
    )
