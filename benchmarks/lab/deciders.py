"""Who decides in a replay: the planner under a policy, or the rules of another scheduler.

The planner is the one of ``plan``, ``planner.search.solve``, on the instance of the moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from benchmarks.lab.orders import ATTAINED_GPU_S, Moment, least_attained
from benchmarks.lab.scheduler import Rules, schedule
from benchmarks.lab.standing import Standing
from models.documents.policy import SolveLimits
from models.instance.gang import Gang
from models.instance.policy import Policy
from models.instance.solution import GangDecision
from planner.search.solve import solve

NO_CLOCK_S = 24 * 60 * 60
"""Time limit of a search, which its budget ends long before: the clock must not decide anything."""

BANDS_CHANGE_S = 10 * 60
"""How often bands of running gangs are looked at where nothing else happens."""


class Scheduler(Protocol):
    """``policy``: in force."""

    policy: Policy

    def decide(self, moment: Moment) -> Sequence[GangDecision]:
        """One decision for each gang."""
        ...

    def dates(self, moment: Moment) -> Iterable[int]:
        """When time alone may change what it decides."""
        ...

    def stops(self, running: Iterable[Gang]) -> bool:
        """Whether it may stop, move or resize one of those who run."""
        ...


@dataclass
class Baseline:
    """Other rules. ``policy``: says which nodes are used, and nothing more."""

    rules: Rules
    policy: Policy
    _standing: Standing = field(default_factory=Standing)
    _stopped: bool = False

    def decide(self, moment: Moment) -> Sequence[GangDecision]:
        """What starts now, and what stops for it."""
        found = schedule(moment.instance, self.rules, self._seen(moment))
        self._stopped = any(decision.decision == "preempt" for decision in found)
        return found

    def _seen(self, moment: Moment) -> Moment:
        """The moment with what is known of those before."""
        return replace(moment, standing=self._standing)

    def dates(self, moment: Moment) -> Iterator[int]:
        """The end of somebody's time in the first queue of Tiresias; a second after somebody gave way."""
        if self.rules.rooms and self._stopped:
            yield moment.instance.now + 1
        if self.rules.stops is not least_attained:
            return
        for index, facts in enumerate(self._seen(moment).facts):
            if facts.gang.running:
                left = ATTAINED_GPU_S - moment.of(index).held_gpu_s
                yield moment.instance.now + -(-left // max(1, facts.held))

    def stops(self, running: Iterable[Gang]) -> bool:
        """Some rules do."""
        del running
        return self.rules.stops is not None or bool(self.rules.rooms)


@dataclass
class Planner:
    """``gangplan plan`` with a small budget. ``seconds``: of every plan made."""

    policy: Policy
    seconds: list[float] = field(default_factory=list)

    def decide(self, moment: Moment) -> Sequence[GangDecision]:
        """The plan of the moment."""
        started = time.monotonic()
        solution = solve(moment.instance, frequent=True)
        self.seconds.append(time.monotonic() - started)
        return solution.decisions

    def dates(self, moment: Moment) -> Iterator[int]:
        """A gang has waited for long, or a reservation comes nearer."""
        instance, policy = moment.instance, self.policy
        if policy.reservations and any(gang.running for gang in instance.gangs):
            yield instance.now + 1
        if (
            policy.order == "shortest"
        ):  # who runs longer than expected is expected to run even longer
            yield instance.now + BANDS_CHANGE_S
        for gang in instance.gangs:
            if gang.running:
                continue
            if policy.starvation_after_s is not None and gang.submitted_at is not None:
                yield gang.submitted_at + policy.starvation_after_s + 1

    def stops(self, running: Iterable[Gang]) -> bool:
        """The policy may move or stop gangs that allow it."""
        return any(gang.movable or gang.elastic or gang.preemptible for gang in running)


def limited(policy: Policy, budget: int, seed: int) -> Policy:
    """The policy with deterministic limits for one of many plans; one worker, for runs are parallel."""
    return replace(policy, solve=SolveLimits(budget, NO_CLOCK_S, 1, seed))
