"""The judge in a process of its own: the same findings, and what happens when either process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from building import build
from building import gang as demand
from compact_documents import cluster, gang, written
from conftest import RunCli
from effort import HANG_S, first_fast
from interactive import PATIENT, environment, started, wait_for
from outcomes import NOW
from plan_documents import sealed
from snapshots import comes_true, living

from models.instance.solution import Solution
from models.results.plan import PlanWriter, compose, dumps
from models.verify.check import Judge
from planner.pipelines import judge_process
from planner.pipelines.judge_process import Findings, JudgeProcess
from planner.search.solve import solve


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeProcess]:
    process = JudgeProcess()
    yield process
    process.end()


def found(judge: JudgeProcess, plan: dict[str, Any], *, refute: bool = True) -> Findings | None:
    judge.ask(dumps(plan).encode(), refute=refute)
    return judge.findings()


def expected(plan: dict[str, Any], *, refute: bool = True) -> Findings:
    verdict = Judge().check(plan, refute=refute)
    return Findings(verdict.violations, verdict.refuted)


def planned(priority: int = 0) -> dict[str, Any]:
    instance = build(gangs=[demand("a", 1, 8, priority=priority), demand("b", 1, 8)])
    return compose(instance, solve(instance), name="p", created_at=NOW, generator="test")


def wrong() -> dict[str, Any]:
    plan = planned()
    plan["spec"]["gangs"][0]["speed"] = 20
    return sealed(plan)


def test_it_finds_what_the_judge_finds(judge: JudgeProcess) -> None:
    good, bad, other = planned(), wrong(), planned(priority=5)
    unsigned = {**good, "instance": other["instance"]}  # its digest is that of the instance before
    form = {**good, "status": {}}
    for plan in (good, bad, unsigned, other, form, good):
        for refute in (True, False):
            assert found(judge, plan, refute=refute) == expected(plan, refute=refute)
    assert expected(good) == Findings([], frozenset())
    assert {one.rule for one in expected(bad).violations} >= {"speed"}
    assert {one.rule for one in expected(unsigned).violations} >= {"digest"}


def instance_text(plan: dict[str, Any]) -> bytes:
    """The lines of the instance in the text of a plan."""
    text = dumps(plan)
    return text[text.index('\n  "instance"') + 1 : text.index('\n  "spec"') + 1].encode()


def test_the_text_of_a_plan_is_one_with_the_instance_that_was_announced() -> None:
    tiny = replace(demand("a", 1, 8), fraction=Fraction(1, 10**5))
    instance = build(gangs=[tiny])
    writer = PlanWriter(instance)
    plan = writer.compose(solve(instance), name="p", created_at=NOW, generator="test")
    assert writer.text(plan) == dumps(plan)
    assert writer.instance_text in dumps(plan)
    assert "1e-05" in writer.instance_text  # as Python writes it


def test_it_hears_no_signal_of_its_terminal_or_container() -> None:
    judge, process = another()
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process, number)
        assert found(judge, wrong()) == expected(wrong())
    finally:
        judge.end()


def test_one_that_died_gives_no_findings(caplog: pytest.LogCaptureFixture) -> None:
    judge, process = another()
    os.kill(process, signal.SIGKILL)
    assert found(judge, planned()) is None
    assert "the process of the judge ended (exit code -9)" in caplog.text
    judge.end()


def another() -> tuple[JudgeProcess, int]:
    """A judge, and its process."""
    before, judge = judges(os.getpid()), JudgeProcess()
    # a process has the name of its parent until it begins its own program
    assert comes_true(lambda: set(judges(os.getpid())) > set(before))
    (process,) = set(judges(os.getpid())).difference(before)
    return judge, process


def test_it_ends_with_its_parent_though_nothing_closes_its_input() -> None:
    begin = """
import os, subprocess
from planner.pipelines.judge_process import JudgeProcess
judge = JudgeProcess()
folder = "/proc/self/fd"
pipes = [int(one) for one in os.listdir(folder) if int(one) > 2 and os.path.exists(f"{folder}/{one}")]
other = subprocess.Popen(["sleep", "600"], pass_fds=pipes)
print(other.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", begin],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as parent:
        assert parent.stdout is not None
        other = int(parent.stdout.readline())
        (judge,) = judges(parent.pid)
        parent.kill()
    try:
        assert comes_true(lambda: not living([judge]))
    finally:
        os.kill(other, signal.SIGKILL)


APART = "import planner.pipelines.judge_process as apart\napart.APART_FROM = 0\n"


@pytest.fixture
def two_gangs(tmp_path: Path) -> Path:
    written(tmp_path, [cluster(), gang("a"), gang("b")])
    return tmp_path


def judges(parent: int) -> list[int]:
    """The processes of the judge that a process started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8").split()
    return [
        int(one)
        for one in children
        if b"judge_process" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("dies", first_fast((True, False)))
def test_a_plan_is_verified_and_saved_whether_the_process_lives_or_dies(
    two_gangs: Path, cli: RunCli, *, dies: bool
) -> None:
    given = ("plan", "input.json", "--out", "saved.json")
    with started(*given, before=APART + PATIENT, cwd=two_gangs) as process:
        wait_for(process, "first plan verified")
        assert cli("verify", str(two_gangs / "saved.json")).code == 0
        (two_gangs / "saved.json").unlink()
        (judge,) = judges(process.pid)
        if dies:
            os.kill(judge, signal.SIGKILL)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 143
    assert ("the process of the judge ended" in err) == dies
    assert cli("verify", str(two_gangs / "saved.json")).code == 0
    assert comes_true(lambda: not living([judge]))


@pytest.mark.parametrize("dies", [False, True])
def test_a_wrong_plan_is_refused_whether_the_process_lives_or_dies(
    two_gangs: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
    *,
    dies: bool,
) -> None:
    monkeypatch.setattr(judge_process, "APART_FROM", 0)
    composed = PlanWriter.compose

    def changed(self: PlanWriter, solution: Solution, **words: Any) -> dict[str, Any]:  # noqa: ANN401
        plan = composed(self, solution, **words)
        plan["spec"]["gangs"][0]["bandwidthMBps"] = 7
        return plan

    monkeypatch.setattr(PlanWriter, "compose", changed)
    if dies:
        monkeypatch.setattr(JudgeProcess, "findings", lambda _: None)
    result = cli("plan", str(two_gangs / "input.json"), "--out", str(two_gangs / "plan.json"))
    assert result.code == 5
    assert "error: bandwidth: crowd/a: says 7" in result.err
    assert not (two_gangs / "plan.json").exists()
