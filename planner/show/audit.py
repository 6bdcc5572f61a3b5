"""The tables of an audit: what is lost, which restarts regain it, who waits for what, what is stranded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from pydantic.alias_generators import to_camel

from models.units import first_of, plural
from planner.show.table import Cell, Style, Table, columns_of, row_of
from planner.show.text import (
    Format,
    compress,
    gpu_amount,
    number,
)

if TYPE_CHECKING:
    from models.results.audit import Audit, AuditStep
    from planner.show.console import Console

HOUR_S = 3600

MAX_NAMES = 3
"""Gangs named in one cell."""

STARTS = {
    "now": "now, without a move",
    "others moved": "once others moved",
    "others ended": "once others end",
    "held": "once it is released",
    "never": "never on these nodes",
}
"""What is said of each condition under which waiting gangs start, in this order."""

_STYLES: Mapping[str, Style] = {"now": "good", "others moved": "warn"}


def show(console: Console, output: Format, audit: Audit) -> None:
    """Print the audit."""
    if output in (Format.json, Format.yaml):
        console.document(_tree(audit), output)
    else:
        sections = _sections(audit, wide=output is Format.wide)
        parts = (
            console.drawn(one) if isinstance(one, Table) else console.lines(one) for one in sections
        )
        console.data("\n".join(parts))


def _tree(value: object) -> object:
    """As JSON: fields by their names in camelCase."""
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(one.name): _tree(getattr(value, one.name)) for one in fields(value)}
    return [_tree(one) for one in value] if isinstance(value, tuple) else value


def _sections(audit: Audit, *, wide: bool) -> list[Table | list[str]]:
    """Tables and lines, in order; those without rows are left out."""
    tables = (_steps(audit), _waiting(audit, wide=wide), _stranded(audit))
    notes = [[f"note: {one}" for one in audit.notes]] if audit.notes else []
    return [_headline(audit), *(table for table in tables if table.rows), *notes]


def _headline(audit: Audit) -> list[str]:
    """What runs, what could, and what it takes."""
    effective, gpus = audit.effective, audit.gpus
    startable = round(effective.unmoved - effective.now, 3)
    regained = round(effective.replanned - effective.unmoved, 3)
    price = effective.lost_per_day
    priced = "" if not price else f" ({price:,.2f} a day more than now)"
    free = f"{number(gpus.free)} free, of which {gpu_amount(gpus.stranded)} stranded"
    most = f"{gpu_amount(effective.replanned)} effective GPUs{priced}"
    now = f"{gpu_amount(effective.now)} effective GPUs of {number(gpus.installed)}"
    lines = [
        f"now: {now}; {number(gpus.held)} held, {free}",
        f"without a move: {_signed(startable)}, by gangs that fit now"
        if startable
        else "without a move: nothing more starts",
        f"if every gang may restart elsewhere: {_signed(regained)}, to {most}"
        if regained
        else f"if every gang may restart elsewhere: no more, {most}",
    ]
    if effective.at_most == effective.replanned:
        lines.append("proven: no re-plan that puts higher priorities first has more")
    elif effective.at_most is not None:
        lines.append(f"not proven: a better re-plan has at most {gpu_amount(effective.at_most)}")
    return [*lines, *_needed(audit)]


def _needed(audit: Audit) -> Iterator[str]:
    """What the whole re-plan takes, or why no step is listed."""
    if audit.whole is not None:
        step = audit.steps[audit.whole - 1]
        fewest = "; proven: no fewer restarts regain as much" if step.fewest else ""
        gangs, gpus = plural(step.restarts, "gang"), plural(step.gpus, "GPU")
        yield f"all of it takes restarting {gangs} with {gpus} (step {audit.whole}){fewest}"
    elif not audit.steps and audit.effective.at_most == audit.effective.unmoved:
        yield "proven: no restart regains anything"
    elif not audit.steps:
        yield "no restart was found that regains anything; it is not proven that none does"


def _signed(gpus: float) -> str:
    return "-" if not gpus else f"{'+' if gpus > 0 else '-'}{gpu_amount(abs(gpus))}"


def _steps(audit: Audit) -> Table:
    columns = columns_of(">STEP|>REGAINS|>RESTARTS|>GPUS|>LOST WORK|MAY MOVE|BRINGS AND TAKES~")
    rows = tuple(_step(n, one) for n, one in enumerate(audit.steps, 1))
    notes = ["each step is by itself: the moves of two of them may not fit together"]
    return Table(columns, rows, tuple(notes * (len(rows) > 1)))


def _step(n: int, one: AuditStep) -> tuple[Cell, ...]:
    lost = one.lost_gpu_seconds
    words = [*_said(one.starts, "starts", "start"), *_said(one.faster, "is faster", "are faster")]
    words += _said(one.waits, "waits", "wait")
    goes = [f"{gang.gang}: {compress(gang.leaves)} to {compress(gang.comes)}" for gang in one.moves]
    return row_of(
        str(n),
        Cell(_signed(one.regains), "good"),
        number(one.restarts),
        number(one.gpus),
        "unknown" if lost is None else f"{lost / HOUR_S:,.1f} GPU-h",
        "yes" if one.allowed else "no",
        f"{'; '.join(words)} by restarting {first_of(goes, 2 * MAX_NAMES)}",
    )


def _said(gangs: Sequence[str], one: str, several: str) -> list[str]:
    if not gangs:
        return []
    return [f"{first_of(gangs, MAX_NAMES)} {one if len(gangs) == 1 else several}"]


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
        total = sum(one.gpus for one in group)
        names = first_of(named, len(group) if wide else MAX_NAMES)
        which = Cell(said, _STYLES.get(starts_if))
        rows.append(row_of(which, number(len(group)), number(total), names))
    return Table(columns_of("STARTS|>GANGS|>GPUS|WHICH~"), tuple(rows))


def _stranded(audit: Audit) -> Table:
    rows = tuple(
        row_of(one.cause, gpu_amount(one.gpus), number(one.nodes), one.detail)
        for one in audit.stranded
    )
    note = "stranded: free GPUs that the next request of the policy's mix cannot use, averaged over its sizes"
    return Table(columns_of("STRANDED|>GPUS|>NODES|WHY~"), rows, (note,))
