"""The tables of an audit: what is lost, which restarts regain it, who waits for what, what is stranded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic.alias_generators import to_camel

from models.units import first_of, plural
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import Format, compress, number

if TYPE_CHECKING:
    from models.results.audit import Audit
    from planner.show.console import Console

HOUR_S = 3600

MAX_NAMES = 3
"""Gangs named in one cell."""

STARTS = {
    "now": "now, without a restart",
    "others moved": "once others moved",
    "others ended": "once others end",
    "held": "once it is released",
    "never": "never on these nodes",
}
"""What is said of each condition under which waiting gangs start, in this order."""


def show(console: Console, output: Format, audit: Audit) -> None:
    """Print the audit."""
    if output in (Format.json, Format.yaml):
        tree = asdict(audit, dict_factory=lambda own: {to_camel(name): one for name, one in own})
        console.document(tree, output)
    else:
        console.data(console.sections(_sections(audit, wide=output is Format.wide)))


def _sections(audit: Audit, *, wide: bool) -> list[Table | list[str]]:
    """Tables and lines, in order; those without rows are left out."""
    tables = (_steps(audit), _waiting(audit, wide=wide), _stranded(audit))
    notes = [f"note: {one}" for one in audit.notes]
    return [_headline(audit), *(one for one in tables if one.rows), notes]


def _headline(audit: Audit) -> list[str]:
    """What runs, what could, and what it takes."""
    effective, gpus = audit.effective, audit.gpus
    fit = sum(one.starts_if == "now" for one in audit.waiting)
    more = f"{plural(fit, 'more gang')} can start, {_signed(effective.unmoved - effective.now)}"
    priced = (
        f" ({effective.lost_per_day:,.2f} a day more than now)" if effective.lost_per_day else ""
    )
    held = f"of {plural(gpus.installed, 'GPU')} {number(gpus.held)} held, {number(gpus.free)} free"
    stranded = f"{number(gpus.stranded)} of them stranded"
    replanned = f"{plural(effective.replanned, 'effective GPU')}{priced}"
    regains = _signed(effective.replanned - effective.unmoved)
    lines = [
        f"now: {plural(effective.now, 'effective GPU')}; {held}, {stranded}",
        f"without a restart: {more if fit else 'nothing starts'}",
        f"if every gang may restart elsewhere: {regains}, to {replanned}",
    ]
    if effective.at_most == effective.replanned:
        lines.append("proven: no better plan has more effective GPUs")
    elif effective.at_most is not None:
        lines.append(f"not proven: a better plan has at most {number(effective.at_most)}")
    if audit.whole is not None:
        step = audit.steps[audit.whole - 1]
        what = f"{plural(step.restarts, 'gang')} with {plural(step.gpus, 'GPU')}"
        unproven = "; fewer may do" * (step.restarts > 1)
        few = "; proven: fewer regain less" if step.fewest else unproven
        lines.append(f"step {audit.whole} gets there: it restarts {what}{few}")
    elif not audit.steps:
        lines.append("no restart was found that helps")
    return lines


def _signed(gpus: float) -> str:
    gpus = round(gpus, 3)
    return f"{'-' if gpus < 0 else '+'}{number(abs(gpus))}"


def _steps(audit: Audit) -> Table:
    """What each step takes; below it who restarts from where to where, and what happens then."""
    rows, below = [], {}
    for n, one in enumerate(audit.steps, 1):
        lost = one.lost_gpu_seconds
        cells = row_of(
            str(n),
            Cell(_signed(one.regains), "good"),
            number(one.restarts),
            number(one.gpus),
            "unknown" if lost is None else f"{lost / HOUR_S:,.1f} GPU-h",
            "yes" if one.allowed else "no",
        )
        rows.append(cells)
        goes = [f"{x.gang} from {compress(x.leaves)} to {compress(x.comes)}" for x in one.moves]
        changes = {
            "starts": one.starts,
            "faster": one.faster,
            "slower": one.slower,
            "waits": one.waits,
        }
        words = [f"{what}: {first_of(who, MAX_NAMES)}" for what, who in changes.items() if who]
        below[n - 1] = Cell("; ".join([f"restarts {first_of(goes, 2 * MAX_NAMES)}", *words]))
    columns = columns_of(">STEP|>REGAINS|>RESTARTS|>GPUS|>LOST WORK|MAY MOVE")
    notes = ("each step stands alone: the moves of two steps may not fit together",)
    return Table(columns, tuple(rows), notes if len(rows) > 1 else (), below=below)


def _waiting(audit: Audit, *, wide: bool) -> Table:
    """Waiting gangs by what they wait for; each by name in ``wide``."""
    rows = []
    for starts_if, said in STARTS.items():
        group = [one for one in audit.waiting if one.starts_if == starts_if]
        if not group:
            continue
        named = [
            f"{one.gang} (step {' or '.join(map(str, one.steps))})" if one.steps else one.gang
            for one in group
        ]
        total = number(sum(one.gpus for one in group))
        names = first_of(named, len(group) if wide else MAX_NAMES)
        rows.append(row_of(said, number(len(group)), total, names))
    return Table(columns_of("STARTS|>GANGS|>GPUS|WHICH~"), tuple(rows))


def _stranded(audit: Audit) -> Table:
    cells = ((x.cause, number(x.gpus), number(x.nodes), x.detail) for x in audit.stranded)
    rows = tuple(row_of(*one) for one in cells)
    note = "stranded: free GPUs that the next request of the policy's mix cannot use, averaged over its sizes"
    return Table(columns_of("STRANDED|>GPUS|>NODES|WHY~"), rows, (note,))
