"""The tables of changes to running gangs, and of what moves gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.documents.gang import GangDocument, PodDocument
from models.documents.plan import PlanBought, PlanDocument, PlanGang, PlanPod
from models.instance.speed import FULL_SPEED
from models.results.plan_gpus import pod_gpus
from models.units import first_of
from planner.show.plan.gang_groups import Requests, rank
from planner.show.plan.plan_tables import STYLE, places
from planner.show.plan.selection import EVERY_GANG, Selection
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import change, compress, lasting, number

CHANGED = ("complete", "move", "resize", "preempt")
"""Decisions that change a running gang."""

MAX_NAMED = 3
"""Gangs named of those that replace another."""


def changes(plan: PlanDocument, *, wide: bool, only: Selection = EVERY_GANG) -> Table:
    """One row for each running gang that changes: pods and GPUs before and after, and where.

    LOST: time since the last checkpoint or start for GPUs that stop; empty if no such gang has either time.
    ``wide`` adds the sum in GPU-hours. ``only``: the gangs to show.
    """
    requests = plan.instance.gangs_by_key()
    gpus_of, now = plan.instance.installed_gpus(), plan.instance.now
    decided = [g for g in plan.spec.gangs if g.decision in CHANGED and only.takes(g)]
    changed = [gang for gang in decided if gang.key in requests]
    changed.sort(key=lambda gang: rank(gang, requests[gang.key]))
    changing = [_Change(gang, requests[gang.key]) for gang in changed]
    missing = "unknown" if any(row.stopped and row.since is not None for row in changing) else "-"
    arrivals = _arrivals(plan, requests)
    rows = []
    for row in changing:
        lost, hours = missing if row.stopped else "-", "-"
        if row.stopped and row.since is not None:
            seconds = max(0, now - row.since)
            lost = lasting(seconds)
            hours = f"{-(-row.stopped * seconds // 360) / 10:,.1f}"  # one decimal, rounded up
        cells = row_of(
            f"{row.gang.namespace}/{row.gang.name}",
            Cell(row.gang.decision, STYLE[row.gang.decision]),
            change(number(len(pods)) for pods in (row.before, row.after)),
            row.gpus_before_and_after(),
            lost,
            hours if wide else "",
            _way(row, gpus_of, arrivals),
        )
        rows.append(cells)
    columns = columns_of("RUNNING GANG~|DECISION|>PODS?|>GPUS|>LOST?|>GPU-HOURS?|FROM -> TO~")
    return Table(columns, tuple(rows)).without_empty_columns()


class _Change:
    """One gang: its pods before and after, and which of them leave or come to a place."""

    def __init__(self, gang: PlanGang, request: GangDocument) -> None:
        self.gang = gang
        self.priority = request.shown_priority
        self.since = request.safe_since
        self._request = request
        self.before = request.running_pods
        self.after = gang.pods
        places_before = {(pod.role, pod.index): _place(pod) for pod in self.before}
        places_after = {(pod.role, pod.index): _place(pod) for pod in self.after}
        self.leaving = [p for p in self.before if places_after.get((p.role, p.index)) != _place(p)]
        self.coming = [p for p in self.after if places_before.get((p.role, p.index)) != _place(p)]
        moves = any(self.gpus([p]) and (p.role, p.index) in places_after for p in self.leaving)
        self.stopped: float = self.gpus(self.before if moves else self.leaving)
        """GPUs that stop: all of the gang if a pod with GPUs moves, else those of pods that leave."""
        if gang.gpus is not None and self.leaving:
            self.stopped = gang.gpus

    def gpus_before_and_after(self) -> str:
        """Of a gang with parts of GPUs that changes its size only what it has then."""
        amount = self.gang.gpus
        if amount is None:
            return change(number(self.gpus(pods)) for pods in (self.before, self.after))
        if self.gang.decision == "preempt":
            return change([number(amount), "0"])
        same = len(self.before) == len(self.after)
        return number(amount) if same else f"-> {number(amount)}"

    def gpus(self, pods: Sequence[PlanPod | PodDocument]) -> int:
        return pod_gpus(pods, self._request) or 0


def _arrivals(plan: PlanDocument, requests: Requests) -> dict[str, list[_Change]]:
    """By node, the gangs with a new pod there, highest priority first."""
    found: dict[str, list[_Change]] = {}
    every_gang = [
        _Change(gang, requests[gang.key])
        for gang in plan.spec.gangs
        if gang.decision != "keep" and gang.pods and gang.key in requests
    ]
    for one in sorted(every_gang, key=lambda one: (-one.priority, one.gang.key)):
        for node in sorted({pod.node for pod in one.coming}):
            found.setdefault(node, []).append(one)
    return found


def _way(
    row: _Change, gpus_of: Mapping[str, int], arrivals: Mapping[str, Sequence[_Change]]
) -> str:
    """``a -> b (for c)``: where it leaves, where it goes, and the gangs that come to the nodes it leaves.

    Of these, only those of higher priority if there are any.
    """
    nodes = sorted({pod.node for pod in row.leaving if pod.node is not None})
    coming = {one.gang.key: one for node in nodes for one in arrivals.get(node, ())}
    coming.pop(row.gang.key, None)
    higher = [one for one in coming.values() if one.priority > row.priority]
    ordered = sorted(higher or coming.values(), key=lambda one: (-one.priority, one.gang.key))
    names = ["/".join(one.gang.key) for one in ordered]
    listed = first_of(names, MAX_NAMED)
    way = f"{places(row.leaving, gpus_of)} -> {places(row.coming, gpus_of)}".strip()
    return f"{way} (for {listed})" if listed else way


def _place(pod: PlanPod | PodDocument) -> tuple[str | None, tuple[int, ...] | None]:
    return (pod.node, None if pod.gpus is None else tuple(sorted(pod.gpus)))


def moves(plan: PlanDocument, only: Selection = EVERY_GANG) -> Table:
    """One row for each set of moves: the gangs moved together, and the gain; below it what they bring.

    ``only``: sets of which one gang is shown.
    """
    named = {"/".join(gang.key) for gang in plan.spec.gangs if only.takes(gang)}
    shown = [
        moved
        for moved in plan.status.moves
        if not only.filters or not named.isdisjoint(moved.gangs)
    ]
    levels = [level.name for level in plan.instance.cluster.spec.levels if level.counted]
    domain = levels[-1] if levels else "domain"
    rows = tuple(
        row_of(number(one.gpus), f"{one.gain:,.3f}", Cell(compress(one.gangs, ", "), "busy"))
        for one in shown
    )
    below = {r: Cell(_brings(one.bought, domain)) for r, one in enumerate(shown)}
    return Table(columns_of(">GPUS|>GAIN|MOVED TOGETHER~"), rows, below=below)


def _brings(bought: PlanBought, domain: str) -> str:
    """What the plan has more of, and then fewer of, than the best plan without these moves."""
    effective = bought.effective_gpus or 0.0
    if effective == bought.gpus:  # all at full speed: nothing to add
        effective = 0.0
    bandwidth = bought.bandwidth / FULL_SPEED
    if bandwidth == bought.gpus:  # all at their best bandwidth
        bandwidth = 0.0
    runs = "runs" if len(bought.gangs) == 1 else "run"
    more = [f"{compress(bought.gangs, ', ')} {runs}"] if bought.gangs else []
    fewer = list[str]()
    for amount, unit, how in (
        (bought.gpus, "GPU", " in use"),
        (effective, "effective GPU", ""),
        (bandwidth, "GPU", " at full bandwidth"),
        (bought.whole_nodes, "whole node", " free"),
        (bought.whole_domains, f"whole {domain}", " free"),
    ):
        if amount:
            said = f"{number(abs(amount))} {'more' if amount > 0 else 'fewer'} {unit}"
            side = more if amount > 0 else fewer
            side.append(f"{said}{'s' * (abs(amount) != 1)}{how}")
    return "; ".join(filter(None, (", ".join(more), ", ".join(fewer)))) or "nothing that is counted"
