"""HyperNodes to tiers: members of every kind, gaps between tiers, malformed members."""

from __future__ import annotations

import pytest
from kube_levels import Tree, exact, found, hypernode, label_match, names, node, regex

from planner.read.kube.levels import hypernodes
from planner.read.kube.records import LevelAsk

NODES = [node(f"n{i}", {"a/rack": f"k{i // 2}", "a/half": str(i // 4)}) for i in range(8)]


def tiers(*trees: Tree) -> tuple[dict[str, tuple[str | None, ...]], list[str]]:
    """Node to its HyperNodes, widest first; and what was said."""
    levels, nodes, said = found([*NODES, *trees])
    assert all(name.startswith("hypernode-tier-") for name in names(levels))
    return {one.name: levels.domain(one.name) for one in nodes}, said


@pytest.mark.parametrize(
    "members",
    [
        [exact("n0"), exact("n1"), exact("n2"), exact("n3")],
        [regex("^n[0-3]$")],
        [regex("[0-3]")],  # found anywhere in the name, as Volcano does
        [regex("^n0|^n[1-3]")],
        [regex(r"(?i)\AN(?P<number>[0-3]{1})\z")],
        [regex("^n*[0-3]")],
        [label_match(matchLabels={"a/half": "0"})],
        [
            label_match(
                matchExpressions=[{"key": "a/rack", "operator": "In", "values": ["k0", "k1"]}]
            )
        ],
        [label_match(matchLabels={"a/rack": "k0"}), label_match(matchLabels={"a/rack": "k1"})],
        [
            label_match(
                matchLabels={"a/half": "0"},
                matchExpressions=[
                    {"key": "a/rack", "operator": "NotIn", "values": ["k2"]},
                    {"key": "a/rack", "operator": "Exists"},
                    {"key": "a/none", "operator": "DoesNotExist"},
                ],
            )
        ],
        [regex("n[01]"), exact("n2"), label_match(matchLabels={"a/rack": "k1"})],
    ],
)
def test_members_of_every_kind_are_found(members: list[Tree]) -> None:
    inside, said = tiers(hypernode("h", 1, *members))
    assert inside == {f"n{i}": ("h",) if i < 4 else (None,) for i in range(8)}
    assert said == []


def test_tiers_nest_by_name_and_by_pattern() -> None:
    inside, said = tiers(
        hypernode("top", 7, regex("^m", "HyperNode")),
        hypernode("m-1", 3, exact("h0", "HyperNode"), exact("h1", "HyperNode")),
        hypernode("m-2", 3, regex("^h[23]$", "HyperNode")),
        *(hypernode(f"h{i}", 1, label_match(matchLabels={"a/rack": f"k{i}"})) for i in range(4)),
    )
    assert inside == {f"n{i}": ("top", f"m-{i // 4 + 1}", f"h{i // 2}") for i in range(8)}
    assert said == []


def test_a_tier_is_found_by_the_number_up_to_which_a_gang_may_spread() -> None:
    trees = [
        *NODES,
        hypernode("m", 5, regex(".", "HyperNode"), tier_name="row"),
        *(
            hypernode(f"h{i}", 2, regex(f"n[{2 * i}{2 * i + 1}]"), tier_name="rack")
            for i in range(4)
        ),
    ]
    levels, _, _ = found(trees)
    assert names(levels) == ["hypernode-tier-5", "hypernode-tier-2"]
    resolved = [levels.resolve(LevelAsk(tier=tier)) for tier in (0, 1, 2, 4, 5, 99)]
    # no HyperNode is of tier 1 or below
    low, high = "hypernode-tier-2", "hypernode-tier-5"
    assert resolved == [low, None, low, low, high, high]
    assert levels.resolve(LevelAsk(tier_name="rack")) == low
    assert levels.resolve(LevelAsk(tier_name="row")) == high


@pytest.mark.parametrize(
    ("member", "what"),
    [
        (exact("n99"), "a member that is not in the input"),
        (exact("h2", "HyperNode"), "a member that is not in the input, or not of a lower tier"),
        (regex("n[0-1"), "the pattern 'n[0-1' is not supported; its members are unknown"),
        (regex("(n"), "the pattern '(n' is not supported"),
        (regex("((n|m){900}){900}"), "is not supported"),
        (regex("n" * 501), "is not supported"),
        (regex("n\ud800"), "is not supported"),
        ({"type": "Node"}, "has a malformed member; ignored"),
        ({"type": "Rack", "selector": {}}, "has a malformed member; ignored"),
        ({"type": "Node", "selector": {"exactMatch": {"name": 5}}}, "malformed member"),
        (label_match(), "malformed member"),
        (label_match(matchLabels={"a/rack": 5}), "malformed member"),
    ],
)
def test_a_member_that_is_odd_is_passed_over(member: Tree, what: str) -> None:
    inside, said = tiers(hypernode("h", 1, member, exact("n0"), exact("n1")), hypernode("h2", 1))
    assert inside["n0"] == ("h",)
    assert inside["n2"] == (None,)
    assert any(line.startswith("HyperNode h: ") and what in line for line in said)


def test_hypernodes_in_one_another_end() -> None:
    inside, _ = tiers(
        hypernode("a", 1, exact("b", "HyperNode"), regex("n[01]")),
        hypernode("b", 1, exact("a", "HyperNode"), regex("n[23]")),
        hypernode("c", 2, exact("c", "HyperNode"), exact("a", "HyperNode")),
    )
    assert (inside["n0"], inside["n2"]) == (("c", "a"), ("b", "b"))


def test_costly_patterns_and_many_members_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypernodes, "MAX_SEARCHES", 100)
    _, said = tiers(*(hypernode(f"h{i}", 1, regex("(n|m)*[0-9]$")) for i in range(30)))
    assert any("too many patterns and selectors to match" in line for line in said)
    monkeypatch.setattr(hypernodes, "MAX_MEMBERS", 20)
    _, said = tiers(*(hypernode(f"h{i}", 1, exact("n0"), exact("n1")) for i in range(30)))
    assert any("too many members of HyperNodes" in line for line in said)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$", ".*.*.*.*.*x", "(.*)*x$"])
def test_a_pattern_that_makes_others_backtrack_is_matched_in_linear_time(pattern: str) -> None:
    """With backtracking, a single name of 250 characters would take longer than the universe is old."""
    names = [node("a" * 250 + str(i), {}) for i in range(10)]
    _, _, said = found([*names, hypernode("h", 1, regex(pattern + "!"))])
    assert said == []
