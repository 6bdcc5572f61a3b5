"""What stands on a node only as long as its gang stays: the part of the room that is to be decided.

Promises: for every node, the gangs whose options differ in what they leave there, and what each leaves;
pods that stay whatever is chosen are not among it, they are part of the node's room.
Built once per formulation; read by regions, variables, packing and resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.gang import StandingPod
from models.instance import Instance
from models.occupancy import PODS
from models.placement.options import Choice


@dataclass(frozen=True, slots=True)
class Left:
    """What an option leaves on a node: GPUs known, GPUs nobody knows which, and resources."""

    known: int = 0
    blind: int = 0
    use: tuple[tuple[str, int], ...] = ()


Contents = Mapping[int, Mapping[int, tuple[Left, ...]]]
"""By node and choice (its place in the sequence of choices): what each of its options leaves there."""


def contents_of(instance: Instance, choices: Sequence[Choice]) -> Contents:
    """Contents of every node on which it is decided who stays."""
    found: dict[int, dict[int, tuple[Left, ...]]] = {}
    for number, choice in enumerate(choices):
        always = set(choice.always)
        by_node: dict[int, list[Left]] = {}
        for position, option in enumerate(choice.options):
            here = left_by(
                instance, choice.gang, [p for p in option.demand.stays if p not in always]
            )
            for n in {**by_node, **here}:
                row = by_node.setdefault(n, [Left()] * len(choice.options))
                row[position] = here.get(n, Left())
        for n, row in by_node.items():
            found.setdefault(n, {})[number] = tuple(row)
    return {n: found[n] for n in sorted(found)}


def left_by(instance: Instance, index: int, pods: Sequence[StandingPod]) -> dict[int, Left]:
    """What these pods of a gang hold, by node."""
    gang = instance.gangs[index]
    known: dict[int, int] = {}
    blind: dict[int, int] = {}
    use: dict[int, dict[str, int]] = {}
    for pod in pods:
        assert pod.node is not None
        role = gang.roles[pod.role]
        if role.gpus and pod.gpus is None:
            blind[pod.node] = blind.get(pod.node, 0) + role.gpus
        elif role.gpus:
            known[pod.node] = known.get(pod.node, 0) | (pod.gpus or 0)
        own = use.setdefault(pod.node, {})
        for resource, amount in ((PODS, 1), *role.requests):
            own[resource] = own.get(resource, 0) + amount
    return {
        n: Left(known.get(n, 0), blind.get(n, 0), tuple(sorted(amounts.items())))
        for n, amounts in use.items()
    }
