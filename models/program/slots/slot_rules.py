"""Rules about who runs, wherever it is, in the program of the slots: the rows of the full program.

Every mode counts as an option of its gang. Of single GPU models only the pods that stay are counted: with
less held, no plan is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.instance.instance import Instance
from models.program.base_state import BaseState
from models.program.linear_program import Program
from models.program.rules import guarantees, queue_limits, queue_order, reserved_quotas, running
from models.program.slots.slot_rooms import Mode
from models.program.variables import Model, Variables

RULES = (
    queue_order.add,
    queue_limits.add,
    guarantees.add,
    reserved_quotas.add,
    running.limit_moves,
    running.limit_evictions,
)


def add_rules(
    instance: Instance, program: Program, state: BaseState, modes: Sequence[Mode]
) -> Model:
    """Add the rows; returns what they see, for tiers about what queues hold."""
    own: dict[int, list[Mode]] = {choice.gang: [] for choice in state.choices}
    for mode in modes:
        own[mode.option.demand.gang].append(mode)
    choices = tuple(
        replace(choice, options=tuple(mode.option for mode in own[choice.gang]))
        for choice in state.choices
    )
    admits = [[mode.variable for mode in found] for found in own.values()]
    model = Model(program, instance, replace(state, choices=choices), {}, Variables(admits))
    for add in RULES:
        add(model)
    return model
