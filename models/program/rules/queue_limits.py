"""Limits of queues (contract 2.15): what gangs in a queue hold <= the most it may hold.

In all and of each GPU model that a queue names. The most is its limit, or what is held before the plan. The
same for gangs that are not preemptible, of which a queue may have a limit of its own.
"""

from __future__ import annotations

from models.instance.queue import QueueShares
from models.program.linear_program import Linear
from models.program.queue_usage import usage_of, within
from models.program.variables import Model
from models.queues.queue_shares import Refusal, shares


def add(model: Model) -> None:
    known = shares(model.instance)
    if known is None:
        return
    for firm, of_model in ((False, known.most), (True, known.most_firm)):
        for gpu, limits in of_model.items():
            for queue, most in enumerate(limits):
                if most is not None:
                    _at_most(model, known, Refusal(queue, gpu, firm=firm), most)


def _at_most(model: Model, known: QueueShares, about: Refusal, most: int) -> None:
    row, queue = Linear(), about.queue
    assert queue is not None, "see add"
    for holder, held in within(known, model.once(usage_of), queue, about.gpu):
        if holder.firm or not about.firm:
            row.add_linear(held)
    if model.program.bound_above(row) > most:
        model.program.at_most(row, most)
