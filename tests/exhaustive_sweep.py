# ruff: noqa: T201  # a script speaks on stdout
"""Compares the search with the exhaustive planner over many seeds, and narrows failing ones.

    python tests/exhaustive_sweep.py --seeds 0:5000
    python tests/exhaustive_sweep.py --seeds 17:18 --narrow --show

Promises: prints the failing seeds and what differs; exit code 1 if any; writes nothing. Run by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Collection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from comparing import differences
from exhaustive import plan
from tiny import tiny
from tiny_draws import FEATURES


def main() -> int:
    """Exit code 1 if any seed differs."""
    options = _options()
    first, end = (int(part) for part in options.seeds.split(":"))
    without = [name for name in options.without.split(",") if name]
    more = [name for name in options.more.split(",") if name]
    failed, began = 0, time.monotonic()
    for seed in range(first, end):
        found = _failing(seed, without, more)
        if found:
            failed += 1
            print(f"seed {seed}: {'; '.join(found)}", flush=True)
            if options.narrow:
                print(f"  with only: {', '.join(_narrowed(seed, without, more)) or 'no feature'}")
            if options.show:
                _show(seed, without, more)
    print(f"{end - first} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="0:1000", help="first:end")
    parser.add_argument(
        "--without", default="", help=f"features to leave out: {', '.join(FEATURES)}"
    )
    parser.add_argument("--more", default="", help="features to draw three times as often")
    parser.add_argument("--narrow", action="store_true", help="leave out all features that may go")
    parser.add_argument("--show", action="store_true", help="print the instance and its best plan")
    return parser.parse_args()


def _failing(seed: int, without: Collection[str], more: Collection[str]) -> list[str]:
    """What differs; a crash of the search or of the checker is a difference too."""
    try:
        return differences(tiny(seed, without, more))
    except Exception as error:  # noqa: BLE001  # the sweep reports crashes and goes on
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"]


def _narrowed(seed: int, without: Collection[str], more: Collection[str]) -> list[str]:
    """Features without which this seed no longer fails."""
    gone = list(without)
    for feature in FEATURES:
        if feature not in gone and _failing(seed, [*gone, feature], more):
            gone.append(feature)
    return [feature for feature in FEATURES if feature not in gone]


def _show(seed: int, without: Collection[str], more: Collection[str]) -> None:
    instance = tiny(seed, without, more)
    best = plan(instance)
    for row in (*instance.cluster.levels, *instance.cluster.nodes, instance.policy, *best.tiers):
        print("  ", row)
    for gang, decision in zip(instance.gangs, best.decisions, strict=True):
        print("  ", gang)
        print("    ->", decision)


if __name__ == "__main__":
    sys.exit(main())
