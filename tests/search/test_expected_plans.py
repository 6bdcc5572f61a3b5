"""Inputs whose plans were worked out by hand: the planner finds and proves them, and the judge agrees.

A file of tests/expected holds cases of the input of its name: fields of the policy that it replaces, the
decisions (``place|move``: one of these), the nodes and the values of all tiers. ``nodes`` lists a pattern a
pod, by role and index, of gangs whose pods start or move: ``r1-n*|r2-n1`` means one of these, whichever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from input_folders import EXPECTED, input_folder

from models.instance.instance import Instance
from models.results.plan import compose
from models.units import time_text
from models.verify.check import check, derive
from planner.read.inputs import read
from planner.search.solve import solve

Case = dict[str, Any]

KNOWN = {"policy", "decisions", "nodes", "tiers", "moves", "aged", "reserved", "expected"}


def _cases() -> Iterator[tuple[str, str, Case]]:
    for path in sorted(EXPECTED.glob("*.plan")):
        for number, case in enumerate(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)):
            assert set(case) <= KNOWN, f"{path}: {sorted(set(case) - KNOWN)}"
            yield path.stem + (f"-{number}" if number else ""), path.stem, case


CASES = [pytest.param(folder, case, id=name) for name, folder, case in _cases()]


def instance_of(folder: str, policy: Case, scratch: Path) -> Instance:
    """The input with the policy of the case."""
    where = input_folder(folder)
    if not policy:
        return read([str(where)])
    document = yaml.load(
        (where / "policy.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
    )
    document["spec"] |= policy
    replaced = scratch / "policy.json"
    replaced.write_text(json.dumps(document, default=datetime.isoformat), encoding="utf-8")
    return read([str(where)], policy=str(replaced))


def fits(nodes: list[str], patterns: list[str]) -> bool:
    """Whether every node can be given to a pattern of its own that it matches."""
    if not patterns:
        return not nodes
    return any(
        any(fnmatch(node, one) for one in patterns[0].split("|"))
        and fits(nodes[:i] + nodes[i + 1 :], patterns[1:])
        for i, node in enumerate(nodes)
        if node not in nodes[:i]
    )


def test_patterns_are_given_to_nodes_one_to_one() -> None:
    assert fits(["a1", "b1"], ["a*|b*", "a*"])
    assert not fits(["b1", "b2"], ["a*|b*", "a*"])
    assert not fits(["a1"], ["a*", "a*"])


def at(value: datetime) -> str:
    return time_text(int(value.timestamp()))


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_the_planner_finds_the_plan_worked_out_by_hand_and_proves_it(
    folder: str, case: Case, tmp_path: Path
) -> None:
    instance = instance_of(folder, case.get("policy", {}), tmp_path)
    plan = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T12:00:00Z", generator="t"
    )
    assert check(plan) == []
    stated = {tier["name"]: tier["value"] for tier in plan["status"]["objectives"]}
    assert (stated, list(stated)) == (case["tiers"], list(case["tiers"]))
    assert derive(plan) == case["tiers"]
    assert plan["status"]["outcome"] == "optimal"
    gangs = {f"{one['namespace']}/{one['name']}": one for one in plan["spec"]["gangs"]}
    assert sorted(gangs) == list(case["decisions"])
    for name, one in gangs.items():
        assert one["decision"] in case["decisions"][name].split("|"), name
        if name in case["nodes"] and one["decision"] != "keep":
            nodes = [pod["node"] for pod in one["pods"]]
            assert fits(nodes, case["nodes"][name]), (name, nodes)
    assert plan["status"].get("moves", []) == case.get("moves", [])
    assert [name for name, one in gangs.items() if one.get("aged")] == case.get("aged", [])
    held = {n: one["reserved"] for n, one in gangs.items() if "reserved" in one}
    assert {name: (own["start"], own["nodes"]) for name, own in held.items()} == {
        name: (at(own["start"]), own["nodes"]) for name, own in case.get("reserved", {}).items()
    }
    expected = {n: one["expectedStart"] for n, one in gangs.items() if "expectedStart" in one}
    assert expected == {name: at(own) for name, own in case.get("expected", {}).items()}
