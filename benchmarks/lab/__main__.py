"""``python -m benchmarks.lab replay TRACE --cluster PATH`` and ``record JOURNAL --out FILE``."""

from __future__ import annotations

from argparse import ArgumentParser
from fractions import Fraction
from pathlib import Path

from benchmarks.lab.jobs import MS
from benchmarks.lab.record import record
from benchmarks.lab.replay import Request, replay
from benchmarks.lab.rules import RULES
from benchmarks.lab.simulation import Settings
from benchmarks.lab.summary import table
from benchmarks.lab.trace import read_trace
from models.units import plural, seconds


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.lab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("replay", help="what the jobs of a trace would have met")
    one.add_argument("trace", type=Path, help="a table of jobs, or what `record` wrote")
    one.add_argument("--cluster", required=True, help="as `plan` reads it")
    one.add_argument("--policy", action="append", default=[], help="plan under it; repeatable")
    one.add_argument("--rules", action="append", default=[], choices=RULES, help="repeatable")
    one.add_argument("--every", default="event", help="between two plans, such as 10m")
    one.add_argument("--preemptible", action="store_true", help="plans may stop all jobs")
    one.add_argument("--from", dest="from_s", type=seconds, default=0, help="of the trace's time")
    one.add_argument("--until", type=seconds, help="the same")
    one.add_argument("--speedup", type=Fraction, default=Fraction(1), help="of arrivals")
    one.add_argument("--prefer", help="level that gangs of several pods prefer, such as rack")
    one.add_argument("--fraction", type=Fraction, help="of a step that gangs communicate, 0.25")
    one.add_argument("--restart", type=seconds, default=120, help="of a job that was stopped")
    one.add_argument("--budget", type=int, default=1, help="of one plan")
    one.add_argument("--repeat", type=int, default=1, help="runs of each")
    one.add_argument("--jitter", type=seconds, help="of arrivals; 30s with --repeat")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--workers", type=int, help="runs at a time; default: one for each core")
    one.add_argument("--out", type=Path, help="save the runs here, as JSON")
    two = verbs.add_parser("record", help="what a live cluster ran, as a trace")
    two.add_argument("journal", help="of `gangplan run --shadow`")
    two.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.verb == "record":
        trace, left_out = record(options.journal)
        options.out.write_text(trace.text())
        gone = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        print(plural(len(trace.jobs), "job") + (f"; left out: {gone}" if gone else ""))
        return
    trace = read_trace(options.trace).part(options.from_s, options.until, options.speedup)
    request = Request(
        trace if options.prefer is None else trace.preferring(options.prefer),
        options.cluster,
        tuple(options.policy),
        tuple(options.rules),
        Settings(
            every_ms=0 if options.every == "event" else MS * seconds(options.every),
            restart_ms=MS * options.restart,
        ),
        preemptible=options.preemptible,
        budget=options.budget,
        repeat=options.repeat,
        jitter_s=(30 if options.repeat > 1 else 0) if options.jitter is None else options.jitter,
        seed=options.seed,
        fraction=options.fraction,
    )
    print(table(replay(request, options.out, options.workers)))


if __name__ == "__main__":
    main()
