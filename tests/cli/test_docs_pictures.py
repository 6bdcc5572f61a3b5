"""What pages show of a command is what it prints: lines in this order, perhaps with others before them.

A line ``...`` stands for any lines, and at the end of a line for its rest. Live sessions are not replayed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from conftest import RunCli
from effort import first_fast
from pages import ROOT, text

LIVE = {"apply", "cron", "plan"}
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
RUNS = {
    path.stem: runs
    for path in PAGES
    if path.stem not in LIVE
    and (
        runs := [
            run
            for block in re.findall(r"^```\n(\$ .*?)^```$", text(path), re.MULTILINE | re.DOTALL)
            for run in re.split(r"^\$ ", block, flags=re.MULTILINE)
            if run
        ]
    )
}


def missing(shown: list[str], printed: list[str]) -> str | None:
    """The first line that is not printed where it is shown."""
    lines, skipping = iter(printed), True
    for line in shown:
        if line == "...":
            skipping = True
            continue
        start = line.removesuffix("...")
        same = (other == line or (start != line and other.startswith(start)) for other in lines)
        if not (any(same) if skipping else next(same, False)):
            return line
        skipping = False
    return None


QUICK = ("README", "queues", "preemption", "topo")


@pytest.mark.parametrize("page", first_fast(sorted(RUNS, key=lambda page: page not in QUICK), 4))
def test_a_page_shows_what_its_commands_print(
    page: str, cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for link in ("inputs", "tests"):
        (tmp_path / link).symlink_to(ROOT / link)
    monkeypatch.chdir(tmp_path)
    for run in RUNS[page]:
        command, *shown = run.splitlines()
        patient = ("--time-limit", "1m") if " explain " in command else ()
        result = cli(*shlex.split(command)[1:], *patient)
        assert result.code == 0, (command, result.err)
        printed = [*result.out.splitlines(), *result.err.splitlines()]
        assert missing(shown, printed) is None, (command, printed)
        if page in ("README", "kubernetes"):
            assert "\n".join(shown).startswith(result.out.rstrip("\n"))


def test_pages_with_pictures_are_found() -> None:
    assert len(RUNS) >= 15
    assert sum(map(len, RUNS.values())) >= 36


def test_the_yaml_and_the_map_that_pages_show_are_printed(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (written,) = re.findall(
        r"^```yaml\n(.*?)^```$", text(ROOT / "docs/topo.md"), re.MULTILINE | re.DOTALL
    )
    sample = ROOT / "tests/data/nvidia-smi/07b-a100x4-direct-2nic-numa2-6.txt"
    assert cli("topo", str(sample), "-o", "yaml").out == written
    monkeypatch.chdir(tmp_path)
    assert cli("plan", str(ROOT / "inputs/quickstart"), "--out", "plan.json").code == 0
    assert cli("show", "plan.json", "--map").out in text(ROOT / "docs/report.md")
