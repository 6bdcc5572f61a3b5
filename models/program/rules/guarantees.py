"""Guarantees of queues stay reachable (contract 2.16), in all and for each GPU model with a guarantee.

With n[q] GPUs of firm gangs (``Gang.firm``) that name q: R[q] >= g(q), R[q] >= n[q] + sum of R over the
queues right below q, and sum of R over the queues without a parent + n of gangs in no queue <= healthy GPUs
of usable nodes + GPUs of firm pods that are not among these + what was short before the plan.
"""

from __future__ import annotations

from models.program.linear_program import Linear
from models.program.variables import Model
from models.queue_shares import Gpu, QueueShares, shares


def add(model: Model) -> None:
    known = shares(model.instance)
    if known is not None:
        for gpu in known.healthy:
            _add(model, known, gpu)


def _add(model: Model, known: QueueShares, gpu: Gpu) -> None:
    program, use = model.program, model.queue_use
    own: dict[int | None, Linear] = {}
    for (holder, counted), held in use.held.items():
        if counted == gpu and holder.firm:
            own.setdefault(holder.queue, Linear()).add_linear(held)
    total = own.get(None, Linear())
    above = [own.get(q, Linear()) for q in range(len(known.names))]
    for q in sorted(range(len(known.names)), key=lambda q: (-len(known.paths[q]), q)):
        promised = _largest(model, above[q], known.guarantee(q, gpu))
        (above[known.paths[q][1]] if len(known.paths[q]) > 1 else total).add_linear(promised)
    there = known.healthy[gpu] + known.shortfall[gpu]
    row = total.add_linear(use.beyond.get(gpu, Linear()), -1)
    if program.bound_above(row) > there:
        program.at_most(row, there)


def _largest(model: Model, held: Linear, guarantee: int) -> Linear:
    """R: the expression, or a variable that is no less than it and the guarantee."""
    program = model.program
    most = program.bound_above(held)
    if most <= guarantee:
        return Linear(constant=guarantee)
    if program.bound_below(held) >= guarantee:
        return held
    largest = program.integer(guarantee, most)
    program.at_least(Linear().add(largest).add_linear(held, -1))
    return Linear().add(largest)
