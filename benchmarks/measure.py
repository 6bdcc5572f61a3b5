"""Measure one case in this process and print the figures as one JSON object.

Promises: a process of its own a case, so that peak memory and import state are the case's alone.
Called by ``benchmarks.run`` as ``python -m benchmarks.measure CASE``.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.instances import CASES, describe
from models.instance import Instance
from models.plan import compose
from models.solution import Solution
from models.verify.check import check
from planner.search.solve import solve

KIB = 1024


@dataclass
class Stopwatch:
    """When each tier last changed, in seconds from the start: its proof, or its last improvement."""

    start: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    def update(self, tier: str, value: int | None, bound: int | None) -> None:  # noqa: ARG002  # a Progress
        self.seconds[tier] = round(time.monotonic() - self.start, 3)


def measure(
    case: str, budget: int | None = None, time_limit_s: int | None = None
) -> dict[str, Any]:
    """Figures of one case. The plan is composed and checked as ``gangplan plan`` does."""
    instance = CASES[case]()
    limits = instance.policy.solve
    limits = replace(
        limits,
        budget=limits.budget if budget is None else budget,
        time_limit_s=limits.time_limit_s if time_limit_s is None else time_limit_s,
    )
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    watch = Stopwatch()
    solution = solve(instance, progress=watch)
    solved = time.monotonic() - watch.start
    memory = peak_mib()
    plan = compose(
        instance, solution, name=case, created_at="2026-01-01T00:00:00Z", generator="benchmarks"
    )
    violations = check(plan)
    return {
        "case": case,
        "instance": describe(instance),
        "solve_s": round(solved, 3),
        "checked_s": round(time.monotonic() - watch.start, 3),
        "peak_mib": memory,
        "stopped_by": solution.stopped_by,
        "outcome": plan["status"]["outcome"],
        "violations": [f"{v.rule}: {v.message}" for v in violations],
        "decisions": _counts(solution),
        "starts": _starts(instance, solution),
        "moves": plan["status"].get("moves", []),
        "tiers": [
            {
                "name": tier.name,
                "sense": tier.sense,
                "value": tier.value,
                "best": tier.best,
                "bound": tier.bound,
                "gap": round(tier.gap, 6),
                "proof": tier.proof,
                "s": watch.seconds.get(tier.name),
            }
            for tier in solution.tiers
        ],
    }


def peak_mib() -> int:
    """Most memory this process (or one of its children) ever held, MiB; Linux counts in KiB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 if sys.platform == "darwin" else KIB
    return max(own, children) * unit // (KIB * KIB)


def _counts(solution: Solution) -> dict[str, int]:
    decisions = [decision.decision for decision in solution.decisions]
    return {name: decisions.count(name) for name in sorted(set(decisions))}


def _starts(instance: Instance, solution: Solution) -> list[str]:
    """Gangs that start, by name."""
    gangs = zip(instance.gangs, solution.decisions, strict=True)
    return ["/".join(gang.key) for gang, decided in gangs if decided.decision == "place"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure one case; print JSON")
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--budget", type=int)
    parser.add_argument("--time-limit", type=int)
    options = parser.parse_args()
    print(json.dumps(measure(options.case, options.budget, options.time_limit)))


if __name__ == "__main__":
    main()
