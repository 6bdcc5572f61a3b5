"""What one ``run`` did: one line for people, one event for machines, a note on the lock.

Promises: the same facts in all three; nothing is printed here but through the console; names from the
cluster are not in the line. Called by ``planner.pipelines.run``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.apply.outcomes import GangVerdict, Outcome, Verdict
from planner.show.apply import counts, undo_heading
from planner.show.metrics import Metrics
from planner.show.text import percent, plural
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.apply.live_state import ClusterView
    from models.apply.orders import Orders
    from models.documents.plan import PlanDocument
    from planner.show.console import Console

MOST_NAMES = 64
"""Names in one JSON log line."""

Undo = Callable[[GangVerdict], list[str]]
"""The commands that undo a partial gang; none for others."""

WAITING = ("wait", "preempt")
"""Decisions of gangs that the plan leaves waiting."""

STARTING = ("place", "complete")

_WORDS = {
    Outcome.started: "started",
    Outcome.pending: "started, not all bound yet",
    Outcome.stopped: "stopped",
    Outcome.skipped: "skipped",
    Outcome.partial: "partial",
    Outcome.undone: "undone",
    Outcome.halted: "halted",
    Outcome.withheld: "withheld",
    Outcome.advised: "to be resized by hand",
}
"""In the order in which the line tells them; gangs that were whole already are not worth a word."""


@dataclass(slots=True)
class RunReport:
    """Filled in as the run goes. ``status``: one word or two of what it came to.

    ``recovered``: of gangs that an earlier run left half there; ``applied``: of this run's plan.
    ``plan``: its id; ``decided``: the plan itself. ``cluster``: its uid. ``seconds``: of each phase, summed
    where it runs twice.
    ``warnings``: said already where people read.
    """

    status: str = "failed"
    exit_code: int = 1
    context: str | None = None
    cluster: str | None = None
    plan: str | None = None
    replanned: bool = False
    decided: PlanDocument | None = None
    recovered: Verdict | None = None
    applied: Verdict | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def verdicts(self) -> list[GangVerdict]:
        """The last word on every gang, in order of first mention."""
        last: dict[tuple[str, str], GangVerdict] = {}
        for verdict in (self.recovered, self.applied):
            for gang in () if verdict is None else verdict.gangs:
                before = last.get(gang.gang)
                # Finished a moment ago and then found whole: it is the first that tells what we did.
                if before is None or gang.outcome is not Outcome.unchanged:
                    last[gang.gang] = gang
        return list(last.values())

    @property
    def counts(self) -> dict[Outcome, int]:
        """Gangs of each outcome, those that occur."""
        found = Counter(gang.outcome for gang in self.verdicts)
        return {outcome: found[outcome] for outcome in Outcome if found[outcome]}

    @property
    def writes(self) -> int:
        """Requests that changed something besides the lock."""
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
    def gap(self) -> float | None:
        """The largest of all tiers; None without a plan."""
        if self.decided is None:
            return None
        return max((tier.gap for tier in self.decided.status.objectives), default=0.0)

    def _count(self, decisions: Iterable[str]) -> int:
        gangs = () if self.decided is None else self.decided.spec.gangs
        return sum(gang.decision in decisions for gang in gangs)

    def line(self, seconds: float) -> str:
        """The summary line: what was done with how many gangs, what waits, how long it took."""
        parts = [
            f"{self.counts[one]:,} {said}" for one, said in _WORDS.items() if one in self.counts
        ]
        done = f"gangs: {', '.join(parts)}" if parts else "nothing changed"
        told = [done]
        if self.evicted:
            told.append(f"{plural(self.evicted, 'pod')} evicted")
        if self.waiting is not None:
            told.append(f"{self.waiting:,} waiting")
        if self.gap is not None:
            told.append(f"gap {percent(self.gap)}")
        if self.replanned:
            told.append("planned twice")
        told.append(f"{seconds:.1f} s")
        plan = f" plan {self.plan};" if self.plan else ""
        return f"run {self.status} (exit {self.exit_code}):{plan} {'; '.join(told)}"

    def tell(self, console: Console, seconds: float) -> None:
        """The one summary: a line in text, an event in JSON."""
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
            gangs={outcome.value: float(count) for outcome, count in self.counts.items()},
            writes=self.writes,
            evicted=self.evicted,
            seconds={**self.seconds, "total": round(seconds, 3)},
            digests=digests,
            warnings=[safe(line) for line in self.warnings[:MOST_NAMES]],
        )

    def note(self, finished: str) -> dict[str, Any]:
        """What the lock says of the last run. ``finished``: RFC 3339 UTC."""
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
        }

    def metrics(self, finished: float) -> Metrics:
        known = self.decided is not None
        return Metrics(
            exit_code=self.exit_code,
            finished=finished,
            gap=self.gap,
            pending=self.waiting,
            started=self.started if known else None,
            evicted=self.evicted if known else None,
            seconds=self.seconds,
        )


def announce(console: Console, orders: Orders, view: ClusterView, *, evictions: bool) -> int:
    """What will happen, gang by gang, in the events that ``apply`` has for it; pods to start."""
    from planner.show.apply import gang_changes

    found = [one for one in gang_changes(orders, view) if one.changes]
    for one in found:
        nodes = [safe(name) for name in one.nodes[:MOST_NAMES]]
        console.event(
            "change",
            gang=safe(one.named),
            action=one.action,
            starts=one.starts,
            evicts=one.stops,
            gpus=one.gpus,
            by=one.how or None,
            nodes=nodes,
            more_nodes=len(one.nodes) - len(nodes),
        )
    pods = sum(one.starts for one in found)
    console.event(
        "apply_start",
        plan=orders.plan,
        cluster=orders.cluster,
        gangs=len(found),
        pods=pods,
        evictions=sum(one.stops for one in found) if evictions else 0,
        dry_run=False,
    )
    return pods


def tell(
    console: Console,
    plan: str | None,
    verdict: Verdict,
    undo: Undo,
    *,
    told: Collection[GangVerdict] = (),
) -> None:
    """What became of the gangs. ``plan`` None: of those that earlier runs left half there.

    ``told``: verdicts that need not be told again.
    """
    changed = [one for one in verdict.gangs if one.outcome is not Outcome.unchanged]
    partial = [one for one in changed if one.outcome is Outcome.partial]
    for one in changed:
        if one in told:
            continue
        why = f": {one.why}" if one.why else ""
        atomic = " (its PodGroup starts all or none)" if one.atomic else ""
        console.say(f"{'/'.join(one.gang)}: {_WORDS[one.outcome]}{atomic}{why}")
        commands = undo(one)
        if commands:
            console.warn(undo_heading(one))
            for command in commands:
                console.say(f"  {command}")
    if plan is None and not changed and verdict.stop is None:
        return
    whys = [one for one in changed if one.why][:MOST_NAMES]
    console.event(
        "apply_done",
        plan=plan,
        gangs={name: float(count) for name, count in counts(verdict).items()},
        partial=[safe("/".join(one.gang)) for one in partial],
        why={safe("/".join(one.gang)): safe(one.why) for one in whys},
        undo=[safe(line) for one in partial[:MOST_NAMES] for line in undo(one)],
        writes=verdict.writes,
        evicted=verdict.evicted,
        stop=None if verdict.stop is None else safe(verdict.stop),
    )
