"""A scheduler that takes gangs one after another, as most do: what a joint plan is compared with.

Promises: honest at its own game: a whole gang or none, required levels and slices, selectors and other
resources, preferred levels first, the fullest domain and node that will do, victims of strictly lower
priority only, and no more of them than it takes. It never reconsiders, moves nothing, and counts GPUs when
it chooses victims. Called by tests/search/test_expected_plans.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room, rooms
from models.instance.solution import Decision, GangDecision, PodPlacement

Pod = tuple[int, int]
"""(role, index)."""


def schedule(instance: Instance, order: Sequence[int] | None = None) -> tuple[GangDecision, ...]:
    """The plan it makes. ``order``: gangs (indices) that want pods, first first; by default its queue's."""
    scheduler = _Scheduler(instance)
    for gang in queue(instance) if order is None else order:
        scheduler.take(gang)
    return tuple(scheduler.decisions)


def queue(instance: Instance) -> list[int]:
    """Gangs that want pods: highest priority, then who waited longest. A lost worker's pod is the newest."""
    wants = [i for i, gang in enumerate(instance.gangs) if gang.missing]

    def place(index: int) -> tuple[int, bool, int, int]:
        gang = instance.gangs[index]
        return (-gang.priority, gang.running, gang.submitted_at or 0, index)

    return sorted(wants, key=place)


class _Scheduler:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.decisions: list[GangDecision] = []
        for gang in instance.gangs:
            pods = tuple(
                PodPlacement(p.role, p.index, p.node, p.gpus)
                for p in gang.running_pods
                if p.node is not None
            )
            self.decisions.append(GangDecision("keep" if pods else "wait", pods))

    def take(self, index: int) -> None:
        """Start the gang, if need be by stopping others first."""
        gang = self.instance.gangs[index]
        if self._start(index):
            return
        asked = sum(gang.roles[role].gpus for role, _ in gang.missing)
        for victim in self._victims(gang):
            if sum(room.free_gpus for room in self._rooms()) >= asked:
                break
            self.decisions[victim] = GangDecision("preempt")
        self._start(index)

    def _victims(self, gang: Gang) -> list[int]:
        """Lowest priority first, then the youngest, then the smallest."""
        gangs = self.instance.gangs
        found = [
            i
            for i, other in enumerate(gangs)
            if other.preemptible and other.priority < gang.priority and self.decisions[i].pods
        ]
        return sorted(
            found,
            key=lambda i: (gangs[i].priority, -(gangs[i].submitted_at or 0), gangs[i].weight_gpus),
        )

    def _rooms(self) -> tuple[Room, ...]:
        return rooms(self.instance, self.decisions)

    def _start(self, index: int) -> bool:
        gang = self.instance.gangs[index]
        for nodes in self._domains(gang, self.decisions[index].pods):
            pods = self._fit(gang, nodes)
            if pods is not None:
                decided: Decision = "complete" if gang.running else "place"
                stand = self.decisions[index].pods
                self.decisions[index] = GangDecision(decided, tuple(sorted((*stand, *pods))))
                return True
        return False

    def _domains(self, gang: Gang, stand: Sequence[PodPlacement]) -> Iterator[tuple[int, ...]]:
        """Where to look: preferred domains, then what is required; the fullest first."""
        cluster = self.instance.cluster
        everywhere = tuple(range(len(cluster.nodes)))
        free = [room.free_gpus for room in self._rooms()]
        levels = [gang.preferred] if gang.preferred is not None else []
        for level in (*levels, gang.required):
            if level is None:
                yield everywhere
                continue
            of = cluster.domain_of[level]
            held = {of[pod.node] for pod in stand}
            domains = [d.nodes for i, d in enumerate(cluster.domains[level]) if held <= {i}]
            yield from sorted(domains, key=lambda nodes: (sum(free[n] for n in nodes), nodes))

    def _fit(self, gang: Gang, nodes: tuple[int, ...]) -> list[PodPlacement] | None:
        """All missing pods on these nodes, slice by slice, fullest rack and node first."""
        free = list(self._rooms())
        placed: list[PodPlacement] = []
        for members in self._slices(gang):
            for domain in self._slice_domains(gang, members, nodes, free):
                after = self._pack(gang, members, domain, free)
                if after is not None:
                    free, pods = after
                    placed += pods
                    break
            else:
                return None
        return placed

    @staticmethod
    def _slices(gang: Gang) -> list[list[Pod]]:
        groups: dict[tuple[int, int], list[Pod]] = {}
        for role, index in gang.missing:
            size = gang.roles[role].slice_size
            groups.setdefault((role, index // size if size else 0), []).append((role, index))
        return [groups[key] for key in sorted(groups)]

    def _slice_domains(
        self, gang: Gang, members: list[Pod], nodes: tuple[int, ...], free: list[Room]
    ) -> list[tuple[int, ...]]:
        level = gang.roles[members[0][0]].slice_level
        if level is None:
            return [nodes]
        domains = [
            tuple(n for n in domain.nodes if n in nodes)
            for domain in self.instance.cluster.domains[level]
        ]
        return sorted(domains, key=lambda d: (sum(free[n].free_gpus for n in d), d))

    def _pack(
        self, gang: Gang, members: list[Pod], nodes: tuple[int, ...], free: list[Room]
    ) -> tuple[list[Room], list[PodPlacement]] | None:
        rest, placed = list(free), []
        for number, index in members:
            role = gang.roles[number]
            wants = {PODS: 1, **dict(role.requests)}
            able = [
                n
                for n in nodes
                if n in self.instance.eligible_nodes(role)
                and rest[n].free_gpus >= role.gpus
                and all(left >= wants.get(name, 0) for name, left in rest[n].left)
            ]
            if not able:
                return None
            node = min(able, key=lambda n: (rest[n].free_gpus, n))
            room = rest[node]
            mask, gpus = room.mask, 0
            for _ in range(role.gpus):
                gpus |= mask & -mask
                mask &= mask - 1
            left = tuple((name, amount - wants.get(name, 0)) for name, amount in room.left)
            rest[node] = Room(mask, room.unknown, room.free_gpus - role.gpus, left, room.blind)
            placed.append(PodPlacement(number, index, node, gpus))
        return rest, placed
