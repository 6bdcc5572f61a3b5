"""HyperNodes to tiers: members of every kind, gaps between tiers, malformed members."""

from __future__ import annotations

import pytest
from kube_levels import Tree, exact, found, hypernode, names, node, regex

from planner.read.kube.dialects import hypernodes

NODES = [node(f"n{i}", {"a/rack": f"k{i // 2}", "a/half": str(i // 4)}) for i in range(8)]


def tiers(*trees: Tree) -> tuple[dict[str, tuple[str | None, ...]], list[str]]:
    """Node to its HyperNodes, widest first; and what was said."""
    levels, nodes, said = found([*NODES, *trees])
    assert all(name.startswith("hypernode-tier-") for name in names(levels))
    return {one.name: levels.domain(one.name) for one in nodes}, said


def test_costly_patterns_and_many_members_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypernodes, "MAX_SEARCHES", 100)
    _, said = tiers(*(hypernode(f"h{i}", 1, regex("(n|m)*[0-9]$")) for i in range(30)))
    assert any("too many patterns and selectors to match" in line for line in said)
    monkeypatch.setattr(hypernodes, "MAX_MEMBERS", 20)
    _, said = tiers(*(hypernode(f"h{i}", 1, exact("n0"), exact("n1")) for i in range(30)))
    assert any("too many members of HyperNodes" in line for line in said)
