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
from drawing_documents import inputs
from effort import examples
from hypothesis import HealthCheck, given, settings
from input_folders import input_folder, input_names

from models.documents.canonical import digest
from models.instance.instance import Instance
from models.results.plan import dumps
from planner.errors import InputError
from planner.read.inputs import instance_from_document, read


def read_documents(documents: list[dict[str, Any]]) -> Instance:
    return read_all(documents)


def parts(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [document["cluster"], *document["gangs"], document["policy"]]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs())
def test_the_canonical_form_reads_back_as_the_same_instance(
    documents: list[dict[str, Any]],
) -> None:
    instance = read_documents(documents)
    document = instance_document(instance)
    written = json.loads(json.dumps(document))
    again = instance_from_document(written)
    assert again == instance
    assert instance_document(again) == document
    assert digest(written) == digest(document)
    # the same as input: JSON with the catalogue at hand, and YAML
    assert read_documents(parts(document)) == instance
    text = yaml.safe_dump_all(parts(document), sort_keys=False)
    assert read(["-"], stdin=io.BytesIO(text.encode())) == instance


@pytest.mark.parametrize(
    "value",
    [
        0.0001,
        0.00001,
        -1.5e-7,
        5e-324,
        1e16,
        2**70,
        "a\u2028\x7f\x00\\",
        "1e-5",
        "\ud800",
        [],
        {},
        [{}],
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
    instance = read_documents(documents)
    turned = read_documents([*documents[1:][::-1], *(one_by_one[::-1] or [cluster])])
    assert digest(instance_document(turned)) == digest(instance_document(instance))


@pytest.mark.parametrize("name", input_names())
def test_the_shipped_inputs_have_a_canonical_form_that_reads_back(name: str) -> None:
    instance = read([str(input_folder(name))])
    document = instance_document(instance)
    again = instance_from_document(document)
    assert again == instance
    assert instance_document(again) == document


def test_the_canonical_form_is_spelled_out() -> None:
    documents = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {
                "levels": [{"name": "rack"}],
                "serverModels": [
                    {"name": "Spare", "gpu": "S", "gpus": 1, "fabric": "pcie", "matrix": [["X"]]},
                    {"name": "One", "gpu": "S", "gpus": 1, "fabric": "pcie", "matrix": [["X"]]},
                ],
                "nodes": [{"name": "n[1]", "model": "one"}],
            },
        },
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "g"},
            "spec": {
                "submittedAt": "2026-11-20T09:00:00.25+01:00",
                "expectedDuration": "90m",
                "roles": [
                    {
                        "name": "w",
                        "replicas": 2,
                        "gpus": 1,
                        "requests": {"cpu": 1.5, "memory": "1024Ki"},
                    }
                ],
            },
            "status": {"pods": [{"role": "w", "index": 1, "node": "n1", "gpus": [0]}]},
        },
    ]
    document = instance_document(read_documents(documents))
    assert document["cluster"] == {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {
            "levels": [{"name": "rack", "oversubscription": 1, "nvlink": False}],
            "serverModels": [
                {
                    "name": "One", "aliases": [], "vendor": "", "gpu": "S", "gpus": 1,
                    "fabric": "pcie", "matrix": [["X"]], "pcieMBps": 20000, "sysMBps": 10000,
                    "nics": [], "nvlinkDomainNodes": 1, "sources": [], "confidence": "",
                }
            ],
            "nodes": [
                {
                    "name": "n1", "model": "One", "domains": {}, "allocatable": {},
                    "unschedulable": False, "ready": True, "unhealthyGpus": [],
                    "unknownUnhealthy": 0, "labels": {}, "taints": [],
                }
            ],
        },
    }  # fmt: skip
    assert document["gangs"] == [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {
                "submittedAt": "2026-11-20T08:00:00Z", "expectedDuration": "5400s",
                "priority": 0, "preemptible": False, "movable": False, "topology": {},
                "roles": [
                    {
                        "name": "w", "replicas": 2, "gpus": 1,
                        "requests": {"cpu": "1500m", "memory": "1Mi"}, "topology": {},
                        "nodeSelector": {}, "tolerations": [], "mixModels": False,
                    }
                ],
                "communication": {"pattern": "all-reduce", "weight": 1, "fraction": 0.25},
            },
            "status": {
                "pods": [{"name": "g-w-1", "role": "w", "index": 1, "node": "n1", "gpus": [0]}]
            },
        }
    ]  # fmt: skip
    assert document["policy"]["spec"]["mix"] == {"1": 500, "2": 500}
    assert document["policy"]["spec"]["solve"] == {
        "budget": 60, "timeLimit": "120s", "workers": 2, "seed": 0,
    }  # fmt: skip


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
