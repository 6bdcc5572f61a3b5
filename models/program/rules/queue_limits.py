"""Limits of queues (contract 2.15): what gangs in a queue hold <= the most it may hold.

In all and of each GPU model that a queue names. The most is its limit, or what is held before the plan.
"""

from __future__ import annotations

from models.program.linear_program import Linear
from models.program.queue_usage import within
from models.program.variables import Model
from models.queue_shares import shares


def add(model: Model) -> None:
    known = shares(model.instance)
    if known is None:
        return
    for gpu, limits in known.most.items():
        for queue, most in enumerate(limits):
            if most is None:
                continue
            row = Linear()
            for _, held in within(known, model.queue_use, queue, gpu):
                row.add_linear(held)
            if model.program.bound_above(row) > most:
                model.program.at_most(row, most)
