"""docs/inputs.md documents every field that people write, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from models.documents.base import Data, fields_of
from models.documents.gang import GangSpec, GangStatus, RoleDocument
from models.documents.policy import (
    Disruption,
    MovesDocument,
    PolicyDocument,
    PolicySpec,
    StarvationDocument,
)
from models.documents.queue import QueueSpec
from planner.read.inputs import read
from planner.read.instance_builder import policy_of

PAGE = (Path(__file__).parents[2] / "docs" / "inputs.md").read_text(encoding="utf-8")


def names(model: type[BaseModel | Data]) -> set[str]:
    return set(fields_of(model))


def told(heading: str) -> set[str]:
    """Names in the first column of the table with this heading."""
    table = PAGE.partition(f"| {heading} | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    ("heading", "model", "elsewhere"),
    [
        ("field of `spec`", GangSpec, {"roles"}),
        ("field of a role", RoleDocument, {"name"}),
        ("field of `status`", GangStatus, set()),
        ("field of a queue", QueueSpec, set()),
        ("field", PolicySpec, set()),
    ],
)
def test_every_field_has_its_row(heading: str, model: type[BaseModel], elsewhere: set[str]) -> None:
    assert told(heading) == names(model) - elsewhere


@pytest.mark.parametrize("model", [MovesDocument, Disruption, StarvationDocument])
def test_what_a_policy_says_of_running_gangs_is_told_by_name(model: type[BaseModel | Data]) -> None:
    rows = PAGE.partition("## Policy")[2]
    for name in names(model):
        assert f"`{name}" in rows, name


def test_defaults_of_a_policy_are_those_of_an_empty_one() -> None:
    (block,) = [block for block in blocks() if "kind: Policy" in block]
    written = yaml.load(block, Loader=yaml.CSafeLoader)
    del written["spec"]["mix"]  # an example: by default it comes from the input
    empty = {"apiVersion": written["apiVersion"], "kind": "Policy"}
    documents = (PolicyDocument.model_validate(tree) for tree in (written, empty))
    stated, default = (policy_of(document, (), None) for document in documents)
    assert stated == default


def blocks() -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_each_status_that_is_told_of_fits_the_gang_that_is(tmp_path: Path) -> None:
    cluster, gang = (block for block in blocks() if re.search("kind: (Cluster|Gang)", block))
    statuses = [block for block in blocks() if block.startswith("status")]
    assert len(statuses) == 3
    for status in statuses:
        path = tmp_path / "in.yaml"
        path.write_text(f"{cluster}---\n{gang}{status}", encoding="utf-8")
        (found,) = read([str(path)]).gangs
        assert found.pods or found.hold or found.planned
