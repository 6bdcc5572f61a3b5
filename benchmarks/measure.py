"""Measure one case in this process and print the figures as one JSON object.

Promises: a process of its own a case, so that peak memory and import state are the case's alone; every plan,
of the planner and of the baselines, is composed and judged in the same way.
Called by ``benchmarks.run`` as ``python -m benchmarks.measure CASE``.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.instances import CASES, describe
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule, signed_values, solution_of
from benchmarks.verdict import OURS
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.results.plan import PlanWriter
from models.values.effective_gpus import gpus_at_speed
from models.values.tier_values import Evaluation
from models.verify.check import Judge
from planner.search.solve import solve

KIB = 1024

NEAR = {"span": 0.05, "stranded": 0.05}
"""The gap at which a tier family counts as nearly solved; 0.01 where none is named."""

Event = tuple[float, str, int | None, int | None]
"""(seconds from the start, tier, value, bound)."""


@dataclass
class Stopwatch:
    """What the search reports, with the second in which it does."""

    start: float = field(default_factory=time.monotonic)
    events: list[Event] = field(default_factory=list)

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        self.events.append((self.seconds(), tier, value, bound))

    def seconds(self) -> float:
        return round(time.monotonic() - self.start, 3)


def measure(
    case: str, budget: int | None = None, time_limit_s: int | None = None, *, baselines: bool = True
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
    solved, memory = watch.seconds(), peak_mib()
    referee = Referee(instance)
    plans = {OURS: referee.figures(solution, OURS) | {"s": solved}}
    checked = watch.seconds()
    if baselines:
        for name, rules in AT_ONCE.items():
            start = time.monotonic()
            decisions = schedule(instance, rules)
            seconds = round(time.monotonic() - start, 3)
            found = solution_of(instance, decisions, name)
            plans[name] = referee.figures(found, name) | {"s": seconds}
    tiers = _tiers(instance, solution, watch.events)
    for tier in tiers:
        tier["near_s"] = since(watch.events, [tier], near, solved)
    return {
        "case": case,
        "instance": describe(instance),
        "nodes": len(instance.cluster.nodes),
        "seed": limits.seed,
        "time_limit_s": limits.time_limit_s,
        "solve_s": solved,
        "checked_s": checked,
        **milestones(watch.events, tiers, solved),
        "peak_mib": memory,
        "stopped_by": solution.stopped_by,
        "outcome": "optimal" if all(t.bound == t.best for t in solution.tiers) else "feasible",
        "decisions": dict(sorted(Counter(d.decision for d in solution.decisions).items())),
        "starts": _starts(instance, solution),
        "moves": len(solution.moves),
        "tiers": tiers,
        "plans": plans,
    }


class Referee:
    """Writes and judges plans of one instance; what they share is written and read once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._writer, self._judge = PlanWriter(instance), Judge()

    def figures(self, solution: Solution, name: str) -> dict[str, Any]:
        """What a plan is worth, and what the judge says. GPUs x GB/s: of gangs whose bandwidth counts."""
        plan = self._writer.compose(
            solution, name=name, created_at="2026-01-01T00:00:00Z", generator="benchmarks"
        )
        rates = (
            stated["bandwidthMBps"] * sum(gang.roles[pod.role].gpus for pod in decided.pods)
            for gang, decided, stated in zip(
                self._instance.gangs, solution.decisions, plan["spec"]["gangs"], strict=True
            )
            if stated["bandwidthMBps"] is not None and gang.pattern != "none"
        )
        values = {tier.name: tier.value for tier in solution.tiers}
        return {
            "vector": signed_values(solution),
            "effective": _effective(self._instance, solution),
            "gpu_GBps": round(sum(rates) / 1000),
            "span": values.get("span"),
            "stranded": values.get("stranded"),
            "violations": [f"{v.rule}: {v.message}" for v in self._judge.check(plan).violations],
        }


def _effective(instance: Instance, solution: Solution) -> dict[str, int]:
    """Effective GPUs by priority, the highest first: GPUs of admitted gangs times predicted speed."""
    found: dict[int, int] = {}
    worths = gpus_at_speed(Evaluation(instance, solution.decisions))
    for gang, worth in zip(instance.gangs, worths, strict=True):
        found[gang.priority] = found.get(gang.priority, 0) + worth
    return {
        str(priority): round(found[priority] / 1000) for priority in sorted(found, reverse=True)
    }


def _tiers(instance: Instance, solution: Solution, events: list[Event]) -> list[dict[str, Any]]:
    """Figures of every tier. The gap of stranded is one of all free permille-GPU."""
    free = 1000 * sum(Evaluation(instance, solution.decisions).free)
    last = _last_changes(events)
    found = []
    for tier in solution.tiers:
        scale = max(1, free if tier.name == "stranded" else abs(tier.best))
        found.append(
            {
                "name": tier.name,
                "sense": tier.sense,
                "value": tier.value,
                "best": tier.best,
                "bound": tier.bound,
                "scale": scale,
                "gap": round(abs(tier.bound - tier.best) / scale, 6),
                "proof": tier.proof,
                "s": last.get(tier.name),
            }
        )
    return found


def _last_changes(events: list[Event]) -> dict[str, float]:
    """The second in which the value or the bound of each tier changed last."""
    state: dict[str, tuple[int | None, int | None]] = {}
    last: dict[str, float] = {}
    for second, name, value, bound in events:
        old = state.get(name, (None, None))
        state[name] = (old[0] if value is None else value, old[1] if bound is None else bound)
        if state[name] != old:
            last[name] = second
    return last


def milestones(
    events: list[Event], tiers: list[dict[str, Any]], solved: float
) -> dict[str, float | None]:
    """Seconds to the first plan, to a small gap on every tier (``NEAR``), and to proof of all."""
    first = next((second for second, _, value, _ in events if value is not None), None)
    return {
        "first_s": first,
        "near_s": since(events, tiers, near, solved),
        "proof_s": since(events, tiers, lambda _: 0.0, solved),
    }


def near(tier: str) -> float:
    """The gap at which a tier counts as nearly solved."""
    return NEAR.get(tier.split("/", maxsplit=1)[0], 0.01)


def since(
    events: list[Event],
    tiers: list[dict[str, Any]],
    most: Callable[[str], float],
    solved: float,
) -> float | None:
    """The second from which on no tier's gap is above ``most``; None: one is at the end."""
    if any(tier["gap"] > most(tier["name"]) for tier in tiers):
        return None
    state: dict[str, tuple[int | None, int | None]] = {}
    reached: float | None = None
    for second, name, value, bound in events:
        old = state.get(name, (None, None))
        state[name] = (old[0] if value is None else value, old[1] if bound is None else bound)
        if not all(_close(state.get(tier["name"]), tier, most(tier["name"])) for tier in tiers):
            reached = None
        elif reached is None:
            reached = second
    return solved if reached is None else reached


def _close(state: tuple[int | None, int | None] | None, tier: dict[str, Any], most: float) -> bool:
    """Whether the value known of a tier is this near to the bound known then."""
    if state is None or state[0] is None or state[1] is None:
        return False
    scale: int = tier["scale"]
    return abs(state[1] - state[0]) <= most * scale


def peak_mib() -> int:
    """Most memory this process (or one of its children) ever held, MiB; Linux counts in KiB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 if sys.platform == "darwin" else KIB
    return max(own, children) * unit // (KIB * KIB)


def _starts(instance: Instance, solution: Solution) -> list[str]:
    """Gangs that start, by name."""
    gangs = zip(instance.gangs, solution.decisions, strict=True)
    return ["/".join(gang.key) for gang, decided in gangs if decided.decision == "place"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure one case; print JSON")
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--budget", type=int)
    parser.add_argument("--time-limit", type=int)
    parser.add_argument("--no-baselines", action="store_true")
    options = parser.parse_args()
    found = measure(
        options.case,
        options.budget,
        options.time_limit,
        baselines=not options.no_baselines,
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
