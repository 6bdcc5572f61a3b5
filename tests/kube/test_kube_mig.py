"""A cluster of NVIDIA's GPU operator with MIG and time slices, read to documents worked out by hand."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_gangs import thing

from models.apply.plan_actions import InapplicablePlanError, actions_of
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.manifests import UNPARTITIONED, objects

Json = dict[str, Any]
OBJECTS = Path(__file__).parents[1] / "mig_operator.yaml"


@cache
def operator() -> LoadedInput:
    return load([str(OBJECTS)])


@cache
def plan() -> Json:
    instance = operator().instance
    return compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )


def test_they_are_planned_beside_whole_gpus_where_the_instances_are() -> None:
    assert check(json.loads(json.dumps(plan()))) == []
    found = {one["name"]: one for one in plan()["spec"]["gangs"]}
    places = {
        name: {pod["node"] for pod in one["pods"]}
        for name, one in found.items()
        if one["decision"] == "place"
    }
    assert places.pop("half") <= {"a100-changing", "a100-mixed"}  # each has 4 GPUs that are whole
    assert places == {
        "serve": {"a100-mixed"}, "sliced": {"t4-sliced"}, "whole": {"a100-whole"},
        "on-single": {"a100-single"},
    }  # fmt: skip


DYNAMIC = "gangplan.dev/dynamic-mig"


def marked(board: str) -> LoadedInput:
    """The whole server of the operator's cluster alone, its GPUs marked, and all gangs but that of 8 GPUs."""
    tree = yaml.load(OBJECTS.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    others = [
        one
        for one in tree["items"]
        if one["kind"] != "Node" and not one["metadata"]["name"].startswith("whole")
    ]
    (server,) = (one for one in tree["items"] if one["metadata"]["name"] == "a100-whole")
    server["metadata"]["annotations"] = {DYNAMIC: board}
    tree["items"] = [
        server,
        *others,
        thing("Namespace", "v1", "kube-system", {}, namespace="", uid="u"),
    ]
    return load(["-"], stdin=io.BytesIO(json.dumps(tree).encode()))


def test_gangs_that_need_partitions_are_not_started_before() -> None:
    instance = marked("A100-80").instance
    found = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    assert check(json.loads(json.dumps(found))) == []
    decisions = {one["name"]: one["decision"] for one in found["spec"]["gangs"]}
    assert decisions["serve"] == decisions["half"] == "place"
    assert [one["gpu"] for one in found["spec"]["partitions"]] == [7]
    orders = actions_of(PlanDocument.model_validate(found, context={}))
    assert [name for _, name in orders.unpartitioned] == ["serve"]
    assert "half" in {gang.name for gang in orders.gangs}
    assert "serve" not in {gang.name for gang in orders.gangs}
    *_, last = objects(orders, ())
    assert (last.gang, last.objects, last.remarks) == ("ml/serve", (), (UNPARTITIONED,))
    found["spec"]["gangs"][0]["decision"] = "preempt"
    with pytest.raises(InapplicablePlanError, match="partitions GPUs, and stops or moves gangs"):
        actions_of(PlanDocument.model_validate(found, context={}))


@pytest.mark.parametrize("board", ["H100-80", "A100-40", "yes", ""])
def test_a_mark_that_is_no_board_of_the_gpus_is_ignored_with_a_remark(board: str) -> None:
    found = marked(board)
    assert [node.dynamic_mig for node in found.instance.cluster.nodes] == [None]
    # the label of the product says 80 GB
    assert any(DYNAMIC in one and one.endswith("(hint: write A100-80)") for one in found.remarks)
