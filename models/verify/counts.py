"""What each pod counts where the judge counts GPUs: 1 a GPU, or 1000 where any pod has parts of some.

Then a part counts its share of one GPU in thousandths: of the memory or the cores the larger share, of an
instance (MIG) that of its board's compute or memory slices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from models.documents.queue import QueueSpec
from models.hardware import slug
from models.mig import Board, boards
from models.verify.eligibility import accepting, accepts, in_order
from models.verify.facts import PARTS, Gang, Node, Role, uses_parts
from models.verify.partitions import INSTANCES
from models.verify.shares import PART

ONE, COMPUTE = Fraction(1), 7


def unit_of(gangs: Iterable[Gang], queues: Mapping[str, QueueSpec]) -> int:
    """1000 where a pod has parts, or a queue states a part of a GPU; else 1."""
    if any(uses_parts(role) for gang in gangs for role in gang.roles):
        return 1000
    for spec in queues.values():
        stated = (spec.guarantee, spec.limit, spec.lending_limit, spec.non_preemptible_limit)
        for amount in stated:
            if any(n != int(n) for n in (amount.gpus or 0, *amount.models.values())):
                return 1000
    return 1


class Counts:
    """Thousandths of GPUs. ``nodes``: as they are; a gang that waits may use those that are out of order."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._in_order = list(map(in_order, nodes))
        self._shares: dict[object, Fraction] = {}

    def counted(self, gang: Gang) -> tuple[Role, ...]:
        """The roles of the gang with what a pod counts."""
        roles = []
        for number, role in enumerate(gang.roles):
            on = {pod.node for pod in gang.running_pods.values() if pod.role == number}
            counts = sum(
                amount * math.floor(1000 * self._share(role, name, on))
                for name, amount in role.requests.items()
                if name.startswith(PARTS)
            )
            roles.append(replace(role, counts=1000 * role.gpus + counts))
        return tuple(roles)

    def _share(self, role: Role, resource: str, on: Collection[int]) -> Fraction:
        """Of one GPU: the largest of those it stands on, else the smallest of those it may use."""
        key = resource, frozenset(on) if on else accepting(role)
        if key not in self._shares:
            standing = [self._nodes[n] for n in on]
            able = (node for node in self._in_order if not on and accepts(node, role))
            shares = list(_shares(resource, standing, offered=False))
            if shares:
                found = max(shares)
            else:
                shares = list(_shares(resource, able, offered=True))
                shares = shares or list(_shares(resource, self._nodes, offered=True))
                found = min(shares) if shares else _unknown(resource)
            self._shares[key] = found
        return self._shares[key]


def _shares(resource: str, nodes: Iterable[Node], *, offered: bool) -> Iterator[Fraction]:
    """Its share of the GPUs of each node of which it is known. ``offered``: only of instances to be had."""
    part = PART.fullmatch(resource)
    for node in nodes:
        if part is None:
            there = node.dynamic_mig is not None or node.allocatable.get(resource, 0) > 0
            boards_ = _boards(node) if there or not offered else ()
            own = [share for board in boards_ for share in _of_board(board, resource)]
            if own:
                yield min(own)
            continue
        fraction, memory, cores, _ = part.groups()
        of_cores = Fraction(int(cores or 0), 100)
        if fraction is not None:
            yield max(Fraction(fraction), of_cores)
        elif node.sharing is not None and node.sharing.memory:
            yield max(Fraction(int(memory), node.sharing.memory), of_cores)


def _boards(node: Node) -> Iterator[Board]:
    for board in boards():
        if node.dynamic_mig is not None:
            if board.name == node.dynamic_mig:
                yield board
        elif node.model is not None and slug(node.model.gpu) in board.gpus:
            yield board


def _of_board(board: Board, resource: str) -> Iterator[Fraction]:
    slices = [int(one.names[0].split("g")[0]) for one in board.profiles]
    memory = max(one.size for one in board.profiles)
    for one, compute in zip(board.profiles, slices, strict=True):
        if resource in {INSTANCES + name.replace("+", ".") for name in one.names}:
            yield max(Fraction(compute, max(slices)), Fraction(one.size, memory or 1))


def _unknown(resource: str) -> Fraction:
    """Of a GPU that no node has: memory takes it whole, an instance the least that it has on any board."""
    part = PART.fullmatch(resource)
    if part is not None:
        fraction, cores = part[1], Fraction(int(part[3] or 0), 100)
        return max(Fraction(fraction), cores) if fraction is not None else cores or ONE
    known = [share for board in boards() for share in _of_board(board, resource)]
    digits = resource.removeprefix(INSTANCES).split("g")[0]
    named = Fraction(min(COMPUTE, int(digits)), COMPUTE) if digits.isdecimal() else ONE
    return min(known, default=named)
