"""--previous: what is taken from an earlier plan, and the remarks on what is not."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stated_cases import instance_of

from models.documents.policy import Objective
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.results.plan import compose
from planner.errors import InputError, MissingPathError
from planner.pipelines.adjustments import with_defragment, with_previous, with_stability
from planner.read.plan_files import load
from planner.search.solve import solve

Json = dict[str, Any]

GANGS = {"llama": {"roles": ["2x8", "1x0 name=launcher"]}, "tiny": "1x2"}
NOW = instance_of({"nodes": 4, "gangs": GANGS})
"""Four servers of 8; llama asks for two pods of 8 and a launcher, tiny for one of 2."""


def made(of: Instance) -> Json:
    when = "2026-11-21T12:00:00Z"
    return compose(of, solve(of), name="p", created_at=when, generator="test")


PLAN = made(NOW)


def remembering(now: Instance, document: Json, folder: Path) -> tuple[Instance, tuple[str, ...]]:
    """The instance with the places that a saved plan has for its pods, and the remarks."""
    path = folder / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return with_previous(now, load(str(path)), str(path))


def pods(document: Json, name: str) -> list[Json]:
    found: list[Json]
    (found,) = (one["pods"] for one in document["spec"]["gangs"] if one["name"] == name)
    return found


def test_every_pod_is_wanted_where_the_plan_has_it_whatever_it_is_called(tmp_path: Path) -> None:
    found, remarks = remembering(NOW, PLAN, tmp_path)
    nodes = [node.name for node in NOW.cluster.nodes]
    for one in found.gangs:
        wanted = [(one.roles[p.role].name, p.index, nodes[p.node]) for p in one.planned]
        assert wanted == [(p["role"], p["index"], p["node"]) for p in pods(PLAN, one.name)]
    assert ([len(one.planned) for one in found.gangs], remarks) == ([3, 1], ())
    # nothing else is taken over
    plain = tuple(replace(g, planned=()) for g in found.gangs)
    assert replace(found, gangs=plain, earlier=None) == NOW
    renamed = deepcopy(PLAN)
    for pod in [*pods(renamed, "llama"), *pods(renamed, "tiny")]:
        pod["name"], pod["uid"] = f"other-{pod['name']}", "another"
    assert remembering(NOW, renamed, tmp_path) == (found, ())
    # a pod that stands twice counts once
    twice = deepcopy(PLAN)
    pods(twice, "llama").append({**pods(twice, "llama")[0], "node": "n04"})
    twice["spec"]["gangs"].append({**twice["spec"]["gangs"][0], "pods": []})
    assert remembering(NOW, twice, tmp_path)[0] == found


def test_gangs_that_are_gone_or_waited_or_are_new_are_no_matter(tmp_path: Path) -> None:
    document = deepcopy(PLAN)
    pods(document, "tiny").clear()  # it waited
    document["spec"]["gangs"].append({**document["spec"]["gangs"][0], "name": "gone"})
    later = instance_of({"nodes": 4, "gangs": {**GANGS, "new": "1x1"}})
    found, remarks = remembering(later, document, tmp_path)
    assert ([len(one.planned) for one in found.gangs], remarks) == ([3, 0, 0], ())


def test_nodes_roles_and_indices_that_are_gone_are_told_in_one_remark_each(tmp_path: Path) -> None:
    document = deepcopy(PLAN)
    workers = pods(document, "llama")
    workers[0]["node"], workers[1]["node"] = "sold-2", "sold-1"
    workers[2]["role"] = "chief"
    workers.append({**workers[0], "index": 2, "node": "n01"})  # it has shrunk since
    found, remarks = remembering(NOW, document, tmp_path)
    assert [len(one.planned) for one in found.gangs] == [0, 1]
    file, strange = tmp_path / "plan.json", "default/llama chief 0, default/llama worker 2"
    assert remarks == (
        f"{file} places 2 pods on nodes that do not exist: sold-1, sold-2",
        f"{file} places 2 pods that their gangs do not have: {strange}",
    )


def test_a_plan_that_has_nothing_of_this_input_is_remarked(tmp_path: Path) -> None:
    others = instance_of({"nodes": 1, "gangs": {"elsewhere": "1x1"}})
    found, remarks = remembering(others, PLAN, tmp_path)
    assert replace(found, earlier=None) == others
    said = [remark.partition("plan.json ")[2] for remark in remarks]
    assert said == ["places none of these gangs: no pod has a previous place"]
    # a plan in which everything waited says nothing, and there is nothing to remark
    waited = deepcopy(PLAN)
    for one in waited["spec"]["gangs"]:
        one["pods"] = []
    found, remarks = remembering(others, waited, tmp_path)
    assert (replace(found, earlier=None), remarks) == (others, ())


@pytest.mark.parametrize(
    ("was", "is_"), [("one", "two"), ("one", "one"), (None, "two"), ("one", None)]
)
def test_a_plan_of_another_cluster_is_refused_where_both_say_which(
    was: str | None, is_: str | None, tmp_path: Path
) -> None:
    then, now = (replace(NOW, cluster=replace(NOW.cluster, uid=uid)) for uid in (was, is_))
    document = made(then)
    if (was, is_) != ("one", "two"):
        assert any(one.planned for one in remembering(now, document, tmp_path)[0].gangs)
        return
    with pytest.raises(InputError) as caught:
        remembering(now, document, tmp_path)
    (fault,) = caught.value.faults
    assert fault.lines() == [
        "error: a plan of another cluster: its uid is one, not two",
        f"  --> {tmp_path / 'plan.json'}",
        "hint: give a plan that was made for this cluster",
    ]


KIND = '{"kind": "Plan", "apiVersion": "gangplan.dev/v1alpha1"'
POD = '{"role": "w", "node": "n", "index": -1}'
MALFORMED = f"""
{KIND}, "file": 3, "instance": {{"cluster": {{"metadata": {{}}}}}},
 "spec": {{"gangs": [{{"namespace": "a", "name": "b", "pods": [{POD}]}}, 7]}}}}
"""


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not JSON: expecting value"),
        (b"apiVersion: gangplan.dev/v1alpha1\nkind: Gang\n", "not JSON: expecting value"),
        (b"[]", "not a plan: an object is expected"),
        (b"\xff\xfe", "not a plan: byte 0 is not UTF-8"),
        (b"{}", "not a plan: it has no kind"),
        (KIND.replace("Plan", "Gang").encode() + b"}", "not a plan: kind is 'Gang'"),
        (b'{"kind": "Plan", "apiVersion": "v2"}', "unknown version of a plan: apiVersion is 'v2'"),
        (KIND.encode() + b"}", "missing field 'instance'"),
        (MALFORMED.encode(), "spec.gangs[0].pods[0].index: the number -1 is too small"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(str(path))
    assert what in [fault.what for fault in caught.value.faults]
    assert all(fault.file == str(path) and fault.hint for fault in caught.value.faults)
    assert caught.value.exit_code == 65


def test_a_plan_may_come_from_standard_input_but_not_from_a_folder(tmp_path: Path) -> None:
    text = json.dumps(PLAN).encode()
    (tmp_path / "plan.json").write_bytes(text)
    assert load("-", io.BytesIO(text)).spec == load(str(tmp_path / "plan.json")).spec
    with pytest.raises(MissingPathError, match="cannot read nosuch"):
        load("nosuch.json")
    with pytest.raises(InputError, match="this is a folder"):
        load(str(tmp_path))


# Objectives that --defragment and --previous add to a policy's own


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("admission waiting disruption span", "admission waiting defragment disruption span"),
        ("disruption admission", "defragment disruption admission"),
        ("admission bandwidth waiting span", "admission bandwidth waiting defragment span"),
        ("bandwidth span", "defragment bandwidth span"),
        ("", "defragment"),
        # behind disruption it would move nothing
        ("admission disruption defragment", "admission defragment disruption"),
        ("admission bandwidth defragment", "admission defragment bandwidth"),
        # where it works already it stays
        ("defragment admission disruption", "defragment admission disruption"),
        ("admission defragment span disruption", "admission defragment span disruption"),
        ("admission defragment bandwidth", "admission defragment bandwidth"),
    ],
)
def test_defragment_goes_just_before_disruption(before: str, after: str) -> None:
    assert listed(with_defragment(asking(before))) == after


def test_stability_goes_last_and_only_once() -> None:
    assert listed(with_stability(asking("admission span"))) == "admission span stability"
    assert listed(with_stability(asking("stability span"))) == "stability span"
    assert listed(with_stability(with_defragment(Policy()))).endswith("stranded stability")


def asking(objectives: str) -> Policy:
    return Policy(objectives=tuple(Objective(name) for name in objectives.split()))


def listed(policy: Policy) -> str:
    return " ".join(objective.name for objective in policy.objectives)
