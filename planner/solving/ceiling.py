"""The most room a gang could ever find: everything gone that any plan may stop or move, nothing new placed.

Promises: no plan of contract section 2 leaves a gang more room than this, so what does not fit here fits
nowhere. A gang is stopped for any strictly higher one that comes, and what it leaves beside that one
may go to a third: so who could be stopped for anybody is gone for everybody. Called by ``reasons``.
"""

from __future__ import annotations

from dataclasses import replace

from models.gang import Gang, Hold
from models.instance import Instance
from models.placement.ground import base_decisions
from planner.solving.ground import Ground

ASIDE = Hold("Unsupported", "set aside")


class Ceiling:
    """``ground``: what is left. ``gone``: running gangs that are set aside."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.ground = Ground(instance, base_decisions(instance))
        highest = max((g.priority for g in instance.gangs if _may_come(g)), default=None)
        self._all = tuple(
            index
            for index, gang in enumerate(instance.gangs)
            if gang.running
            and (
                (gang.preemptible and highest is not None and gang.priority < highest)
                or (gang.movable and index not in instance.incomplete)
            )
        )
        self.gone = self._all
        for index in self.gone:
            self.ground.set(index, ())

    def spare(self, gang: int) -> None:
        """The gang asked about keeps its own pods, and only it."""
        for index in self._all:
            self.ground.set(index, self.ground.stood[index] if index == gang else ())
        self.gone = tuple(index for index in self._all if index != gang)

    def alone(self) -> Instance:
        """The instance without the pods of those set aside; indices stay as they are."""
        gone = set(self.gone)
        gangs = tuple(
            replace(gang, pods=(), hold=ASIDE) if index in gone else gang
            for index, gang in enumerate(self.instance.gangs)
        )
        return replace(self.instance, gangs=gangs)


def _may_come(gang: Gang) -> bool:
    """Whether some plan puts a pod of the gang where it does not stand now."""
    if not gang.running:
        return gang.hold is None
    return gang.movable or gang.elastic or bool(gang.missing())
