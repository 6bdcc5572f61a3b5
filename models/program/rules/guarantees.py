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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.instance.queue import Gpu, QueueShares
from models.program.linear_program import Linear
from models.program.queue_usage import usage_of
from models.program.variables import Model
from models.queues.queue_shares import shares


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
                row = Linear()
                for (holder, counted), held in usage.items() if most is not None else ():
                    inside = counted == gpu and queue in known.path(holder.queue)
                    if inside and (holder.firm or not firm):
                        row.add_linear(held)
                if most is not None:
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
