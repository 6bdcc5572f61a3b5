"""The tables of an audit: what is lost, why GPUs are stranded, which gangs are slow, which moves help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from models.instance.solution import ADMITTED
from models.units import first_of, plural
from planner.show.table import Cell, Column, Style, Table, columns_of, pairs, row_of
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

if TYPE_CHECKING:
    from models.documents.audit import (
        AuditDocument,
        AuditGang,
        AuditMove,
        AuditWaiting,
        AuditWhole,
    )
    from planner.show.console import Console

MAX_ROWS = 12
"""Gangs of one table, unless all are asked for with ``wide``."""

HOUR_S = 3600

MAX_NAMES = 3
"""Gangs named in one cell."""

_STYLES: Mapping[str, Style] = {"now": "good", "others stood better": "warn"}


def show(
    console: Console, output: AuditFormat, audit: AuditDocument, document: dict[str, Any]
) -> None:
    """Print the audit. ``document``: the same as JSON."""
    if output in (AuditFormat.json, AuditFormat.yaml):
        console.document(document, output)
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
    return [headline(audit), *(table for table in found if table.rows), _ending(audit)]


def headline(audit: AuditDocument) -> list[str]:
    """What is lost, with its price: what could start without any move apart from what placement costs."""
    lost = audit.status.lost
    best, most = lost.at_most == lost.gpus, lost.startable_at_most == lost.startable
    gained = "no effective GPUs"
    if lost.startable:
        amount = f"{gpu_amount(lost.startable)} effective GPUs"
        gained = f"{'' if most else 'at least '}{amount}{_priced(lost.startable_money_per_day)}"
    cost = "nothing" if best else "nothing that was found"
    if lost.placement:
        word = {(True, True): "", (True, False): "at most ", (False, True): "at least "}
        amount = f"{gpu_amount(lost.placement)}{_priced(lost.placement_money_per_day)}"
        cost = word.get((best, most), "about ") + amount
    found = [
        f"starting gangs that fit now adds {gained}; the placement of running gangs costs {cost}"
    ]
    whole = f"{gpu_amount(lost.gpus)} effective GPUs{_priced(lost.money_per_day)}"
    if not best:
        bound = f"{gpu_amount(lost.at_most)}{_priced(lost.money_per_day_at_most)}"
        found.append(f"the re-plan regains {whole} in all; no re-plan regains more than {bound}")
    elif lost.gpus:
        found.append(f"the re-plan regains {whole} in all; proven: no re-plan regains more")
    else:
        found.append("proven: no re-plan has more effective GPUs")
    return found


def _priced(amount: float | None) -> str:
    return "" if amount is None else f" ({amount:,.2f} a day)"


def _facts(audit: AuditDocument) -> Table:
    gpus, effective = audit.status.gpus, audit.status.effective_gpus
    sick = gpus.installed - gpus.healthy
    held = f"{number(gpus.held)} held, {number(gpus.free)} free"
    rows = [
        ("cluster", audit.cluster.name),
        ("nodes", f"{plural(audit.cluster.nodes, 'node')}, {plural(audit.cluster.gpus, 'GPU')}"),
        ("GPUs", f"{held}; {gpu_amount(gpus.stranded)} of the free GPUs are stranded"),
        ("unhealthy", plural(sick, "GPU") if sick else "-"),
        (
            "effective",
            f"{gpu_amount(effective.before)} GPUs now, {gpu_amount(effective.possible)} in the re-plan",
        ),
    ]
    return pairs((one for one in rows if one[1] != "-"), "head")


def _stranded(audit: AuditDocument) -> Table:
    columns = columns_of("STRANDED~|>GPUS|>NODES|WHY~")
    rows = tuple(
        row_of(one.cause, gpu_amount(one.gpus), number(one.nodes), one.detail)
        for one in audit.status.stranded_why
    )
    price = audit.status.lost.stranded_money_per_day
    note = "stranded: free GPUs that the next request of the policy's mix cannot use, averaged over its sizes"
    return Table(
        columns, rows, (note, *([f"stranded GPUs cost {price:,.2f} a day"] if price else []))
    )


def _gangs(audit: AuditDocument, *, wide: bool) -> Table:
    """The running gangs that lack most; all of them in ``wide``."""
    gangs = audit.status.gangs
    slow = [one for one in gangs if wide or one.lost_gpus > 0]
    listed = slow if wide else slow[:MAX_ROWS]
    columns = (
        *columns_of(
            "RUNNING GANG~|>PRIO?|>GPUS|>GB/S?|>BEST?|>OF BEST?|>SPEED|>RE-PLANNED|>LACKS|"
            ">REGAINS|NODES~??"
        ),
        *((Column("CANNOT MOVE", fold=True),) if wide else ()),
    )
    notes = [f"{len(slow) - len(listed)} more run below their best speed: -o wide lists all"]
    full = len(gangs) - len(slow)
    notes = notes * (len(slow) > len(listed))
    if full:
        slowed = [one.regains_gpus for one in gangs if not one.lost_gpus and one.regains_gpus < 0]
        text = f"{plural(full, 'gang')} {'runs' if full == 1 else 'run'} at full speed"
        if slowed and not wide:
            lost = f"{gpu_amount(-sum(slowed))} effective GPUs"
            text += f"; the re-plan slows down {len(slowed):,} of them, by {lost}"
        notes.append(text)
    return Table(
        columns, tuple(_gang(one, wide=wide) for one in listed), tuple(notes if listed else ())
    )


def _gang(one: AuditGang, *, wide: bool) -> tuple[Cell, ...]:
    cells = row_of(
        one.gang,
        number(one.priority),
        number(one.gpus),
        gigabytes(one.bandwidth),
        gigabytes(one.best),
        permille(one.share),
        whole_percent(one.speed),
        whole_percent(one.replan_speed),
        Cell(gpu_amount(one.lost_gpus), "warn" if one.lost_gpus else None),
        _signed(one.regains_gpus),
        compress(one.nodes),
    )
    return row_of(*cells, one.fixed or "-") if wide else cells


def _signed(gpus: float) -> str:
    return "-" if not gpus else f"{'+' if gpus > 0 else '-'}{gpu_amount(abs(gpus))}"


def _whole(audit: AuditDocument) -> Table:
    rows = tuple(
        row_of(
            one.level,
            number(one.now),
            Cell(_at_least(one), "good" if one.possible > one.now else None),
            number(one.domains),
        )
        for one in audit.status.whole
    )
    return Table(columns_of("WHOLLY FREE|>NOW|>POSSIBLE|>OF"), rows)


def _at_least(one: AuditWhole) -> str:
    """The possible number, or the range in which it is."""
    if one.at_most is None or one.at_most == one.possible:
        return number(one.possible)
    least = f"at least {number(one.possible)}, " if one.possible else ""
    return f"{least}at most {number(one.at_most)}"


STARTS = {
    "now": "now, without a move",
    "others stood better": "only in the re-plan",
    "others ended": "once others end",
    "held": "once it is released",
    "never": "never here",
}
"""What is said of each condition under which waiting gangs start, in this order."""


def _waiting(audit: AuditDocument, *, wide: bool) -> Table:
    """Waiting gangs by what they wait for; each by itself in ``wide``."""
    groups: dict[str, list[AuditWaiting]] = {}
    for one in audit.status.waiting:
        groups.setdefault(one.starts_if, []).append(one)
    rows = []
    for starts_if in (name for name in STARTS if name in groups):
        group = groups[starts_if]
        most = len(group) if wide else MAX_NAMES
        named = (
            f"{one.gang} (move {' or '.join(map(str, one.moves))})" if one.moves else one.gang
            for one in group
        )
        names = first_of([*named], most)
        total = sum(one.gpus for one in group)
        style = _STYLES.get(starts_if)
        which = Cell(STARTS[starts_if], style)
        rows.append((which, Cell(number(len(group))), Cell(number(total)), Cell(names)))
    return Table(columns_of("STARTS|>GANGS|>GPUS|WHICH~"), tuple(rows), tuple(_in_place_of(audit)))


def _in_place_of(audit: AuditDocument) -> Iterator[str]:
    """Gangs that fit now and wait in the re-plan: what both start does not add up."""
    plan, known = audit.status.plan, audit.status.waiting
    if plan is None:  # a large one
        return
    starting = {"/".join(one.key) for one in plan.spec.gangs if one.decision in ADMITTED}
    waits = [one.gang for one in known if one.starts_if == "now" and one.gang not in starting]
    if waits:
        verb = "waits" if len(waits) == 1 else "wait"
        others = any(one.starts_if == "others stood better" for one in known)
        named = first_of(waits, MAX_NAMES)
        yield f"of those that fit now, {named} {verb} in the re-plan{', which starts others' * others}"


def _moves(audit: AuditDocument) -> Table:
    columns = columns_of(
        ">MOVE|>REGAINS|>RESTARTS|>GPUS|>LOST WORK?|>WHOLE NODES?|MAY MOVE?|WHICH~"
    )
    rows = tuple(_move(n, one) for n, one in enumerate(audit.status.moves, 1))
    notes = ["each move can be made without the others"] if len(rows) > 1 else []
    return Table(columns, rows, (*notes, *_remaining(audit)))


def _remaining(audit: AuditDocument) -> Iterator[str]:
    """What the listed moves regain of what placement costs, and what the rest takes; why none are listed."""
    status, lost = audit.status, audit.status.lost
    cost = gpu_amount(lost.placement)
    gangs, gpus = (
        plural(status.whole_regain.restarts, "gang"),
        plural(status.whole_regain.gpus, "GPU"),
    )
    whole = f"to regain all of it takes restarting {gangs} with {gpus}"
    if status.move_search == "none exists":
        yield "proven: no move regains effective GPUs"
    elif status.move_search == "none found" and lost.placement and status.whole_regain.restarts:
        yield f"no move of a few gangs was found that regains a part of the {cost}; {whole}"
    elif status.move_search == "none found":
        yield "no move was found that regains effective GPUs; it is not proven that none exists"
    elif lost.by_moves > lost.placement:
        regained = gpu_amount(lost.by_moves)
        yield f"the moves regain {regained} and the re-plan {cost}: it puts gangs of higher priority first"
    elif lost.by_moves == lost.placement:
        yield f"the moves together regain all of the {cost} that placement costs"
    else:
        yield f"the moves together regain {gpu_amount(lost.by_moves)} of {cost}; {whole}"


def _move(n: int, one: AuditMove) -> tuple[Cell, ...]:
    lost = one.lost_runtime
    goes = [f"{gang.gang}: {compress(gang.leaves)} to {compress(gang.comes)}" for gang in one.gangs]
    starts = [
        f"{gang.gang} starts on {compress(gang.nodes)}"
        + (f" instead of {compress(gang.instead_of)}" if gang.instead_of else "")
        for gang in one.starts
    ]
    waits = [f"{name} waits" for name in one.waits]
    whole = f"{one.whole_nodes:+}" if one.whole_nodes else "-"
    return row_of(
        str(n),
        Cell(_signed(one.regains_gpus), "good"),
        number(one.restarts),
        number(one.gpus),
        "unknown" if lost is None else f"{lost / HOUR_S:,.1f} GPU-h",
        whole,
        "yes" if one.allowed else "no",
        first_of([*starts, *goes, *waits], 2 * MAX_NAMES),
    )


def _objectives(audit: AuditDocument) -> Table:
    rows = tuple(
        row_of(
            one.name,
            Cell(one.sense, "dim"),
            number(one.now),
            number(one.possible),
            number(one.bound) if one.gap == 0 or one.proof else "-",
            Cell(percent(one.gap), "good" if one.gap == 0 else "warn"),
        )
        for one in audit.status.objectives
    )
    return Table(columns_of("TIER~|SENSE|>NOW|>POSSIBLE|>BOUND|>GAP"), rows)


def _ending(audit: AuditDocument) -> list[str]:
    """Of what the loss consists, moves if none are listed, and the notes."""
    moves = [] if audit.status.moves else list(_remaining(audit))
    return [*moves, *_parts(audit), *audit.status.notes]


def _parts(audit: AuditDocument) -> Iterator[str]:
    lost = audit.status.lost
    parts = [f"gangs that start add {gpu_amount(lost.waiting)} effective GPUs"] * bool(lost.waiting)
    if lost.slow:
        verb = "gain" if lost.slow > 0 else "lose"
        parts.append(f"running gangs {verb} {gpu_amount(abs(lost.slow))} by their speed")
    if parts:
        yield f"in the re-plan {' and '.join(parts)}"
    regained = round(max(0.0, lost.allowed - lost.startable), 3)
    if regained:
        yield f"moving only gangs that are marked movable regains at least {gpu_amount(regained)}"
    elif lost.placement and any(one.movable and not one.fixed for one in audit.status.gangs):
        yield "no moves were found that regain a part with only gangs that are marked movable"
    elif lost.placement:
        yield "no running gang is marked movable: gangplan plan would move none"
