"""Sabotage of rules about the pods of a gang: a pod or the instance is changed, and the judge names the rule.

The plan and its racks are in plan_pod_sets.py.
"""

from __future__ import annotations

import pytest
from plan_documents import (
    Change,
    both,
    decided,
    entry,
    restated,
    server,
    stands,
    wanted,
)
from plan_pod_sets import RACK, pod_sets_plan

from models.verify.check import check


def _move(name: str, position: int, node: str, *gpus: int) -> Change:
    return lambda plan: entry(plan, name)["pods"][position].update(node=node, gpus=list(gpus))


def _role(name: str, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"]["roles"][0].update(changes)


def _server(name: str, **changes: object) -> Change:
    return lambda plan: server(plan, name).update(changes)


def _waits(name: str) -> Change:
    return lambda plan: entry(plan, name).update(decided(name, "wait", why="NoRoom"))


def _spread(**changes: object) -> Change:
    return _role("serve", spread=[{**RACK, "maxSkew": 1, **changes}])


def broken(change: Change) -> dict[tuple[str, str | None], str]:
    """Messages of the violations, by rule and gang."""
    plan = pod_sets_plan()
    change(plan)
    return {(v.rule, v.gang): v.message for v in check(restated(plan))}


def test_the_plan_breaks_no_rule() -> None:
    assert check(pod_sets_plan()) == []


APART, JOIN, SPREAD = "anti-affinity", "affinity", "spread"

BROKEN: list[tuple[str, Change, str, dict[str, str]]] = [
    ("two pods on one node", _move("each", 1, "a1", 7), APART, {"each": "node a1"}),
    (
        "two roles in one rack",
        _move("train", 1, "a3", 0, 1, 2, 3),
        APART,
        {"train": "2 in the rack of node a"},
    ),
    (
        "in a domain of their own",
        _move("train", 0, "lone", 0, 1, 2, 3),
        APART,
        {"train": "the rack of node lone"},
    ),
    ("one of two in a rack without a base pod", _move("join", 1, "a3", 4, 5), JOIN, {"join": "a3"}),
    (
        "where there is no pod of the set",
        _role("join", podSets=[]),
        JOIN,
        {"join": "there is no pod of the set 'cache'"},
    ),
    (
        "the only base pod is in no rack",
        _move("join", 0, "lone", 1),
        JOIN,
        {"join": "the rack of node b1"},
    ),
    (
        "together in no rack",
        both(_move("pair", 0, "lone", 0), _move("pair", 1, "lone", 1)),
        JOIN,
        {"pair": "in no rack"},
    ),
    ("the first ones apart", _move("pair", 1, "b1", 6), JOIN, {"pair": "not in 2"}),
    (
        "a third pod in one rack",
        _move("serve", 3, "a3", 0),
        SPREAD,
        {"serve": "3 pods of role worker are in"},
    ),
    (
        "an empty rack counts, cordoned and full as it is",
        both(
            stands("train"),
            _server("lone", domains={"block": "b2", "rack": "r2"}, unschedulable=True),
        ),
        SPREAD,
        {"serve": "above the least, 0"},
    ),
    (
        "too few racks",
        _spread(minDomains=4),
        SPREAD,
        {"serve": "2 pods of role worker are in the rack of node a1"},
    ),
    (
        "a pod in no rack",
        _move("serve", 3, "lone", 0),
        SPREAD,
        {"serve": "is placed on node lone, in no rack"},
    ),
]


@pytest.mark.parametrize(
    ("change", "rule", "said"), [one[1:] for one in BROKEN], ids=[one[0] for one in BROKEN]
)
def test_a_breach_is_named_with_its_rule_gang_and_domain(
    change: Change, rule: str, said: dict[str, str]
) -> None:
    found = broken(change)
    expected = {(rule, f"default/{name}"): words for name, words in said.items()}
    assert found.keys() == expected.keys()
    assert {key: words for key, words in expected.items() if words not in found[key]} == {}


ALLOWED: list[tuple[str, Change]] = [
    ("pods that stay may be together", both(_move("each", 1, "a1", 7), stands("each"))),
    (
        "roles that stay may be together",
        both(_move("train", 1, "a3", 0, 1, 2, 3), stands("train")),
    ),
    ("pods that stay need no company", both(_move("join", 1, "a3", 0, 1), stands("join"))),
    ("pods that stay may be uneven", both(_move("serve", 3, "a3", 0), stands("serve"))),
    ("racks of one name in two blocks", _move("train", 1, "c1", 1, 2, 3, 5)),
    ("a larger skew", both(_move("serve", 3, "a3", 0), _spread(maxSkew=3))),
    ("exactly enough racks", _spread(minDomains=3)),
    (
        "an empty rack that the role does not select",
        both(
            *(_server(n, labels={"disk": "fast"}) for n in ("a1", "a2", "b1", "c1")),
            _server("lone", domains={"block": "b2", "rack": "r2"}),
            _role("serve", nodeSelector={"disk": "fast"}),
        ),
    ),
]


@pytest.mark.parametrize("change", [one[1] for one in ALLOWED], ids=[one[0] for one in ALLOWED])
def test_what_is_allowed_passes(change: Change) -> None:
    assert broken(change) == {}


@pytest.mark.parametrize(
    ("gang", "code"), [("each", "AntiAffinity"), ("pair", "Affinity"), ("serve", "Spread")]
)
def test_a_reason_names_a_rule_that_the_gang_has(gang: str, code: str) -> None:
    def waits(name: str) -> Change:
        return lambda plan: entry(plan, name).update(decided(name, "wait", why=code))

    other = "serve" if gang != "serve" else "each"
    assert ("reason", f"default/{gang}") not in broken(waits(gang))
    said = broken(waits(other))["reason", f"default/{other}"]
    assert said.startswith(f"{code}: no ")
