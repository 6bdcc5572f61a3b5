"""The pages about what already runs: their documents are valid, their defaults are those in force."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from conftest import RunCli
from pages import ROOT, code_blocks, text

from models.instance.policy import DEFAULT_OBJECTIVES, Moves, Policy, default_max_gangs

PAGES = ("elastic", "preemption", "moves", "starvation", "stability", "reservations", "queues")
CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: two-racks}
spec:
  levels: [{name: rack}]
  nodes: [{name: "r[1-2]-n[1-4]", model: DGX H100, domains: {rack: r1}}]
"""


@pytest.mark.parametrize("name", PAGES)
def test_the_documents_of_a_page_are_valid_input(name: str, cli: RunCli, tmp_path: Path) -> None:
    assert f"](docs/{name}.md)" in text(ROOT / "README.md")
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    documents = code_blocks(text(ROOT / "docs" / f"{name}.md"), "yaml")
    assert documents
    for number, block in enumerate(documents):
        assert yaml.load(block, Loader=yaml.CSafeLoader)["kind"] in ("Gang", "Policy", "Queue")
        (tmp_path / f"{number}.yaml").write_text(block, encoding="utf-8")
    result = cli("validate", str(tmp_path))
    assert (result.code, "error" in result.err) == (0, False), result.err


def test_defaults_told_of_are_the_defaults() -> None:
    policy = Policy()
    assert (policy.starvation_after_s, policy.now) == (24 * 60 * 60, None)
    assert (policy.disruption.weight, policy.disruption.cap_s) == ("gpus", 24 * 60 * 60)
    assert (Moves().max_gpus, Moves().min_gain) == (None, 0)
    # 10 of up to 219 gangs, 50 of 1,000
    assert [default_max_gangs(running) for running in (0, 219, 220, 1000)] == [10, 10, 11, 50]
    assert (
        *("goodput", "waiting", "disruption", "preference"),
        *("bandwidth", "growth", "span", "stranded"),
    ) == DEFAULT_OBJECTIVES
