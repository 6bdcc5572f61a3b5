"""The program as a process: terminals, signals, pipes that close, disks that are full."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import handmade
import pytest
from conftest import RunCli
from effort import HANG_S
from interactive import HEARING, MAIN, PATIENT, ROOT, on_terminal, started, wait_for
from plan_documents import sealed

INPUT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: two-servers}
spec:
  nodes:
  - {name: "v100-[1-2]", model: DGX-1 V100}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: four}
spec: {roles: [{name: worker, replicas: 4, gpus: 1}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.yaml").write_text(INPUT, encoding="utf-8")
    (tmp_path / "plan.json").write_text(handmade.plan_text(), encoding="utf-8")
    return tmp_path


def visible(text: str) -> str:
    """What is left on the screen: colours gone, the live line wiped."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text.replace("\r\n", "\n"))
    return re.sub(r"(?m)^.*\r\x1b\[2K", "", text)


def test_a_terminal_sees_a_live_line_that_goes_and_a_table_in_colour(folder: Path) -> None:
    code, seen = on_terminal("plan", "in.yaml", cwd=folder)
    assert code == 0
    assert "\r\x1b[2K  0.0s  reading the input" in seen
    live = r"\r\x1b\[2K +\d+\.\ds  the best plan has 4 effective GPUs; Ctrl-C ends with it; "
    assert re.search(live + r"\d+ s left; searching", seen), seen
    assert "\r\x1b[2K  0.0s  verifying the best plan so far" in seen
    assert "\x1b[32mplace" in seen
    left = visible(seen)
    assert "value" not in left.lower().partition("tier")[0]
    assert left.startswith("cluster")
    assert left.rstrip().splitlines()[-1].startswith("next: gangplan plan in.yaml")
    assert "\x1b" not in left


SIGTERM, SIGINT, SIGHUP = (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)


def slow(case: tuple[signal.Signals, int]) -> object:
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(("number", "code"), [SIGTERM, *map(slow, (SIGINT, SIGHUP))])
def test_a_signal_keeps_the_best_checked_plan(
    number: signal.Signals, code: int, folder: Path, cli: RunCli
) -> None:
    with started("plan", "in.yaml", "--out", "saved.json", before=PATIENT, cwd=folder) as process:
        wait_for(process, "searching")
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == code
    assert "default/four" in out
    assert "  stopping: the search ends, then the best plan so far is verified\n" in err
    assert "interrupted: this is the best plan found so far, verified" in err
    saved = json.loads((folder / "saved.json").read_text(encoding="utf-8"))
    assert saved["status"]["search"]["stoppedBy"] == "signal"
    assert cli("verify", str(folder / "saved.json")).code == 0


DEAF = PATIENT.replace("not self._budget.stop.wait(600)", "not time.sleep(600)")
"""A search that looks neither at the clock nor at signals."""


@pytest.mark.slow
def test_a_search_that_does_not_hear_a_signal_is_left_behind(folder: Path, cli: RunCli) -> None:
    with started("plan", "in.yaml", "--out", "saved.json", before=DEAF, cwd=folder) as process:
        wait_for(process, "searching")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "interrupted: this is the best plan found so far, verified" in err
    assert cli("verify", str(folder / "saved.json")).code == 0


@pytest.mark.slow
def test_a_search_that_does_not_look_at_the_clock_is_left_behind(folder: Path, cli: RunCli) -> None:
    given = ("plan", "in.yaml", "--time-limit", "1s", "--out", "saved.json")
    with started(*given, before=DEAF, cwd=folder) as process:
        out, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert "default/four" in out
    assert cli("verify", str(folder / "saved.json")).code == 0


# The judge says that it is at work and waits for the test to go on.
WEIGHING = """
import sys, time
from pathlib import Path
from models.verify.check import Judge

class Slow(Judge):
    def check(self, document, **how):
        verdict = super().check(document, **how)
        print("weighing", file=sys.stderr, flush=True)
        while not Path("go-on").exists():
            time.sleep(0.01)
        return verdict

import models.verify.check
models.verify.check.Judge = Slow
"""
SAVING = "the best plan so far is being verified and saved; please wait\n"


@pytest.mark.slow
def test_a_second_signal_says_that_the_plan_is_being_saved(folder: Path, cli: RunCli) -> None:
    before = PATIENT + WEIGHING
    with started("plan", "in.yaml", "--out", "saved.json", before=before, cwd=folder) as process:
        wait_for(process, "weighing")  # the first plan, a second after the start
        (folder / "go-on").touch()
        wait_for(process, "first plan verified")
        (folder / "go-on").unlink()
        process.send_signal(signal.SIGINT)
        wait_for(process, "weighing")
        process.send_signal(signal.SIGINT)
        wait_for(process, SAVING)
        process.send_signal(signal.SIGTERM)
        wait_for(process, SAVING)
        assert process.poll() is None
        (folder / "go-on").touch()
        process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert cli("verify", str(folder / "saved.json")).code == 0


@pytest.mark.slow
def test_a_terminal_that_closes_keeps_the_best_checked_plan(folder: Path, cli: RunCli) -> None:
    given = ("plan", "in.yaml", "--out", "saved.json")
    code, _ = on_terminal(*given, before=HEARING + PATIENT, close_at=b"searching\r\n", cwd=folder)
    assert code == 129
    saved = json.loads((folder / "saved.json").read_text(encoding="utf-8"))
    assert saved["status"]["search"]["stoppedBy"] == "signal"
    assert cli("verify", str(folder / "saved.json")).code == 0


@pytest.mark.parametrize(("number", "code"), [SIGINT, *map(slow, (SIGTERM, SIGHUP))])
def test_a_signal_before_the_search_saves_nothing(
    number: signal.Signals, code: int, folder: Path
) -> None:
    slow = "import sys, time\nimport planner.read.inputs\n"
    slow += "def load(*a, **k): print('reading', file=sys.stderr, flush=True); time.sleep(600)\n"
    slow += "planner.read.inputs.load = load\n"
    with started("plan", "in.yaml", "--out", "saved.json", before=slow, cwd=folder) as process:
        wait_for(process, "reading")
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (code, "")
    assert err == "error: interrupted; nothing was saved\n"
    assert not (folder / "saved.json").exists()


def test_ctrl_c_while_modules_load_shows_no_traceback(folder: Path) -> None:
    # Stands for any module that is being imported when the key is pressed.
    loading = "import sys\nclass Loading:\n  def find_spec(self, name, path, target=None):\n"
    loading += "    if name == 'planner.cli.app': signal.raise_signal(signal.SIGINT)\n"
    loading += "sys.meta_path.insert(0, Loading())\n"
    with started("show", "plan.json", before=loading, cwd=folder) as process:
        assert process.communicate(timeout=HANG_S) == ("", "")
    assert process.returncode == 130


def test_a_reader_that_goes_away_ends_it_quietly(folder: Path) -> None:
    plan = handmade.plan()
    gang = plan["spec"]["gangs"][3]
    plan["spec"]["gangs"] += [{**gang, "name": f"g-{i}"} for i in range(3_000)]
    (folder / "plan.json").write_text(json.dumps(sealed(plan)), encoding="utf-8")
    with started("show", "plan.json", cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("cluster")
        process.stdout.close()
        assert process.stderr.read() == "next: gangplan verify plan.json\n"
        assert process.wait(timeout=HANG_S) == 0


def test_a_full_disk_behind_stdout_is_73(folder: Path) -> None:
    with (
        Path("/dev/full").open("w", encoding="utf-8") as full,
        started("show", "plan.json", cwd=folder, stdout=full) as process,
    ):
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 73
    assert err.startswith("error: cannot write to standard output: No space left")


@pytest.mark.slow
@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_a_descriptor_that_the_caller_closed_disturbs_nothing(
    descriptor: int, folder: Path
) -> None:
    again = f"import os, sys\nos.close({descriptor})\nos.execv(sys.executable, "
    command = f"[sys.executable, '-c', {MAIN!r}, 'plan', 'in.yaml', '--out', 'new.json'])\n"
    with started(before=again + command, cwd=folder) as process:
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert out.startswith("cluster" if descriptor != 1 else "")
    assert ("saved new.json" in err) is (descriptor != 2)
    saved = json.loads((folder / "new.json").read_text(encoding="utf-8"))
    assert saved["spec"]["gangs"][0]["decision"] == "place"


@pytest.mark.slow
def test_sigterm_ends_a_real_search_soon_with_a_verified_plan(tmp_path: Path, cli: RunCli) -> None:
    saved, before = tmp_path / "saved.json", os.times()
    with started("plan", str(ROOT / "inputs" / "h100"), "--out", str(saved)) as process:
        wait_for(process, "first plan verified")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)
    took = os.times()
    assert process.returncode == 143, err
    # Kubernetes gives 30 s between SIGTERM and SIGKILL; CPU seconds, on however busy a machine
    assert took.children_user + took.children_system - sum(before[2:4]) < 20
    assert "the search was interrupted" in " ".join(out.split())
    assert cli("verify", str(saved)).code == 0


@pytest.mark.slow
def test_a_signal_ends_an_audit_with_what_was_found(folder: Path) -> None:
    """Before the search with nothing, later with an audit; to the end this one takes half a minute."""
    given = ("audit", str(ROOT / "inputs" / "h100"), "-o", "json", "--log-format", "json")
    with started(*given) as process:
        assert process.stderr is not None
        assert process.stderr.readline()  # it has begun
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 143
    assert "Traceback" not in err
    if out:
        assert json.loads(out)["effective"]["now"] > 0
