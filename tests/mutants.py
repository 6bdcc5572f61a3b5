"""Plants the faults of ``faults.yaml`` one at a time and runs the net that must catch each: ``make mutants``.

Prints the faults that no test caught, and exits 1 if there are any. ``python tests/mutants.py 3 17`` plants
the third and the seventeenth alone; ``--net tests/verify`` runs these tests instead of the net of each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import yaml

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "build")
WORKERS = 2
LIMIT_S = 900
CAUGHT, MISSED = 1, 0
"""Exit codes of pytest: some tests failed; all passed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """In ``file``, ``old``, which stands there once, becomes ``new``; the tests of ``net`` must fail."""

    why: str
    file: str
    old: str
    new: str
    net: str


def faults() -> list[Fault]:
    written = (ROOT / "tests" / "faults.yaml").read_text(encoding="utf-8")
    return [Fault(**one) for one in yaml.load(written, Loader=yaml.CSafeLoader)]


def tested(fault: Fault, net: str, copy: Path) -> int:
    """Exit code of pytest on a copy of the project with the fault; the copy is mended afterwards."""
    path = copy / fault.file
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    options = ("-x", "-q", "-p", "no:cacheprovider")
    try:
        return subprocess.run(
            [sys.executable, "-B", "-m", "pytest", *options, *net.split()],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return CAUGHT
    finally:
        path.write_text(sound, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "numbers", nargs="*", type=int, help="faults to plant, from 1; default: all"
    )
    parser.add_argument("--net", help="tests to run instead of the net of each fault")
    arguments = parser.parse_args()
    chosen = dict(enumerate(faults(), start=1))
    if arguments.numbers:
        chosen = {number: chosen[number] for number in arguments.numbers}
    with tempfile.TemporaryDirectory() as folder:
        copies = SimpleQueue[Path]()
        for worker in range(WORKERS):
            copy = Path(folder) / str(worker)
            shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
            copies.put(copy)

        def plant(number: int) -> bool:
            fault, copy = chosen[number], copies.get()
            try:
                code = tested(fault, arguments.net or fault.net, copy)
            finally:
                copies.put(copy)
            said = {CAUGHT: "caught", MISSED: "MISSED"}.get(code, f"ERROR, pytest exits {code}")
            print(f"{number:3} {said}: {fault.file}: {fault.why}", flush=True)  # noqa: T201
            return code == CAUGHT

        with ThreadPoolExecutor(WORKERS) as pool:
            return 0 if all(list(pool.map(plant, chosen))) else 1


if __name__ == "__main__":
    sys.exit(main())
