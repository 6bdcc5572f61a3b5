"""The output of ``diff``: the changed fields of live objects as a table, as data, as names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from planner.cluster.plan_diff import Difference, Value
from planner.show.table import Cell, Column, Table

_LONGEST = 160
"""Most characters of a value in the table."""


def difference_table(found: Sequence[Difference]) -> Table:
    """One row per object, with a row per field below it."""
    rows = []
    last = None
    for one in found:
        if one.object != last:
            rows.append((Cell(one.object, "head"), Cell("")))
        rows.append((Cell(f"  {one.field}"), _change(one)))
        last = one.object
    return Table((Column("OBJECT, FIELD"), Column("CHANGE", fold=True)), tuple(rows))


def _change(one: Difference) -> Cell:
    """``+ new``, ``- old`` or ``old -> new``."""
    if one.before is None:
        return Cell(f"+ {shown(one.after)}", "good")
    if one.after is None or one.after == []:
        return Cell(f"- {shown(one.before)}", "bad")
    return Cell(f"{shown(one.before)} -> {shown(one.after)}", "warn")


def shown(value: Value) -> str:
    """Text as it is, lists with commas, other values as JSON; ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, list):
        text = ", ".join(value)
    else:
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
