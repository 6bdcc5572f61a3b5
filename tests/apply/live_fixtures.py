"""Fixtures of the live tests: a cluster for each file, and nothing left of the test before.

Named in ``pytest_plugins`` by test_live_*.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_cluster import Live, opened


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Seven nodes of 8 GPUs."""
    with opened(tmp_path_factory.mktemp("live"), nodes=7) as found:
        yield found


@pytest.fixture
def live(cluster: Live) -> Iterator[Live]:
    cluster.open_namespace()
    yield cluster
    cluster.relay.forget()
    cluster.forget_runs()
    cluster.unguard()
    cluster.delete_workloads()
    cluster.delete_pods()
