"""``python -m benchmarks.effective``: effective GPUs of plans and of the best rule, six seeds of busy-64.

The deterministic budget alone ends a search: figures do not depend on the machine. Of equal instances once
nothing that runs may be stopped or moved, and once a fifth of the gangs may.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev

from benchmarks.generator import busy
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule
from models.documents.policy import SolveLimits
from models.values.effective_gpus import gpus_at_speed
from models.values.tier_values import Evaluation
from planner.search.solve import solve

SEEDS, BUDGET, NO_CLOCK_S = range(1, 7), 20, 24 * 60 * 60


def gain(seed: int, share: float) -> float:
    """Percent that the plan has more than the best rule; ``share`` of what runs may stop, as much move."""
    instance = busy(64, 60, seed, preemptible=share, movable=share)
    limits = SolveLimits(BUDGET, NO_CLOCK_S, 2, seed)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    plans = [solve(instance).decisions, *(schedule(instance, one) for one in AT_ONCE.values())]
    ours, *theirs = (sum(gpus_at_speed(Evaluation(instance, plan))) for plan in plans)
    return 100 * (ours / max(theirs) - 1)


if __name__ == "__main__":
    for share, said in ((0.0, "nothing may be stopped or moved"), (0.1, "a fifth may")):
        gains = [gain(seed, share) for seed in SEEDS]
        spread = f"{fmean(gains):.1f} ± {stdev(gains):.1f} % ({min(gains):.1f} to {max(gains):.1f})"
        print(f"{said}: {spread}", flush=True)
