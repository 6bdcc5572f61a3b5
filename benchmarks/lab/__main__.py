"""``python -m benchmarks.lab replay TRACE --cluster PATH`` and ``... record SNAPSHOT... --out FILE``."""

from __future__ import annotations

import argparse
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lab.jobs import MS
from models.units import seconds
from planner.errors import GangplanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lab.replay import Replayed

JITTER_S = 30
"""Of repeats: plans differ as much by it as by anything that nobody can know."""


def main(words: Sequence[str] | None = None) -> int:
    """Run a verb; the exit code."""
    options = _parser().parse_args(words)
    try:
        return int(options.do(options))
    except GangplanError as error:
        for fault in error.faults:
            print(*fault.lines(), sep="\n", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks.lab", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("replay", help="replay a trace under policies and other rules")
    one.set_defaults(do=_replay)
    one.add_argument("trace", help="a Trace, or a published table of jobs")
    one.add_argument("--cluster", action="append", required=True, help="as plan reads it")
    one.add_argument("--policy", action="append", default=[], help="plan under this Policy")
    one.add_argument("--rules", action="append", default=[], help="another scheduler, by name")
    one.add_argument("--rules-only", action="store_true", help="no plans")
    one.add_argument("--every", default="10m", help="between two plans; event: at events")
    one.add_argument("--debounce", type=seconds, default=0, help="after an event")
    one.add_argument("--preemptible", action="store_true", help="plans may stop all jobs")
    one.add_argument("--from", dest="since", type=seconds, default=0)
    one.add_argument("--until", type=seconds)
    one.add_argument("--speedup", type=Fraction, default=Fraction(1))
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--budget", type=int, default=1, help="of one plan")
    one.add_argument("--repeat", type=int, default=1, help="runs of each, arrivals moved by 30s")
    one.add_argument("--fraction", type=Fraction, help="part of a step in communication, of all")
    one.add_argument("--checkpoint", type=seconds, default=30 * 60)
    one.add_argument("--restart", type=seconds, default=2 * 60)
    one.add_argument("--node-gpus", type=int, help="most GPUs of a pod, for tables")
    one.add_argument("--prefer", help="level that gangs of several pods prefer")
    one.add_argument("--workers", type=int)
    one.add_argument("--out", type=Path, help="save the runs (JSON)")
    two = verbs.add_parser("record", help="make a trace of snapshots of a live cluster")
    two.set_defaults(do=_record)
    two.add_argument("snapshots", nargs="+")
    two.add_argument("--out", type=Path, required=True)
    two.add_argument("--name", default="recorded")
    two.add_argument("--anonymize", action="store_true", help="numbers in place of names")
    return parser


def _replay(options: argparse.Namespace) -> int:
    from benchmarks.lab.replay import ReplayRequest, replay
    from benchmarks.lab.rules import RULES
    from benchmarks.lab.simulation import Settings

    for name in options.rules:
        if name not in RULES:
            print(f"error: no rules are named {name!r}", file=sys.stderr)
            print(f"hint: {', '.join(RULES)}", file=sys.stderr)
            return 64
    every_s = 0 if options.every == "event" else seconds(options.every)
    settings = Settings(
        seed=options.seed,
        every_ms=MS * every_s,
        debounce_ms=MS * options.debounce,
        restart_ms=MS * options.restart,
        checkpoint_ms=MS * options.checkpoint,
        preemptible=options.preemptible,
    )
    found = replay(
        ReplayRequest(
            trace=options.trace,
            cluster=tuple(options.cluster),
            policies=tuple(options.policy),
            rules=tuple(options.rules),
            settings=settings,
            budget=options.budget,
            from_s=options.since,
            until_s=options.until,
            speedup=options.speedup,
            node_gpus=options.node_gpus,
            prefer=options.prefer,
            workers=options.workers,
            repeat=options.repeat,
            jitter_ms=MS * JITTER_S,
            fraction=options.fraction,
            rules_only=options.rules_only,
        )
    )
    for remark in found.remarks:
        print(f"note: {remark}", file=sys.stderr)
    if options.out is not None:
        saved = {"facts": found.facts, "runs": found.runs}
        options.out.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    return 0


COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("mean s", "meanSeconds", ",.0f"),
    ("p50 s", "p50Seconds", ",.0f"),
    ("p99 s", "p99Seconds", ",.0f"),
    ("queueing s", "queueingSeconds", ",.0f"),
    ("slowdown", "slowdown", ",.2f"),
    ("used", "utilisation", ".1%"),
    ("speed", "speed", ".1%"),
    ("stopped", "preemptions", ",.0f"),
    ("moved", "moves", ",.0f"),
    ("fair", "jain", ".3f"),
)


def table(found: Replayed) -> str:
    """A Markdown table: a row a policy or scheduler, means of its repeats with standard deviations."""
    from benchmarks.lab.summary import spreads

    facts = found.facts
    together, best = spreads(found.runs)
    heads = ["", "completed", "behind the best", *(head for head, _, _ in COLUMNS)]
    lines = [
        f"{facts['jobs']:,} jobs of {facts['trace']} on {facts['gpus']:,} GPUs of {facts['cluster']};",
        f"no schedule has a mean completion time below {facts['leastMeanSeconds']:,.0f} s",
        "",
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
    ]
    for name, own in together.items():
        runs = [run for run in found.runs if run["name"] == name]
        short = min(runs, key=lambda run: run["completed"])
        behind = "best" if name == best else _spread(own["behind"], "+.1%")
        cells = [name, f"{short['completed']:,} of {short['jobs']:,}", behind]
        cells += [_spread(own[field], form) for _, field, form in COLUMNS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(own: tuple[float, float | None] | None, form: str) -> str:
    if own is None:
        return "-"
    mean, deviation = own
    text = format(mean, form)
    return text if deviation is None else f"{text} ± {format(deviation, form.lstrip('+'))}"


def _record(options: argparse.Namespace) -> int:
    from benchmarks.lab.record import record

    found = record(options.snapshots, name=options.name, anonymize=options.anonymize)
    document: dict[str, Any] = found.trace.document().to_json()
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    options.out.write_text(text, encoding="utf-8")
    for remark in found.remarks:
        print(f"note: {remark}", file=sys.stderr)
    gone = "".join(f"; left out: {count:,} {why}" for why, count in found.trace.left_out)
    print(f"{len(found.trace.jobs):,} jobs{gone}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
