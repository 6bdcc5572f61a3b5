"""What a plan leaves free, by counting slots: a bound of ``stranded`` that no plan beats.

What is left is known; of each request of the mix no more can be placed than there are slots for that
nobody takes. Requests of several servers are counted domain by domain, next to the large pods there.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.program.linear_program import Linear
from models.program.slots.slot_state import Slots
from models.values.leftover import gpu_models, request_domains


def stranded(model: Slots) -> Linear | None:
    """The expression; None if servers have several GPU models, since pods choose among these."""
    instance = model.instance
    if len(gpu_models(instance)) != 1:
        return None
    (nodes,) = gpu_models(instance).values()
    largest = max(instance.cluster.nodes[n].gpus for n in nodes)
    left, most, total = model.left_free(nodes), model.left_most(nodes), Linear()
    everywhere = frozenset(nodes)
    for size, permille in instance.policy.mix:
        total.add_linear(left, permille)
        if size <= largest:
            fitting = [_fitting(model, everywhere, size)]
        else:
            fitting = [*_whole(model, nodes, largest, size)]
        model.program.at_most(Linear().add_all(fitting, size).add_linear(most, -1))
        for requests in fitting:
            total.add(requests, -permille * size)
    return total


def _fitting(model: Slots, nodes: frozenset[int], size: int) -> int:
    """A variable: requests that fit on one node each."""
    requests = model.program.integer(0, sum(model.most_slots(n, size) for n in nodes))
    for taken, there in model.slots_left(nodes, size):
        model.program.at_most(Linear().add(requests).add_linear(taken).add_linear(there, -1))
    return requests


def _whole(model: Slots, nodes: tuple[int, ...], largest: int, size: int) -> Iterator[int]:
    """A variable for each domain: requests of several whole servers that fit in it."""
    servers = -(-size // largest)
    for members in request_domains(model.instance, nodes, size):
        most = sum(model.most_slots(n, largest) for n in members) // servers
        if most:
            requests = model.program.integer(0, most)
            inside = model.large_left(members, largest)
            if inside is not None:
                model.program.at_most(Linear().add(requests, servers).add_linear(inside, -1))
            yield requests
