"""The output of ``status``, as tables and as data: the lock, the last run, incomplete gangs, pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.units import InvalidValueError, epoch_seconds, first_of, time_text
from planner.cluster.lock import release_command
from planner.cluster.plan_status import GangPhase, GangStatus, PendingPod
from planner.show.apply import undo_commands
from planner.show.table import Cell, Style, Table, columns_of, pairs, row_of
from planner.show.text import lasting
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from models.apply.plan_actions import Key
    from planner.cluster.lock import Holder, Lease

_NEXT: Mapping[GangPhase, tuple[Style, str]] = {
    GangPhase.partial: ("bad", "run completes it if it can; the commands below undo it"),
    GangPhase.stuck: ("bad", "if this lasts, the commands below undo it"),
    GangPhase.cut: ("bad", "run completes it, or with --allow-evictions stops the rest"),
    GangPhase.late: ("bad", "its nodes stay its own; only Kueue can stop it"),
    GangPhase.intended: ("warn", "run starts it, or removes its record"),
}
"""What comes next of a gang in that state."""

_MAX_UNREAD = 5


@dataclass(frozen=True, slots=True)
class Status:
    """``cluster``: uid. ``context``: of kubectl, None inside a pod. ``unread``: no records."""

    context: str | None
    kubeconfig: str | None
    cluster: str
    lease: Lease
    gangs: tuple[GangStatus, ...]
    pins: tuple[PendingPod, ...]
    unread: tuple[str, ...]

    def undo(self, gang: GangStatus) -> list[str]:
        """Commands that undo a gang that holds GPUs without running, or may."""
        left = gang.left if gang.state in (GangPhase.partial, GangPhase.stuck) else ()
        return undo_commands(left, self.context, self.kubeconfig)


def tables(status: Status, program: str) -> Iterator[Table]:
    """The lock and the last run; incomplete gangs; pods that wait to be bound.

    ``program``: as the user called it.
    """
    rows = [
        ("lock", _lock(status.lease.holder, program)),
        ("last run", _last_run(status.lease.last_run, status.lease.now)),
    ]
    if status.unread:
        shown = first_of(list(map(one_line, status.unread)), _MAX_UNREAD)
        rows.append(("ignored", Cell(f"no records of starts: configmaps {shown}", "warn")))
    yield pairs(rows)
    gangs = (
        row_of(
            "/".join(one.gang),
            Cell(one.state, _NEXT[one.state][0]),
            f"{one.started:,} of {one.size:,}",
            one.plan,
            ": ".join(filter(None, (one_line(one.why), _NEXT[one.state][1]))),
        )
        for one in status.gangs
    )
    yield Table(columns_of("GANG|STATE|>STARTED|PLAN?|NEXT~"), tuple(gangs))
    pods = (
        row_of("/".join(pin.pod), pin.node, pin.plan, one_line(pin.why) or "nothing yet")
        for pin in status.pins
    )
    yield Table(columns_of("PENDING POD|NODE|PLAN?|SCHEDULER SAYS~"), tuple(pods))


def undoing(status: Status) -> Iterator[str]:
    """Shell commands that undo every partial or stuck gang."""
    for gang in status.gangs:
        if commands := status.undo(gang):
            yield from ("", f"# undo {one_line('/'.join(gang.gang))}:", *commands)


def document(status: Status) -> dict[str, Any]:
    """The status as data."""
    return {
        "context": status.context,
        "cluster": status.cluster,
        "lock": _holder(status.lease.holder),
        "lastRun": status.lease.last_run,
        "gangs": [
            {
                **_named(one.gang),
                "plan": one.plan,
                "state": one.state.value,
                "size": one.size,
                "started": one.started,
                "bound": one.bound,
                "why": one_line(one.why) or None,
                "undo": status.undo(one),
            }
            for one in status.gangs
        ],
        "pending": [
            {**_named(pin.pod), "plan": pin.plan, "node": pin.node, "why": pin.why or None}
            for pin in status.pins
        ],
        "ignored": list(status.unread),
    }


def _named(key: Key) -> dict[str, str]:
    return {"namespace": key[0], "name": key[1]}


def _lock(holder: Holder | None, program: str) -> Cell:
    if holder is None:
        return Cell("free", "good")
    if holder.expired:
        return Cell(f"expired, the next run takes it; left by {holder.describe()}", "warn")
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


def _last_run(note: Mapping[str, Any] | None, now: float | None) -> Cell:
    """Status, time and counts; the note is untrusted text."""
    if note is None:
        return Cell("none recorded", "dim")
    code, finished, counts = (note.get(key) for key in ("exit_code", "finished", "counts"))
    facts = [f"{_word(note.get('status'))} (exit {_word(code)})"]
    facts += [f"at {_word(finished)}{_ago(finished, now)}"] if finished else []
    facts += [f"plan {_word(note['plan'])}"] if note.get("plan") else []
    if isinstance(counts, dict):
        facts += [f"{_word(value)} {_word(name)}" for name, value in counts.items() if value]
    if effective := note.get("effective_gpus"):
        facts.append(f"{_word(effective)} effective GPUs")
    return Cell(", ".join(facts), "good" if code == 0 else "warn")


def _ago(finished: object, now: float | None) -> str:
    try:
        age_s = (now or 0) - epoch_seconds(str(finished))
    except InvalidValueError:
        return ""
    return f" ({lasting(int(age_s))} ago)" if age_s >= 0 else ""


def _word(value: object) -> str:
    return one_line(str(value))[:80]
