"""What applying a plan will do to each gang, as far as the cluster tells before the first write.

Promises: pure; whatever the cluster wrote is made harmless by the cells. Called by ``planner.verbs.apply``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from models.applying.orders import GangOrder, Key, Orders
from models.applying.seen import PodSeen, View
from models.applying.states import READY, Ways
from planner.showing.hosts import compress
from planner.showing.table import Cell, Column, Table
from planner.showing.text import number, plural

_ACTIONS = {
    "place": "start",
    "complete": "complete",
    "move": "move",
    "resize": "resize",
    "preempt": "stop",
}

DONE = "whole already"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What will happen to one gang. ``starts``, ``stops``: pods left to start and to evict.

    ``started``: pods of it that are started already. ``how``: gate, binding, or what mixes them.
    """

    gang: Key
    action: str
    starts: int
    stops: int
    started: int
    gpus: int
    nodes: tuple[str, ...]
    how: str
    after: tuple[Key, ...] = ()

    @property
    def named(self) -> str:
        return "/".join(self.gang)

    @property
    def changes(self) -> bool:
        return self.action != DONE


def prospects(orders: Orders, view: View) -> list[Prospect]:
    """One a gang that the plan does anything with, in the plan's order."""
    ways = Ways(orders.gate, orders.scheduler)
    leaving: dict[str, set[Key]] = {}
    for gang in orders.gangs:
        for stop in gang.stops:
            seen = view.pods.get(stop.key)
            if seen is not None and seen.uid == stop.uid and not seen.finished:
                leaving.setdefault(stop.node, set()).add(gang.key)
    return [_prospect(gang, view, ways, leaving) for gang in orders.gangs]


def _prospect(gang: GangOrder, view: View, ways: Ways, leaving: Mapping[str, set[Key]]) -> Prospect:
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
        if pod is None or pod.uid in going or ways.state(pod, uid, order.node) in READY:
            starts.append(order)
    started = len(gang.starts) - len(starts)
    action = _ACTIONS.get(gang.decision, gang.decision)
    if started and starts and gang.decision == "place":
        action = "finish"
    if not (starts or stops or gang.resizes):
        action = DONE
    pods = [pod for order in starts if (pod := view.pods.get(order.key)) is not None]
    after = {key for order in starts for key in leaving.get(order.node, ())} - {gang.key}
    return Prospect(
        gang=gang.key,
        action=action,
        starts=len(starts),
        stops=len(stops),
        started=started,
        gpus=sum(order.gpu_count for order in starts),
        nodes=tuple(sorted({order.node for order in starts})),
        how=_how(pods, view, ways, len(gang.starts)),
        after=tuple(sorted(after)),
    )


def _how(pods: Iterable[PodSeen], view: View, ways: Ways, size: int) -> str:
    modes, groups = set(), set()
    for pod in pods:
        gated, binds = ways.gated(pod), ways.binds(pod)
        modes.add("gate, binding" if gated and binds else "binding" if binds else "gate")
        groups.add(None if binds or pod.group is None else (pod.namespace, pod.group))
    whole = len(groups) == 1 and all(
        group is not None and view.groups.get(group, 0) >= size for group in groups
    )
    return " + ".join(sorted(modes)) + (", all or none" if whole else "")


def prospect_table(found: Iterable[Prospect], *, evictions: bool) -> Table:
    """One row a gang. ``evictions``: whether they are allowed."""
    rows = tuple(
        (
            Cell(one.named),
            Cell(one.action, "dim" if not one.changes else None),
            Cell(_pods(one)),
            Cell(number(one.gpus) if one.gpus else "-"),
            Cell(one.how),
            Cell(compress(one.nodes, " ")),
            Cell(_note(one, evictions=evictions), None if evictions else "warn"),
        )
        for one in found
    )
    columns = (
        Column("GANG"),
        Column("ACTION"),
        Column("PODS", right=True),
        Column("GPUS", right=True),
        Column("BY", optional=True),
        Column("NODES", fold=True),
        Column("NOTE", fold=True),
    )
    return Table(columns, rows).without_empty_columns()


def _pods(one: Prospect) -> str:
    if one.starts and one.started:
        return f"{one.starts:,} of {one.starts + one.started:,}"
    return number(one.starts or one.stops or one.started)


def _note(one: Prospect, *, evictions: bool) -> str:
    parts = []
    if one.stops:
        pods = plural(one.stops, "pod")
        parts.append(f"evicts {pods}" if evictions else f"withheld: would evict {pods}")
    if one.after:
        names = ", ".join("/".join(key) for key in one.after)
        parts.append(f"after {names}" if evictions else f"withheld: needs the room of {names}")
    return "; ".join(parts)


def prospect_line(found: Iterable[Prospect], *, evictions: bool) -> str:
    """All of it in one line, for the question."""
    changing = [one for one in found if one.changes]
    done = [one for one in changing if evictions or not (one.stops or one.after)]
    starts, stops = sum(one.starts for one in done), sum(one.stops for one in done)
    told = [f"{plural(starts, 'pod')} to start"] if starts else []
    told += [f"{plural(stops, 'pod')} to evict"] if stops else []
    line = f"{plural(len(done), 'gang')}: {', '.join(told) or 'nothing to start'}"
    withheld = len(changing) - len(done)
    return f"{line}; {withheld:,} withheld" if withheld else line
