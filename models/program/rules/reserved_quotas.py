"""Reservations in queues (contract 2.18): gangs that start leave holders what limits of queues let them have.

What queues are promised and do not lend is no sum of GPUs: of these the ledger looks at every plan.
"""

from __future__ import annotations

from models.program.linear_program import Linear
from models.program.variables import Model
from models.queues.reserved_quotas import sums


def add(model: Model) -> None:
    admits: dict[int, Linear] = {}
    every = tuple(sums(model.instance))
    for choice, variables in model.decided if every else ():
        admits[choice.gang] = Linear().add_all(variables)
    for gangs, most in every:
        row = Linear()
        for gang, gpus in gangs.items():
            if gang in admits:
                row.add_linear(admits[gang], gpus)
            elif model.state.base[gang].pods:
                row.constant += gpus
        if model.program.bound_above(row) > most:
            model.program.at_most(row, most)
