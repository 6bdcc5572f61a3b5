"""In a strict queue gangs start in order (contract 2.23): admit(next) <= admit(gang) along each line."""

from __future__ import annotations

from models.program.linear_program import Linear
from models.program.variables import Model
from models.queues.queue_order import pairs


def add(model: Model) -> None:
    admits: dict[int, Linear] = {}
    between = tuple(pairs(model.instance))
    for choice, variables in model.decided:
        admits[choice.gang] = Linear().add_all(variables)
    for first, then in between:
        ahead, follows = (
            admits.get(gang, Linear(constant=int(bool(model.state.base[gang].pods))))
            for gang in (first, then)
        )
        row = Linear().add_linear(ahead).add_linear(follows, -1)
        if model.program.bound_below(row) < 0:
            model.program.at_least(row)
