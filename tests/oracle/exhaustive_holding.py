"""Strict queues of a tiny instance, in their own words.

Promises: own code. Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from exhaustive_ages import queued_since
from exhaustive_starting import could_start
from exhaustive_values import running

from models.instance.instance import Instance


class Turns:
    """Strict queues, rule 2.23: who of those that could start has somebody before it."""

    def __init__(self, instance: Instance) -> None:
        gangs, queues = instance.gangs, {queue.name: queue for queue in instance.queues}
        mine = [
            g
            for g, gang in enumerate(gangs)
            if gang.queue in queues
            and queues[gang.queue].strict
            and not running(gang)
            and gang.hold is None
            and could_start(instance, g)
        ]
        mine.sort(key=lambda g: gangs[g].key)
        mine.sort(key=lambda g: float("inf") if (t := queued_since(gangs[g])) is None else t)
        mine.sort(key=lambda g: -gangs[g].priority)
        self.before = {
            g: [other for other in mine[:i] if gangs[other].queue == gangs[g].queue]
            for i, g in enumerate(mine)
        }

    def kept(self, starts: Iterable[int]) -> bool:
        """Whether all that are before one that starts start, too."""
        here = set(starts)
        return all(here.issuperset(self.before.get(g, ())) for g in here)
