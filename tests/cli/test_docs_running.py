"""The pages about what already runs: their inputs are valid, their pictures are what is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from conftest import RunCli
from input_folders import input_folder
from test_docs import ROOT, text

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


def page(name: str) -> str:
    return text(ROOT / "docs" / f"{name}.md")


def blocks(name: str, language: str) -> list[str]:
    """Code blocks of a language of a page; "" for what is printed."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return [block for of, block in found if of == language]


def pictures() -> list[tuple[str, str]]:
    """(command, what is shown of its output) of every page."""
    shown = [block for name in PAGES for block in blocks(name, "") if block.startswith("$ ")]
    return [(command, rest) for command, _, rest in (one[2:].partition("\n") for one in shown)]


def test_every_page_has_a_picture() -> None:
    assert all(
        re.search(rf"\$ gangplan plan (tests/)?inputs/{name}\b", page(name)) for name in PAGES
    )
    assert len(pictures()) == 8


@pytest.mark.parametrize(("command", "shown"), pictures(), ids=lambda value: value.split("\n")[0])
def test_a_picture_shows_lines_that_are_printed_in_this_order(
    command: str, shown: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = cli(*shlex.split(command)[1:])
    assert result.code == 0
    printed = iter(result.out.splitlines())
    skipping = True  # what comes before the first line, and where a line is "..."
    for line in shown.splitlines():
        if line == "...":
            skipping = True
        elif skipping:
            assert any(told(line, other) for other in printed), line
            skipping = False
        else:
            assert told(line, next(printed)), line


def told(line: str, other: str) -> bool:
    """Whether a line is shown, perhaps only how it begins."""
    if line.endswith("..."):
        return other.startswith(line.removesuffix("..."))
    return line == other


@pytest.mark.parametrize("name", PAGES)
def test_the_documents_of_a_page_are_valid_input(name: str, cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    documents = blocks(name, "yaml")
    assert documents
    for number, block in enumerate(documents):
        assert yaml.safe_load(block)["kind"] in ("Gang", "Policy", "Queue")
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
    order = DEFAULT_OBJECTIVES.index
    for earlier in ("goodput", "waiting", "disruption", "preference", "bandwidth"):
        assert order(earlier) < order("growth")
    assert order("disruption") < order("bandwidth")


def test_the_commands_of_the_page_on_stability_work(cli: RunCli, tmp_path: Path) -> None:
    source, first, second = input_folder("stability"), tmp_path / "a.json", tmp_path / "b.json"
    assert cli("plan", str(source), "--out", str(first)).code == 0
    assert cli("plan", str(source), "--previous", str(first), "--out", str(second)).code == 0
    plans = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (first, second)]
    assert plans[0]["spec"] == plans[1]["spec"]
    # against itself nothing is elsewhere, where rwkv's 8 GPUs were before
    last = [plan["status"]["objectives"][-1] for plan in plans]
    assert [(tier["name"], tier["value"]) for tier in last] == [("stability", 8), ("stability", 0)]


def test_every_page_is_told_of_in_the_readme() -> None:
    for name in PAGES:
        assert f"](docs/{name}.md)" in text(ROOT / "README.md")
