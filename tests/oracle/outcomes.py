"""What the planner decides on a small instance, asked in words.

Promises: every outcome was proven best tier by tier, found fault-free by the checker, and, unless the
caller says the instance is too large, has the values of the exhaustive planner, which keeps the same
reservations. Called by tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from exhaustive import plan
from exhaustive_rates import bits
from exhaustive_reserving import stated as reservations
from exhaustive_values import tier_values

from models.instance.instance import Instance
from models.instance.solution import GangDecision, Solution
from models.results.plan import compose
from models.verify.check import check
from planner.search.solve import solve

NOW = "2026-11-21T00:00:00Z"


@dataclass(frozen=True)
class Outcome:
    """One plan. Gangs are asked for by name."""

    instance: Instance
    solution: Solution

    def of(self, name: str) -> GangDecision:
        (index,) = (i for i, gang in enumerate(self.instance.gangs) if gang.name == name)
        return self.solution.decisions[index]

    def decision(self, name: str) -> str:
        return self.of(name).decision

    def decisions(self) -> dict[str, str]:
        return {gang.name: self.decision(gang.name) for gang in self.instance.gangs}

    def reason(self, name: str) -> str | None:
        reason = self.of(name).reason
        return None if reason is None else reason.code

    def nodes(self, name: str) -> list[str]:
        """Node of every pod, by (role, index)."""
        return [self.instance.cluster.nodes[pod.node].name for pod in self.of(name).pods]

    def per_node(self, name: str) -> list[int]:
        """Pods a node, largest first."""
        nodes = self.nodes(name)
        return sorted((nodes.count(node) for node in set(nodes)), reverse=True)

    def gpus(self, name: str) -> list[tuple[int, ...] | None]:
        """GPU indices of every pod, None where the node decides."""
        return [None if p.gpus is None else bits(p.gpus) for p in self.of(name).pods]

    def domains(self, name: str, level: str) -> int:
        """Domains of the level that the gang's pods use."""
        cluster = self.instance.cluster
        levels = [cluster.level_name(i) for i in range(len(cluster.levels) + 1)]
        of = cluster.domain_of[levels.index(level)]
        return len({of[pod.node] for pod in self.of(name).pods})

    def value(self, tier: str) -> int:
        (value,) = (t.value for t in self.solution.tiers if t.name == tier)
        return value


def document_of(instance: Instance) -> dict[str, Any]:
    """The plan of an instance as it is on disk."""
    plan = compose(instance, solve(instance), name="p", created_at=NOW, generator="gangplan test")
    return json.loads(json.dumps(plan))  # type: ignore[no-any-return]


def planned(instance: Instance, *, small: bool = True) -> Outcome:
    """The planner's outcome; ``small``: also try every plan."""
    solution = solve(instance)
    stated = tuple((tier.name, tier.value) for tier in solution.tiers)
    assert [tier.name for tier in solution.tiers if tier.bound != tier.value] == []
    assert stated == tier_values(instance, solution.decisions)
    document = compose(instance, solution, name="test", created_at=NOW, generator="gangplan test")
    assert check(document) == []
    if small:
        assert stated == plan(instance, reserved=reservations(instance, document)).tiers
    return Outcome(instance, solution)
