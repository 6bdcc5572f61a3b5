"""Which figures miss expected.yaml, and which baselines have a better plan.

Promises: pure functions of the figures that ``benchmarks.measure`` prints.
Called by ``benchmarks.run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Figures = dict[str, Any]

OURS = "gangplan"


def misses(
    figures: dict[str, Figures], startup: dict[str, float], expected: dict[str, Any]
) -> Iterator[str]:
    """Every figure that is worse than expected.yaml allows."""
    for case, found in figures.items():
        if "failed" in found:
            yield f"{case}: failed"
        else:
            yield from _misses_of_case(case, found, expected["cases"].get(case, {}))
    for ratio in expected["ratios"]:
        above, below = (figures.get(ratio[key], {}).get("solve_s") for key in ("of", "to"))
        if above and below and above > ratio["at_most"] * below:
            yield f"{ratio['of']}: {above / below:.1f} x the time of {ratio['to']}"
    for name, limit in expected["startup_seconds"].items():
        if startup.get(name, 0) > limit:
            yield f"gangplan {name}: {startup[name]} s, limit {limit} s"


def better_baselines(found: Figures) -> list[str]:
    """Baselines whose plan is better, tier by tier, than ours."""
    ours = found["plans"][OURS]["vector"]
    return [name for name, plan in found["plans"].items() if plan["vector"] > ours]


def best_baseline(found: Figures) -> str | None:
    """The baseline with the best plan; None where none was measured."""
    names = [name for name in found["plans"] if name != OURS]
    return max(names, key=lambda name: found["plans"][name]["vector"], default=None)


def _misses_of_case(case: str, found: Figures, limits: dict[str, Any]) -> Iterator[str]:
    for name, plan in found["plans"].items():
        if plan["violations"]:
            yield f"{case}: {name}: {len(plan['violations'])} violations, first: {plan['violations'][0]}"
    for name in better_baselines(found):
        yield f"{case}: {name} has a better plan"
    if found.get("stray_lines"):
        yield f"{case}: {found['stray_lines']} lines on stdout that are not ours"
    for name, started in limits.get("starts", {}).items():
        if (name in found["starts"]) != started:
            yield f"{case}: {name} {'waits' if started else 'starts'}"
    for figure, key in (("solve_s", "seconds"), ("peak_mib", "peak_mib"), ("first_s", "first")):
        if key in limits and (found[figure] is None or found[figure] > limits[key]):
            yield f"{case}: {figure} {found[figure]}, limit {limits[key]}"
    for tier in found["tiers"]:
        yield from _misses_of_tier(case, tier, limits)


def _misses_of_tier(case: str, tier: dict[str, Any], limits: dict[str, Any]) -> Iterator[str]:
    family = tier["name"].split("/")[0]
    gap = limits.get("gaps", {}).get(family)
    if gap is not None and tier["gap"] > gap:
        yield f"{case}: gap of {tier['name']} {tier['gap']:.2%}, limit {gap:.1%}"
    in_time = limits.get("tier_seconds", {})
    seconds = in_time.get(tier["name"], in_time.get(family))
    if seconds is not None and (tier["s"] or 0) > seconds:
        yield f"{case}: {tier['name']} took {tier['s']} s, limit {seconds} s"
