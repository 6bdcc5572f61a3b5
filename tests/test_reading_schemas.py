"""The committed JSON schemas are those of the types, and agree with the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from building import instance_document
from drawing_documents import inputs
from hypothesis import HealthCheck, given, settings

from models.documents.plan import PlanDocument
from models.results.plan import compose
from planner.read.inputs import read
from planner.read.schemas import schemas, write
from planner.search.solve import solve

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "schemas"
VALIDATORS = {
    name: jsonschema.Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text()))
    for name in ("cluster", "gang", "policy", "plan", "server-model")
}


def test_the_committed_schemas_are_up_to_date(tmp_path: Path) -> None:
    write(tmp_path)
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    again = "run python -m planner.read.schemas docs/schemas"
    assert committed == {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()}, again
    assert set(committed) == set(schemas())


@pytest.mark.parametrize("name", sorted(VALIDATORS))
def test_each_schema_is_a_schema_and_describes_what_it_holds(name: str) -> None:
    schema = VALIDATORS[name].schema
    jsonschema.Draft202012Validator.check_schema(schema)
    objects = [schema, *schema.get("$defs", {}).values()]
    assert all(one.get("description") for one in objects if one.get("type") == "object")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs())
def test_what_the_reader_takes_the_schemas_take(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        VALIDATORS[document["kind"].lower()].validate(document)


@pytest.mark.parametrize("name", ["quickstart", "h100", "nvl72", "lingjun"])
def test_the_canonical_forms_of_the_shipped_inputs_fit_the_schemas(name: str) -> None:
    document = instance_document(read([str(ROOT / "inputs" / name)]))
    VALIDATORS["cluster"].validate(document["cluster"])
    VALIDATORS["policy"].validate(document["policy"])
    for gang in document["gangs"]:
        VALIDATORS["gang"].validate(gang)


def test_a_plan_fits_its_schema() -> None:
    instance = read([str(ROOT / "inputs" / "quickstart")])
    plan = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T12:00:00Z", generator="test"
    )
    VALIDATORS["plan"].validate(plan)
    assert PlanDocument.model_validate(plan).spec.gangs


def test_the_shipped_catalogue_fits_its_schema() -> None:
    files = sorted((ROOT / "models" / "rates" / "catalogue").glob("*.yaml"))
    assert files
    for path in files:
        VALIDATORS["server-model"].validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        ("gang", "unknown-field"),
        ("gang", "missing-field"),
        ("gang", "wrong-type"),
        ("gang", "replicas-zero"),
    ],
)
def test_what_the_reader_refuses_for_its_form_the_schemas_refuse(kind: str, case: str) -> None:
    document = yaml.safe_load((ROOT / "inputs" / "refused" / case / f"{kind}.yaml").read_text())
    assert not VALIDATORS[kind].is_valid(document)
