"""Run the benchmark cases, each in a process of its own, and print what came out.

Promises: prints tables, writes one JSON file if asked; exit code 1 if a figure misses expected.yaml.
Called as ``python -m benchmarks [CASE ...]`` (`make bench`).
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report import into_readme, lines, missed_lines, table
from benchmarks.startup import startup_seconds

EXPECTED = Path(__file__).with_name("expected.yaml")
README = Path(__file__).with_name("README.md")
DEFAULT_CASES = (
    "small", "small-tight", "small-odd", "large", "mesh-pod", "mesh-node", "mesh-free",
    "priorities-3", "priorities-300", "nvl72", "planted", "running", "running-small",
    "no-room-small-racks", "no-room-blocked", "no-room-peers", "no-room-pieces", "no-room-nvlink",
    "no-room-cornered", "no-room-tangled", "bindings",
)  # fmt: skip
TIMEOUT_S = 900


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the planner on seeded instances")
    parser.add_argument("cases", nargs="*", help=f"default: {' '.join(DEFAULT_CASES)}")
    parser.add_argument("--budget", type=int, help="deterministic effort instead of the policy's")
    parser.add_argument("--time-limit", type=int, help="seconds instead of the policy's")
    parser.add_argument("--no-startup", action="store_true", help="leave the start-up times out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--readme", action="store_true", help="write the table of README.md anew")
    options = parser.parse_args()

    limits = [
        *(("--budget", str(options.budget)) if options.budget is not None else ()),
        *(("--time-limit", str(options.time_limit)) if options.time_limit is not None else ()),
    ]
    expected = yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))
    figures: dict[str, dict[str, Any]] = {}
    for case in options.cases or DEFAULT_CASES:
        figures[case] = _case(case, limits)
        print("\n".join(lines(figures[case])), end="\n\n", flush=True)
    startup = {} if options.no_startup else startup_seconds()
    for name, seconds in startup.items():
        print(f"gangplan {name}: {seconds:.3f} s")
    missed = list(misses(figures, startup, expected))
    print("\n".join(f"missed: {text}" for text in missed) or "every figure is within expected.yaml")
    if options.json:
        document = {"machine": _machine(), "cases": figures, "startup_s": startup, "missed": missed}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.readme:
        rows = [_machine_line(), "", *table(figures, startup), "", *missed_lines(missed)]
        into_readme(README, rows)
    sys.exit(1 if missed else 0)


def _case(case: str, limits: list[str]) -> dict[str, Any]:
    """Figures of a case, or its failure."""
    command = (sys.executable, "-m", "benchmarks.measure", case, *limits)
    if case == "bindings":
        command = (sys.executable, "-m", "benchmarks.bindings")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"case": case, "failed": f"not done after {TIMEOUT_S} s"}
    if done.returncode:
        return {"case": case, "failed": (done.stderr.strip() or "no message").splitlines()[-1]}
    *stray, last = done.stdout.splitlines()
    figures: dict[str, Any] = json.loads(last)
    # An engine that prints would spoil `gangplan plan -o json` as well.
    figures["stray_lines"] = len(stray)
    return figures


def misses(
    figures: dict[str, dict[str, Any]], startup: dict[str, float], expected: dict[str, Any]
) -> Iterator[str]:
    """Every figure that is worse than expected.yaml allows."""
    for case, found in figures.items():
        if "failed" in found:
            yield f"{case}: failed"
            continue
        if "ratio" in found:
            yield from _misses_of_bindings(found, expected["bindings"])
            continue
        yield from _misses_of_case(case, found, expected["cases"].get(case, {}))
    for ratio in expected["ratios"]:
        above, below = (figures.get(ratio[key], {}).get("solve_s") for key in ("of", "to"))
        if above and below and above > ratio["at_most"] * below:
            yield f"{ratio['of']}: {above / below:.1f} x the time of {ratio['to']}"
    for name, limit in expected["startup_seconds"].items():
        if startup.get(name, 0) > limit:
            yield f"gangplan {name}: {startup[name]} s, limit {limit} s"


def _misses_of_bindings(found: dict[str, Any], limits: dict[str, float]) -> Iterator[str]:
    names = {
        "ratio_wire": "bindings",
        "ratio": "the whole apply",
        "ratio_gate": "apply of gated pods",
    }
    for key, name in names.items():
        limit = limits.get(key)
        if limit is not None and found.get(key, 0) > limit:
            yield f"{name}: {found[key]} x the time of one List, limit {limit}"
    limit = limits.get("cpu_ms_a_request")
    if limit is not None and found.get("cpu_ms_a_request", 0) > limit:
        yield f"bindings: {found['cpu_ms_a_request']} ms of CPU a request, limit {limit} ms"


def _misses_of_case(case: str, found: dict[str, Any], limits: dict[str, Any]) -> Iterator[str]:
    if found["violations"]:
        yield f"{case}: {len(found['violations'])} violations, first: {found['violations'][0]}"
    if found.get("stray_lines"):
        yield f"{case}: {found['stray_lines']} lines on stdout that are not ours"
    for name, started in limits.get("starts", {}).items():
        if (name in found["starts"]) != started:
            yield f"{case}: {name} {'waits' if started else 'starts'}"
    for figure, key in (("solve_s", "seconds"), ("peak_mib", "peak_mib")):
        if key in limits and found[figure] > limits[key]:
            yield f"{case}: {figure} {found[figure]}, limit {limits[key]}"
    for tier in found["tiers"]:
        family = tier["name"].split("/")[0]
        gap = limits.get("gaps", {}).get(family)
        if gap is not None and tier["gap"] > gap:
            yield f"{case}: gap of {tier['name']} {tier['gap']:.2%}, limit {gap:.0%}"
        in_time = limits.get("tier_seconds", {})
        seconds = in_time.get(tier["name"], in_time.get(family))
        if seconds is not None and (tier["s"] or 0) > seconds:
            yield f"{case}: {tier['name']} took {tier['s']} s, limit {seconds} s"


def _machine_line() -> str:
    """The machine in one sentence, for the README."""
    facts = _machine()
    return (
        f"{facts['cores']} cores ({facts['machine']}), Python {facts['python']}, OR-Tools"
        f" {facts['ortools']}, {datetime.now(UTC):%Y-%m-%d}. Gaps are the largest of the tier family."
    )


def _machine() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "cores": cpu_count(),
        "python": platform.python_version(),
        "ortools": version("ortools"),
    }


if __name__ == "__main__":
    main()
