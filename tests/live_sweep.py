"""Kill the program at every request of an apply in turn: ``python tests/live_sweep.py``.

Prints what is wrong with each history that does not end as the undisturbed one; then exits 1. Takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from live_checks import overfull, partial, placed
from live_cluster import Live, opened
from live_objects import ten_gangs
from live_runs import Killer, apply_words, killed, placements, planned, ran


def history(live: Live, mode: str, at: int, *, after: bool) -> tuple[bool, list[str]]:
    """Whether there was such a request, and what is wrong in the end."""
    live.relay.forget()
    live.delete_pods()
    live.create(*ten_gangs(mode))
    plan = planned(live)
    words = apply_words(live, plan, "--max-age", "1000h")
    killer = Killer(at, after, every_request=True)
    killed(live, killer, *words)
    between = overfull(live.pods())
    last = ran(live, *words)
    pods = live.pods()
    faults = [*between, *overfull(pods), *(f"{gang} is partial" for gang in partial(pods))]
    if last.code != 0:
        faults.append(f"exit {last.code}: {last.err}")
    if placed(pods) != placements(plan):
        faults.append("pods are not where the plan says")
    return killer.struck is not None, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", action="append", help="gate, binding, both; default: each")
    parser.add_argument("--first", type=int, default=1, help="the first request that it dies at")
    parser.add_argument("--step", type=int, default=1, help="take every so-many-th request")
    wish = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), nodes=7) as live:
        for mode in wish.mode or ("gate", "binding", "both"):
            at, there = wish.first, True
            while there:
                for after in (False, True):
                    there, faults = history(live, mode, at, after=after)
                    bad += bool(faults)
                    where = f"{mode}, request {at} {'carried out' if after else 'lost'}"
                    sys.stdout.write(f"{where}: {'; '.join(faults) or 'whole'}\n")
                    sys.stdout.flush()
                at += wish.step
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
