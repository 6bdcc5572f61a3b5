"""Tiny instances that count GPUs as their pods ask for them: in thousandths where some have parts.

Promises: an instance that was counted before is counted anew, with the same amounts of its queues.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from models.instance.gpu_units import in_gpu_units
from models.instance.instance import Instance
from models.instance.queue import Amount, Queue


def counted(instance: Instance, decimals: Random | None = None) -> Instance:
    """The instance in its unit. ``decimals``: draws what some amounts of its queues are beside whole GPUs."""
    unit, moves = instance.gpu_unit, instance.policy.moves
    if moves is not None and moves.max_gpus is not None:
        moves = replace(moves, max_gpus=moves.max_gpus // unit)
    return in_gpu_units(
        replace(
            instance,
            gpu_unit=1,
            policy=replace(instance.policy, moves=moves),
            queues=tuple(_stated(queue, 1000 // unit, decimals) for queue in instance.queues),
            gangs=tuple(
                replace(gang, roles=tuple(replace(role, thousandths=None) for role in gang.roles))
                for gang in instance.gangs
            ),
        )
    )


def _stated(queue: Queue, times: int, decimals: Random | None) -> Queue:
    """The queue with its amounts in thousandths of a GPU."""

    def gpus(amount: Amount) -> Amount:
        models = tuple((model, times * n + _more(decimals)) for model, n in amount.models)
        in_all = None if amount.gpus is None else times * amount.gpus + _more(decimals)
        return Amount(in_all, models)

    return replace(
        queue,
        guarantee=gpus(queue.guarantee),
        limit=gpus(queue.limit),
        lending_limit=gpus(queue.lending_limit),
        non_preemptible_limit=gpus(queue.non_preemptible_limit),
    )


def _more(decimals: Random | None) -> int:
    return 0 if decimals is None else decimals.choice((0, 0, 142, 250, 300, 800))
