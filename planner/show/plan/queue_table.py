"""The queues of a plan: what each is promised, may hold and holds before and after the plan."""

from __future__ import annotations

from collections.abc import Iterator

from models.documents.plan import PlanDocument, PlanQueue
from models.units import plural
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import compress, number

MAX_QUEUES = 20
"""Rows, unless every queue was asked for."""


def queues(plan: PlanDocument, *, wide: bool, every: bool) -> Table:
    """A row for each queue, and when ``wide`` for each GPU model that it names; empty without queues.

    Unless ``every`` one is shown, those that promise, limit, hold and want nothing are left out.
    """
    found = list(plan.status.queues)
    shown = found
    if not every:
        of_note = ("guarantee", "models", "cells", "before", "after", "waiting")
        said = [q for q in found if q.limit is not None or any(getattr(q, f) for f in of_note)]
        shown = said[:MAX_QUEUES]
    columns = columns_of(
        "QUEUE~|GPU MODEL?|UNDER?|>GUARANTEE|>LIMIT|>BEFORE|>AFTER|>BORROWED?|>WAITING|CELLS~?"
    )
    rows = [row for queue in shown for row in _rows(queue, wide=wide)]
    left_out = [queue.name for queue in found if queue not in shown]
    more = plural(len(left_out), "more queue") + (f" ({left_out[0]})" if len(left_out) == 1 else "")
    notes = (f"{more}; --all shows every queue",) if left_out else ()
    return Table(columns, tuple(rows), notes if rows else ()).without_empty_columns()


def _rows(queue: PlanQueue, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    yield row_of(
        queue.name,
        "",
        queue.parent or "",
        *map(number, (queue.guarantee, queue.limit, queue.before, queue.after)),
        number(queue.borrowed) if queue.borrowed else "",
        Cell(number(queue.waiting), "warn" if queue.waiting else None),
        cells_text(queue),
    )
    for one in queue.models if wide else ():
        amounts = map(number, (one.guarantee, one.limit, one.before, one.after))
        yield row_of("", one.model, "", *amounts, "", "", "")


def cells_text(queue: PlanQueue) -> str:
    """``1 rack, 8 x 1 GPU of v100, rack b1/r2``: the last is pinned."""
    found = []
    for cell in queue.cells:
        if cell.nodes or cell.domain is not None:
            level = "node" if cell.level is None else cell.level
            found.append(f"{level} {compress(cell.nodes) or cell.domain}")
            continue
        size = cell.level if cell.level is not None else f"x {plural(cell.gpus or 0, 'GPU')}"
        found.append(f"{cell.count:,} {size}" + (f" of {cell.model}" if cell.model else ""))
    return ", ".join(found)
