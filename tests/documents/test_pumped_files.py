"""Files of megabytes that repeat one thing: one error or a result, in bounded memory and processor time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from effort import HANG_S, first_fast

ROOT = Path(__file__).resolve().parents[2]
MILLION = 1_000_000

TEXTS = {
    # a tool's output, for `topo`
    "comments.txt": "# of a file from Windows\r\n" * 100_000 + "x",
    "blank-lines.txt": "\n" * 5 * MILLION + "x",
    "blanks.txt": (" " * 16_000 + "\n") * 300 + "x",
    "titles.txt": ("GPU0" + " CPU Affinity" * 1_250 + " x\n") * 300,
    "headings.txt": ("=" * 8_000 + " Weight" + " a" * 4_000 + "\n") * 300,
    "gpus.txt": "GPU0 " * MILLION,
    "digits.txt": "GPU1" + "1" * 5 * MILLION,
    "escapes.txt": "\x1b[" * 2 * MILLION,
    "servers.txt": "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n" * 50_000,
    # topology.conf, for `validate`
    "ranges.conf": "SwitchName=s Nodes=" + "a[1-999999999999999999]" * 40_000,
    "brackets.conf": "SwitchName=s Nodes=" + "[" * 900_000,
    "unknown.conf": "".join(f"SwitchName=s{n} Nodes=n{n}\n" for n in range(30_000))
    + "".join(f"SwitchName=t{n} Switches=u{n}\n" for n in range(3_000)),
    "tower.conf": "".join(f"SwitchName=s{n} Switches=s{n + 1}\n" for n in range(30_000)),
    "quotes.conf": 'SwitchName=s Nodes="' * 40_000,
    "continued.conf": "#" * MILLION + "\n" + "\\\n" * MILLION,
}

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
sys.argv[0] = "gangplan"
from planner.cli.app import main
main()
"""


@pytest.mark.parametrize(
    "name", first_fast(sorted(TEXTS, key=lambda name: (len(TEXTS[name]), name)), 4)
)
def test_a_pumped_file_ends_in_one_error_or_a_result(tmp_path: Path, name: str) -> None:
    verb = "topo" if name.endswith(".txt") else "validate"
    path = tmp_path / ("topology.conf" if name.endswith(".conf") else name)
    path.write_bytes(TEXTS[name].encode())
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, verb, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 65, done.stderr[-2000:]
    assert done.stderr.startswith("error: ")
    printed = done.stdout + done.stderr
    assert "Traceback" not in printed
    assert all(line.isprintable() for line in printed.splitlines())
