"""Disruption budgets of a cluster: how many evictions each allows, and whether pods may go together.

As the API server decides it, but for all pods at once: its dry runs do not count together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DisruptionBudgets:
    """Budgets by namespace and name.

    ``allowed``: the evictions that each allows now. ``guards``: by namespace and name of a pod, the names of
    the budgets that count its eviction; with more than one it can never be evicted. Every other pod may go.
    """

    allowed: Mapping[Key, int] = field(default_factory=dict)
    guards: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)

    def refusal(self, pods: Iterable[Key]) -> str | None:
        """Why these pods, each given once, may not all be evicted; None if they may."""
        wanted: dict[Key, int] = {}
        for namespace, name in pods:
            budgets = self.guards.get((namespace, name), ())
            if len(budgets) > 1:
                return (
                    f"pod {namespace}/{name} is in the disruption budgets {' and '.join(budgets[:2])}:"
                    " a pod in more than one cannot be evicted"
                )
            for budget in budgets:
                wanted[namespace, budget] = wanted.get((namespace, budget), 0) + 1
        for (namespace, budget), evictions in sorted(wanted.items()):
            allowed = self.allowed.get((namespace, budget), 0)
            if evictions > allowed:
                return (
                    f"the disruption budget {namespace}/{budget} allows {allowed} of"
                    f" {evictions} evictions"
                )
        return None
