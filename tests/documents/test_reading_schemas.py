"""The JSON schemas can be made, and take what the reader takes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from building import instance_document
from hypothesis import HealthCheck, given, settings
from input_folders import input_folder
from referencing import Registry
from refused_cases import REFUSED
from strategies import inputs

from models.results.plan import compose
from planner.read.inputs import read
from planner.read.schemas import schemas, write
from planner.search.solve import solve


@cache
def made() -> dict[str, dict[str, Any]]:
    return schemas()


@cache
def known() -> Registry[Any]:
    return Registry().with_contents((schema["$id"], schema) for schema in made().values())


def fits(kind: str, document: dict[str, Any]) -> bool:
    schema = made()[f"{kind}.json"]
    return jsonschema.Draft202012Validator(schema, registry=known()).is_valid(document)


def test_each_schema_is_a_schema_and_describes_what_it_holds() -> None:
    for name, schema in made().items():
        jsonschema.Draft202012Validator.check_schema(schema)
        objects = [schema, *schema.get("$defs", {}).values()]
        assert all(one.get("description") for one in objects if one.get("type") == "object"), name


def test_a_plan_refers_to_what_it_takes_from_others(tmp_path: Path) -> None:
    write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(made())
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    instance = json.dumps(plan["$defs"]["PlanInstance"])
    assert all(f'"$ref": "{kind}.json"' in instance for kind in ("cluster", "gang", "queue"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs())
def test_what_the_reader_takes_the_schemas_take(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        assert fits(document["kind"].lower(), document)


@pytest.mark.parametrize("name", ["quickstart", "h100", "nvl72", "lingjun"])
def test_the_canonical_forms_of_the_shipped_inputs_fit_the_schemas(name: str) -> None:
    document = instance_document(read([str(input_folder(name))]))
    assert fits("cluster", document["cluster"])
    assert fits("policy", document["policy"])
    assert all(fits("gang", gang) for gang in document["gangs"])


def test_a_plan_fits_its_schema() -> None:
    instance = read([str(input_folder("quickstart"))])
    made = {"name": "p", "created_at": "2026-11-21T12:00:00Z", "generator": "test"}
    plan = compose(instance, solve(instance), **made)
    assert fits("plan", plan)
    plan["instance"]["gangs"][0]["spec"]["unheard"] = 1
    assert not fits("plan", plan)


def test_the_shipped_catalogue_fits_its_schema() -> None:
    files = sorted((Path(__file__).parents[2] / "models/rates/catalogue").glob("*.yaml"))
    assert files
    for path in files:
        assert fits(
            "server-model", yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        )


@pytest.mark.parametrize("case", ["unknown-field", "missing-field", "wrong-type", "replicas-zero"])
def test_what_the_reader_refuses_for_its_form_the_schemas_refuse(case: str) -> None:
    assert not fits("gang", yaml.load(REFUSED[case]["gang.yaml"], Loader=yaml.CSafeLoader))
