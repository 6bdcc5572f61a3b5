"""What ``status`` shows: the lock, the last run, plans, gangs that are not whole, pins that wait.

Promises: pure; a table and a document with the same facts; whatever the cluster wrote is made harmless.
Called by ``planner.cli.status``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.units import time_text
from planner.cluster.plan_status import GangPhase, GangStatus, PendingPod, PlanStatus
from planner.show.table import Cell, Column, Table
from planner.show.text import lasting, number
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from models.apply.orders import Key
    from planner.cluster.lease_document import Holder, LeaseSeen

UNSETTLED = (GangPhase.partial, GangPhase.stuck, GangPhase.begun, GangPhase.intended)
"""States that the next ``apply`` or ``run`` settles, or reports."""

_STYLES = {
    GangPhase.partial: "bad",
    GangPhase.stuck: "bad",
    GangPhase.begun: "warn",
    GangPhase.intended: "warn",
    GangPhase.pending: "busy",
}

_NEXT = {
    GangPhase.partial: "run or apply finishes it where it can; to undo it, see below",
    GangPhase.begun: "run or apply takes the marks off, or starts it",
    GangPhase.intended: "run or apply starts it",
}

_MOST_FORGED = 5

Undo = Callable[[GangStatus], list[str]]
"""The commands that undo a gang that is half there."""


@dataclass(frozen=True, slots=True)
class Status:
    """``cluster``: its uid. ``context``: of kubectl, None if it has none.

    ``forged``: pods with marks that no run wrote.
    """

    context: str | None
    cluster: str
    lease: LeaseSeen
    plans: tuple[PlanStatus, ...]
    gangs: tuple[GangStatus, ...]
    pins: tuple[PendingPod, ...]
    forged: tuple[Key, ...] = ()

    @property
    def unsettled(self) -> tuple[GangStatus, ...]:
        return tuple(gang for gang in self.gangs if gang.state in UNSETTLED)

    @property
    def half(self) -> tuple[GangStatus, ...]:
        return tuple(gang for gang in self.gangs if gang.state is GangPhase.partial)

    @property
    def wrong(self) -> tuple[GangStatus, ...]:
        """Gangs that hold GPUs in vain, or may: what undoes them is shown."""
        return tuple(gang for gang in self.gangs if _wrong(gang))


def _wrong(gang: GangStatus) -> bool:
    return gang.state in (GangPhase.partial, GangPhase.stuck)


def facts(status: Status, program: str) -> Table:
    """The lock and the last run. ``program``: how we were called."""
    rows = [
        (Cell("lock"), _lock(status.lease, program)),
        (Cell("last run"), _last_run(status.lease.last_run, status.lease.now)),
    ]
    if status.forged:
        shown = ", ".join("/".join(key) for key in status.forged[:_MOST_FORGED])
        more = len(status.forged) - _MOST_FORGED
        shown += f" and {more:,} more" if more > 0 else ""
        rows.append((Cell("ignored"), Cell(f"marks that no run wrote, on {shown}", "warn")))
    return Table((Column(""), Column("", fold=True)), tuple(rows), headless=True)


def plans(status: Status) -> Table:
    """The plans seen on pods."""
    states = [state for state in GangPhase if any(state in dict(one.gangs) for one in status.plans)]
    rows = tuple(
        (
            Cell(one.plan),
            Cell(number(one.pods)),
            Cell(number(sum(dict(one.gangs).values()))),
            *(Cell(number(dict(one.gangs).get(state, 0)), _STYLES.get(state)) for state in states),
        )
        for one in status.plans
    )
    columns = (
        Column("PLAN"),
        Column("PODS", right=True),
        Column("GANGS", right=True),
        *(Column(state.upper(), right=True) for state in states),
    )
    return Table(columns, rows)


def unsettled(status: Status) -> Table:
    """Gangs that are neither untouched nor whole."""
    rows = tuple(
        (
            Cell("/".join(one.gang)),
            Cell(one.state, _STYLES[one.state]),
            Cell(f"{one.started:,} of {one.size:,}"),
            Cell(one.plan),
            Cell(_next(one)),
        )
        for one in status.unsettled
    )
    columns = (
        Column("GANG"),
        Column("STATE"),
        Column("STARTED", right=True),
        Column("PLAN", optional=True),
        Column("NEXT", fold=True),
    )
    return Table(columns, rows)


def _next(gang: GangStatus) -> str:
    if gang.state is GangPhase.stuck:
        return f"{one_line(gang.why)}: if that does not pass, undo it, see below"
    if gang.unsure:
        return "it may have been whole: if it cannot go on as it is, undo it, see below"
    return _NEXT[gang.state]


def pins(status: Status) -> Table:
    """Pods that wait for their scheduler."""
    rows = tuple(
        (
            Cell("/".join(pin.pod)),
            Cell(pin.node),
            Cell(one_line(pin.why) if pin.why else "not tried yet"),
            Cell(pin.plan),
        )
        for pin in status.pins
    )
    columns = (
        Column("PENDING POD"),
        Column("NODE"),
        Column("SCHEDULER SAYS", fold=True),
        Column("PLAN", optional=True),
    )
    return Table(columns, rows)


def undoing(status: Status, undo: Undo) -> Iterator[str]:
    """Lines for a shell: what undoes every gang that is half there, or stuck."""
    for gang in status.wrong:
        unsure = ", if it cannot go on without the pods that are gone" if gang.unsure else ""
        yield f"# undo {one_line('/'.join(gang.gang))}{unsure}:"
        yield from undo(gang)


def document(status: Status, undo: Undo) -> dict[str, Any]:
    """The whole as data."""
    return {
        "context": status.context,
        "cluster": status.cluster,
        "lock": _holder(status.lease.holder),
        "lastRun": status.lease.last_run,
        "plans": [
            {"plan": one.plan, "pods": one.pods, "gangs": {s.value: n for s, n in one.gangs}}
            for one in status.plans
        ],
        "gangs": [
            {
                "namespace": one.gang[0],
                "name": one.gang[1],
                "plan": one.plan,
                "state": one.state.value,
                "size": one.size,
                "started": one.started,
                "bound": one.bound,
                "why": one_line(one.why) or None,
                "unsure": one.unsure,
                "undo": undo(one) if _wrong(one) else [],
            }
            for one in status.unsettled
        ],
        "pending": [
            {
                "namespace": pin.pod[0],
                "name": pin.pod[1],
                "plan": pin.plan,
                "node": pin.node,
                "why": pin.why or None,
            }
            for pin in status.pins
        ],
        "ignored": [{"namespace": key[0], "name": key[1]} for key in status.forged],
    }


def _lock(lease: LeaseSeen, program: str) -> Cell:
    holder = lease.holder
    if holder is None:
        return Cell("free", "good")
    if holder.expired:
        said = f"left by {holder.worded()}: over, the next run takes it"
        return Cell(said, "warn")
    from planner.cluster.lease_document import unlock_command

    free = unlock_command(holder.id, (*program.split(), "unlock"))
    return Cell(f"held: {holder.worded()}; if that run is dead: {free}", "busy")


def _holder(holder: Holder | None) -> dict[str, Any] | None:
    if holder is None:
        return None
    return {
        "id": holder.id,
        "user": holder.user,
        "host": holder.host,
        "operation": holder.operation,
        "plan": holder.plan or None,
        "since": None if holder.since is None else time_text(holder.since),
        "until": None if holder.until is None else time_text(holder.until),
        "expired": holder.expired,
    }


def _last_run(note: dict[str, Any] | None, now: float | None) -> Cell:
    """What it came to, when, and its counts; the note is text that anybody may have written."""
    if note is None:
        return Cell("none is known", "dim")
    code = note.get("exit_code")
    told = [f"{_word(note.get('status'))} (exit {_word(code)})"]
    if finished := note.get("finished"):
        told.append(f"at {_word(finished)}{_ago(finished, now)}")
    if plan := note.get("plan"):
        told.append(f"plan {_word(plan)}")
    counts = note.get("counts")
    if isinstance(counts, dict):
        told += [f"{_word(value)} {_word(name)}" for name, value in counts.items() if value]
    return Cell(", ".join(told), "good" if code == 0 else "warn")


def _ago(finished: object, now: float | None) -> str:
    from models.units import InvalidValueError, epoch_seconds

    try:
        then = epoch_seconds(finished) if isinstance(finished, str) else None
    except InvalidValueError:
        return ""
    if then is None or now is None or now < then:
        return ""
    return f" ({lasting(int(now) - then)} ago)"


def _word(value: object) -> str:
    return one_line(str(value))[:80]
