# ruff: noqa: T201  # a script speaks on stdout
"""Compares the search with the exhaustive planner over many seeds, and narrows failing ones.

    python tests/oracle/exhaustive_sweep.py --seeds 0:5000
    python tests/oracle/exhaustive_sweep.py --draw busy --seeds 17:18 --more stability --narrow --show
    python tests/oracle/exhaustive_sweep.py --draw busy_by_speed --size 5000

Promises: prints the failing seeds and what differs; exit code 1 if any; writes nothing. Run by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Collection
from pathlib import Path

sys.path.extend(str(room) for room in Path(__file__).resolve().parents[1].glob("**/"))

import tiny
from bounding import bounded, honest
from comparing import differences
from exhaustive import plan
from tiny_draws import FEATURES

from models.instance.instance import Instance


def main() -> int:  # noqa: C901  # options, and one loop
    """Exit code 1 if any seed differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draw", default="tiny", help="tiny, busy, tiny_by_speed, busy_by_speed")
    parser.add_argument("--seeds", default="0:1000", help="first:end")
    parser.add_argument("--without", default="", help=f"features: {', '.join(FEATURES)}")
    parser.add_argument("--more", default="", help="features to draw three times as often")
    parser.add_argument("--size", type=int, default=0, help="solve as if for so many pairs")
    parser.add_argument("--narrow", action="store_true", help="leave out all features that may go")
    parser.add_argument("--show", action="store_true", help="print the instance and its best plan")
    options = parser.parse_args()
    first, end = (int(part) for part in options.seeds.split(":"))
    without, more = (
        {name for name in text.split(",") if name} for text in (options.without, options.more)
    )

    def drawn(seed: int, gone: Collection[str] = ()) -> Instance:
        return getattr(tiny, options.draw)(seed, without | set(gone), more)  # type: ignore[no-any-return]

    def failing(seed: int, gone: Collection[str] = ()) -> list[str]:
        """What differs; a crash of the search or of the checker is a difference too."""
        try:
            if "parallelism" in more:
                return honest(drawn(seed, gone))
            if options.size:
                return bounded(drawn(seed, gone), options.size)
            return differences(drawn(seed, gone))
        except Exception as error:  # noqa: BLE001  # the sweep reports crashes and goes on
            where = traceback.extract_tb(error.__traceback__)[-1]
            return [
                f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"
            ]

    failed, began = 0, time.monotonic()
    for seed in range(first, end):
        if not (found := failing(seed)):
            continue
        failed += 1
        print(f"seed {seed}: {'; '.join(found)}", flush=True)
        if options.narrow:
            gone = set(without)
            for feature in FEATURES:
                gone |= {feature} if failing(seed, {*gone, feature}) else set()
            print(f"  with only: {', '.join(f for f in FEATURES if f not in gone)}")
        if options.show:
            instance = drawn(seed)
            best, cluster = plan(instance), instance.cluster
            rows = (*cluster.levels, *cluster.nodes, instance.policy, *best.tiers)
            print(*rows, *zip(instance.gangs, best.decisions, strict=True), sep="\n  ")
    print(f"{end - first} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
