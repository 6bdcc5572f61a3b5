"""Room is held (contract 2.14): no gang starts while one of higher priority waits that holds room.

For each priority k of gangs that hold room: z[k] <= admit(g) for each of them, z[k] <= z of the next higher
one; admit(h) <= z[k] for every gang h below k, and above the next such priority, that does not run.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.program.linear_program import Linear
from models.program.variables import Model
from models.queues.room_holding import blockers


def add(model: Model) -> None:
    program, holding = model.program, set(blockers(model.instance))
    if not holding:
        return
    by_priority: dict[int, list[tuple[int, Linear]]] = {}
    for gang, admit in _admits(model, holding):
        by_priority.setdefault(model.instance.gangs[gang].priority, []).append((gang, admit))
    above: int | None = None
    for _, gangs in sorted(by_priority.items(), reverse=True):
        if above is not None:
            for _, admit in gangs:
                program.at_least(Linear().add(above).add_linear(admit, -1))
        here = [admit for gang, admit in gangs if gang in holding]
        if not here:
            continue
        started = program.boolean()
        for admit in here:
            program.at_least(Linear().add_linear(admit).add(started, -1))
        if above is not None:
            program.at_least(Linear().add(above).add(started, -1))
        above = started


def _admits(model: Model, holding: set[int]) -> Iterator[tuple[int, Linear]]:
    """Whether each gang starts: gangs that wait and are decided about, and those that hold room."""
    left = set(holding)
    for choice, variables in zip(model.requests.choices, model.variables.admits, strict=True):
        left.discard(choice.gang)
        if not model.instance.gangs[choice.gang].running:
            yield choice.gang, Linear().add_all(variables)
    for gang in sorted(left):
        yield gang, Linear(constant=int(bool(model.base[gang].pods)))
