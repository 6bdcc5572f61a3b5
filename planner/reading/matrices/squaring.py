"""A table to the cells of its GPU rows, or the reason why it is no square matrix.

Promises: the first fault alone, with the place of its row or cell. Called by ``nvidia`` and ``rocm``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

from models.quantities import shown
from planner.errors import Fault, InputError
from planner.reading.matrices.tables import Row, Table, Token, gpu_number
from planner.reading.matrices.topology import MOST_GPUS, MOST_NICS, runs

Cells = dict[str, dict[str, Token]]
"""Cells by label of row, then of column."""

_WHOLE = "save all that the command prints, without cutting or wrapping its lines"
_AFFINITY = re.compile(r"[0-9][0-9,-]*|N/A")


def ordered_gpus(table: Table, file: str) -> tuple[str, ...]:
    """Labels of the GPUs by number. Raises InputError for too many, and for one that is there twice."""
    place = (file, table.line, table.column)
    twice = [label for label, count in Counter(table.labels).items() if count > 1]
    if twice:
        raise InputError(Fault(f"{twice[0]} heads two columns", _WHOLE, *place))
    if len(table.gpus) > MOST_GPUS:
        what = f"{len(table.gpus)} GPUs in one server, more than {MOST_GPUS}"
        raise InputError(Fault(what, "one matrix shows one server", *place))
    if len(table.others) > MOST_NICS:
        what = f"{len(table.others)} NICs in one server, more than {MOST_NICS}"
        raise InputError(Fault(what, "one matrix shows one server", *place))
    return tuple(sorted(table.gpus, key=lambda label: (gpu_number(label), label)))


def square(
    table: Table, gpus: Sequence[str], file: str, known: Callable[[str], bool], hint: str
) -> Cells:
    """Cells of every row there is; those of the GPUs are whole and known.

    ``known``: whether the tool prints such a cell; ``hint``: what it prints. Raises InputError for
    GPU rows that are missing, cut or doubled, and for a cell in them that is not known.
    """
    _check_rows(table, gpus, file)
    for label in gpus:
        _check_row(table, table.rows[label], file, known, hint)
    return {
        label: dict(zip(table.labels, row.cells, strict=False)) for label, row in table.rows.items()
    }


def _check_rows(table: Table, gpus: Sequence[str], file: str) -> None:
    missing = tuple(gpu_number(label) for label in gpus if label not in table.rows)
    if missing:
        names = ", ".join(f"GPU{part.replace('-', ' to GPU')}" for part in runs(missing).split(","))
        rows = f"the rows of {names} are" if len(missing) > 1 else f"the row of {names} is"
        what = f"the matrix is cut off: {rows} missing"
        raise InputError(Fault(what, _WHOLE, file, table.line, table.column))
    for row in table.repeated:
        first = table.rows[row.label.text]
        if [cell.text for cell in first.cells] != [cell.text for cell in row.cells]:
            what = f"two rows of {row.label.text} that differ, in lines {first.line} and {row.line}"
            hint = "each matrix needs its own line of labels, GPU0 GPU1 ..."
            raise InputError(Fault(what, hint, file, row.line, row.label.column))


def _check_row(table: Table, row: Row, file: str, known: Callable[[str], bool], hint: str) -> None:
    width = len(table.labels)
    good = next((i for i, cell in enumerate(row.cells) if not known(cell.text)), len(row.cells))
    if good < len(row.cells) and not _AFFINITY.fullmatch(row.cells[good].text):
        cell = row.cells[good]
        what = f"{shown(cell.text)} between {row.label.text} and {table.labels[good]} is no path"
        raise InputError(Fault(what, hint, file, row.line, cell.column))
    if good < width:
        what = f"the row of {row.label.text} is cut off: {good} of {width} cells"
        raise InputError(Fault(what, _WHOLE, file, row.line, row.label.column))
    if row.rest and known(row.rest[0].text):
        what = f"the row of {row.label.text} has more cells than there are columns, {width}"
        raise InputError(Fault(what, _WHOLE, file, row.line, row.rest[0].column))


def check_symmetric(
    cells: Cells, table: Table, file: str, meaning: Callable[[str], str] = str
) -> None:
    """Raises InputError with the cells that differ from their mirror image.

    ``meaning``: the name of a path, of which a tool may print several forms.
    """
    differing = [
        (a, b)
        for a, b in combinations(table.labels, 2)
        if (there := cells.get(a, {}).get(b)) is not None
        and (back := cells.get(b, {}).get(a)) is not None
        and meaning(there.text) != meaning(back.text)
    ]
    if not differing:
        return
    a, b = differing[0]
    more = f"; {len(differing) - 1} more pairs differ" if len(differing) > 1 else ""
    what = (
        f"the matrix is not symmetric: {a} to {b} is {shown(cells[a][b].text)},"
        f" {b} to {a} is {shown(cells[b][a].text)}{more}"
    )
    hint = "a path has one name in both directions: save the output again"
    raise InputError(Fault(what, hint, file, table.rows[a].line, cells[a][b].column))
