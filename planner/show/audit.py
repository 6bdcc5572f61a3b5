"""The tables of an audit: what is lost, why GPUs are stranded, which gangs are slow, which moves help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from models.units import first_of, plural
from planner.show.plan_output import yaml_text
from planner.show.table import Cell, Column, Style, Table
from planner.show.text import (
    AuditFormat,
    compress,
    gigabytes,
    gpu_amount,
    number,
    percent,
    permille,
    whole_percent,
)
from planner.untrusted_text import json_safe

if TYPE_CHECKING:
    from models.documents.audit import AuditDocument, AuditGang, AuditMove, AuditWaiting
    from planner.show.console import Console

MAX_ROWS = 12
"""Gangs of one table, unless all are asked for with ``wide``."""

HOUR_S = 3600

MAX_NAMES = 3
"""Gangs named in one cell."""


def show(
    console: Console, output: AuditFormat, audit: AuditDocument, document: dict[str, Any]
) -> None:
    """Print the audit. ``document``: the same as JSON."""
    if output is AuditFormat.json:
        console.data(json_safe(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
    elif output is AuditFormat.yaml:
        console.data(yaml_text(document))
    else:
        sections = sections_of(audit, wide=output is AuditFormat.wide)
        parts = (
            console.drawn(one) if isinstance(one, Table) else console.lines(one) for one in sections
        )
        console.data("\n".join(parts))


def sections_of(audit: AuditDocument, *, wide: bool) -> list[Table | list[str]]:
    """Tables and lines, in order; tables without rows are left out."""
    found = [
        _facts(audit),
        _stranded(audit),
        _gangs(audit, wide=wide),
        _whole(audit),
        _waiting(audit, wide=wide),
        _moves(audit),
        *([_objectives(audit)] if wide else []),
    ]
    return [*(table for table in found if table.rows), _ending(audit)]


def _facts(audit: AuditDocument) -> Table:
    gpus, effective = audit.status.gpus, audit.status.effective_gpus
    sick = gpus.installed - gpus.healthy
    held = f"{number(gpus.held)} held, {number(gpus.free)} free"
    rows = [
        ("cluster", audit.cluster.name),
        ("nodes", f"{plural(audit.cluster.nodes, 'node')}, {plural(gpus.installed, 'GPU')}"),
        ("GPUs", f"{held}, {gpu_amount(gpus.stranded)} of these of no use"),
        ("unhealthy", plural(sick, "GPU") if sick else "-"),
        (
            "effective",
            f"{gpu_amount(effective.before)} GPUs now, {gpu_amount(effective.possible)} in the re-plan",
        ),
    ]
    cells = tuple((Cell(name, "head"), Cell(text)) for name, text in rows if text != "-")
    return Table((Column("WHAT"), Column("IS", fold=True)), cells, headless=True)


def _stranded(audit: AuditDocument) -> Table:
    columns = (
        Column("STRANDED", fold=True),
        Column("GPUS", right=True),
        Column("NODES", right=True),
        Column("WHY", fold=True),
    )
    rows = tuple(
        (Cell(one.cause), Cell(gpu_amount(one.gpus)), Cell(number(one.nodes)), Cell(one.detail))
        for one in audit.status.stranded_why
    )
    return Table(columns, rows)


def _gangs(audit: AuditDocument, *, wide: bool) -> Table:
    """The running gangs that lack most; all of them in ``wide``."""
    gangs = audit.status.gangs
    slow = [one for one in gangs if wide or one.lost_gpus > 0]
    listed = slow if wide else slow[:MAX_ROWS]
    columns = (
        Column("RUNNING GANG", fold=True),
        Column("PRIO", right=True, droppable=True),
        Column("GPUS", right=True),
        Column("GB/S", right=True, droppable=True),
        Column("BEST", right=True, droppable=True),
        Column("OF BEST", right=True, droppable=True),
        Column("SPEED", right=True),
        Column("RE-PLANNED", right=True),
        Column("LACKS", right=True),
        Column("REGAINS", right=True),
        Column("NODES", fold=True, optional=True),
        *((Column("CANNOT MOVE", fold=True),) if wide else ()),
    )
    notes = [f"{len(slow) - len(listed)} more run below their best speed: -o wide lists all"]
    full = len(gangs) - len(slow)
    notes = notes * (len(slow) > len(listed)) + [f"{plural(full, 'gang')} at full speed"] * (
        full > 0
    )
    return Table(
        columns, tuple(_gang(one, wide=wide) for one in listed), tuple(notes if listed else ())
    )


def _gang(one: AuditGang, *, wide: bool) -> tuple[Cell, ...]:
    cells = (
        Cell(one.gang),
        Cell(number(one.priority)),
        Cell(number(one.gpus)),
        Cell(gigabytes(one.bandwidth)),
        Cell(gigabytes(one.best)),
        Cell(permille(one.share)),
        Cell(whole_percent(one.speed)),
        Cell(whole_percent(one.replan_speed)),
        Cell(gpu_amount(one.lost_gpus), "warn" if one.lost_gpus else None),
        Cell(_signed(one.regains_gpus)),
        Cell(compress(one.nodes)),
    )
    return (*cells, Cell(one.fixed or "-")) if wide else cells


def _signed(gpus: float) -> str:
    return "-" if not gpus else f"{'+' if gpus > 0 else '-'}{gpu_amount(abs(gpus))}"


def _whole(audit: AuditDocument) -> Table:
    columns = (
        Column("WHOLLY FREE"),
        Column("NOW", right=True),
        Column("POSSIBLE", right=True),
        Column("OF", right=True),
    )
    rows = tuple(
        (
            Cell(one.level),
            Cell(number(one.now)),
            Cell(number(one.possible), "good" if one.possible > one.now else None),
            Cell(number(one.domains)),
        )
        for one in audit.status.whole
    )
    return Table(columns, rows)


def _waiting(audit: AuditDocument, *, wide: bool) -> Table:
    """Waiting gangs by what they wait for; each by itself in ``wide``."""
    columns = (
        Column("STARTS IF"),
        Column("GANGS", right=True),
        Column("GPUS", right=True),
        Column("WHICH", fold=True),
    )
    groups: dict[str, list[AuditWaiting]] = {}
    for one in audit.status.waiting:
        groups.setdefault(one.starts_if, []).append(one)
    order = ("now", "others stood better", "others ended", "held", "never")
    rows = []
    for starts_if in (name for name in order if name in groups):
        group = groups[starts_if]
        most = len(group) if wide else MAX_NAMES
        names = first_of([_with_moves(one) for one in group], most)
        total = sum(one.gpus for one in group)
        style: Style | None
        style = "good" if starts_if == "now" else "warn" if starts_if == order[1] else None
        rows.append(
            (Cell(starts_if, style), Cell(number(len(group))), Cell(number(total)), Cell(names))
        )
    return Table(columns, tuple(rows))


def _with_moves(one: AuditWaiting) -> str:
    if not one.moves:
        return one.gang
    return f"{one.gang} (move {' or '.join(map(str, one.moves))})"


def _moves(audit: AuditDocument) -> Table:
    columns = (
        Column("MOVE", right=True),
        Column("REGAINS", right=True),
        Column("RESTARTS", right=True),
        Column("GPUS", right=True),
        Column("LOST WORK", right=True, droppable=True),
        Column("WHOLE NODES", right=True, droppable=True),
        Column("MAY MOVE", droppable=True),
        Column("WHICH", fold=True),
    )
    rows = tuple(_move(n, one) for n, one in enumerate(audit.status.moves, 1))
    notes = ("each move may be made without the others",) if len(rows) > 1 else ()
    return Table(columns, rows, notes)


def _move(n: int, one: AuditMove) -> tuple[Cell, ...]:
    lost = one.lost_runtime
    goes = [f"{gang.gang}: {compress(gang.leaves)} to {compress(gang.comes)}" for gang in one.gangs]
    starts = [f"{gang.gang} starts on {compress(gang.nodes)}" for gang in one.starts]
    waits = [f"{name} waits" for name in one.waits]
    whole = f"{one.whole_nodes:+}" if one.whole_nodes else "-"
    return (
        Cell(str(n)),
        Cell(_signed(one.regains_gpus), "good"),
        Cell(number(one.restarts)),
        Cell(number(one.gpus)),
        Cell("unknown" if lost is None else f"{lost / HOUR_S:,.1f} GPU-h"),
        Cell(whole),
        Cell("yes" if one.allowed else "no"),
        Cell(first_of([*starts, *goes, *waits], 2 * MAX_NAMES)),
    )


def _objectives(audit: AuditDocument) -> Table:
    columns = (
        Column("TIER", fold=True),
        Column("SENSE"),
        Column("NOW", right=True),
        Column("POSSIBLE", right=True),
        Column("BOUND", right=True),
        Column("GAP", right=True),
    )
    rows = tuple(
        (
            Cell(one.name),
            Cell(one.sense, "dim"),
            Cell(number(one.now)),
            Cell(number(one.possible)),
            Cell(number(one.bound) if one.gap == 0 or one.proof else "-"),
            Cell(percent(one.gap), "good" if one.gap == 0 else "warn"),
        )
        for one in audit.status.objectives
    )
    return Table(columns, rows)


def _ending(audit: AuditDocument) -> list[str]:
    """The loss in words."""
    return [*_loss(audit), *audit.status.notes]


def _loss(audit: AuditDocument) -> Iterator[str]:
    lost = audit.status.lost
    if not lost.at_most:
        yield "the placement loses nothing: no re-plan has more effective GPUs"
        return
    proven = lost.at_most == lost.gpus
    bounds = "proven: none regains more" if proven else f"at most {gpu_amount(lost.at_most)}"
    yield f"a re-plan regains {gpu_amount(lost.gpus)} effective GPUs ({bounds})"
    parts = (
        (lost.startable, "without any move: gangs that could start now"),
        (lost.placement, "are lost to where running gangs stand"),
    )
    yield from (f"  {gpu_amount(gpus)} {what}" for gpus, what in parts if gpus and lost.gpus)
    if lost.gpus:
        parts = ((lost.slow, "for running gangs"), (lost.waiting, "for gangs that wait now"))
        yield "  " + ", ".join(f"{_signed(gpus)} {what}" for gpus, what in parts if gpus)
        allowed = gpu_amount(lost.allowed) if lost.allowed else "nothing of it"
        yield f"  {allowed} if only gangs move that say that they may"
    if lost.money_per_day is not None:
        most = lost.money_per_day_at_most
        upper = "" if most == lost.money_per_day else f", at most {_money(most)}"
        stranded = f"stranded GPUs: {_money(lost.stranded_money_per_day)} a day"
        yield f"  {_money(lost.money_per_day)} a day{upper}; {stranded}"


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.2f}"
