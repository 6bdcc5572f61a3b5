"""Fixtures of test_run_* and test_status_*, named there in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from apiserver import FakeCluster
from conftest import RunCli
from run_bench import Benches, RunBench, memory_bench, run_bench


@pytest.fixture
def memory(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Benches]:
    """Makes benches without a socket, each with a folder of its own."""
    with ExitStack() as stack:
        made = 0

        def make(cluster: FakeCluster) -> RunBench:
            nonlocal made
            made += 1
            folder = tmp_path / str(made)
            folder.mkdir()
            return stack.enter_context(memory_bench(cluster, folder, cli, monkeypatch))

        yield make


@pytest.fixture
def served(tmp_path: Path, cli: RunCli) -> Iterator[Benches]:
    """The same over HTTP, asked through the real kubectl."""
    with ExitStack() as stack:
        yield lambda cluster: stack.enter_context(run_bench(cluster, tmp_path, cli))
