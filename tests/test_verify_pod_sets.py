"""Sabotage of rules about the pods of sets: a pod or the instance is changed, and the judge names the rule.

The plan and its racks are in plan_pod_sets.py.
"""

from __future__ import annotations

import pytest
from plan_documents import (
    Change,
    Doc,
    both,
    decided,
    entry,
    gang,
    restated,
    role,
    server,
    standing,
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


def _also(name: str, node: str, gpu: int, *, stands: bool = False, **more: object) -> Change:
    """One more gang, the last by name."""

    def change(plan: Doc) -> None:
        pods = (standing(name, node, [gpu]),) if stands else ()
        plan["instance"]["gangs"].append(gang(name, role(**more), pods=pods))
        plan["spec"]["gangs"].append(decided(name, "keep" if stands else "place", (node, [gpu])))

    return change


def broken(change: Change) -> dict[tuple[str, str | None], str]:
    """Messages of the violations, by rule and gang."""
    plan = pod_sets_plan()
    change(plan)
    return {(v.rule, v.gang): v.message for v in check(restated(plan))}


def test_the_plan_breaks_no_rule() -> None:
    assert check(pod_sets_plan()) == []


APART, JOIN, SPREAD = "anti-affinity", "affinity", "spread"
NOT_SLOW = [{"key": "disk", "operator": "NotIn", "values": ["slow"]}]

BROKEN: list[tuple[str, Change, str, dict[str, str]]] = [
    ("two pods on one node", _move("each", 1, "a1", 7), APART, {"each": "node a1"}),
    (
        "two trainers in one rack",
        _move("tune", 0, "a3", 0, 1, 2, 3),
        APART,
        {"train": "2 in the rack of node a2", "tune": "2 in the rack of node a3"},
    ),
    (
        "a trainer comes where one stands",
        both(stands("train"), _move("tune", 0, "a3", 0, 1, 2, 3)),
        APART,
        {"train": "the rack of node a2", "tune": "the rack of node a3"},
    ),
    (
        "a pod of the set comes to the one that stands",
        _move("job", 0, "c1", 1),
        APART,
        {"guard": "c1"},
    ),
    (
        "a pod of no gang is there",
        _server("a3", podSets={"trainers": 1}),
        APART,
        {"train": "the rack of node a2"},
    ),
    (
        "both in a domain of their own",
        _move("train", 0, "lone", 0, 1, 2, 3),
        APART,
        {"train": "the rack of node lone", "tune": "the rack of node lone"},
    ),
    ("one of two in a rack without a base pod", _move("join", 1, "a3", 0, 1), JOIN, {"join": "a3"}),
    (
        "where there is no pod of the set",
        _server("b1", podSets={"other": 1}),
        JOIN,
        {"join": "there is no pod of the set 'cache'"},
    ),
    (
        "the only base pod is in no rack",
        both(_server("b1", podSets={}), _server("lone", podSets={"cache": 1})),
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
        "two gangs that start the set apart",
        _also("zwei", "b1", 6, podSets=["pair"], affinity=[{**RACK, "podSet": "pair"}]),
        JOIN,
        {"pair": "not in 2", "zwei": "not in 2"},
    ),
    (
        "the set starts elsewhere",
        _also("zwei", "b1", 6, podSets=["pair"]),
        JOIN,
        {"pair": "the rack of node a1"},
    ),
    (
        "a third pod in one rack",
        _move("serve", 3, "a3", 0),
        SPREAD,
        {"serve": "3 pods of role worker are in"},
    ),
    (
        "an empty rack counts, cordoned and full as it is",
        both(
            stands("tune"),
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
    (
        "a set that others fill",
        both(
            _role("serve", podSets=["other"]), _spread(podSet="other"), _move("serve", 0, "b1", 5)
        ),
        SPREAD,
        {"serve": "3 pods of the set 'other'"},
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
        "gangs that stay may be together",
        both(_move("tune", 0, "a3", 0, 1, 2, 3), stands("tune"), stands("train")),
    ),
    ("pods that stay need no company", both(_move("join", 1, "a3", 0, 1), stands("join"))),
    ("pods that stay may be uneven", both(_move("serve", 3, "a3", 0), stands("serve"))),
    ("a gang that waits is in no set", both(_waits("train"), _move("tune", 0, "a1", 4, 5, 6, 7))),
    ("racks of one name in two blocks", _move("tune", 0, "c1", 1, 2, 3, 5)),
    (
        "pods join one that stands",
        both(
            _also("zwei", "b1", 6, stands=True, podSets=["pair"]),
            _move("pair", 0, "b1", 5),
            _move("pair", 1, "b1", 7),
        ),
    ),
    (
        "two gangs start a set in one rack",
        _also("zwei", "a3", 6, podSets=["pair"], affinity=[{**RACK, "podSet": "pair"}]),
    ),
    (
        "one that is not in the set joins one that starts it",
        _also("zwei", "a3", 6, affinity=[{**RACK, "podSet": "pair"}]),
    ),
    (
        "a level of another affinity",
        _also("zwei", "b1", 6, affinity=[{"level": "block", "podSet": "pair"}]),
    ),
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
    (
        "pods on nodes that the role does not select do not count",
        both(
            _role("serve", podSets=["more"], nodeAffinity=[NOT_SLOW]),
            _spread(podSet="more"),
            _server("a3", podSets={"more": 7}),
        ),
    ),
    (
        "a node without a value at another spread does not count",
        both(
            _role(
                "serve",
                podSets=["more"],
                spread=[{"level": "block", "podSet": "more", "maxSkew": 2}, RACK],
            ),
            _server("lone", podSets={"more": 9}),
        ),
    ),
]


@pytest.mark.parametrize("change", [one[1] for one in ALLOWED], ids=[one[0] for one in ALLOWED])
def test_what_is_allowed_passes(change: Change) -> None:
    assert broken(change) == {}


@pytest.mark.parametrize(
    ("code", "rule", "mine"),
    [
        ("AntiAffinity", "anti-affinity", "batch"),
        ("Affinity", "affinity", "pair"),
        ("Spread", "spread", "other"),
    ],
)
def test_a_reason_names_a_rule_that_is_about_the_gang(code: str, rule: str, mine: str) -> None:
    def stated(pod_set: str) -> Change:
        return both(
            _spread(podSet="other", maxSkew=5),
            _role("job", podSets=[pod_set]),
            lambda plan: entry(plan, "job").update(decided("job", "wait", why=code)),
        )

    assert broken(stated(mine)) == {}
    no_rule = {("reason", "default/job"): f"{code}: no {rule} is about its pods"}
    assert broken(stated("alone")) == no_rule


DENIED = {"gpus": 1, "apart": True}
"""Fields of a reason that claims a proof."""


@pytest.mark.parametrize(
    ("node", "code", "fits"),
    [
        ("a1", "NoRoom", True),
        ("lone", "NoRoom", True),
        ("c1", "NoRoom", False),  # guard keeps it out of that rack
        ("", "NoRoom", False),
    ],
)
def test_free_gpus_refute_a_reason_only_where_no_rule_keeps_the_gang_out(
    node: str, code: str, fits: bool
) -> None:
    taken = [
        _server(name, podSets={"cache": 1})
        for name in ("a1", "a2", "a3", "b1", "c1", "lone")
        if name != node
    ]
    apart = _role("job", podSets=["batch"], antiAffinity=[{"level": "node", "podSet": "cache"}])

    def denied(plan: Doc) -> None:
        entry(plan, "job").update(decided("job", "wait", why=code))
        entry(plan, "job")["reason"]["fields"] = DENIED

    words = {("reason", "default/job"): f"{code}: it fits beside the others, on {node}"}
    assert broken(both(*taken, apart, denied)) == (words if fits else {})
