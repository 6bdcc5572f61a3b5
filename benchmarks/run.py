"""Run the benchmark cases, each in a process of its own, and report what came out.

Promises: figures of a case are on disk as soon as they are known, and measured again only if the program, the
machine or the limits changed; exit code 1 if a figure misses expected.yaml or a baseline has a better plan.
Called as ``python -m benchmarks [CASE ...]`` (`make bench`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from benchmarks.page import page
from benchmarks.report import into_readme, lines, machine_line, markdown
from benchmarks.startup import startup_seconds
from benchmarks.verdict import misses

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.yaml"
README = HERE / "README.md"
FIGURES = HERE / "figures"
PAGE = HERE / "report.html"
DEFAULT_CASES = (
    "small", "small-tight", "small-odd", "large", "mesh-pod", "mesh-node", "mesh-free",
    "priorities-3", "priorities-300", "nvl72", "planted", "traps-64", "traps-512", "running", "running-small",
    "recorded-v100-mpi", "recorded-h100-gke", "recorded-nvl72", "recorded-lingjun", "fleet-64", "fleet-512",
    "busy-64", "busy-128", "busy-256", "busy-512", "busy-1024", "busy-2048", "busy-4096", "busy-12500",
    "no-room-small-racks", "no-room-blocked", "no-room-peers", "no-room-pieces", "no-room-nvlink",
    "no-room-cornered", "no-room-tangled",
)  # fmt: skip
TIMEOUT_S = 1800

Figures = dict[str, Any]


def main() -> None:
    options = _options()
    expected = yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))
    stamp = _stamp()
    figures: dict[str, Figures] = {}
    for case in options.cases or DEFAULT_CASES:
        limits = _limits(options, expected["cases"].get(case, {}))
        figures[case] = _figures(case, limits, stamp, fresh=options.fresh)
        print("\n".join(lines(figures[case])), end="\n\n", flush=True)
    startup = {} if options.no_startup else startup_seconds()
    missed = list(misses(figures, startup, expected))
    report = [machine_line(stamp), "", *markdown(figures, startup, missed)]
    print("\n".join(report))
    PAGE.write_text(page(figures, startup, missed, machine_line(stamp)), encoding="utf-8")
    print(f"\nplots: {PAGE}", file=sys.stderr)
    if options.json:
        document = {"machine": stamp, "cases": figures, "startup_s": startup, "missed": missed}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.readme:
        into_readme(README, report)
    sys.exit(1 if missed else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the planner on seeded instances")
    parser.add_argument("cases", nargs="*", help=f"default: {' '.join(DEFAULT_CASES)}")
    parser.add_argument("--budget", type=int, help="deterministic effort instead of the policy's")
    parser.add_argument("--time-limit", type=int, help="seconds instead of those of expected.yaml")
    parser.add_argument("--fresh", action="store_true", help="measure again what is on disk")
    parser.add_argument("--no-baselines", action="store_true", help="leave the comparison out")
    parser.add_argument("--no-startup", action="store_true", help="leave the start-up times out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--readme", action="store_true", help="write the table of README.md anew")
    return parser.parse_args()


def _limits(options: argparse.Namespace, expected: dict[str, Any]) -> list[str]:
    """Options of ``benchmarks.measure``."""
    seconds = options.time_limit or expected.get("time_limit")
    return [
        *(("--budget", str(options.budget)) if options.budget is not None else ()),
        *(("--time-limit", str(seconds)) if seconds is not None else ()),
        *(("--no-baselines",) if options.no_baselines else ()),
    ]


def _figures(case: str, limits: list[str], stamp: dict[str, Any], *, fresh: bool) -> Figures:
    """Figures of a case: those on disk if nothing changed since, else measured now."""
    key = {name: value for name, value in stamp.items() if name != "date"} | {"limits": limits}
    path = FIGURES / f"{case}.json"
    if path.exists() and not fresh:
        kept: Figures = json.loads(path.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return kept
    found = _measured(case, limits) | {"key": key, "date": stamp["date"]}
    if "failed" not in found:
        FIGURES.mkdir(exist_ok=True)
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        aside.replace(path)
    return found


def _measured(case: str, limits: list[str]) -> Figures:
    """Figures of a case from a process of its own, or its failure."""
    command = (sys.executable, "-m", "benchmarks.measure", case, *limits)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"case": case, "failed": f"not done after {TIMEOUT_S} s"}
    if done.returncode:
        return {"case": case, "failed": (done.stderr.strip() or "no message").splitlines()[-1]}
    *stray, last = done.stdout.splitlines()
    figures: Figures = json.loads(last)
    # An engine that prints would spoil `gangplan plan -o json` as well.
    figures["stray_lines"] = len(stray)
    return figures


def _stamp() -> dict[str, Any]:
    """The machine, the versions and the program that is measured, changes since its commit included."""
    changes = _git("diff", "HEAD", "--", "models", "planner", "benchmarks/*.py", "inputs")
    dirty = "+" + hashlib.sha256(changes.encode()).hexdigest()[:8] if changes else ""
    return {
        "machine": f"{platform.node()} ({platform.machine()})",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "ortools": version("ortools"),
        "numpy": version("numpy"),
        "commit": (_git("rev-parse", "--short=12", "HEAD") or "unknown") + dirty,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def _git(*words: str) -> str:
    """What git says; empty outside a repository."""
    done = subprocess.run(
        ("git", *words), cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
