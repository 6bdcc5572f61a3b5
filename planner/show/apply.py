"""What applying shows: progress, the changes per gang before, the outcomes after, commands that undo a gang.

Text from the cluster is escaped by the table cells.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from models.apply.live_state import READY, ClusterView, PodClassifier
from models.apply.outcomes import GangVerdict, Outcome, Verdict
from models.apply.plan_actions import GangActions, Key, PlanActions
from models.apply.requests import (
    CheckLock,
    Done,
    Event,
    Evict,
    ReadCluster,
    Request,
    Ungate,
)
from models.units import plural
from planner.show.table import Cell, Style, Table, columns_of, row_of
from planner.show.text import compress, number
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from planner.show.console import Console

LINE_EVERY_S = 5.0
LIVE_EVERY_S = 0.1

MAX_NAMES = 64
"""Names in one JSON log line."""


class ApplyProgress:
    """Counts started and evicted pods: a live line on a terminal, otherwise a line every few seconds.

    ``pods``: pods to start.
    """

    def __init__(self, console: Console, clock: Callable[[], float], pods: int = 0) -> None:
        self._console = console
        self._clock = clock
        self._start = clock()
        self._every = LIVE_EVERY_S if console.has_live_line else LINE_EVERY_S
        self._due = self._start + (0.0 if console.has_live_line else LINE_EVERY_S)
        self.pods = pods
        self._started: set[str] = set()
        self._evicted: set[str] = set()
        self._current = ""

    def on_event(self, request: Request, event: Event) -> None:
        """Count one answered request; print progress if it is time."""
        done = isinstance(event, Done)
        match request:
            case CheckLock(label):
                self._current = label
            case ReadCluster(after_s) if after_s:
                self._current = "waiting"
            case Ungate(pod) if done:
                self._started.add(pod.uid)
            case Evict(stop) if done:
                self._evicted.add(stop.uid)
        now = self._clock()
        if now >= self._due:
            self._due = now + self._every
            self._print(now - self._start)

    def _print(self, seconds: float) -> None:
        counts = f"started {len(self._started):,} of {plural(self.pods, 'pod')}"
        counts += f", evicted {len(self._evicted):,}" if self._evicted else ""
        self._console.progress(seconds, [counts, *([safe(self._current)] if self._current else [])])


# ---- before: what will change


_ACTIONS = {
    "place": "start",
    "complete": "complete",
    "move": "move",
    "resize": "resize",
    "preempt": "stop",
}

DONE = "whole already"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What applying will do to one gang. ``starts``, ``stops``: pods left to start and to evict.

    ``started``: pods that are started already. ``after``: gangs whose room it needs.
    """

    gang: Key
    action: str
    starts: int
    stops: int
    started: int
    gpus: int
    nodes: tuple[str, ...]
    after: tuple[Key, ...] = ()

    @property
    def changes(self) -> bool:
        return self.action != DONE


def planned_changes(orders: PlanActions, view: ClusterView) -> list[PlannedChange]:
    """One per gang of the orders, in their order."""
    classifier = PodClassifier(orders.gate)
    leaving: dict[str, set[Key]] = {}
    for gang in orders.gangs:
        for stop in gang.stops:
            seen = view.pods.get(stop.key)
            if seen is not None and seen.uid == stop.uid and not seen.finished:
                leaving.setdefault(stop.node, set()).add(gang.key)
    return [_planned_change(gang, view, classifier, leaving) for gang in orders.gangs]


def _planned_change(
    gang: GangActions, view: ClusterView, classifier: PodClassifier, leaving: Mapping[str, set[Key]]
) -> PlannedChange:
    stops = [
        stop
        for stop in gang.stops
        if (seen := view.pods.get(stop.key)) is not None
        and seen.uid == stop.uid
        and not (seen.terminating or seen.finished)
    ]
    going = {stop.uid for stop in stops}
    starts = []
    for order in gang.starts:
        pod = view.pods.get(order.key)
        uid = (
            order.uid if order.uid and order.uid not in going else ("" if pod is None else pod.uid)
        )
        if pod is None or pod.uid in going or classifier.state(pod, uid, order.node) in READY:
            starts.append(order)
    started = len(gang.starts) - len(starts)
    action = _ACTIONS.get(gang.decision, gang.decision)
    if started and starts and gang.decision == "place":
        action = "finish"
    if not (starts or stops or gang.resizes):
        action = DONE
    after = {key for order in starts for key in leaving.get(order.node, ())} - {gang.key}
    return PlannedChange(
        gang=gang.key,
        action=action,
        starts=len(starts),
        stops=len(stops),
        started=started,
        gpus=sum(order.gpu_count for order in starts),
        nodes=tuple(sorted({order.node for order in starts})),
        after=tuple(sorted(after)),
    )


def announce_changes(
    console: Console, orders: PlanActions, view: ClusterView, *, evictions: bool, dry: bool = False
) -> list[PlannedChange]:
    """Log what applying will change, as JSON events; the gangs that change."""
    found = [one for one in planned_changes(orders, view) if one.changes]
    for one in found:
        nodes = [safe(name) for name in one.nodes[:MAX_NAMES]]
        console.event(
            "change",
            gang=safe("/".join(one.gang)),
            action=one.action,
            starts=one.starts,
            evicts=one.stops,
            gpus=one.gpus,
            nodes=nodes,
            more_nodes=len(one.nodes) - len(nodes),
        )
    console.event(
        "apply_start",
        plan=orders.plan,
        cluster=orders.cluster,
        gangs=len(found),
        pods=sum(one.starts for one in found),
        evictions=sum(one.stops for one in found) if evictions else 0,
        dry_run=dry,
    )
    if evictions and view.budgets is None and any(one.stops for one in found):
        console.warn(
            "not permitted to list poddisruptionbudgets: only evicting shows which pods they hold back"
        )
    return found


def change_table(found: Iterable[PlannedChange], *, evictions: bool) -> Table:
    """One row per gang; below it what an operator must know. ``evictions``: whether they are allowed."""
    found = list(found)
    rows = tuple(
        row_of(
            "/".join(one.gang),
            Cell(one.action, "dim" if not one.changes else None),
            _pods(one),
            number(one.gpus) if one.gpus else "-",
            compress(one.nodes, " "),
        )
        for one in found
    )
    notes = {r: _note(one, evictions=evictions) for r, one in enumerate(found)}
    style: Style | None = None if evictions else "warn"
    below = {r: Cell(note, style) for r, note in notes.items() if note}
    columns = columns_of("GANG|ACTION|>PODS|>GPUS|NODES~")
    return Table(columns, rows, below=below).without_empty_columns()


def _pods(one: PlannedChange) -> str:
    if one.starts and one.started:
        return f"{one.starts:,} of {one.starts + one.started:,}"
    return number(one.starts or one.stops or one.started)


def _note(one: PlannedChange, *, evictions: bool) -> str:
    parts = []
    if one.stops:
        pods = plural(one.stops, "pod")
        parts.append(f"evicts {pods}" if evictions else f"withheld: needs {pods} evicted")
    if one.after:
        names = ", ".join("/".join(key) for key in one.after)
        parts.append(f"after {names}" if evictions else f"withheld: needs the room of {names}")
    return "; ".join(parts)


def change_line(found: Iterable[PlannedChange], *, evictions: bool) -> str:
    """All changes in one line, for the confirmation prompt."""
    changing = [one for one in found if one.changes]
    done = [one for one in changing if evictions or not (one.stops or one.after)]
    starts, stops = sum(one.starts for one in done), sum(one.stops for one in done)
    parts = [f"{plural(starts, 'pod')} to start"] if starts else []
    parts += [f"{plural(stops, 'pod')} to evict"] if stops else []
    line = f"{plural(len(done), 'gang')}: {', '.join(parts) or 'nothing to start'}"
    withheld = len(changing) - len(done)
    return f"{line}; {withheld:,} withheld" if withheld else line


# ---- after: what was done


_STYLES: Mapping[Outcome, Style] = {
    Outcome.started: "good",
    Outcome.pending: "busy",
    Outcome.unchanged: "dim",
    Outcome.skipped: "warn",
    Outcome.partial: "bad",
    Outcome.halted: "warn",
    Outcome.stopped: "good",
    Outcome.resized: "good",
    Outcome.withheld: "warn",
    Outcome.undone: "warn",
    Outcome.advised: "busy",
}

_DRY = {
    Outcome.started: "would start",
    Outcome.pending: "would start",
    Outcome.stopped: "would be stopped",
    Outcome.resized: "would be resized",
    Outcome.skipped: "would be skipped",
    Outcome.undone: "would be undone",
    Outcome.advised: "advice only",
}

_MEANS = {
    Outcome.pending: "the scheduler has not bound all of its pods yet",
    Outcome.withheld: "needs evictions: --allow-evictions",
    Outcome.halted: "the same command resumes it",
}


def verdict_table(verdict: Verdict, plan: str | None, *, dry: bool = False) -> Table:
    """One row per gang, with its plan unless that is ``plan``."""
    rows = tuple(
        row_of(
            "/".join(one.gang),
            Cell(_DRY.get(one.outcome, one.outcome) if dry else one.outcome, _STYLES[one.outcome]),
            number(one.pods) if one.pods and not dry else "-",
            "" if one.plan == plan else one.plan,
            _why(one, dry=dry),
        )
        for one in verdict.gangs
    )
    return Table(columns_of("GANG|OUTCOME|>PODS|OF PLAN?|WHY~"), rows).without_empty_columns()


def _why(one: GangVerdict, *, dry: bool) -> str:
    why = one.why or ("" if dry and one.outcome in _DRY else _MEANS.get(one.outcome, ""))
    return "; ".join(part for part in (sizes(one), why) if part)


def sizes(one: GangVerdict) -> str:
    """The roles whose number of pods changes: ``worker from 4 to 2 pods``."""
    return ", ".join(f"{r.role} from {r.before:,} to {r.after:,} pods" for r in one.resizes)


def say_undo(console: Console, one: GangVerdict, commands: Iterable[str]) -> None:
    """The commands that undo a gang, if any, below a warning."""
    whole = "may have been whole; if it cannot continue,"
    state = whole if one.unsure else f"is {one.outcome};"
    for place, command in enumerate(commands):
        if not place:
            console.warn(f"gang {'/'.join(one.gang)} {state} these commands undo it:")
        console.say(f"  {command}")


def counts(verdict: Verdict) -> dict[str, int]:
    """Gangs per outcome, in the order of Outcome."""
    found = Counter(gang.outcome for gang in verdict.gangs)
    return {outcome.value: found[outcome] for outcome in Outcome if found[outcome]}


def counted(verdict: Verdict, *, dry: bool = False) -> str:
    """``3 started, 1 partial``; of a dry run ``3 would start``."""
    found: Counter[str] = Counter()
    for name, count in counts(verdict).items():
        found[_DRY.get(Outcome(name), name) if dry else name] += count
    return ", ".join(f"{count:,} {name}" for name, count in found.items()) or "nothing to do"


def document(
    verdict: Verdict, facts: Mapping[str, Any], undo: Callable[[GangVerdict], list[str]]
) -> dict[str, Any]:
    """The verdict as data. ``undo``: commands that undo a partial gang."""
    gangs = [
        {
            "namespace": one.gang[0],
            "name": one.gang[1],
            "outcome": one.outcome.value,
            "plan": one.plan,
            "why": one.why or None,
            "pods": one.pods,
            "resizes": [
                {"role": r.role, "before": r.before, "after": r.after} for r in one.resizes
            ],
            "undo": undo(one),
        }
        for one in verdict.gangs
    ]
    return {
        **facts,
        "stop": verdict.stop,
        "writes": verdict.writes,
        "evicted": verdict.evicted,
        "gangs": gangs,
    }


def undo_commands(
    undo: Iterable[tuple[str, str, str]], context: str | None, kubeconfig: str | None
) -> list[str]:
    """One shell command per started pod (namespace, name, uid) that deletes exactly that pod."""
    kubectl = [
        "kubectl",
        *(["--kubeconfig", kubeconfig] if kubeconfig else []),
        *(["--context", context] if context else []),
    ]
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
