"""``--executor dask://``: a real local cluster of two worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from conftest import RunCli

from benchmarks.generator import busy
from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from planner.errors import UsageError
from planner.search import executors
from planner.search.budget import Budget, NullProgress
from planner.search.executors import DASK, THREADS, Workers
from planner.search.improve.large_neighborhood import improve
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy

distributed = pytest.importorskip("distributed", reason="needs the extra dask")

INPUT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: one-server}
spec: {nodes: [{name: v100-1, model: DGX-1 V100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: four}
spec: {roles: [{name: worker, replicas: 4, gpus: 1}]}
"""

ROUNDS = 2


class Worker(Protocol):
    pid: int


class Cluster(Protocol):
    scheduler_address: str
    workers: dict[int, Worker]

    def close(self) -> None: ...


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as started:
        yield started


@pytest.fixture(scope="module")
def instance() -> Instance:
    return busy(24, 6, seed=3)


@pytest.fixture(scope="module")
def expected(instance: Instance) -> tuple[GangDecision, ...]:
    return improved(instance, THREADS)


def address(cluster: Cluster) -> str:
    return f"{DASK}{cluster.scheduler_address.removeprefix('tcp://')}"


def improved(
    instance: Instance, spec: str, before_round: Callable[[int], None] = lambda _: None
) -> tuple[GangDecision, ...]:
    """The plan after some rounds of neighbourhoods, which is better than the first one."""
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    first, rounds = ledger.incumbent, iter(range(ROUNDS + 1))
    workers = Workers(spec, 2)

    def ended() -> bool:
        number = next(rounds)
        before_round(number)
        return number == ROUNDS

    try:
        improve(ledger, Budget(SolveLimits(budget=1000)), NullProgress(), workers, until=ended)
    finally:
        workers.close()
    assert ledger.incumbent is not first
    return ledger.incumbent.decisions


def test_a_dask_cluster_finds_the_plan_that_threads_find(
    instance: Instance, cluster: Cluster, expected: tuple[GangDecision, ...]
) -> None:
    assert improved(instance, address(cluster)) == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_time_and_not_the_plan(
    instance: Instance, cluster: Cluster, expected: tuple[GangDecision, ...]
) -> None:
    def kill(number: int) -> None:
        if number == 1:
            os.kill(cluster.workers[0].pid, signal.SIGKILL)

    assert improved(instance, address(cluster), kill) == expected


@pytest.mark.slow
def test_a_scheduler_that_goes_away_costs_time_and_not_the_plan(
    instance: Instance, cluster: Cluster, expected: tuple[GangDecision, ...]
) -> None:
    def close(number: int) -> None:
        if number == 1:
            cluster.close()

    assert improved(instance, address(cluster), close) == expected


def test_the_command_takes_the_address(cli: RunCli, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in.yaml").write_text(INPUT, encoding="utf-8")
    made = cli("plan", str(tmp_path / "in.yaml"), "--executor", address(cluster))
    assert made.code == 0
    assert "optimal: every tier is proven best" in made.out


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ("dask://127.0.0.1:9", "no Dask scheduler at tcp://127.0.0.1:9"),  # nothing listens there
        ("dask://nowhere", "missing port number"),
        ("ray", "unknown executor 'ray'"),
    ],
)
def test_a_wrong_address_is_one_error(
    wrong: str, what: str, cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "CONNECT_S", 1)
    (tmp_path / "in.yaml").write_text(INPUT, encoding="utf-8")
    failed = cli("plan", str(tmp_path / "in.yaml"), "--executor", wrong)
    assert (failed.code, failed.out) == (UsageError.exit_code, "")
    errors = [line for line in failed.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert what in errors[0]
    assert "Traceback" not in failed.err


def test_a_cluster_without_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "CONNECT_S", 1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        pytest.raises(UsageError, match="no worker of the Dask scheduler at tcp://"),
    ):
        Workers(address(cluster), 2)


def test_workers_with_another_gangplan_are_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = executors.__version__
    monkeypatch.setattr(executors, "__version__", "99")
    with pytest.raises(UsageError, match=rf"has gangplan {there}, not 99") as raised:
        Workers(address(cluster), 2)
    assert raised.value.faults[0].hint == (
        "install gangplan 99 where its scheduler and workers run"
    )
