"""Canonical documents: what is written reads back as the same instance, with the same digest."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
import yaml
from building import instance_document
from bundles import read_all
from effort import examples, first_fast
from hypothesis import HealthCheck, given, settings
from input_folders import input_folder, input_names
from strategies import inputs

from models.documents.base import digest
from models.results.plan import dumps
from planner.errors import InputError
from planner.read.inputs import instance_from_document, read

LARGE = ("h100", "lingjun", "nvl72", "snapshots/h100-gke", "snapshots/nvl72")
NAMES = sorted(input_names(), key=lambda name: (name in LARGE, name))


def parts(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [document["cluster"], *document["gangs"], document["policy"]]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs())
def test_the_canonical_form_reads_back_as_the_same_instance(
    documents: list[dict[str, Any]],
) -> None:
    instance = read_all(documents)
    document = instance_document(instance)
    written = json.loads(json.dumps(document))
    again = instance_from_document(written)
    assert again == instance
    assert instance_document(again) == document
    assert digest(written) == digest(document)
    # the same as input: JSON with the catalogue at hand, and YAML
    assert read_all(parts(document)) == instance
    text = yaml.safe_dump_all(parts(document), sort_keys=False)
    assert read(["-"], stdin=io.BytesIO(text.encode())) == instance


@pytest.mark.parametrize(
    "value",
    [
        *(0.0001, 0.00001, -1.5e-7, 5e-324, 1e16, 2**70),
        *("a\u2028\x7f\x00\\", "1e-5", "\ud800", [], {}, [{}]),
    ],
)
def test_a_plan_is_written_as_python_writes_json(value: object) -> None:
    document = {"status": {"list": [value, None, True], "last": value}}
    assert dumps(document) == json.dumps(document, ensure_ascii=False, indent=2) + "\n"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps({"status": {"gap": value}})


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs())
def test_order_and_ranges_do_not_change_the_digest(documents: list[dict[str, Any]]) -> None:
    cluster = documents[0]
    one_by_one = [
        {**cluster, "spec": {**cluster["spec"], "nodes": [node]}}
        for node in cluster["spec"]["nodes"]
    ]
    instance = read_all(documents)
    turned = read_all([*documents[1:][::-1], *(one_by_one[::-1] or [cluster])])
    assert digest(instance_document(turned)) == digest(instance_document(instance))


@pytest.mark.parametrize("name", first_fast(NAMES, 20))
def test_the_shipped_inputs_have_a_canonical_form_that_reads_back(name: str) -> None:
    instance = read([str(input_folder(name))])
    document = instance_document(instance)
    again = instance_from_document(document)
    assert again == instance
    assert instance_document(again) == document


def test_the_digest_is_of_compact_sorted_utf8_json() -> None:
    # printf '{"a":"ü","b":[1,2.5]}' | sha256sum
    assert digest({"b": [1, 2.5], "a": "ü"}) == (
        "sha256:" + "75151e181452ee19f62c437a12e96bbbe4453c199f041abfe6b18ab3cb8f3c4f"
    )


def test_a_plan_instance_that_does_not_stand_for_itself_is_refused() -> None:
    instance = read([str(input_folder("quickstart"))])
    document = instance_document(instance)
    document["cluster"]["spec"]["serverModels"] = []
    with pytest.raises(InputError, match="unknown server model"):
        instance_from_document(document)
