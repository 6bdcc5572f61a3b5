"""The report of one ``run``, as a line, an event and the note in the lock; its metrics read it as well."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.apply.requests import GangVerdict, Outcome, Verdict
from models.results.plan_gpus import gained, gpu_count
from models.units import plural
from planner.atomic_files import save
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


_Values = Mapping[str, float | None]

LAST_SUCCESS = "gangplan_last_success_timestamp_seconds"

_QUEUE = {
    "guarantee": "GPUs that are guaranteed to the queue and those below it.",
    "limit": "Most GPUs that the queue and those below it may hold.",
    "after": "GPUs that the queue and those below it hold after the last plan.",
    "waiting": "GPUs of gangs of the queue and those below it that wait after the last plan.",
}
"""Help of each figure of a queue."""

MAX_QUEUES = 500
"""Queues that have metrics, the first by name."""

_MAX_BYTES = 2**20
"""A larger file is not ours."""

_SAMPLE = re.compile(rf"^{LAST_SUCCESS} ([0-9]{{1,12}}(\.[0-9]{{1,9}})?)$", re.MULTILINE)


def write_metrics(path: Path, run: RunReport, finished: float) -> None:
    """Replace the file. ``finished``: seconds since the epoch; after a failed run the last success stays.

    Raises CannotWriteError, with the old file still in place.
    """
    save(path, metrics_text(run, _last_success(path) if run.exit_code else finished))


def metrics_text(run: RunReport, last_success: float | None) -> str:
    """The exposition format: HELP, TYPE and samples of each gauge, no time stamps."""
    plain = (_lines(name, said, {"": value}) for name, said, value in _plain(run, last_success))
    gauges = (*plain, *(_lines(*gauge) for gauge in _labelled(run)))
    return "".join(f"{line}\n" for gauge in gauges for line in gauge)


def _plain(run: RunReport, last_success: float | None) -> Iterator[tuple[str, str, float | None]]:
    """Name, help and value."""
    yield LAST_SUCCESS, "When a run last ended with exit code 0.", last_success
    yield "gangplan_exit_code", "Exit code of the last run.", run.exit_code
    yield "gangplan_gap_ratio", "Largest gap of a tier of the last plan.", run.gap
    yield "gangplan_pending_gangs", "Gangs that the last plan leaves waiting.", run.waiting
    yield "gangplan_never_gangs", "Waiting gangs that could never start here.", run.never
    if run.decided is not None:
        started = run.counts.get("started", 0) + run.counts.get("pending", 0)
        yield "gangplan_started_gangs", "Gangs that the last run started.", started
        yield "gangplan_evicted_pods", "Pods that the last run evicted.", run.evicted
    gpus = (run.effective or {}).get
    yield "gangplan_effective_gpus", "Effective GPUs after the last plan.", gpus("after")
    yield "gangplan_effective_gpus_before", "Effective GPUs before the last plan.", gpus("before")
    said = "Effective GPUs if gangs were taken one after another."
    yield "gangplan_effective_gpus_one_at_a_time", said, gpus("one_at_a_time")
    yield "gangplan_spread_gpus", "Running GPUs less what slower links leave of them.", run.spread


def _labelled(run: RunReport) -> Iterator[tuple[str, str, _Values, str]]:
    """Name, help, values by label, and the name of the label."""
    if run.decided is not None:
        queues = run.decided.status.queues[:MAX_QUEUES]
        for name, said in _QUEUE.items():
            metric = f"gangplan_queue_{'held' if name == 'after' else name}_gpus"
            yield metric, said, {one.name: getattr(one, name) for one in queues}, "queue"
        gaps: dict[str, float] = {}
        for tier in run.decided.status.objectives:
            gaps[tier.family] = max(gaps.get(tier.family, 0.0), tier.gap)
        yield "gangplan_tier_gap_ratio", "Largest gap of each family of tiers.", gaps, "tier"
        requests = run.decided.instance.gangs_by_key()
        gangs, gpus = Counter[str](), Counter[str]()
        for gang in run.left_waiting:
            reason = "Unknown" if gang.reason is None else gang.reason.code
            gangs[reason] += 1
            gpus[reason] += requests[gang.key].min_gpus
        yield "gangplan_waiting_gangs", "Gangs that wait, by reason.", gangs, "reason"
        yield "gangplan_waiting_gpus", "Fewest GPUs that they ask for.", gpus, "reason"
    yield "gangplan_idle_gpus", "GPUs that waiting gangs could use.", run.idle, "if"
    if run.decided is not None or run.verdicts:
        outcomes = {one.value: run.counts.get(one, 0) for one in Outcome}
        yield "gangplan_outcome_gangs", "Gangs of the last run, by outcome.", outcomes, "outcome"
    yield "gangplan_phase_seconds", "Seconds of each phase.", run.seconds, "phase"


def _lines(name: str, said: str, values: _Values, label: str = "") -> Iterator[str]:
    known = {key: value for key, value in values.items() if value is not None}
    if known:
        yield f"# HELP {name} {said}"
        yield f"# TYPE {name} gauge"
    for key, value in known.items():
        escaped = key.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        labels = f'{{{label}="{escaped}"}}' if label else ""
        yield f"{name}{labels} {int(value) if value == int(value) else value!r}"


def _last_success(path: Path) -> float | None:
    """The time in the file; None without a valid one."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        found = _SAMPLE.search(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return None if found is None else float(found[1])
