"""--previous: what is taken from an earlier plan, and the remarks on what is not."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from building import build, gang, role

from models.instance.instance import Instance
from models.results.plan import compose
from planner.errors import InputError, MissingPathError
from planner.pipelines.previous_plan import with_previous
from planner.read.plan_files import load
from planner.search.solve import solve

MALFORMED = """
{"kind": "Plan", "apiVersion": "gangplan.dev/v1alpha1", "file": 3, "instance": {"cluster": {"metadata": {}}},
 "spec": {"gangs": [{"namespace": "a", "name": "b", "pods": [{"role": "w", "node": "n", "index": -1}]}, 7]}}
"""


def instance() -> Instance:
    """Four servers of 8; llama asks for two pods of 8 and a launcher, tiny for one of 2."""
    return build(
        nodes_per_rack=4,
        gangs=[
            gang("llama", roles=[role("worker", 2, 8), role("launcher", 1, 0)]),
            gang("tiny", 1, 2),
        ],
    )


def plan(of: Instance) -> dict[str, Any]:
    when = "2026-11-21T12:00:00Z"
    return compose(of, solve(of), name="p", created_at=when, generator="test")


def saved(document: object, tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def remembering(
    now: Instance, document: dict[str, Any], tmp_path: Path
) -> tuple[Instance, tuple[str, ...]]:
    """The instance with the places that a saved plan has for its pods, and the remarks."""
    path = saved(document, tmp_path)
    return with_previous(now, load(path), path)


def pods(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    (found,) = [one for one in document["spec"]["gangs"] if one["name"] == name]
    result: list[dict[str, Any]] = found["pods"]
    return result


def test_every_pod_is_wanted_where_the_plan_has_it(tmp_path: Path) -> None:
    now = instance()
    document = plan(now)
    found, remarks = remembering(now, document, tmp_path)
    nodes = [node.name for node in now.cluster.nodes]
    for one in found.gangs:
        assert [
            {"role": one.roles[p.role].name, "index": p.index, "node": nodes[p.node]}
            for p in one.planned
        ] == [
            {key: pod[key] for key in ("role", "index", "node")} for pod in pods(document, one.name)
        ]
    assert [len(one.planned) for one in found.gangs] == [3, 1]
    assert remarks == ()
    # nothing else is taken over
    plain = tuple(replace(g, planned=()) for g in found.gangs)
    assert replace(found, gangs=plain, earlier=None) == now


def test_names_and_uids_of_pods_do_not_matter(tmp_path: Path) -> None:
    now = instance()
    document = plan(now)
    before, _ = remembering(now, document, tmp_path)
    for pod in [*pods(document, "llama"), *pods(document, "tiny")]:
        pod["name"], pod["uid"] = f"other-{pod['name']}", "another"
    assert remembering(now, document, tmp_path) == (before, ())


def test_gangs_that_are_gone_or_waited_or_are_new_are_no_matter(tmp_path: Path) -> None:
    now = instance()
    document = plan(now)
    pods(document, "tiny").clear()  # it waited
    document["spec"]["gangs"].append({**document["spec"]["gangs"][0], "name": "gone"})
    fresh = gang("new", 1, 1)
    later = replace(now, gangs=(*now.gangs[:1], fresh, *now.gangs[1:]))
    found, remarks = remembering(later, document, tmp_path)
    assert [len(one.planned) for one in found.gangs] == [3, 0, 0]
    assert remarks == ()


def test_nodes_roles_and_indices_that_are_gone_are_told_in_one_remark_each(tmp_path: Path) -> None:
    now = instance()
    document = plan(now)
    workers = pods(document, "llama")
    workers[0]["node"], workers[1]["node"] = "sold-2", "sold-1"
    workers[2]["role"] = "chief"
    workers.append({**workers[0], "index": 2, "node": "n01"})  # it has shrunk since
    found, remarks = remembering(now, document, tmp_path)
    assert [len(one.planned) for one in found.gangs] == [0, 1]
    file = tmp_path / "plan.json"
    strange = "default/llama chief 0, default/llama worker 2"
    assert remarks == (
        f"{file} places 2 pods on nodes that do not exist: sold-1, sold-2",
        f"{file} places 2 pods that their gangs do not have: {strange}",
    )


def test_a_plan_that_has_nothing_of_this_input_is_remarked(tmp_path: Path) -> None:
    document = plan(instance())
    others = build(gangs=[gang("elsewhere")])
    found, remarks = remembering(others, document, tmp_path)
    assert replace(found, earlier=None) == others
    assert [remark.partition("plan.json ")[2] for remark in remarks] == [
        "places none of these gangs: no pod has a previous place"
    ]
    # a plan in which everything waited says nothing, and there is nothing to remark
    for one in document["spec"]["gangs"]:
        one["pods"] = []
    found, remarks = remembering(others, document, tmp_path)
    assert (replace(found, earlier=None), remarks) == (others, ())


def test_a_pod_that_stands_twice_counts_once(tmp_path: Path) -> None:
    now = instance()
    document = plan(now)
    found, _ = remembering(now, document, tmp_path)
    twice = deepcopy(document)
    pods(twice, "llama").append({**pods(twice, "llama")[0], "node": "n04"})
    twice["spec"]["gangs"].append({**twice["spec"]["gangs"][0], "pods": []})
    assert remembering(now, twice, tmp_path)[0] == found


@pytest.mark.parametrize(
    ("was", "is_", "refused"),
    [("one", "two", True), ("one", "one", False), (None, "two", False), ("one", None, False)],
)
def test_a_plan_of_another_cluster_is_refused_where_both_say_which(
    was: str | None, is_: str | None, *, refused: bool, tmp_path: Path
) -> None:
    now = instance()
    then = replace(now, cluster=replace(now.cluster, uid=was))
    now = replace(now, cluster=replace(now.cluster, uid=is_))
    if not refused:
        assert any(one.planned for one in remembering(now, plan(then), tmp_path)[0].gangs)
        return
    with pytest.raises(InputError) as caught:
        remembering(now, plan(then), tmp_path)
    (fault,) = caught.value.faults
    assert fault.lines() == [
        "error: a plan of another cluster: its uid is one, not two",
        f"  --> {tmp_path / 'plan.json'}",
        "hint: give a plan that was made for this cluster",
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not JSON: expecting value"),
        (b"apiVersion: gangplan.dev/v1alpha1\nkind: Gang\n", "not JSON: expecting value"),
        (b"[]", "not a plan: an object is expected"),
        (b"\xff\xfe", "not a plan: byte 0 is not UTF-8"),
        (b"{}", "not a plan: it has no kind"),
        (b'{"kind": "Gang", "apiVersion": "gangplan.dev/v1alpha1"}', "not a plan: kind is 'Gang'"),
        (b'{"kind": "Plan", "apiVersion": "v2"}', "unknown version of a plan: apiVersion is 'v2'"),
        (
            b'{"kind": "Plan", "apiVersion": "gangplan.dev/v1alpha1"}',
            "missing field 'instance'",
        ),
        (
            MALFORMED.encode(),
            "spec.gangs[0].pods[0].index: the number -1 is too small",
        ),
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


def test_a_plan_may_come_from_standard_input(tmp_path: Path) -> None:
    text = json.dumps(plan(instance())).encode()
    found = load("-", io.BytesIO(text))
    assert found.spec == load(saved(json.loads(text), tmp_path)).spec


def test_a_missing_file_is_a_missing_path_and_a_folder_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="cannot read nosuch"):
        load("nosuch.json")
    with pytest.raises(InputError, match="this is a folder"):
        load(str(tmp_path))
