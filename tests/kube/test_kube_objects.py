"""Items of a List without kind: one of them hides none of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bundles import load_all
from kube import node, pod

from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

GUESSED = "kind or apiVersion is unreadable; the kind is inferred from its fields"


def built(*trees: dict[str, Any]) -> LoadedInput:
    return load_all(trees)


@pytest.mark.parametrize("field", ["kind", "apiVersion"])
@pytest.mark.parametrize("value", [None, 5, "", {}])
def test_a_pod_that_does_not_say_so_still_holds_its_gpus(field: str, value: object) -> None:
    whole, broken = pod("a", gpus=2, on="n1"), pod("b", gpus=3, on="n1")
    if value is None:
        del broken[field]
    else:
        broken[field] = value
    found = built(node("n1"), whole, broken)
    assert {gang.name: gang.roles[0].gpus for gang in found.instance.gangs} == {"a": 2, "b": 3}
    (remark,) = [line for line in found.remarks if GUESSED in line]
    assert "default/b" in remark


def test_an_object_that_nobody_can_tell_is_left_out_by_name() -> None:
    job = {"apiVersion": "batch/v1", "metadata": {"name": "j", "namespace": "team"}, "spec": {}}
    found = built(node("n1"), pod("a", gpus=2, on="n1"), job)
    assert [gang.name for gang in found.instance.gangs] == ["a"]
    assert "object team/j: a document without kind; it is left out" in found.remarks


@pytest.mark.parametrize(("more", "told"), [("abc", True), ("", False), (None, False), (5, False)])
def test_a_page_of_a_longer_list_is_remarked(tmp_path: Path, more: object, told: bool) -> None:
    metadata = {} if more is None else {"continue": more}
    pods = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": metadata,
        "items": [pod("a", on="n1")],
    }
    (tmp_path / "pods.json").write_text(json.dumps(pods), encoding="utf-8")
    (tmp_path / "nodes.json").write_text(json.dumps(node("n1")), encoding="utf-8")
    remarks = load([str(tmp_path)]).remarks
    assert any("pods.json: one page of a longer list" in remark for remark in remarks) is told
