"""Kill the program at every request of an apply in turn: ``python tests/apply/live_sweep.py``.

Prints what is wrong with each history that does not end as the undisturbed one; then exits 1. Takes minutes.
Mode ``evictions``: of a run that evicts a gang for another; after the kill a budget keeps what is left of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.extend(str(room) for room in Path(__file__).resolve().parents[1].glob("**/"))

from live_checks import overfull, partial, placed
from live_cluster import Live, opened
from live_objects import ten_gangs
from live_runs import Killer, apply_words, killed, placements, planned, ran, run_words
from test_live_victims import HIGH, LOW, budget, left, run_low


def history(live: Live, at: int, *, after: bool) -> tuple[bool, list[str]]:
    """Whether there was such a request, and what is wrong in the end."""
    live.relay.forget()
    live.delete_pods()
    live.create(*ten_gangs())
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


def evictions(live: Live, at: int, *, after: bool) -> tuple[bool, list[str]]:
    """The same of ``run``: no later run may be content with a part of the victim or of the winner."""
    live.relay.forget()
    live.delete_pods()
    live.kubectl("delete", "poddisruptionbudgets", "--all", "-n", live.namespace)
    run_low(live)
    live.create(HIGH)
    words = run_words(live, "--allow-evictions", "--wait", "5s")
    killer = Killer(at, after, every_request=True)
    killed(live, killer, *words)
    budget(live, minAvailable=max(1, left(live)))
    faults = _content(live, words, runs=2)
    live.kubectl("delete", "poddisruptionbudgets", "--all", "-n", live.namespace)
    faults += _content(live, words, runs=3)
    if half_there(live):
        faults.append(f"in the end: {sorted(placed(live.pods()))}")
    return killer.struck is not None, [*faults, *overfull(live.pods())]


def half_there(live: Live) -> bool:
    high = len(placed(live.pods())) - left(live)
    return 0 < left(live) < LOW.pods or 0 < high < HIGH.pods


def _content(live: Live, words: list[str], *, runs: int) -> list[str]:
    """What is wrong with so many more runs."""
    faults = []
    for _ in range(runs):
        done = ran(live, *words)
        if half_there(live) and done.code == 0:
            faults.append(f"exit 0 with {sorted(placed(live.pods()))}: {done.err}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", action="append", help="starts, evictions; default: each")
    parser.add_argument("--first", type=int, default=1, help="the first request that it dies at")
    parser.add_argument("--step", type=int, default=1, help="take every so-many-th request")
    wish = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), nodes=7) as live:
        for mode in wish.mode or ("starts", "evictions"):
            at, there = wish.first, True
            while there:
                for after in (False, True):
                    play = evictions if mode == "evictions" else history
                    there, faults = play(live, at, after=after)
                    bad += bool(faults)
                    where = f"{mode}, request {at} {'carried out' if after else 'lost'}"
                    sys.stdout.write(f"{where}: {'; '.join(faults) or 'whole'}\n")
                    sys.stdout.flush()
                at += wish.step
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
