"""Measure one case in this process and print the figures as one JSON object.

A process of its own a case, so that peak memory and imports are the case's alone. Every plan, of the planner
and of the rules of others, is composed and judged in the same way. Called as ``python -m benchmarks.measure
CASE``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.cases import CASES, describe, instance_of
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule, signed_values, solution_of
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.results.plan import PlanWriter
from models.values.effective_gpus import gpus_at_speed
from models.values.tier_values import Evaluation
from models.verify.check import Judge
from planner.search.solve import solve

OURS = "gangplan"


@dataclass
class Stopwatch:
    """``first_s``: when the first plan was there, in seconds from the start."""

    start: float = field(default_factory=time.monotonic)
    first_s: float | None = None

    def update(self, _tier: str, value: int | None, _bound: int | None) -> None:
        if self.first_s is None and value is not None:
            self.first_s = self.seconds()

    def seconds(self) -> float:
        return round(time.monotonic() - self.start, 3)


class Referee:
    """Writes and judges plans of one instance; what they share is written and read once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._writer, self._judge = PlanWriter(instance), Judge()

    def figures(self, solution: Solution, name: str) -> dict[str, Any]:
        """What a plan is worth, tier by tier and in effective GPUs, and what the judge says."""
        plan = self._writer.compose(
            solution, name=name, created_at="2026-01-01T00:00:00Z", generator="benchmarks"
        )
        worths = gpus_at_speed(Evaluation(self._instance, solution.decisions))
        return {
            "vector": signed_values(solution),
            "effective": round(sum(worths) / 1000, 1),
            "violations": [f"{v.rule}: {v.message}" for v in self._judge.check(plan).violations],
        }


def measure(name: str) -> dict[str, Any]:
    """Figures of one case. The plan is composed and checked as ``gangplan plan`` does."""
    case = CASES[name]
    instance = instance_of(case)
    limits = instance.policy.solve
    limits = replace(limits, time_limit_s=case.get("timeLimit", limits.time_limit_s))
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    watch = Stopwatch()
    solution = solve(instance, progress=watch)
    seconds, mib = watch.seconds(), peak_mib()
    referee = Referee(instance)
    rivals = {
        rival: referee.figures(solution_of(instance, schedule(instance, rules), rival), rival)
        for rival, rules in AT_ONCE.items()
    }
    gangs = zip(instance.gangs, solution.decisions, strict=True)
    return {
        "case": name,
        "instance": describe(instance),
        "seconds": seconds,
        "first": watch.first_s,
        "mib": mib,
        "gaps": gaps(instance, solution),
        "starts": ["/".join(gang.key) for gang, one in gangs if one.decision == "place"],
        "plans": {OURS: referee.figures(solution, OURS), **rivals},
    }


def gaps(instance: Instance, solution: Solution) -> dict[str, float]:
    """The largest gap of each tier family; that of stranded is one of all free permille-GPU."""
    free = 1000 * sum(Evaluation(instance, solution.decisions).free)
    found: dict[str, float] = {}
    for tier in solution.tiers:
        scale = max(1, free if tier.name == "stranded" else abs(tier.best))
        family = tier.name.partition("/")[0]
        gap = round(abs(tier.bound - tier.best) / scale, 6)
        found[family] = max(found.get(family, 0.0), gap)
    return found


def peak_mib() -> int:
    """Most memory this process (or one of its children) ever held, MiB; Linux counts in KiB."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(who).ru_maxrss for who in whose)
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
