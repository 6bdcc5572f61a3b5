"""What ``doctor`` found, as a table or as JSON.

Promises: pure; words from the cluster are made harmless. Called by ``planner.cli.doctor``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from planner.cli.doctor_checks import Finding, Level, exit_code
from planner.show.table import Cell, Column, Table
from planner.show.text import plural
from planner.untrusted_text import json_safe

_STYLES = {Level.ok: "good", Level.warn: "warn", Level.fail: "bad"}
_COLUMNS = (
    Column("CHECK"),
    Column("IS"),
    Column("FOUND", fold=True),
    Column("WHAT TO DO", fold=True),
)


def table(findings: Sequence[Finding]) -> Table:
    """One row a finding, in the order they were made."""
    rows = tuple(
        (
            Cell(one.check),
            Cell(one.level.value, _STYLES[one.level]),
            Cell(one.found),
            Cell(one.hint or ""),
        )
        for one in findings
    )
    return Table(_COLUMNS, rows).without_empty_columns()


def as_json(findings: Sequence[Finding]) -> str:
    """``{"checks": [{"check", "is", "found", "hint"}], "exitCode"}``."""
    checks = [
        {"check": one.check, "is": one.level.value, "found": one.found, "hint": one.hint}
        for one in findings
    ]
    tree = {"checks": checks, "exitCode": exit_code(findings)}
    return json_safe(json.dumps(tree, indent=2, ensure_ascii=False)) + "\n"


def counted(findings: Sequence[Finding]) -> str:
    """``14 checks: 12 ok, 1 warning, 1 failed``."""
    counts = Counter(one.level for one in findings)
    parts = [f"{counts[Level.ok]:,} ok"]
    if counts[Level.warn]:
        parts.append(plural(counts[Level.warn], "warning"))
    if counts[Level.fail]:
        parts.append(f"{counts[Level.fail]:,} failed")
    return f"{plural(len(findings), 'check')}: {', '.join(parts)}"
