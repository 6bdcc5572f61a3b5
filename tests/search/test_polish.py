"""Single steps at the end of a search: each kind is found, and only what is better is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bounding import dishonest
from building import build, gang, node
from building_servers import switched
from tiny_busy import busy

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement, Solution
from models.program.base_state import base_decisions
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.improve.rearranging import polish
from planner.search.ledger import Ledger


def plenty() -> Budget:
    return Budget(replace(SolveLimits(), budget=1000, time_limit_s=1000))


def polished(instance: Instance, start: tuple[GangDecision, ...]) -> Ledger:
    ledger = Ledger(instance, start)
    polish(ledger, plenty())
    ledger.close_all()
    decisions = with_reasons(instance, ledger.incumbent.decisions, plenty())
    plan = Solution(decisions, ledger.results(), "budget", "test", 0.0, ())
    assert dishonest(instance, plan) == []
    return ledger


def nodes_of(ledger: Ledger, name: str) -> list[int]:
    (index,) = (i for i, one in enumerate(ledger.instance.gangs) if one.name == name)
    return sorted({pod.node for pod in ledger.incumbent.decisions[index].pods})


def placed(*pods: tuple[int, int]) -> GangDecision:
    """(node, mask of GPUs) of the pods of one role."""
    return GangDecision("place", tuple(PodPlacement(0, i, n, m) for i, (n, m) in enumerate(pods)))


WAITS = GangDecision("wait", ())


def test_what_fits_beside_the_others_starts_where_it_is_fastest() -> None:
    # Beside "small" on n1 there is room for 6 GPUs, and n2 is free: "large" starts there.
    nodes = [node("n1", switched(8)), node("n2", switched(8))]
    instance = build(nodes=nodes, gangs=[gang("large", 1, 8), gang("small", 1, 2)])
    ledger = polished(instance, (WAITS, placed((0, 3))))
    assert (nodes_of(ledger, "large"), nodes_of(ledger, "small")) == ([1], [0])


@pytest.mark.parametrize("seed", range(12))
def test_no_step_is_left_and_none_is_worse(seed: int) -> None:
    instance = busy(seed)
    start = base_decisions(instance)
    ledger = polished(instance, start)
    again = polished(instance, ledger.incumbent.decisions)
    assert again.incumbent.decisions == ledger.incumbent.decisions
    first = Ledger(instance, start).incumbent.values
    better = [
        (new > old) if tier.sense == "max" else (new < old)
        for tier, old, new in zip(ledger.tiers, first, ledger.incumbent.values, strict=True)
        if new != old
    ]
    assert better[:1] != [False]


def test_a_budget_that_is_used_up_ends_it() -> None:
    instance = build(nodes_per_rack=1, gangs=[gang("a", 1, 8)])
    ledger, budget = Ledger(instance, (WAITS,)), plenty()
    budget.stop.set()
    polish(ledger, budget)
    assert nodes_of(ledger, "a") == []
