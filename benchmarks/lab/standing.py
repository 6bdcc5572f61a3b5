"""What rules keep from one moment to the next: facts of every gang, who waits in which order, free space.

Promises: all of it is as if it were found anew; only gangs that changed are looked at. Reads instances alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from benchmarks.lab.space import Space
from models.instance.cluster import Cluster
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, Reason, standing_of
from models.program.base_state import unchanged

NOT_PLACED = Reason.of("NoRoom", text="not placed by these rules")
"""Rules of other schedulers do not say why."""

Turn = tuple[int, int, tuple[str, str]]


@dataclass(slots=True)
class Facts:
    """Of a gang as it is now. ``turn``: its place by priority, submission and name.

    ``gpus``: of all its pods at its least size; ``held``: of those that run; ``lacks``: of those to place,
    None if there are none. ``shape``: all on which it depends where it fits while it waits, the time aside.
    ``base``: the decision that changes nothing.
    """

    gang: Gang
    turn: Turn
    queue: str
    gpus: int
    held: int
    lacks: int | None
    shape: Hashable
    base: GangDecision

    @classmethod
    def of(cls, instance: Instance, gang: Gang) -> Facts:
        """All of it found anew."""
        missing = gang.missing
        wants = gang.hold is None and bool(missing)
        base = unchanged(gang, standing_of(gang), len(missing))
        if wants and not gang.running:
            base = GangDecision("wait", (), NOT_PLACED)
        return cls(
            gang,
            (-gang.priority, gang.submitted_at or 0, gang.key),
            queue_of(gang),
            sum(role.min * role.gpus for role in gang.roles),
            sum(gang.roles[pod.role].gpus for pod in base.pods),
            sum(gang.roles[role].gpus for role, _ in missing) if wants else None,
            _shape(instance, gang),
            base,
        )


def queue_of(gang: Gang) -> str:
    """Its queue; its namespace if it has none."""
    return gang.queue or gang.namespace


class Standing:
    """``facts``: of the gangs of the moment, in its order. ``held``: GPUs by queue.

    ``gpus``: healthy ones of the nodes that take pods.
    """

    def __init__(self) -> None:
        self.facts: list[Facts] = []
        self.held = Counter[str]()
        self.gpus = 0
        self._cluster: Cluster | None = None
        self._known = dict[int, Facts]()
        self._index = dict[int, int]()
        self._queue: list[tuple[Turn, int]] = []
        self._space: Space | None = None
        self._shapes = dict[Hashable, int]()

    def follow(self, instance: Instance) -> None:
        """Take in what has changed since the last moment: nodes, and gangs that are other objects."""
        gangs = instance.gangs
        if instance.cluster is not self._cluster:
            self.__init__()  # type: ignore[misc]
            self._cluster = instance.cluster
            nodes = instance.cluster.nodes
            self.gpus = sum(n.healthy_gpus for n in nodes if instance.schedulable(n))
        self._index = {id(gang): i for i, gang in enumerate(gangs)}
        gone = {facts.gang.key: facts for i, facts in self._known.items() if i not in self._index}
        come = [gang for gang in gangs if id(gang) not in self._known]
        for facts in gone.values():
            del self._known[id(facts.gang)]
            self._leave(facts)
        for gang in come:
            facts = Facts.of(instance, gang)
            facts.shape = self._shapes.setdefault(facts.shape, len(self._shapes))
            self._known[id(gang)] = facts
            self._come(facts)
        self.facts = [self._known[id(gang)] for gang in gangs]
        if self._space is not None:
            self._space.instance = instance

    def _come(self, facts: Facts) -> None:
        if facts.lacks is not None:
            insort(self._queue, (facts.turn, id(facts.gang)))
        if facts.held:
            self.held[facts.queue] += facts.held
        if self._space is not None:
            self._space.hold(facts.gang, facts.base.pods, 1)

    def _leave(self, facts: Facts) -> None:
        if facts.lacks is not None:
            del self._queue[bisect_left(self._queue, (facts.turn, id(facts.gang)))]
        if facts.held:
            self.held[facts.queue] -= facts.held
        if self._space is not None:
            self._space.hold(facts.gang, facts.base.pods, -1)

    @property
    def wanting(self) -> list[int]:
        """Gangs with pods to place, in their turn."""
        return [self._index[gang] for _, gang in self._queue]

    def space(self, instance: Instance) -> Space:
        """Free space of the moment, for the caller to use up."""
        if self._space is None:
            self._space = Space(instance, [facts.base for facts in self.facts])
        return self._space.copy()


def _shape(instance: Instance, gang: Gang) -> Hashable:
    wishes = (gang.required, gang.preferred, instance.min_share(gang))
    return (gang.roles, wishes, gang.pattern, gang.nvlink_across_nodes)
