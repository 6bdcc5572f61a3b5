"""The options that have pods to place, flat, and which of them are identical.

Promises: one demand an option, in choice order; identical gangs together, in the order in which they go.
Called by ``formulation`` and ``pooled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.instance import Instance
from models.placement.demands import Demand, identity
from models.placement.options import Choice, Effect
from models.placement.regions import Pools


@dataclass(frozen=True)
class Asked:
    """``demands``: of every option with pods to place; ``origin``: their (choice, option)."""

    choices: tuple[Choice, ...]
    demands: tuple[Demand, ...]
    origin: tuple[tuple[int, int], ...]

    def effect(self, number: int) -> Effect:
        """What the option of that demand does to its gang."""
        choice, position = self.origin[number]
        return self.choices[choice].options[position].effect


def asked(choices: Sequence[Choice], within: frozenset[int] | None = None) -> Asked:
    """``within``: nodes that pods may be placed on."""
    origin = tuple(
        (number, position)
        for number, choice in enumerate(choices)
        for position, option in enumerate(choice.options)
        if option.demand.roles
    )
    demands = (choices[number].options[position].demand for number, position in origin)
    held = (d if within is None else d.within(within) for d in demands)
    return Asked(tuple(choices), tuple(held), origin)


def may_stop(choices: Sequence[Choice]) -> bool:
    """Whether any gang may be stopped or shrunk for a higher one that comes to its nodes."""
    return any(
        not choice.must or any(option.effect.gives for option in choice.options)
        for choice in choices
        if choice.stop.gives
    )


def yielding(instance: Instance, choices: Sequence[Choice]) -> int | None:
    """Priority of the least gang that may be stopped or shrunk for a higher one; None if there is none."""
    own = (c for c in choices if not c.must or any(o.effect.gives for o in c.options))
    return min((instance.gangs[c.gang].priority for c in own if c.stop.gives), default=None)


def classes(
    instance: Instance, asks: Asked, pools: Pools, *, planned: bool = True
) -> list[list[tuple[int, Demand]]]:
    """Identical gangs together, each class in the order (priority, age, name) in which they go.

    ``planned``: gangs that an earlier plan placed are by themselves. Those of unlike priority are apart
    where it matters who comes to a node: for whom it is given up.
    """
    apart = may_stop(asks.choices)
    classes: dict[object, list[tuple[int, Demand]]] = {}
    for number, demand in enumerate(asks.demands):
        gang = instance.gangs[demand.gang]
        key = (
            identity(instance, demand, planned=planned),
            pools.riding[number],
            None if demand.sole else number,
            gang.priority if apart else None,
        )
        classes.setdefault(key, []).append((number, demand))

    def order(member: tuple[int, Demand]) -> tuple[int, int, int]:
        gang = instance.gangs[member[1].gang]
        return (-gang.priority, -instance.age(gang), member[1].gang)

    return [sorted(members, key=order) for members in classes.values()]
