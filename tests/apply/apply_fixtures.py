"""Fixtures of tests that apply plans: the program and a fake cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from apply_runs import Bench, OnCluster, a_cluster, bench


@pytest.fixture
def on_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnCluster]:
    """The program on that cluster, until the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda cluster: stack.enter_context(bench(cluster, tmp_path, monkeypatch))


@pytest.fixture
def gated(on_cluster: OnCluster) -> Bench:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4, all gated. 16 + 8 GPUs fill them."""
    return on_cluster(a_cluster())


@pytest.fixture
def ten(on_cluster: OnCluster) -> Bench:
    """Ten gangs of two pods, a to j: eight may be under way at once."""
    return on_cluster(a_cluster(gangs=[(name, 2, 1) for name in "abcdefghij"]))
