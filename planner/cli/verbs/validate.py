"""``gangplan validate PATH...``: read and check the input; report every fault with its place.

No solver is loaded; the only file written is that of ``--save-policy``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from models.units import plural
from planner.cli.options import schedulers_of, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console


@verb
def validate(
    console: Console,
    paths: list[str],
    *,
    scheduler: str | None = None,
    policy: str | None = None,
    save_policy: Path | None = None,
) -> None:
    """Read the input; list every fault with file, line and column."""
    from planner.atomic_files import check_target, save
    from planner.read.inputs import load
    from planner.read.unkeepable_promises import unfit_pods
    from planner.show.text import left_out

    built = load(paths, policy=policy, schedulers=schedulers_of(scheduler), stdin=console.stdin)
    instance = built.instance
    nodes = instance.cluster.nodes
    running = sum(gang.running for gang in instance.gangs)
    waiting = len(instance.gangs) - running
    queues = f", {plural(len(instance.queues), 'queue')}" if instance.queues else ""
    counts = (
        f"valid: {plural(len(nodes), 'node')}, {plural(sum(node.gpus for node in nodes), 'GPU')},"
        f" {plural(len(instance.gangs), 'gang')} ({running:,} running, {waiting:,} waiting){queues}"
    )
    console.data(console.lines([counts]))
    if (rest := left_out(built.left_out)) is not None:
        console.data(console.lines([rest]))
    console.levels_source(built.levels_source)
    console.remarks([*built.remarks, *unfit_pods(instance)])
    if save_policy is not None:
        if built.levels_policy is None:
            what = "no levels were found: the input states its own"
            raise UsageError(Fault(what, "leave out --save-policy"))
        check_target(save_policy)
        save(save_policy, built.levels_policy())
        console.say(f"saved {shlex.quote(str(save_policy))}")
        if built.states_policy:
            console.say("put its levels into your Policy: an input has one")
        else:
            policy = str(save_policy)
    console.event("read", nodes=len(nodes), gangs=len(instance.gangs), left_out=built.left_out)
    given = (("--scheduler", scheduler), ("--policy", policy))
    options = [word for name, value in given if value is not None for word in (name, value)]
    console.next(f"{console.program} plan {shlex.join([*paths, *options])}")
