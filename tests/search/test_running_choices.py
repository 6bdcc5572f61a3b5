"""Launchers do not restart their gangs for ``span`` alone: an input on which the search once did so."""

from __future__ import annotations

from pathlib import Path

from comparing import misstated

from planner.read.inputs import read
from planner.search.solve import solve


def test_launchers_do_not_restart_their_gangs_for_span_alone() -> None:
    """Three launchers stand alone on node1, their workers fill node0; the queue is at its limit."""
    instance = read([str(Path(__file__).parents[1] / "data" / "launchers.json")])
    solution = solve(instance)
    assert list(misstated("search", instance, solution)) == []
    assert [one.decision for one in solution.decisions] == ["wait", "keep", "keep", "keep"]
    values = {tier.name: tier.value for tier in solution.tiers}
    # each gang of 2 GPUs is on 2 nodes
    assert (values["disruption"], values["span"]) == (0, 6)
