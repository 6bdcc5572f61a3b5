"""Fixtures of the tests of ``gangplan doctor``: clusters asked without a socket, or through kubectl proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apiserver_http import FakeWire, serving
from conftest import RunCli
from deploying import USER
from doctored import Doctor, VersionedWire, a_cluster
from snapshots import environment


@pytest.fixture
def examined(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Doctor]:
    """Such a cluster, asked without a socket: kubectl is run for its version only."""

    def made(cluster: FakeCluster | None = None, **given: Any) -> Doctor:  # noqa: ANN401
        found = a_cluster(**given) if cluster is None else cluster
        doctor = Doctor(found, tmp_path, cli, environment(tmp_path))

        @contextmanager
        def opened(environ: object, **given: object) -> Iterator[FakeWire]:
            del environ, given
            yield VersionedWire(found, None if doctor.admin else USER)

        monkeypatch.setattr("planner.cluster.proxy.connect", opened)
        return doctor

    return made


@pytest.fixture
def served(tmp_path: Path, cli: RunCli) -> Iterator[Callable[..., Doctor]]:
    """Such a cluster, served over HTTPS and asked through kubectl proxy."""
    with ExitStack() as stack:

        def made(**given: Any) -> Doctor:  # noqa: ANN401
            cluster = a_cluster(**given)
            cluster.add_user("t", USER)
            endpoint = stack.enter_context(serving(cluster, tmp_path))
            environ = environment(tmp_path) | {"KUBECONFIG": str(endpoint.as_user("t"))}
            return Doctor(cluster, tmp_path, cli, environ)

        yield made
