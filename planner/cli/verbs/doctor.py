"""``gangplan doctor``: whether this account and cluster are ready for ``apply`` and ``run``.

Changes nothing. The checks are in ``planner.cli.doctor_checks``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from models.units import plural
from planner.cli.options import Connection, namespace_of, verb
from planner.show.console import Console
from planner.show.table import Cell, Style, Table, columns_of, row_of
from planner.show.text import Format

if TYPE_CHECKING:
    from planner.cli.doctor_checks import Finding


@verb
def doctor(
    console: Console,
    *,
    policy: str | None = None,
    namespace: list[str] | None = None,
    allow_evictions: bool = False,
    connection: Connection,
    output: Format = Format.table,
) -> int:
    """Check the API server, rights, clock, lock; show what to do."""
    from planner.cli.doctor_checks import DoctorRequest, Level, examine, exit_code
    from planner.pipelines.apply import ApplyOptions

    request = DoctorRequest(
        connection.target(console),
        ApplyOptions(
            lock_namespace=connection.lock_namespace,
            allow_evictions=allow_evictions,
        ),
        policy=policy,
        namespaces=tuple(dict.fromkeys(map(namespace_of, namespace or []))),
    )
    findings = list(examine(request))
    code = exit_code(findings)
    if output is not Format.table:
        checks = [
            {"check": one.check, "is": one.level.value, "found": one.found, "hint": one.hint}
            for one in findings
        ]
        console.document({"checks": checks, "exitCode": code}, output)
    else:
        console.table(findings_table(findings))
    console.say(summary(findings))
    console.event(
        "summary",
        verb="doctor",
        status="failed" if code else "ok",
        exit_code=code,
        failed=[one.check for one in findings if one.level is Level.fail],
        warned=[one.check for one in findings if one.level is Level.warn],
    )
    return code


_STYLES: Mapping[str, Style] = {"ok": "good", "warn": "warn", "fail": "bad"}


def findings_table(findings: Sequence[Finding]) -> Table:
    """One row per finding, in the order of the checks; below it what to do."""
    rows = tuple(
        row_of(one.check, Cell(one.level.value, _STYLES[one.level.value]), one.found)
        for one in findings
    )
    below = {r: Cell(one.hint) for r, one in enumerate(findings) if one.hint}
    return Table(columns_of("CHECK|STATUS|FOUND~"), rows, below=below)


def summary(findings: Sequence[Finding]) -> str:
    """``14 checks: 12 ok, 1 warning, 1 failed``."""
    counts = Counter(one.level.value for one in findings)
    parts = [f"{counts['ok']:,} ok"]
    parts += [plural(counts["warn"], "warning")] if counts["warn"] else []
    parts += [f"{counts['fail']:,} failed"] if counts["fail"] else []
    return f"{plural(len(findings), 'check')}: {', '.join(parts)}"
