"""What applying shows: progress, the changes per gang before, the outcomes after, commands that undo a gang.

Text from the cluster is escaped by the table cells.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec.structs import asdict, replace

from models.apply.evictions import to_evict, victims
from models.apply.live_state import ClusterView, PodState
from models.apply.plan_actions import GangActions, PlanActions, PodStart, PodStop, Resize
from models.apply.requests import (
    ApplyLimits,
    Done,
    Event,
    Evict,
    GangVerdict,
    Outcome,
    Request,
    Ungate,
    Verdict,
)
from models.apply.session import ApplySession
from models.units import plural
from planner.show.progress import LINE_EVERY_S, LIVE_EVERY_S
from planner.show.table import Cell, Style, Table, columns_of, row_of
from planner.show.text import compress, number
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from planner.show.console import Console

MAX_NAMES = 64
"""Names in one JSON log line."""

Undo = Callable[[GangVerdict], list[str]]
"""Commands that undo a gang that is half there; empty for others."""


class ApplyProgress:
    """Counts started and evicted pods: a live line on a terminal, otherwise a line every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._every = LIVE_EVERY_S if console.has_live_line else LINE_EVERY_S
        self._start = clock()
        self._due = self._start + (0.0 if console.has_live_line else LINE_EVERY_S)
        self._started, self._evicted = set[str](), set[str]()
        self.pods = 0
        """Pods that the plan starts; 0 if there is no plan yet."""

    def on_event(self, request: Request, event: Event) -> None:
        """Count one answered request; print progress if it is time."""
        match request:
            case Ungate(pod) if isinstance(event, Done):
                self._started.add(pod.uid)
            case Evict(stop) if isinstance(event, Done):
                self._evicted.add(stop.uid)
        now = self._clock()
        if now >= self._due:
            self._due = now + self._every
            to_start = f"{self.pods:,} to start, " if self.pods else ""
            evicted = f", {len(self._evicted):,} evicted" if self._evicted else ""
            counted = f"pods: {to_start}{len(self._started):,} started{evicted}"
            self._console.progress(now - self._start, [counted])


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What applying will do to one gang. ``starts``, ``stops``: pods left to start and to stop.

    ``after``: other gangs that have to make room for it.
    """

    gang: GangActions
    starts: list[PodStart]
    stops: list[PodStop]
    after: list[str]

    @property
    def action(self) -> str:
        decision = self.gang.decision
        return {"place": "start", "preempt": "stop"}.get(decision, decision)

    @property
    def gpus(self) -> int:
        return sum(order.gpu_count for order in self.starts)

    @property
    def nodes(self) -> list[str]:
        """Of the pods to start."""
        return sorted({order.node for order in self.starts})

    @property
    def takes(self) -> str:
        """What happens only with --allow-evictions; empty if nothing does."""
        parts = [resize_text(self.gang.resizes)] if self.gang.resizes else []
        parts += [f"stops {plural(len(self.stops), 'pod')}"] if self.stops else []
        parts += [f"needs the room of {', '.join(self.after)}"] if self.after else []
        return "; ".join(parts)


def planned_changes(orders: PlanActions, view: ClusterView) -> list[PlannedChange]:
    """One for each gang of the orders that changes, in their order."""
    session = ApplySession(view, ApplyLimits(gate=orders.gate, dry=True))
    found = []
    for gang in orders.gangs:
        old = {stop.uid for stop in gang.stops}
        starts = [order for order in gang.starts if _waits(session, order, old)]
        leaving = victims(session, orders, replace(gang, starts=tuple(starts)))
        after = ["/".join(one.key) for one in leaving if one.key != gang.key]
        change = PlannedChange(gang, starts, to_evict(session, [gang]), after)
        if change.starts or change.takes:
            found.append(change)
    return found


def _waits(session: ApplySession, order: PodStart, old: Collection[str]) -> bool:
    """Whether the pod has yet to start; where one is made again, the new one. ``old``: uids that stop."""
    pod = session.view.pods.get(order.key)
    if pod is None or pod.uid in old:
        return True
    uid = pod.uid if order.uid in {"", *old} else order.uid
    return session.classifier.state(pod, uid, order.node) is PodState.waiting


def announce_changes(
    console: Console, orders: PlanActions, view: ClusterView, *, evictions: bool, dry: bool = False
) -> list[PlannedChange]:
    """Log what applying will change, as JSON events; the gangs that change."""
    found = planned_changes(orders, view)
    for one in found:
        console.event(
            "change",
            gang=safe("/".join(one.gang.key)),
            action=one.action,
            starts=len(one.starts),
            evicts=len(one.stops),
            gpus=one.gpus,
            nodes=[safe(name) for name in one.nodes[:MAX_NAMES]],
            more_nodes=max(0, len(one.nodes) - MAX_NAMES),
        )
    console.event(
        "apply_start",
        plan=orders.plan,
        cluster=orders.cluster,
        gangs=len(found),
        pods=sum(len(one.starts) for one in found),
        evictions=sum(len(one.stops) for one in found) if evictions else 0,
        dry_run=dry,
    )
    if evictions and view.budgets is None and any(one.stops for one in found):
        console.warn("not permitted to list poddisruptionbudgets: they may forbid evictions")
    return found


def change_table(found: Sequence[PlannedChange], *, evictions: bool) -> Table:
    """One row per gang; below it what it takes. ``evictions``: whether they are allowed."""
    rows = tuple(
        row_of(
            "/".join(one.gang.key),
            one.action,
            number(len(one.starts or one.stops)),
            number(one.gpus) if one.gpus else "-",
            compress(one.nodes, " "),
        )
        for one in found
    )
    withheld = "" if evictions else "withheld without --allow-evictions: "
    style: Style | None = "warn" if withheld else None
    below = {r: Cell(withheld + one.takes, style) for r, one in enumerate(found) if one.takes}
    table = Table(columns_of("GANG|ACTION|>PODS|>GPUS|NODES~"), rows, below=below)
    return table.without_empty_columns()


def change_line(found: Sequence[PlannedChange], *, evictions: bool) -> str:
    """All changes in one line, for the confirmation prompt."""
    done = [one for one in found if evictions or not one.takes]
    starts, stops = sum(len(one.starts) for one in done), sum(len(one.stops) for one in done)
    withheld = f"; {plural(len(found) - len(done), 'gang')} withheld without --allow-evictions"
    line = f"{plural(starts, 'pod')} to start, {stops:,} to stop"
    return line + withheld * (len(done) < len(found))


_STYLES: Mapping[Outcome, Style] = {
    Outcome.started: "good",
    Outcome.stopped: "good",
    Outcome.resized: "good",
    Outcome.pending: "busy",
    Outcome.advised: "busy",
    Outcome.unchanged: "dim",
    Outcome.partial: "bad",
}
"""Others are warnings."""


def verdict_table(verdict: Verdict, plan: str | None, *, dry: bool = False) -> Table:
    """One row per gang, with its plan unless that is ``plan``."""
    rows = tuple(
        row_of(
            "/".join(one.gang),
            Cell(one.outcome, _STYLES.get(one.outcome, "warn")),
            number(one.pods) if one.pods else "-",
            "" if one.plan == plan else one.plan,
            why_text(one),
        )
        for one in verdict.gangs
    )
    columns = columns_of(f"GANG|{'WOULD BE' if dry else 'OUTCOME'}|>PODS|OF PLAN?|WHY~")
    return Table(columns, rows).without_empty_columns()


def why_text(one: GangVerdict) -> str:
    return "; ".join(filter(None, (resize_text(one.resizes), one.why)))


def resize_text(resizes: Iterable[Resize]) -> str:
    """The roles whose number of pods changes: ``worker from 4 to 2 pods``."""
    return ", ".join(f"{one.role} from {one.before:,} to {one.after:,} pods" for one in resizes)


def say_undo(console: Console, one: GangVerdict, undo: Undo) -> None:
    """The commands that undo a gang, if any, below a warning."""
    commands = undo(one)
    if commands:
        console.warn(f"gang {'/'.join(one.gang)} is {one.outcome}; these commands undo it:")
    for command in commands:
        console.say(f"  {command}")


def counts(gangs: Iterable[GangVerdict]) -> dict[str, int]:
    """Gangs per outcome, in the order of Outcome."""
    found = Counter(one.outcome for one in gangs)
    return {outcome.value: found[outcome] for outcome in Outcome if found[outcome]}


def count_text(gangs: Iterable[GangVerdict]) -> str:
    """``3 started, 1 partial``."""
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts(gangs).items())


def announce_done(console: Console, plan: str | None, verdict: Verdict, undo: Undo) -> None:
    """The event of the end of an apply."""
    partial = [one for one in verdict.gangs if one.outcome is Outcome.partial]
    whys = [one for one in verdict.gangs if one.why and one.outcome is not Outcome.unchanged]
    console.event(
        "apply_done",
        plan=plan,
        gangs=counts(verdict.gangs),
        partial=[safe("/".join(one.gang)) for one in partial],
        why={safe("/".join(one.gang)): safe(one.why) for one in whys[:MAX_NAMES]},
        undo=[safe(line) for one in partial[:MAX_NAMES] for line in undo(one)],
        writes=verdict.writes,
        evicted=verdict.evicted,
        stop=None if verdict.stop is None else safe(verdict.stop),
    )


def document(verdict: Verdict, facts: Mapping[str, Any], undo: Undo) -> dict[str, Any]:
    """The verdict as data."""
    gangs = [
        {
            "namespace": one.gang[0],
            "name": one.gang[1],
            "outcome": one.outcome.value,
            "plan": one.plan,
            "why": one.why or None,
            "pods": one.pods,
            "resizes": [asdict(resize) for resize in one.resizes],
            "undo": undo(one),
        }
        for one in verdict.gangs
    ]
    done = {"stop": verdict.stop, "writes": verdict.writes, "evicted": verdict.evicted}
    return {**facts, **done, "gangs": gangs}


def undo_commands(
    undo: Iterable[tuple[str, str, str]], context: str | None, kubeconfig: str | None
) -> list[str]:
    """One shell command per started pod (namespace, name, uid) that deletes exactly that pod."""
    flags = (("--kubeconfig", kubeconfig), ("--context", context))
    kubectl = ["kubectl", *(f"{name}={value}" for name, value in flags if value)]
    found = []
    for namespace, name, uid in undo:
        if {namespace, name} & {"", ".", ".."}:
            continue  # no valid name, and the URL would be another object's
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        # printf, since echo interprets backslashes in some shells.
        body = shlex.join(["printf", "%s", json.dumps(options, separators=(",", ":"))])
        delete = shlex.join([*kubectl, "delete", "--raw", path, "-f", "-"])
        found.append(f"{body} | {delete} >/dev/null")
    return found
