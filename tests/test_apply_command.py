"""``gangplan apply``: a saved plan carried out on the cluster it is of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apply_runs import Bench, a_cluster, bench


@pytest.fixture(params=["gate", "binding", "both"])
def any_mode(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4. 16 + 8 GPUs fill them."""
    with bench(a_cluster(mode=request.param), tmp_path, monkeypatch) as made:
        yield made


def test_every_gang_is_started_where_the_plan_says(any_mode: Bench) -> None:
    plan = any_mode.plan()

    said = any_mode.apply(plan)

    assert (said.code, any_mode.run("show", str(plan), "-o", "json").code) == (0, 0), said.err
    wanted = {
        pod["name"]: pod["node"]
        for gang in any_mode.run("show", str(plan), "-o", "json").data()["spec"]["gangs"]
        for pod in gang["pods"]
    }
    assert any_mode.bound() == wanted
    assert len(wanted) == 4
