"""Executors of neighbourhoods: the plan does not depend on where they are solved, or on how many workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from interactive import ROOT

from benchmarks.generator import busy
from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from planner.search.budget import Budget, NullProgress
from planner.search.executors import PROCESSES, THREADS, Workers
from planner.search.improve.large_neighborhood import improve
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy
from planner.signals import CAUGHT


@pytest.fixture(scope="module")
def instance() -> Instance:
    return busy(24, 6, seed=3)


def improved(instance: Instance, spec: str, count: int) -> tuple[tuple[GangDecision, ...], float]:
    """The plan and the effort after a budget that ends within a round."""
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    budget, workers = Budget(SolveLimits(budget=1)), Workers(spec, count)
    budget.spend(0.9)
    try:
        improve(ledger, budget, NullProgress(), workers)
    finally:
        workers.close()
    return ledger.incumbent.decisions, budget.effort


@pytest.mark.parametrize(
    ("spec", "count"), [(THREADS, 3), pytest.param(PROCESSES, 2, marks=pytest.mark.slow)]
)
def test_the_plan_does_not_depend_on_the_workers(spec: str, count: int, instance: Instance) -> None:
    assert improved(instance, spec, count) == improved(instance, THREADS, 1)


def parent(task: int, _seconds: float) -> tuple[int, int]:
    return task, os.getppid()


def die_in_a_worker(task: int, _seconds: float) -> int:
    if os.getpid() != task:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_processes_are_ours_and_end_with_us() -> None:
    workers = Workers(PROCESSES, 1)
    try:
        found = list(workers.run(parent, [1, 2], Budget(SolveLimits())))
    finally:
        workers.close()
    assert found == [(1, os.getpid()), (2, os.getpid())]


def test_a_lost_process_costs_time_and_not_the_result() -> None:
    workers = Workers(PROCESSES, 1)
    try:
        found = list(workers.run(die_in_a_worker, [os.getpid()] * 2, Budget(SolveLimits())))
    finally:
        workers.close()
    assert found == [os.getpid()] * 2


SIGNALLED = """
import os, signal, time
from models.instance.policy import SolveLimits
from planner.search.budget import Budget
from planner.search.executors import PROCESSES, Workers
from planner.signals import CAUGHT

def doze(task, seconds):
    time.sleep(0.5)
    return task

if __name__ == "__main__":
    for number in CAUGHT:
        signal.signal(number, lambda *_: None)
    print("ready", flush=True)
    workers = Workers(PROCESSES, 2)
    print(list(workers.run(doze, [1, 2], Budget(SolveLimits()))), flush=True)
    workers.close()
    os._exit(0)  # an interpreter that unwinds restores the handlers
"""


def test_signals_of_a_terminal_reach_no_worker_not_even_one_that_starts(tmp_path: Path) -> None:
    (tmp_path / "signalled.py").write_text(SIGNALLED, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "signalled.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:  # from before the workers start until they have ended
            for number in CAUGHT:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            time.sleep(0.02)
        assert process.communicate() == ("[1, 2]\n", "")
    assert process.returncode == 0


def sleep(task: float, _seconds: float) -> float:
    time.sleep(task)
    return task


@pytest.mark.parametrize("spec", [THREADS, PROCESSES])
def test_a_stop_does_not_wait_for_the_tasks(spec: str) -> None:
    budget, workers = Budget(SolveLimits()), Workers(spec, 2)
    try:
        found = []
        for one in workers.run(sleep, [0.0, 3.0, 3.0], budget):
            found.append(one)
            budget.stop.set()
            began = time.monotonic()
    finally:
        workers.close()
    assert found == [0.0]
    assert time.monotonic() - began < 2
