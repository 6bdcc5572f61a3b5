"""What gangs in queues hold after the plan, as expressions.

GPUs in all follow from the options; those of one GPU model from the pods that stay and from the pieces on
its nodes. Gangs that are not decided about are constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.instance.queue import Gpu, Holder, QueueUse
from models.instance.solution import placed
from models.program.linear_program import Linear
from models.program.options import Option
from models.program.variables import Model
from models.queues.queue_shares import (
    add_use,
    fair_units,
    gpus_beyond,
    gpus_held,
    holder_of,
    model_of_nodes,
    shares,
    stated_shares,
)
from models.tiers import Tier


@dataclass
class QueueUsage:
    """GPUs by holder and GPU model; ``beyond``, ``fair``: as in ``models.queues.queue_shares.QueueUse``."""

    held: dict[tuple[Holder, Gpu], Linear] = field(default_factory=dict)
    beyond: dict[tuple[bool, Gpu], Linear] = field(default_factory=dict)
    fair: dict[int, Linear] = field(default_factory=dict)

    def hold(self, holder: Holder, gpu: Gpu) -> Linear:
        return self.held.setdefault((holder, gpu), Linear())


def usage_of(model: Model) -> QueueUsage:
    """What every gang of a model holds; nothing where there are no queues."""
    instance, known, found = model.instance, shares(model.instance), QueueUsage()
    if known is None:
        return found
    fixed = QueueUse()
    for index, decision in enumerate(model.state.base):
        add_use(instance, fixed, index, decision.pods)
    for (holder, gpu), gpus in fixed.held.items():
        found.hold(holder, gpu).constant += gpus
    for key, gpus in fixed.beyond.items():
        found.beyond.setdefault(key, Linear()).constant += gpus
    for queue, units in fixed.fair.items():
        found.fair.setdefault(queue, Linear()).constant += units
    for choice, admits in model.decided:
        for option, admit in zip(choice.options, admits, strict=True):
            _add_option(model, found, option, admit)
    for owner, n, variable, roles in model.variables.placed if known.models else ():
        gpu = model_of_nodes(instance)[n]
        if gpu in known.models:
            units = sum(owner.gang.roles[role.role].units * pods for role, pods in roles)
            found.hold(holder_of(instance, owner.demand.gang), gpu).add(variable, units)
    return found


def _add_option(model: Model, found: QueueUsage, option: Option, admit: int) -> None:
    instance, index = model.instance, option.demand.gang
    gang, known = instance.gangs[index], stated_shares(instance)
    holder = holder_of(instance, index)
    counts = list(zip(gang.roles, option.demand.counts, strict=True))
    found.hold(holder, None).add(admit, sum(role.units * count for role, count in counts))
    stays = placed(gang, option.demand.stays)
    for gpu, gpus in gpus_held(instance, gang, stays).items():
        if gpu in known.models:
            found.hold(holder, gpu).add(admit, gpus)
    if holder.managed:
        for gpu, gpus in gpus_beyond(instance, gang, stays).items():
            found.beyond.setdefault((holder.firm, gpu), Linear()).add(admit, gpus)
    if holder.queue is not None:
        queue = holder.queue
        units = sum(fair_units(instance, queue, role) * count for role, count in counts)
        found.fair.setdefault(queue, Linear()).add(admit, units)


def fairness(model: Model, tier: Tier) -> Linear:
    """The tier ``fair``: the sum of the k smallest x is the most of k t - sum of max(0, t - x)."""
    program, rank = model.program, tier.rank or 0
    parts = stated_shares(model.instance).parts
    held = [model.once(usage_of).fair.get(queue, Linear()) for queue in parts]
    if rank == len(held):
        total = Linear()
        for own in held:
            total.add_linear(own)
        return total
    largest = sorted(program.bound_above(own) for own in held)[rank - 1]
    level = program.integer(0, largest)
    total = Linear().add(level, rank)
    for own in held:
        below = program.integer(0, largest)
        program.at_least(Linear().add(below).add(level, -1).add_linear(own))
        total.add(below, -1)
    return total


QUEUE_TIERS = {"fair": fairness}
"""Tiers about what gangs in queues hold."""
