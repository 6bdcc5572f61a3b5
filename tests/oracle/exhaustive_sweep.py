# ruff: noqa: T201  # a script speaks on stdout
"""Compares the search with the exhaustive planner over many seeds, and narrows failing ones.

    python tests/oracle/exhaustive_sweep.py --seeds 0:5000
    python tests/oracle/exhaustive_sweep.py --seeds 17:18 --narrow --show
    python tests/oracle/exhaustive_sweep.py --busy --seeds 0:5000 --more moves_limit,stability
    python tests/oracle/exhaustive_sweep.py --by-speed --busy --seeds 0:5000 --more services
    python tests/oracle/exhaustive_sweep.py --busy --judge 20000
    python tests/oracle/exhaustive_sweep.py --busy --size 5000
    python tests/oracle/exhaustive_sweep.py --seeds 0:500 --more parallelism

Promises: prints the failing seeds and what differs; exit code 1 if any; writes nothing. Run by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.extend(str(room) for room in Path(__file__).resolve().parents[1].glob("**/"))

from bounding import bounded, honest
from comparing import differences
from exhaustive import plan
from exhaustive_naive import Naive
from tiny import tiny
from tiny_busy import busy
from tiny_draws import FEATURES
from tiny_speeds import busy_by_speed, tiny_by_speed

from models.instance.instance import Instance

DRAWS = {
    (False, False): tiny,
    (False, True): busy,
    (True, False): tiny_by_speed,
    (True, True): busy_by_speed,
}


def main() -> int:
    """Exit code 1 if any seed differs."""
    options = _options()
    first, end = (int(part) for part in options.seeds.split(":"))
    source = Source(
        DRAWS[options.by_speed, options.busy],
        frozenset(name for name in options.without.split(",") if name),
        frozenset(name.replace("-", "_") for name in options.more.split(",") if name),
        _faults(options),
    )
    failed, began = 0, time.monotonic()
    for seed in range(first, end):
        found = _failing(seed, source)
        if found:
            failed += 1
            print(f"seed {seed}: {'; '.join(found)}", flush=True)
            if options.narrow:
                print(f"  with only: {', '.join(_narrowed(seed, source)) or 'no feature'}")
            if options.show:
                _show(source.instance(seed))
    print(f"{end - first} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _faults(options: argparse.Namespace) -> Callable[[Instance], list[str]]:
    if options.judge:
        return partial(unlike_the_judge, most=options.judge)
    if "parallelism" in options.more:
        return honest
    return partial(bounded, size=options.size) if options.size else differences


@dataclass(frozen=True)
class Source:
    """Where instances come from, by seed, and what is asked of them."""

    draw: Callable[[int, Collection[str], Collection[str]], Instance]
    without: frozenset[str]
    more: frozenset[str]
    faults: Callable[[Instance], list[str]]

    def instance(self, seed: int, gone: Collection[str] = ()) -> Instance:
        """The instance of a seed; ``gone``: features to leave out besides."""
        return self.draw(seed, self.without | set(gone), self.more)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="0:1000", help="first:end")
    parser.add_argument("--busy", action="store_true", help="clusters on which most things run")
    parser.add_argument("--by-speed", action="store_true", help="under goodput")
    parser.add_argument(
        "--without", default="", help=f"features to leave out: {', '.join(FEATURES)}"
    )
    parser.add_argument("--more", default="", help="features to draw three times as often")
    parser.add_argument(
        "--judge",
        type=int,
        default=0,
        help="compare the exhaustive planner with the checker's word, where so many plans are enough",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=0,
        help="solve as if there were so many (option, server) pairs, and ask only for valid plans and bounds",
    )
    parser.add_argument("--narrow", action="store_true", help="leave out all features that may go")
    parser.add_argument("--show", action="store_true", help="print the instance and its best plan")
    return parser.parse_args()


def _failing(seed: int, source: Source, gone: Collection[str] = ()) -> list[str]:
    """What differs; a crash of the search or of the checker is a difference too."""
    try:
        return source.faults(source.instance(seed, gone))
    except Exception as error:  # noqa: BLE001  # the sweep reports crashes and goes on
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"]


def _narrowed(seed: int, source: Source) -> list[str]:
    """Features without which this seed no longer fails."""
    gone: list[str] = []
    for feature in FEATURES:
        if feature not in source.without and _failing(seed, source, [*gone, feature]):
            gone.append(feature)
    return [feature for feature in FEATURES if feature not in source.without | set(gone)]


def unlike_the_judge(instance: Instance, most: int) -> list[str]:
    """How the best plan differs from the best that the checker lets pass; nothing if that is too much."""
    if Naive.effort(instance) > most:
        return []
    naive = Naive(instance)
    if naive.size > most:
        return []
    best, other = plan(instance).tiers, naive.best()
    return [] if best == other else [f"best {best}, with the checker's word {other}"]


def _show(instance: Instance) -> None:
    best = plan(instance)
    for row in (*instance.cluster.levels, *instance.cluster.nodes, instance.policy, *best.tiers):
        print("  ", row)
    for gang, decision in zip(instance.gangs, best.decisions, strict=True):
        print("  ", gang)
        print("    ->", decision)


if __name__ == "__main__":
    sys.exit(main())
