"""In a strict queue gangs start in order (contract 2.23), and leave reservations their quota (2.18).

admit(next) <= admit(gang) along each line. Gangs that start leave holders what limits of queues let them
have; what queues are promised and do not lend is no sum of GPUs: of these the ledger looks at every plan.
"""

from __future__ import annotations

from models.program.linear_program import Linear
from models.program.variables import Model
from models.queues.queue_order import pairs
from models.queues.reserved_quotas import sums


def add(model: Model) -> None:
    between, every = tuple(pairs(model.instance)), tuple(sums(model.instance))
    runs = [Linear(constant=int(bool(decision.pods))) for decision in model.state.base]
    for choice, admits in model.decided:
        runs[choice.gang] = Linear().add_all(admits)
    for first, then in between:
        row = Linear().add_linear(runs[first]).add_linear(runs[then], -1)
        if model.program.bound_below(row) < 0:
            model.program.at_least(row)
    for gangs, most in every:
        row = Linear()
        for gang, gpus in gangs.items():
            row.add_linear(runs[gang], gpus)
        model.program.limit(row, most)
