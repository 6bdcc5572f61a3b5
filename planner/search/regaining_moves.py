"""The moves that regain most of what a placement costs: some gangs restart elsewhere, so that one is faster.

Each is found beside a plan in which nothing moves: one gang goes where it is faster, or starts, and others
make room for it, without becoming slower or as the re-plan has them. Moves of one audit concern different
gangs and different nodes, so that each can be made without the others, and all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from models.effective_gpus import counted_gpus, gpus_at_speed
from models.instance import Instance
from models.program.demand_builder import remaining_demand
from models.program.demands import Demand
from models.program.interruption import Question
from models.program.options import standing_gpus
from models.rates.speed import FULL_SPEED
from models.solution import GangDecision
from models.tier_values import Evaluation, tiers_of
from models.tiers import larger_is_better
from planner.search.free_space import FreeSpace, Pods, counts_of
from planner.search.greedy import placements, value_of
from planner.search.ledger import Ledger

MAX_MOVES = 10
"""Moves of one audit."""

MAX_TARGETS = 150
"""Gangs for which a better place is looked for: those that could gain most."""

MAX_EMPTIED = 60
"""Servers that are tried to be emptied: those with the fewest GPUs held."""

DOMAINS = 4
"""Domains of each level in which others are moved for one gang."""

MAX_EVICTED = 12
"""Gangs that make room for one gang."""

PLACEMENTS = 3
"""Places of one gang that are compared."""


@dataclass(frozen=True, slots=True)
class Regain:
    """``decisions``: of the gangs that change. ``nodes``: that some gang leaves or comes to.

    ``effective``: permille-GPU regained; ``whole``: GPUs of whole nodes; ``gpus``: that restart.
    """

    decisions: Mapping[int, GangDecision]
    nodes: frozenset[int]
    effective: int
    whole: int
    gpus: int

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: what regains most, and restarts least, first."""
        return -self.effective, -self.whole, self.gpus, len(self.decisions), *sorted(self.decisions)


def regaining_moves(
    instance: Instance,
    unmoved: Sequence[GangDecision],
    replanned: Sequence[GangDecision],
    best_speeds: Mapping[int, int],
    ended: Question,
) -> tuple[Regain, ...]:
    """At most MAX_MOVES moves, those that regain most first.

    ``unmoved``: a plan in which nothing moves; ``replanned``: one in which everything may. ``best_speeds``:
    permille that a gang could reach. ``ended``: whether no more are to be looked for.
    """
    finder = _Finder(instance, unmoved, replanned, ended)
    tries: list[tuple[int, Callable[[], Regain | None]]] = [
        (-potential, lambda index=index: finder.hasten(index))  # type: ignore[misc]
        for index, potential in finder.targets(best_speeds)
    ]
    tries += [(0, lambda n=n: finder.empty(n)) for n in finder.emptiable()]  # type: ignore[misc]
    found = [(one, again) for _, again in tries if (one := again()) is not None]
    chosen: list[Regain] = []
    while found and len(chosen) < MAX_MOVES:
        found.sort(key=lambda pair: pair[0].order)
        one, again = found.pop(0)
        if finder.conflicts(one):
            other = again()
            found += [(other, again)] if other is not None else []
            continue
        exact = finder.confirmed(one)
        if exact == one:
            chosen.append(one)
            finder.close(one)
        elif exact is not None:
            found.append((exact, again))
    return tuple(chosen)


class _Finder:
    """Looks for one move at a time, in the space of the plan in which nothing moves."""

    def __init__(
        self,
        instance: Instance,
        unmoved: Sequence[GangDecision],
        replanned: Sequence[GangDecision],
        ended: Question,
    ) -> None:
        self.instance = instance
        self.base = tuple(unmoved)
        self._replan = replanned
        self._ended = ended
        self._space = FreeSpace(instance, self.base)
        self._ledger = Ledger(instance, self.base)
        before = Evaluation(instance, self.base)
        self._lines, self._effective = before.lines, sum(gpus_at_speed(before))
        self._values = larger_is_better(tiers_of(instance), before.vector())
        self._free_before = [one.free for one in self._space.by_node]
        self._open = frozenset(range(len(instance.cluster.nodes)))
        self._gangs = set[int]()
        self._tenants: list[list[int]] = [[] for _ in instance.cluster.nodes]
        for index, decision in enumerate(self.base):
            for n in sorted({pod.node for pod in decision.pods}):
                self._tenants[n].append(index)

    def targets(self, best_speeds: Mapping[int, int]) -> list[tuple[int, int]]:
        """(gang, permille-GPU that it could gain), the most first."""
        found = []
        for index, gang in enumerate(self.instance.gangs):
            waits = not gang.running and gang.hold is None
            if not (waits or (gang.running and gang.movable)):
                continue
            now = self._lines[index].speed or 0
            potential = counted_gpus(gang) * (best_speeds.get(index, FULL_SPEED) - now)
            if potential > 0:
                found.append((index, potential))
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:MAX_TARGETS]

    def emptiable(self) -> list[int]:
        """Servers that are partly held, by gangs that may move, those with the fewest GPUs held first."""
        nodes, found = self.instance.cluster.nodes, []
        for n, node in enumerate(nodes):
            gangs = [self.instance.gangs[index] for index in self._tenants[n]]
            held = node.gpus - self._space.by_node[n].free
            sound = self.instance.schedulable(node) and node.healthy_gpus == node.gpus
            if sound and 0 < held < node.gpus and all(g.running and g.movable for g in gangs):
                found.append((held, n))
        return [n for _, n in sorted(found)[:MAX_EMPTIED]]

    def close(self, one: Regain) -> None:
        """Leave the gangs and nodes of a move to it."""
        self._open -= one.nodes
        self._gangs.update(one.decisions)

    def conflicts(self, one: Regain) -> bool:
        """Whether the move concerns gangs or nodes of one that was closed."""
        return not one.nodes <= self._open or not self._gangs.isdisjoint(one.decisions)

    def hasten(self, index: int) -> Regain | None:
        """The best move found after which the gang is faster, or starts."""
        if not self._free(index):
            return None
        found = [one for one in self._ways(index) if one is not None]
        return min(found, key=lambda one: one.order, default=None)

    def empty(self, n: int) -> Regain | None:
        """The move of all gangs off a node to others that are not wholly free, none of them slower."""
        gangs = self._tenants[n]
        if n not in self._open or self._ended() or not all(map(self._free, gangs)):
            return None
        space, mark = self._space, self._space.mark()
        for index in gangs:
            space.set(index, ())
        servers = enumerate(self.instance.cluster.nodes)
        others = self._open - {m for m, one in servers if space.by_node[m].free == one.gpus} - {n}
        placed = all(self._replaced(index, others) for index in self._by_size(gangs))
        found = self._regain(gangs) if placed else None
        space.undo(mark)
        return found if found is not None and (found.effective > 0 or found.whole > 0) else None

    def _free(self, index: int) -> bool:
        """Whether the gang is in no closed move and stands on no closed node, and may move if it runs."""
        gang = self.instance.gangs[index]
        pods = self.base[index].pods
        may = gang.movable if gang.running else True
        return may and index not in self._gangs and all(pod.node in self._open for pod in pods)

    def _ways(self, index: int) -> Iterator[Regain | None]:
        """Moves for one gang: alone, and in domains from which others go."""
        space, mark = self._space, self._space.mark()
        if self._ended():
            return
        if self.instance.gangs[index].running:  # others would have started if they could
            space.set(index, ())
            if self._replaced(index, self._open, faster=True):
                yield self._gaining([index])
            space.undo(mark)
        for nodes in self._domains(index):
            if self._ended():
                return
            yield self._in_domain(index, nodes)
            space.undo(mark)
        yield self._as_replanned(index)
        space.undo(mark)

    def _gaining(self, gangs: Sequence[int]) -> Regain | None:
        found = self._regain(gangs)
        return found if found is not None and found.effective > 0 else None

    def _domains(self, index: int) -> Iterator[frozenset[int]]:
        """Nodes of the domains where least has to go for the gang, level by level, the narrowest first."""
        cluster = self.instance.cluster
        need = self._demand(index).gpus
        nodes = cluster.nodes
        for level in range(cluster.node_level, -1, -1):
            able = []
            for number, domain in enumerate(cluster.domains[level]):
                own = [n for n in domain.nodes if n in self._open and nodes[n].gpus]
                if (
                    sum(nodes[n].healthy_gpus for n in own if self.instance.schedulable(nodes[n]))
                    >= need
                ):
                    free = sum(self._space.by_node[n].free for n in own)
                    able.append((max(0, need - free), -free, number, own))
            for *_, own in sorted(able)[:DOMAINS]:
                yield frozenset(own)

    def _in_domain(self, index: int, nodes: frozenset[int]) -> Regain | None:
        """The move of the gang into a domain from which others go, node by node.

        Those that would start without the move wait if they find no other place.
        """
        space = self._space
        space.set(index, ())
        gone: list[int] = []
        placed = False
        for n in self._by_tenants(index, nodes):
            here = [i for i in self._tenants[n] if i != index and i not in gone]
            if not all(map(self._free, here)) or len(gone) + len(here) > MAX_EVICTED:
                continue
            for other in here:
                space.set(other, ())
                gone.append(other)
            if self._replaced(index, nodes, faster=True):
                placed = True
                break
        if not placed:
            return None
        away = [other for other in self._by_size(gone) if not self._returned(other)]
        away.sort(key=lambda other: not self.instance.gangs[other].running)
        for other in away:
            if not self._replaced(other, self._open) and self.instance.gangs[other].running:
                return None
        return self._gaining([index, *away])

    def _as_replanned(self, index: int) -> Regain | None:
        """The move of the gang to where the re-plan has it, and of those there to where it has them."""
        space = self._space
        gone = [index]
        for gang in gone:  # grows while it is read
            pods = self._replan[gang].pods
            if not self._free(gang) or not {pod.node for pod in pods} <= self._open:
                return None
            here = {other for pod in pods for other in self._tenants[pod.node]} - {*gone}
            gone += sorted(i for i in here if self._replan[i].pods != self.base[i].pods)
            if len(gone) > MAX_EVICTED:
                return None
        for gang in gone:
            space.set(gang, self._replan[gang].pods)
        lines = self._lines
        for gang in [i for i in self._by_size(gone) if i != index]:
            speed = value_of(space, gang, ()).speed if space.pods[gang] else 0
            if speed <= (lines[gang].speed or 0):
                self._returned(gang)
        return self._gaining(gone)

    def _by_tenants(self, index: int, nodes: frozenset[int]) -> list[int]:
        """The nodes, those first from which the fewest GPUs have to go."""

        def held(n: int) -> tuple[int, int]:
            others = (self.instance.gangs[i] for i in self._tenants[n] if i != index)
            return sum(counted_gpus(gang) for gang in others), n

        return sorted(nodes, key=held)

    def _by_size(self, gangs: Sequence[int]) -> list[int]:
        return sorted(gangs, key=lambda i: (-standing_gpus(self.instance, i), i))

    def _returned(self, index: int) -> bool:
        """Whether there is room again for the gang where it stands."""
        space, mark = self._space, self._space.mark()
        space.set(index, self.base[index].pods)
        nodes = sorted({pod.node for pod in self.base[index].pods})
        if all(space.is_valid(n) and not space.stale_indices(n) for n in nodes):
            return True
        space.undo(mark)
        return False

    def _demand(self, index: int) -> Demand:
        """All pods of the gang, at the size that it has, or at its smallest."""
        gang = self.instance.gangs[index]
        pods = self.base[index].pods
        counts = counts_of(gang, pods) if pods else gang.target_counts()
        return remaining_demand(self.instance, index, counts, ())

    def _replaced(self, index: int, nodes: frozenset[int], *, faster: bool = False) -> bool:
        """Place the gang on some of the nodes, the fastest of some places; False if none is fast enough.

        ``faster``: than in the plan in which nothing moves, else running gangs are at least as fast as there.
        """
        demand = self._demand(index).within(nodes)
        if not demand.possible or demand.gpus > self._space.arrays.idle_gpus:
            return False
        held = faster or self.instance.gangs[index].running
        least = (self._lines[index].speed or 0) + faster if held else 0
        best: tuple[int, Pods] | None = None
        for pods in islice(placements(self._space, demand), PLACEMENTS):
            speed = value_of(self._space, index, pods).speed
            if speed >= least and (best is None or speed > best[0]):
                best = speed, pods
        if best is None:
            return False
        self._space.set(index, best[1])
        return True

    def _regain(self, gangs: Sequence[int]) -> Regain | None:
        """What these gangs as they are in the space have beyond the plan in which nothing moves.

        None if nothing moves. Counts those gangs and their nodes alone: see ``confirmed``.
        """
        space, changed = self._space, [i for i in gangs if self._space.pods[i] != self.base[i].pods]
        if not any(self.instance.gangs[i].running for i in changed):
            return None
        effective = 0
        for i in changed:
            speed = value_of(space, i, ()).speed if space.pods[i] else 0
            effective += counted_gpus(self.instance.gangs[i]) * (
                speed - (self._lines[i].speed or 0)
            )
        pods = (pod for i in changed for pod in (*space.pods[i], *self.base[i].pods))
        nodes = frozenset(pod.node for pod in pods)
        free = {n: space.by_node[n].free for n in nodes}
        whole = sum(
            self.instance.cluster.nodes[n].gpus for n in nodes if self._is_whole(n, free[n])
        )
        before = (n for n in nodes if self._is_whole(n, self._free_before[n]))
        return Regain(
            {i: space.decision(i) for i in changed},
            nodes,
            effective,
            whole - sum(self.instance.cluster.nodes[n].gpus for n in before),
            sum(standing_gpus(self.instance, i) for i in changed),
        )

    def _is_whole(self, n: int, free: int) -> bool:
        return 0 < free == self.instance.cluster.nodes[n].gpus

    def confirmed(self, one: Regain) -> Regain | None:
        """The move with what the whole plan regains; None if it breaks a rule, or is worse by the tiers."""
        plan = with_decisions(self.base, one.decisions)
        if not self._ledger.keeps_rules(plan):
            return None
        evaluation = Evaluation(self.instance, plan)
        effective = sum(gpus_at_speed(evaluation)) - self._effective
        values = larger_is_better(tiers_of(self.instance), evaluation.vector())
        if effective < 0 or (effective and values <= self._values):
            return None
        if not effective and one.whole <= 0:
            return None
        return replace(one, effective=effective)


def with_decisions(
    base: Sequence[GangDecision], decisions: Mapping[int, GangDecision]
) -> tuple[GangDecision, ...]:
    """The plan with these decisions in the place of those of the same gangs."""
    return tuple(decisions.get(index, one) for index, one in enumerate(base))
