"""Limits of queues (contract 2.15), their guarantees (2.16), and what they do not lend (2.22).

Limits: what gangs in a queue hold <= the most it may hold, in all and of each GPU model that a queue names.
The most is its limit, or what is held before the plan. The same for gangs that are not preemptible, of which
a queue may have a limit of its own.

Guarantees stay reachable, and what queues do not lend stays free, in all and for each GPU model: with n[q]
GPUs of gangs that name q and p[q] that q is promised, or keeps to itself: R[q] >= p[q], R[q] >= n[q] + sum
of R over the queues right below q, and sum of R over the queues without a parent + n of gangs in no queue
<= healthy GPUs of usable nodes + GPUs of these pods that are not among these + what was short before the
plan. Guarantees count firm gangs (``Gang.firm``), what is not lent all managed ones; of the latter R[q] is
also at most the limit of q.

Order: in a strict queue gangs start in order (2.23): admit(next) <= admit(gang) along each line. Gangs that
start leave holders of reservations what limits of queues let them have (2.18); what queues are promised and
do not lend is no sum of GPUs: of these the ledger looks at every plan.

GPUs in all follow from the options; those of one GPU model from the pods that stay and from the pieces on its
nodes. Gangs that are not decided about are constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.instance.queue import Gpu, Holder, QueueShares, QueueUse
from models.instance.solution import placed
from models.program.linear_program import Linear
from models.program.options import Option
from models.program.variables import Model
from models.queues.queue_order import pairs
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
from models.queues.reserved_quotas import sums
from models.tiers import Tier


def add(model: Model) -> None:
    known = shares(model.instance)
    if known is None:
        return
    _limit(model, known)
    for gpu, healthy in known.healthy.items():
        own = _held(model, gpu, firm=True)
        total = _promised(model, known, own, known.guarantees[gpu])
        total.add_linear(model.once(usage_of).beyond.get((True, gpu), Linear()), -1)
        model.program.limit(total, healthy + known.shortfall[gpu])
    for gpu, kept in known.kept.items():
        own = _held(model, gpu, firm=False)
        total = _promised(model, known, own, kept, known.most_taken[gpu])
        for firm in (True, False):
            total.add_linear(model.once(usage_of).beyond.get((firm, gpu), Linear()), -1)
        model.program.limit(total, known.healthy[gpu] + known.kept_short[gpu])


def _limit(model: Model, known: QueueShares) -> None:
    """What gangs in each queue hold, and what those do that are not preemptible."""
    usage = model.once(usage_of).held
    for firm, of_model in ((False, known.most), (True, known.most_firm)):
        for gpu, limits in of_model.items():
            for queue, most in enumerate(limits):
                if most is None:
                    continue
                row = Linear.total(
                    held
                    for (holder, counted), held in usage.items()
                    if counted == gpu and queue in known.path(holder.queue)
                    if holder.firm or not firm
                )
                model.program.limit(row, most)


def _held(model: Model, gpu: Gpu, *, firm: bool) -> dict[int | None, Linear]:
    """n[q], by the queue that the gangs name: of firm gangs, or of all managed ones."""
    own: dict[int | None, Linear] = {}
    for (holder, counted), held in model.once(usage_of).held.items():
        if counted == gpu and (holder.firm if firm else holder.managed):
            own.setdefault(holder.queue, Linear()).add_linear(held)
    return own


def _promised(
    model: Model,
    known: QueueShares,
    own: Mapping[int | None, Linear],
    promised: Sequence[int],
    most: Sequence[int | None] = (),
) -> Linear:
    """The sum of R over the queues without a parent, and n of gangs in no queue. ``most``: of R[q]."""
    total = Linear().add_linear(own.get(None, Linear()))
    above = [own.get(q, Linear()) for q in range(len(known.names))]
    for q in sorted(range(len(known.names)), key=lambda q: (-len(known.paths[q]), q)):
        largest = _largest(model, above[q], promised[q])
        limit = most[q] if most else None
        if limit is not None:
            model.program.limit(largest, limit)
        (above[known.paths[q][1]] if len(known.paths[q]) > 1 else total).add_linear(largest)
    return total


def _largest(model: Model, held: Linear, promised: int) -> Linear:
    """R: the expression, or a variable that is no less than it and what is promised."""
    program = model.program
    most = program.bound_above(held)
    if most <= promised:
        return Linear(constant=promised)
    if program.bound_below(held) >= promised:
        return held
    largest = program.integer(promised, most)
    program.at_least(Linear().add(largest).add_linear(held, -1))
    return Linear().add(largest)


def keep_order(model: Model) -> None:
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
    instance, known, fixed = model.instance, shares(model.instance), QueueUse()
    if known is None:
        return QueueUsage()
    for index, decision in enumerate(model.state.base):
        add_use(instance, fixed, index, decision.pods)
    found = QueueUsage(
        {key: Linear(constant=gpus) for key, gpus in fixed.held.items()},
        {key: Linear(constant=gpus) for key, gpus in fixed.beyond.items()},
        {queue: Linear(constant=units) for queue, units in fixed.fair.items()},
    )
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
        units = sum(fair_units(instance, holder.queue, role) * count for role, count in counts)
        found.fair.setdefault(holder.queue, Linear()).add(admit, units)


def fairness(model: Model, tier: Tier) -> Linear:
    """The tier ``fair``: the sum of the k smallest x is the most of k t - sum of max(0, t - x)."""
    program, rank = model.program, tier.rank or 0
    parts = stated_shares(model.instance).parts
    held = [model.once(usage_of).fair.get(queue, Linear()) for queue in parts]
    if rank == len(held):
        return Linear.total(held)
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
