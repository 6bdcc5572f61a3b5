"""Measure how long commands that need no solver take from start to end.

Promises: the best of several runs, each a process of its own; writes only into a temporary folder.
Called by ``benchmarks.run``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5
INPUT = Path(__file__).parent.parent / "inputs" / "quickstart"
PROGRAM = (sys.executable, "-c", "from planner.cli.app import main; import sys; sys.exit(main())")


def startup_seconds() -> dict[str, float]:
    """Best of RUNS, seconds, of `--help`, `validate`, `show` and `verify` on the quickstart."""
    with tempfile.TemporaryDirectory() as folder:
        plan = str(Path(folder) / "plan.json")
        _run("plan", str(INPUT), "--out", plan)
        commands = {
            "--help": ("--help",),
            "validate": ("validate", str(INPUT)),
            "show": ("show", plan),
            "verify": ("verify", plan),
        }
        return {
            name: min(_timed(*command) for _ in range(RUNS)) for name, command in commands.items()
        }


def _timed(*arguments: str) -> float:
    start = time.monotonic()
    _run(*arguments)
    return round(time.monotonic() - start, 3)


def _run(*arguments: str) -> None:
    subprocess.run((*PROGRAM, *arguments), check=True, capture_output=True, timeout=120)
