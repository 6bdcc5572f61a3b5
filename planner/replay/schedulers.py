"""Who decides in a replay: the planner under a policy, or the rules of another scheduler.

The planner is the one of ``plan``, ``planner.search.solve``, on the instance of the moment. The rules are
those of ``planner.baselines``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.solution import GangDecision
from planner.baselines.rules import (
    BASELINES,
    HIVED,
    KAI,
    KUBE_PACK,
    KUBE_SPREAD,
    KUEUE_BEST_FIT,
)
from planner.baselines.scheduler import Rules, schedule

FIFO = replace(KUBE_PACK, name="fifo", strict=True)
"""Strict order of submission: nobody overtakes the first that waits. Pods as in ``KUBE_PACK``."""

RULES: dict[str, Rules] = {
    "fifo": FIFO,
    "mostallocated": KUBE_PACK,
    "leastallocated": KUBE_SPREAD,
    "kueue": KUEUE_BEST_FIT,
    "kai": KAI,
    "hived": HIVED,
    **BASELINES,
}
"""Rules by the names that users write."""

NO_CLOCK_S = 24 * 60 * 60
"""Time limit of a search, which its budget ends long before: the clock must not decide anything."""


class Scheduler(Protocol):
    """``policy``: in force. ``online``: it decides at every event, not only at ticks.

    ``ages``: time alone may change what it decides.
    """

    policy: Policy
    online: bool
    ages: bool

    def decide(self, instance: Instance) -> Sequence[GangDecision]:
        """One decision for each gang."""
        ...


@dataclass
class Baseline:
    """Other rules, at every event. ``policy``: says which nodes are used, and nothing more."""

    rules: Rules
    policy: Policy
    online: bool = True
    ages: bool = False

    def decide(self, instance: Instance) -> Sequence[GangDecision]:
        """What starts now."""
        return schedule(instance, self.rules)


@dataclass
class Planner:
    """``gangplan plan`` with a small budget. ``seconds``: of every plan made."""

    policy: Policy
    online: bool
    stop: threading.Event = field(default_factory=threading.Event)
    ages: bool = True
    seconds: list[float] = field(default_factory=list)

    def decide(self, instance: Instance) -> Sequence[GangDecision]:
        """The plan of the moment."""
        from planner.search.solve import solve  # loads the engines

        started = time.monotonic()
        solution = solve(instance, stop=self.stop, frequent=True)
        self.seconds.append(time.monotonic() - started)
        return solution.decisions


def limited(policy: Policy, budget: int, seed: int) -> Policy:
    """The policy with deterministic limits for one of many plans; one worker, for runs are parallel."""
    return replace(policy, solve=SolveLimits(budget, NO_CLOCK_S, 1, seed))
