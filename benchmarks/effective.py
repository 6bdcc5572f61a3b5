"""``python -m benchmarks.effective``: effective GPUs of plans and of the rules of others, over many seeds.

Instances are ``busy``; the deterministic budget alone ends a search: figures are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Annotated

import typer

from benchmarks.busy import busy
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule
from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.values.effective_gpus import effective_of
from planner.search.solve import solve

THOUSAND = 1000
"""Permille-GPU of one effective GPU."""


@dataclass(frozen=True, slots=True)
class Run:
    """Effective GPUs on the instance of one seed: of the plan, and of each rule by its name."""

    seed: int
    plan: float
    rules: dict[str, float]

    @property
    def best(self) -> float:
        """Of the best rule of this instance, whichever it is."""
        return max(self.rules.values())


def instance_of(nodes: int, waiting: int, seed: int, budget: int, *, fixed: bool) -> Instance:
    """The instance of a seed. ``fixed``: nothing that runs may be stopped or moved."""
    drawn = busy(nodes, waiting, seed)
    gangs = (
        replace(gang, preemptible=False, movable=False) if fixed and gang.pods else gang
        for gang in drawn.gangs
    )
    policy = replace(drawn.policy, solve=SolveLimits(budget=budget, seed=seed))
    return replace(drawn, gangs=tuple(gangs), policy=policy)


def measure(nodes: int, waiting: int, seed: int, budget: int, *, fixed: bool = False) -> Run:
    """Plan the instance once, and let every rule plan it."""
    instance = instance_of(nodes, waiting, seed, budget, fixed=fixed)
    plan = effective_of(instance, solve(instance).decisions)
    rules = {
        name: effective_of(instance, schedule(instance, rule)) for name, rule in AT_ONCE.items()
    }
    return Run(seed, plan / THOUSAND, {name: one / THOUSAND for name, one in rules.items()})


def table(runs: Sequence[Run]) -> Iterable[str]:
    """Markdown: mean and standard deviation of each, and of how much more the plans have."""
    yield "| | effective GPUs | plan has more |"
    yield "|---|---|---|"
    yield f"| plan | {_spread([run.plan for run in runs], ',.1f')} | |"
    rows = {name: [run.rules[name] for run in runs] for name in runs[0].rules}
    best = [run.best for run in runs]
    ordered = sorted(rows.items(), key=lambda row: -mean(row[1]))
    for name, values in [
        ("best rule of each instance", best),
        *((f"`{n}`", v) for n, v in ordered),
    ]:
        more = [run.plan / value - 1 for run, value in zip(runs, values, strict=True)]
        least, most = (f"{100 * one:.1f}" for one in (min(more), max(more)))
        lead = f"{_spread([100 * one for one in more], '.1f')} % ({least} to {most})"
        yield f"| {name} | {_spread(values, ',.1f')} | {lead} |"


def _spread(values: Sequence[float], form: str) -> str:
    """``6.1 ± 1.2``."""
    return f"{mean(values):{form}} ± {stdev(values):{form}}"


def main(
    nodes: Annotated[int, typer.Option(min=1)] = 64,
    waiting: Annotated[int, typer.Option(min=1)] = 60,
    seeds: Annotated[int, typer.Option(min=2, help="Instances: seeds 1 to this.")] = 20,
    budget: Annotated[int, typer.Option(min=1, help="Of each search, deterministic.")] = 20,
    fixed: Annotated[  # noqa: FBT002  # an option
        bool, typer.Option("--fixed", help="Plans, too, stop and move nothing that runs.")
    ] = False,
) -> None:
    """Print the table."""
    runs = []
    for seed in range(1, seeds + 1):
        runs.append(measure(nodes, waiting, seed, budget, fixed=fixed))
        typer.echo(
            f"seed {seed}: plan {runs[-1].plan:,.2f}, best rule {runs[-1].best:,.2f}", err=True
        )
    for line in table(runs):
        typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
