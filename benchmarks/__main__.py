"""``python -m benchmarks [CASE ...]``: measure cases, compare them with cases.yaml, write table and page.

Figures of a case are on disk as soon as they are known, and measured again if the program changed, or with
``--fresh``. Exit code 1 if a figure misses its limit, or a rule of another scheduler has a better plan.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from benchmarks.cases import CASES, HERE, Case
from benchmarks.measure import OURS
from planner.show.report.page import Page, Part, Section, html
from planner.show.table import Cell, Column, Table

README, FIGURES, PAGE = HERE / "README.md", HERE / "figures", HERE / "report.html"
BEGIN, END = "<!-- figures: written by python -m benchmarks -->", "<!-- end of figures -->"
TIMEOUT_S = 1800
COLUMNS = (
    "case",
    "instance",
    "s",
    "first plan, s",
    "MiB",
    "largest gap",
    "effective GPUs",
    "best rule",
)

Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the planner on the cases of cases.yaml")
    parser.add_argument("cases", nargs="*", help=f"of {' '.join(CASES)}")
    parser.add_argument("--fresh", action="store_true", help="measure again what is on disk")
    options = parser.parse_args()
    commit = _git("rev-parse", "--short=8", "HEAD") + "+" * bool(_git("status", "--porcelain"))
    measured = {}
    usual = [name for name, case in CASES.items() if not case.get("byName")]
    for name in options.cases or usual:
        measured[name] = found = _figures(name, commit, fresh=options.fresh)
        print("  ".join(row(name, found)), flush=True)
    missed = [text for name, found in measured.items() for text in misses(found, CASES[name])]
    said = (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()},"
        f" commit {commit}, {datetime.now(UTC):%Y-%m-%d}."
    )
    lines = [f"{len(missed)} figures miss their limits:" if missed else "Nothing misses its limit."]
    lines += [f"- {text}" for text in missed]
    print("\n".join(lines))
    PAGE.write_text(page(measured, said, lines), encoding="utf-8")
    if not options.cases:
        README.write_text(into(README.read_text(encoding="utf-8"), measured, said, lines))
    sys.exit(bool(missed))


def _figures(name: str, commit: str, *, fresh: bool) -> Figures:
    """Figures of a case: those on disk if nothing changed since, else measured now."""
    path = FIGURES / f"{name}.json"
    if path.exists() and not fresh and not commit.endswith("+"):
        kept: Figures = json.loads(path.read_text(encoding="utf-8"))
        if kept["commit"] == commit:
            return kept
    command = (sys.executable, "-m", "benchmarks.measure", name)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        return {"case": name, "failed": (done.stderr.strip() or "no message").splitlines()[-1]}
    # An engine that prints would spoil `gangplan plan -o json` as well: one line alone is JSON.
    found: Figures = json.loads(done.stdout) | {"commit": commit}
    FIGURES.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def _git(*words: str) -> str:
    """What git says; empty outside a repository."""
    done = subprocess.run(("git", *words), cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def best_rule(found: Figures) -> str:
    """The rule with the best plan, tier by tier; "" where each breaks what it does not know of."""
    plans = found["plans"]
    rules = [name for name in plans if name != OURS and not plans[name]["violations"]]
    return max(rules, key=lambda name: plans[name]["vector"], default="")


def misses(found: Figures, limits: Case) -> Iterator[str]:
    """What is worse than cases.yaml allows, of one case."""
    case = found["case"]
    if "failed" in found:
        yield f"{case}: failed: {found['failed']}"
        return
    ours, rule = found["plans"][OURS], best_rule(found)
    yield from (f"{case}: {violation}" for violation in ours["violations"])
    if rule and found["plans"][rule]["vector"] > ours["vector"]:
        yield f"{case}: {rule} has a better plan"
    for gang, started in limits.get("starts", {}).items():
        if (gang in found["starts"]) != started:
            yield f"{case}: {gang} {'waits' if started else 'starts'}"
    for figure in (name for name in ("seconds", "first", "mib") if name in limits):
        if found[figure] is None or found[figure] > limits[figure]:
            yield f"{case}: {figure} {found[figure]}, limit {limits[figure]}"
    gaps = {name: found["gaps"].get(name, 0.0) for name in limits.get("gaps", {})}
    for family in (name for name, gap in gaps.items() if gap > limits["gaps"][name]):
        yield f"{case}: gap of {family} {gaps[family]:.2%}, limit {limits['gaps'][family]:.1%}"


def row(name: str, found: Figures) -> list[str]:
    """The cells of a case, as of COLUMNS."""
    if "failed" in found:
        return [name, f"failed: {found['failed']}", *[""] * (len(COLUMNS) - 2)]
    family = max(found["gaps"], key=lambda one: found["gaps"][one])
    gap, rule = found["gaps"][family], best_rule(found)
    return [
        name,
        found["instance"],
        f"{found['seconds']:.1f}",
        "-" if found["first"] is None else f"{found['first']:.2f}",
        f"{found['mib']:,}",
        f"{'> 1000 %' if gap > 10 else f'{gap:.2%}'} of {family}" if gap else "0: proven",
        f"{found['plans'][OURS]['effective']:,}",
        f"{rule}: {found['plans'][rule]['effective']:,}" if rule else "-",
    ]


def page(measured: Mapping[str, Figures], said: str, lines: list[str]) -> str:
    """The page of the figures, of the same kind as ``gangplan report`` writes."""
    numbers = range(2, 6)
    columns = tuple(Column(name, right=at in numbers) for at, name in enumerate(COLUMNS))
    rows = tuple(tuple(map(Cell, row(*one))) for one in measured.items())
    return html(
        Page(
            title="Benchmarks",
            subject=f"{len(measured)} cases",
            made=said,
            headline=lines,
            figures=(),
            sections=[Section("cases", "Cases", (), [Part(Table(columns, rows))])],
        )
    )


def into(text: str, measured: Mapping[str, Figures], said: str, lines: list[str]) -> str:
    """The README with the figures between its markers. Raises ValueError if it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no figures between {BEGIN} and {END}")
    table = [COLUMNS, ["---"] * len(COLUMNS), *(row(*one) for one in measured.items())]
    rows = [f"| {' | '.join(cells)} |" for cells in table]
    return "\n".join((before + BEGIN, said, "", *rows, "", *lines, END + after))


if __name__ == "__main__":
    main()
