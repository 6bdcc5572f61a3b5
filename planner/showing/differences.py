"""A plan against the live cluster, field by field: as a table, as data, as names.

Promises: pure; values are shown on one line and made harmless. Called by ``planner.verbs.diff``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from planner.cluster.differing import Difference, Value
from planner.showing.table import Cell, Column, Table

_LONGEST = 160
"""Characters of a value in the table; the data have it whole."""


def difference_table(found: Sequence[Difference]) -> Table:
    """One row a field; an object is named once."""
    rows = []
    last = None
    for one in found:
        rows.append(
            (
                Cell("" if one.object == last else one.object),
                Cell(one.field),
                Cell(shown(one.before), "dim" if one.before is None else "bad"),
                Cell(shown(one.after), "dim" if one.after is None else "good"),
            )
        )
        last = one.object
    columns = (
        Column("OBJECT"),
        Column("FIELD", fold=True),
        Column("BEFORE", fold=True),
        Column("AFTER", fold=True),
    )
    return Table(columns, tuple(rows))


def shown(value: Value) -> str:
    """Text bare, everything else as JSON; ``-`` for nothing."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def as_data(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """``[{object, field, before, after}]``."""
    return [
        {"object": one.object, "field": one.field, "before": one.before, "after": one.after}
        for one in found
    ]


def objects_of(found: Sequence[Difference]) -> list[str]:
    """Every object that differs, once."""
    return list(dict.fromkeys(one.object for one in found))
