"""The orders read from a plan: pods to start and stop, and assumptions about nodes."""

from __future__ import annotations

import copy
import re
from typing import Any

import plan_changes
import pytest

from models.apply import plan_actions
from models.apply.plan_actions import (
    GangActions,
    InapplicablePlanError,
    PlanActions,
    plan_id,
)
from models.documents.plan import PlanDocument

Doc = dict[str, Any]


def document() -> Doc:
    """The plan in which everything happens, of a live cluster: each pod has a uid, waiting ones a mode.

    tune moves from n01 to n06, batch stops on n02, llama starts on both, serve grows from 2 to 3, shrink
    shrinks from 2 to 1, half gets its missing pod.
    """
    plan: Doc = copy.deepcopy(plan_changes.plan())
    plan["instance"]["cluster"]["metadata"]["uid"] = "kube-system-uid"
    gangs = {gang["metadata"]["name"]: gang for gang in plan["instance"]["gangs"]}
    for gang in gangs.values():
        for pod in gang["status"]["pods"]:
            pod["uid"] = f"uid-{pod['name']}"
    for stated in plan["spec"]["gangs"]:
        pods = gangs[stated["name"]]["status"]["pods"]
        here = {(pod["role"], pod["index"]) for pod in pods}
        for pod in stated["pods"]:
            if (pod["role"], pod["index"]) not in here and stated["name"] != "serve":
                named = {key: pod[key] for key in ("name", "role", "index")}
                pods.append({**named, "uid": f"uid-{pod['name']}", "mode": "gate"})
    return plan


def actions_of(document: Doc) -> PlanActions:
    return plan_actions.actions_of(PlanDocument.model_validate(document))


def by_name(orders: PlanActions) -> dict[str, GangActions]:
    return {gang.name: gang for gang in orders.gangs}


def test_nodes_are_relied_on_with_what_selectors_taints_and_levels_say() -> None:
    plan = document()
    node = plan["instance"]["cluster"]["spec"]["nodes"][0]
    node["labels"] = {"pool": "a", "unused": "x", "offers.gangplan.dev/nvidia": "true"}
    node["taints"] = [
        {"key": "gpu", "value": "", "effect": "NoSchedule"},
        {"key": "rather-not", "value": "", "effect": "PreferNoSchedule"},
    ]
    node["unhealthyGpus"] = [3]
    for level in plan["instance"]["cluster"]["spec"]["levels"]:
        level["label"] = f"example.com/{level['name']}"
    llama = next(g for g in plan["instance"]["gangs"] if g["metadata"]["name"] == "llama")
    llama["spec"]["roles"][0]["nodeSelector"] = {"pool": "a", "offers.gangplan.dev/nvidia": "true"}
    llama["spec"]["roles"][0]["nodeAffinity"] = [
        [{"key": "spot", "operator": "DoesNotExist", "values": []}]
    ]
    relied = {one.name: one for one in actions_of(plan).nodes}
    # Nodes that pods start on: llama n01 n02, half n05, serve and tune n06.
    assert sorted(relied) == ["n01", "n02", "n05", "n06"]
    n01 = relied["n01"]
    assert n01.gpus == 7
    places = (("example.com/block", "b1"), ("example.com/rack", "r1"))
    assert n01.labels == (*places, ("pool", "a"), ("spot", None))
    assert n01.taints == (("gpu", "", "NoSchedule"),)


def test_the_id_of_a_plan_is_a_label_value_and_differs_with_either_digest() -> None:
    plan = document()
    ids = {plan_id(PlanDocument.model_validate(plan))}
    for part in ("instance", "spec"):
        other = copy.deepcopy(plan)
        other["status"]["digests"][part] = "sha256:other"
        ids.add(plan_id(PlanDocument.model_validate(other)))
    assert len(ids) == 3
    assert all(re.fullmatch(r"gp-[0-9a-f]{20}", one) for one in ids)


@pytest.mark.parametrize(("gang", "word"), [("llama", "starts"), ("batch", "stops")])
def test_a_plan_without_the_uid_of_a_pod_cannot_be_ordered(gang: str, word: str) -> None:
    plan = document()
    for one in plan["instance"]["gangs"]:
        if one["metadata"]["name"] == gang:
            for pod in one["status"]["pods"]:
                pod.pop("uid")
    with pytest.raises(InapplicablePlanError, match=rf"{word} the pod '{gang}-worker-0'"):
        actions_of(plan)


def test_a_pod_with_a_part_that_stays_where_it_is_does_not_restart_when_its_gang_moves() -> None:
    plan = document()
    tune = next(g for g in plan["instance"]["gangs"] if g["metadata"]["name"] == "tune")
    tune["spec"]["roles"].append({"name": "book", "replicas": 1, "gpu": {"fraction": 0.5}})
    book = {"name": "book-0", "role": "book", "index": 0, "node": "n03", "gpus": [6]}
    tune["status"]["pods"].append({**book, "uid": "uid-book"})
    stated = next(one for one in plan["spec"]["gangs"] if one["name"] == "tune")
    stated["pods"].append({**book, "gpus": []})
    moved = by_name(actions_of(plan))["tune"]
    assert [stop.role for stop in moved.stops] == ["worker"]
    assert [start.role for start in moved.starts] == ["worker"]
