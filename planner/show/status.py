"""The output of ``status``, as tables and as data: the lock, the last run, incomplete gangs, pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.units import first_of, time_text
from planner.cluster.plan_status import GangPhase, GangStatus, PendingPod
from planner.show.table import Cell, Style, Table, columns_of, row_of
from planner.show.text import lasting
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from models.apply.plan_actions import Key
    from planner.cluster.lease import Holder, LeaseState

UNSETTLED = (GangPhase.partial, GangPhase.stuck, GangPhase.cut, GangPhase.begun, GangPhase.intended)
"""Phases that the next ``apply`` or ``run`` resolves or reports."""

_STYLES: Mapping[str, Style] = {
    GangPhase.partial: "bad",
    GangPhase.stuck: "bad",
    GangPhase.cut: "bad",
    GangPhase.begun: "warn",
    GangPhase.intended: "warn",
    GangPhase.pending: "busy",
}

_NEXT = {
    GangPhase.partial: "run or apply completes it if possible; to undo it, see below",
    GangPhase.begun: "run or apply starts it or removes the intents",
    GangPhase.intended: "run or apply starts it",
}

_MAX_FORGED = 5

Undo = Callable[[GangStatus], list[str]]
"""Commands that undo a partial gang."""


@dataclass(frozen=True, slots=True)
class Status:
    """``cluster``: uid. ``context``: of kubectl, None inside a pod. ``forged``: pods with forged intents."""

    context: str | None
    cluster: str
    lease: LeaseState
    gangs: tuple[GangStatus, ...]
    pins: tuple[PendingPod, ...]
    forged: tuple[Key, ...] = ()

    @property
    def unsettled(self) -> tuple[GangStatus, ...]:
        return tuple(gang for gang in self.gangs if gang.state in UNSETTLED)

    @property
    def partial(self) -> tuple[GangStatus, ...]:
        states = (GangPhase.partial, GangPhase.cut)
        return tuple(gang for gang in self.gangs if gang.state in states)

    @property
    def undoable(self) -> tuple[GangStatus, ...]:
        """Gangs that hold GPUs without running, or may."""
        return tuple(gang for gang in self.gangs if _undoable(gang))


def _undoable(gang: GangStatus) -> bool:
    return gang.state in (GangPhase.partial, GangPhase.stuck)


def facts(status: Status, program: str) -> Table:
    """The lock and the last run. ``program``: as the user called it."""
    rows: list[tuple[Cell, ...]] = [
        (Cell("lock"), _lock(status.lease, program)),
        (Cell("last run"), _last_run(status.lease.last_run, status.lease.now)),
    ]
    if status.forged:
        shown = first_of(["/".join(key) for key in status.forged], _MAX_FORGED)
        rows.append(
            row_of("ignored", Cell(f"gangplan annotations that no run wrote, on {shown}", "warn"))
        )
    return Table(columns_of("|~"), tuple(rows))


def unsettled(status: Status) -> Table:
    """Gangs that are neither untouched nor whole."""
    rows = tuple(
        row_of(
            "/".join(one.gang),
            Cell(one.state, _STYLES[one.state]),
            f"{one.started:,} of {one.size:,}",
            one.plan,
            _next(one),
        )
        for one in status.unsettled
    )
    return Table(columns_of("GANG|STATE|>STARTED|PLAN?|NEXT~"), rows)


def _next(gang: GangStatus) -> str:
    if gang.state is GangPhase.stuck:
        return f"{one_line(gang.why)}: if that persists, undo it, see below"
    if gang.state is GangPhase.cut:
        return f"{one_line(gang.why)}: run completes it or stops the rest"
    if gang.unsure:
        return "it may have been whole: if it cannot continue, undo it, see below"
    return _NEXT[gang.state]


def pins(status: Status) -> Table:
    """Pods that wait for their scheduler."""
    rows = tuple(
        row_of(
            "/".join(pin.pod), pin.node, pin.plan, one_line(pin.why) if pin.why else "not tried yet"
        )
        for pin in status.pins
    )
    return Table(columns_of("PENDING POD|NODE|PLAN?|SCHEDULER SAYS~"), rows)


def undoing(status: Status, undo: Undo) -> Iterator[str]:
    """Shell commands that undo every partial or stuck gang."""
    for gang in status.undoable:
        unsure = ", if it cannot continue without the missing pods" if gang.unsure else ""
        yield f"# undo {one_line('/'.join(gang.gang))}{unsure}:"
        yield from undo(gang)


def document(status: Status, undo: Undo) -> dict[str, Any]:
    """The status as data."""
    return {
        "context": status.context,
        "cluster": status.cluster,
        "lock": _holder(status.lease.holder),
        "lastRun": status.lease.last_run,
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
                "undo": undo(one) if _undoable(one) else [],
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


def _lock(lease: LeaseState, program: str) -> Cell:
    holder = lease.holder
    if holder is None:
        return Cell("free", "good")
    if holder.expired:
        return Cell(f"expired, the next run takes it; left by {holder.describe()}", "warn")
    from planner.cluster.lease import release_command

    free = release_command(holder.id, program)
    return Cell(f"held: {holder.describe()}; if that run is dead: {free}", "busy")


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
    """Status, time and counts; the note is untrusted text."""
    if note is None:
        return Cell("unknown", "dim")
    code = note.get("exit_code")
    facts = [f"{_word(note.get('status'))} (exit {_word(code)})"]
    if finished := note.get("finished"):
        facts.append(f"at {_word(finished)}{_ago(finished, now)}")
    if plan := note.get("plan"):
        facts.append(f"plan {_word(plan)}")
    counts = note.get("counts")
    if isinstance(counts, dict):
        facts += [f"{_word(value)} {_word(name)}" for name, value in counts.items() if value]
    if effective := note.get("effective_gpus"):
        facts.append(f"{_word(effective)} effective GPUs")
    return Cell(", ".join(facts), "good" if code == 0 else "warn")


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
