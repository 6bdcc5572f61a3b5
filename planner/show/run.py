"""The report of one ``run``, as a line, an event and the note in the lock; its metrics read it as well."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.apply.requests import GangVerdict, Outcome, Verdict
from models.results.plan_gpus import gained, gpu_count
from models.units import plural
from planner.show.apply import (
    MAX_NAMES,
    Undo,
    announce_done,
    count_text,
    counts,
    say_undo,
    why_text,
)
from planner.show.plan.proofs import bought, more_work
from planner.show.text import number
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument, PlanGang
    from models.instance.solution import Decision
    from planner.show.console import Console

STARTING = ("place", "complete")

_NOT_RUNNING = (Outcome.pending, Outcome.partial, Outcome.halted, Outcome.skipped, Outcome.undone)
"""Outcomes of gangs that do not run whole, although the plan counts on them."""


@dataclass(slots=True)
class RunReport:
    """Filled in during the run. ``recovered``: verdict on gangs that earlier runs left incomplete.

    ``applied``: verdict on this run's plan. ``plan``: its id; ``decided``: the plan itself; ``unbound``: pods
    (namespace, name) that hold room before it and are not bound.
    ``cluster``: uid. ``seconds``: of each phase, summed if it runs twice. ``warnings``: as printed.
    ``idle``: GPUs that waiting gangs could use, by what it takes; ``spread``: lost to slower links. A shadow
    alone finds them out.
    """

    status: str = "failed"
    exit_code: int = 1
    context: str | None = None
    cluster: str | None = None
    plan: str | None = None
    replanned: bool = False
    decided: PlanDocument | None = None
    unbound: frozenset[tuple[str, str]] = frozenset()
    recovered: Verdict = field(default_factory=Verdict)
    applied: Verdict = field(default_factory=Verdict)
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    idle: dict[str, float] = field(default_factory=dict)
    spread: float | None = None

    @property
    def verdicts(self) -> list[GangVerdict]:
        """The last verdict on every gang, in order of first appearance."""
        last: dict[tuple[str, str], GangVerdict] = {}
        for one in (*self.recovered.gangs, *self.applied.gangs):
            # A recovered gang is unchanged afterwards: the first verdict says what was done.
            if one.gang not in last or one.outcome is not Outcome.unchanged:
                last[one.gang] = one
        return list(last.values())

    @property
    def counts(self) -> dict[str, int]:
        """Gangs per outcome."""
        return counts(self.verdicts)

    @property
    def writes(self) -> int:
        """Requests that changed something, without those of the lock."""
        return self.recovered.writes + self.applied.writes

    @property
    def evicted(self) -> int:
        return self.recovered.evicted + self.applied.evicted

    @property
    def left_waiting(self) -> list[PlanGang]:
        """Gangs that the plan leaves waiting."""
        return self._decided_as("wait", "preempt")

    @property
    def waiting(self) -> int | None:
        return None if self.decided is None else len(self.left_waiting)

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
        missing = list(self._missing())
        found["before"] -= sum(gpus for decision, _, gpus in missing if decision == "keep")
        found["after"] -= sum(gpus for _, _, gpus in missing)
        return {name: round(max(0.0, gpus), 3) for name, gpus in found.items()}

    def _missing(self) -> Iterator[tuple[Decision, Outcome, float]]:
        """Effective GPUs of each gang that the plan counts as running and that does not run whole."""
        if self.decided is None:
            return
        requests = self.decided.instance.gangs_by_key()
        outcomes = {one.gang: one.outcome for one in self.verdicts}
        for gang in self._decided_as("keep", *STARTING):
            outcome = outcomes.get(gang.key, Outcome.unchanged)
            pods = [(gang.namespace, pod.name) for pod in gang.pods]
            if gang.decision == "keep" and outcome is Outcome.unchanged:
                # Perhaps an earlier run started it, and its scheduler has not bound it since.
                outcome = Outcome.unchanged if self.unbound.isdisjoint(pods) else Outcome.pending
            if outcome in _NOT_RUNNING:
                gpus = gpu_count(gang, requests[gang.key]) or 0
                yield gang.decision, outcome, gpus * (gang.speed or 0) / 1000

    def _decided_as(self, *decisions: str) -> list[PlanGang]:
        gangs = () if self.decided is None else self.decided.spec.gangs
        return [gang for gang in gangs if gang.decision in decisions]

    def line(self, seconds: float) -> str:
        """The summary line."""
        changed = [one for one in self.verdicts if one.outcome is not Outcome.unchanged]
        facts = [f"gangs: {count_text(changed)}" if changed else "nothing changed"]
        if self.evicted:
            facts.append(f"{plural(self.evicted, 'pod')} evicted")
        if self.decided is not None:
            never = f" ({self.never:,} can never start)" if self.never else ""
            facts.append(f"{self.waiting:,} waiting{never}")
            if (effective := self.effective) is not None:
                pending = sum(gpus for _, why, gpus in self._missing() if why is Outcome.pending)
                more = f"; {number(pending)} more once all pods are bound" if pending else ""
                after, before = (number(effective[name]) for name in ("after", "before"))
                facts.append(f"{after} effective GPUs ({before} before{more})")
            if (fewer := bought(self.decided)) is not None:
                facts.append(f"its plan has {fewer}")
            if (possible := more_work(self.decided)) not in (None, "0 %"):
                facts.append(f"at most {possible} more work possible")
        if self.replanned:
            facts.append("planned twice")
        facts.append(f"{seconds:.1f} s")
        plan = f" plan {self.plan};" if self.plan else ""
        return f"run {self.status} (exit {self.exit_code}):{plan} {'; '.join(facts)}"

    def print_summary(self, console: Console, seconds: float) -> None:
        """A line in text logs, an event in JSON logs."""
        console.say(self.line(seconds))
        plan = self.decided
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
            placed=None if plan is None else len(self._decided_as(*STARTING)),
            waiting=self.waiting,
            never=self.never,
            effective_gpus=self.effective,
            **({"idle_gpus": self.idle} if self.idle else {}),
            gained_by_priority=None if plan is None else gained(plan),
            gangs=self.counts,
            writes=self.writes,
            evicted=self.evicted,
            seconds={**self.seconds, "total": round(seconds, 3)},
            digests=None if plan is None else plan.status.digests.model_dump(),
            warnings=[safe(line) for line in self.warnings[:MAX_NAMES]],
        )

    def note(self, finished: str) -> dict[str, Any]:
        """The note about the last run in the lock. ``finished``: RFC 3339 UTC."""
        waiting = {} if self.waiting is None else {"waiting": self.waiting}
        effective = self.effective
        return {
            "status": self.status,
            "exit_code": self.exit_code,
            "finished": finished,
            "plan": self.plan,
            "counts": {**self.counts, **waiting, "evicted": self.evicted},
            **({} if effective is None else {"effective_gpus": effective["after"]}),
        }


def show_verdict(
    console: Console,
    plan: str | None,
    verdict: Verdict,
    undo: Undo,
    shown: Collection[GangVerdict] = (),
) -> None:
    """Print the outcome of each gang. ``plan``: None while recovering. ``shown``: printed before."""
    changed = [one for one in verdict.gangs if one.outcome is not Outcome.unchanged]
    for one in changed:
        if one not in shown:
            console.say(": ".join(filter(None, ("/".join(one.gang), one.outcome, why_text(one)))))
            say_undo(console, one, undo)
    if plan is not None or changed or verdict.stop is not None:
        announce_done(console, plan, verdict, undo)
