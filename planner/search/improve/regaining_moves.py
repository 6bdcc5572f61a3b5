"""The moves that regain most of what a placement costs: some gangs restart elsewhere, so that one is faster.

Each is found beside a plan in which nothing moves: one gang goes where it is faster, or starts, and others
make room for it, without becoming slower or as the re-plan has them. Moves of one audit concern different
gangs and different nodes, so that each can be made without the others, and all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, zip_longest

from models.instance.gang import Role
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.instance.speed import FULL_SPEED
from models.program.base_state import base_decisions
from models.program.demand_builder import remaining_demand
from models.program.interruption import Question
from models.program.options import standing_gpus
from models.rules.demands import Demand
from models.tiers import larger_is_better
from models.values.effective_gpus import gpus_at_speed
from models.values.tier_values import Evaluation, admitted, tiers_of
from planner.search.free_space import FreeSpace, Pods, counts_of
from planner.search.ledger import Ledger
from planner.search.start.greedy import placements, value_of

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

MAX_CHAIN = 60
"""Gangs that go where the re-plan has them, before those return that need not: MAX_EVICTED may remain."""

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

    @property
    def gainful(self) -> tuple[Fraction | int, ...]:
        """Sort key: what regains most for each GPU that restarts first."""
        gpus = max(1, self.gpus)
        return Fraction(-self.effective, gpus), Fraction(-self.whole, gpus), *self.order


def regaining_moves(
    instance: Instance,
    unmoved: Sequence[GangDecision],
    replanned: Sequence[GangDecision],
    best_speeds: Mapping[int, int],
    ended: Question,
) -> tuple[Regain, ...]:
    """At most MAX_MOVES moves, those that regain most first.

    Those are taken that regain most for each GPU that restarts, or, where these fill the list, most of all.
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
    chosen = _chosen(finder, found, lambda one: one.gainful)
    if len(chosen) == MAX_MOVES:  # small ones may take the places of larger ones
        larger = _chosen(finder, found, lambda one: one.order)
        chosen = max(chosen, larger, key=lambda moves: sum(one.effective for one in moves))
    return tuple(sorted(chosen, key=lambda one: one.order))


def _chosen(
    finder: _Finder,
    candidates: Sequence[tuple[Regain, Callable[[], Regain | None]]],
    key: Callable[[Regain], tuple[Fraction | int, ...]],
) -> list[Regain]:
    """The first moves by the key that concern different gangs and nodes.

    ``candidates``: each with the question for another one for the same gang or node.
    """
    finder.reopen()
    found, chosen = list(candidates), list[Regain]()
    while found and len(chosen) < MAX_MOVES:
        found.sort(key=lambda pair: key(pair[0]))
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
    return chosen


def with_few_restarts(
    instance: Instance, replanned: Sequence[GangDecision], ended: Question
) -> tuple[GangDecision, ...]:
    """The re-plan in which gangs that gain nothing elsewhere stay where they are, as far as there is room.

    It has as many effective GPUs, but may be worse in tiers about what is left free.
    """
    finder = _Finder(instance, replanned, replanned, ended)
    space, standing = finder.space, base_decisions(instance)
    moved = [i for i, one in enumerate(replanned) if one.decision == "move"]
    before = Evaluation(instance, standing).lines
    back = [i for i in finder.by_size(moved) if finder.speeds[i] <= (before[i].speed or 0)]
    for index in back:  # all at once: some have changed places
        space.set(index, ())
    away = [i for i in back if ended() or not finder.returned(i, standing[i].pods)]
    nodes = frozenset(range(len(instance.cluster.nodes)))
    if not all(finder.returned(i, replanned[i].pods) or finder.replaced(i, nodes) for i in away):
        return tuple(replanned)
    changed = [i for i in moved if space.pods[i] != replanned[i].pods]
    one = finder.regain(changed)
    if one is None:
        return tuple(replanned)
    plan = with_decisions(replanned, one.decisions)
    worse = sum(gpus_at_speed(Evaluation(instance, plan))) < finder.effective
    return tuple(replanned) if worse or not finder.ledger.keeps_rules(plan) else plan


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
        self.space = FreeSpace(instance, self.base)
        self.ledger = Ledger(instance, self.base)
        before = Evaluation(instance, self.base)
        self.speeds = [(one.speed or 0) if one.admitted else 0 for one in before.lines]
        self.effective = sum(gpus_at_speed(before))
        self._values = larger_is_better(tiers_of(instance), before.vector())
        self._free_before = [one.free for one in self.space.by_node]
        self.reopen()
        self._tenants: list[list[int]] = [[] for _ in instance.cluster.nodes]
        for index, decision in enumerate(self.base):
            for n in sorted({pod.node for pod in decision.pods}):
                self._tenants[n].append(index)

    def targets(self, best_speeds: Mapping[int, int]) -> list[tuple[int, int]]:
        """(gang, permille-GPU that it could gain), the most first, of those that run and wait in turn."""
        found: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for index, gang in enumerate(self.instance.gangs):
            waits = not gang.running or index in self.instance.incomplete
            if gang.hold is not None if waits else not gang.movable:
                continue
            most = best_speeds.get(index, FULL_SPEED)
            potential = gang.least_units * (most - self.speeds[index])
            if potential > 0:
                found[waits].append((index, potential))
        for gangs in found.values():
            gangs.sort(key=lambda pair: (-pair[1], pair[0]))
        in_turn = (one for pair in zip_longest(found[False], found[True]) for one in pair)
        return [one for one in in_turn if one is not None][:MAX_TARGETS]

    def emptiable(self) -> list[int]:
        """Servers that are partly held, by gangs that may move, those with the fewest GPUs held first."""
        nodes, found = self.instance.cluster.nodes, []
        for n, node in enumerate(nodes):
            gangs = [self.instance.gangs[index] for index in self._tenants[n]]
            held = node.gpus - self.space.by_node[n].free
            movable = all(gang.running and gang.movable for gang in gangs)
            if movable and 0 < held < node.gpus and self.instance.intact(node):
                found.append((held, n))
        return [n for _, n in sorted(found)[:MAX_EMPTIED]]

    def reopen(self) -> None:
        """Forget the moves that were closed."""
        self._open = frozenset(range(len(self.instance.cluster.nodes)))
        self._gangs = set[int]()

    def close(self, one: Regain) -> None:
        """Leave the gangs and nodes of a move to it."""
        self._open -= one.nodes
        self._gangs.update(one.decisions)

    def conflicts(self, one: Regain) -> bool:
        """Whether the move concerns gangs or nodes of one that was closed."""
        return not one.nodes <= self._open or not self._gangs.isdisjoint(one.decisions)

    def hasten(self, index: int) -> Regain | None:
        """The move after which the gang is faster or starts that regains most for each GPU that restarts."""
        if not self._may_follow(index):
            return None
        found = [one for one in self._ways(index) if one is not None]
        return min(found, key=lambda one: one.gainful, default=None)

    def empty(self, n: int) -> Regain | None:
        """The move of all gangs off a node to others that are not wholly free, none of them slower."""
        gangs = self._tenants[n]
        if n not in self._open or self._ended() or not all(map(self._free, gangs)):
            return None
        space, mark = self.space, self.space.mark()
        for index in gangs:
            space.set(index, ())
        servers = enumerate(self.instance.cluster.nodes)
        others = self._open - {m for m, one in servers if space.by_node[m].free == one.gpus} - {n}
        placed = all(self.replaced(index, others) for index in self.by_size(gangs))
        found = self.regain(gangs) if placed else None
        space.undo(mark)
        return found if found is not None and (found.effective > 0 or found.whole > 0) else None

    def _role(self, index: int, pod: PodPlacement) -> Role:
        return self.instance.gangs[index].roles[pod.role]

    def _free(self, index: int) -> bool:
        """Whether the gang is in no closed move and stands on no closed node, and may move if it runs."""
        gang = self.instance.gangs[index]
        return (gang.movable or not gang.running) and self._untouched(index)

    def _may_follow(self, index: int) -> bool:
        """The same, or whether the missing pods of the gang alone may come to other nodes."""
        return self._free(index) or (index in self.instance.incomplete and self._untouched(index))

    def _untouched(self, index: int) -> bool:
        pods = self.base[index].pods
        return index not in self._gangs and all(pod.node in self._open for pod in pods)

    def _ways(self, index: int) -> Iterator[Regain | None]:
        """Moves for one gang: alone, and in domains from which others go."""
        space, mark = self.space, self.space.mark()
        if self._ended():
            return
        yield self._as_replanned(index)
        space.undo(mark)
        if not self._free(index):
            return
        if self.instance.gangs[index].running:  # others would have started if they could
            space.set(index, ())
            if self.replaced(index, self._open, faster=True):
                yield self._gaining([index])
            space.undo(mark)
        for nodes in self._domains(index):
            if self._ended():
                return
            yield self._in_domain(index, nodes)
            space.undo(mark)

    def _gaining(self, gangs: Sequence[int]) -> Regain | None:
        found = self.regain(gangs)
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
                    free = sum(self.space.by_node[n].free for n in own)
                    able.append((max(0, need - free), -free, number, own))
            for *_, own in sorted(able)[:DOMAINS]:
                yield frozenset(own)

    def _in_domain(self, index: int, nodes: frozenset[int]) -> Regain | None:
        """The move of the gang into a domain from which others go, node by node.

        Those that would start without the move wait if they find no other place.
        """
        space = self.space
        space.set(index, ())
        gone: list[int] = []
        placed = False
        for n in self._by_tenants(index, nodes):
            here = [i for i in self._tenants[n] if i != index and i not in gone and self._free(i)]
            if len(gone) + len(here) > MAX_EVICTED:
                continue
            for other in here:
                space.set(other, ())
                gone.append(other)
            if self.replaced(index, nodes, faster=True):
                placed = True
                break
        if not placed:
            return None
        away = [
            other for other in self.by_size(gone) if not self.returned(other, self.base[other].pods)
        ]
        away.sort(key=lambda other: not self.instance.gangs[other].running)
        for other in away:
            if not self.replaced(other, self._open) and self.instance.gangs[other].running:
                return None
        return self._gaining([index, *away])

    def _as_replanned(self, index: int) -> Regain | None:
        """The move of the gang to where the re-plan has it, and of as few others as that takes.

        Those in its way go to where the re-plan has them, and so on.
        """
        space, gone = self.space, [index]
        for gang in gone:  # grows while it is read
            pods = self._replan[gang].pods
            nodes = sorted({pod.node for pod in pods})
            if self._ended() or not self._may_follow(gang) or not self._open.issuperset(nodes):
                return None
            self._put(gang, pods)
            for n in nodes:
                while not space.is_valid(n):
                    other = self._leaving(n, gone)
                    if other is None or len(gone) == MAX_CHAIN:
                        return None
                    space.set(other, ())
                    gone.append(other)
        back = [i for i in self.by_size(gone) if i != index and not self._gains(i)]
        while any(
            self.returned(i, self.base[i].pods) for i in back if space.pods[i] != self.base[i].pods
        ):
            pass
        for gang in [i for i in self.by_size(gone) if not space.pods[i]]:
            self.replaced(gang, self._open)
        found = self._gaining(gone)
        restarts = (
            0 if found is None else sum(self.instance.gangs[i].running for i in found.decisions)
        )
        return found if restarts <= MAX_EVICTED else None

    def _leaving(self, n: int, gone: Collection[int]) -> int | None:
        """A gang on the node that leaves it in the re-plan: one whose way is free, else the smallest."""
        space = self.space

        def cost(gang: int) -> tuple[bool, int, int]:
            mark, pods = space.mark(), self._replan[gang].pods
            space.set(gang, ())
            self._put(gang, pods)
            blocked = not all(space.is_valid(m) for m in {pod.node for pod in pods} - {n})
            space.undo(mark)
            return blocked, standing_gpus(self.instance, gang), gang

        found = (
            i
            for i in self._tenants[n]
            if i not in gone and self._may_follow(i) and self._replan[i].pods != self.base[i].pods
        )
        return min(found, key=cost, default=None)

    def _put(self, index: int, pods: Pods) -> None:
        """Set the pods of a gang, on other GPUs where these are held and any will do."""
        space, taken = self.space, list[PodPlacement]()
        space.set(index, ())
        for pod in pods:
            model = self.instance.cluster.nodes[pod.node].model
            any_will_do = model is None or model.switched
            if any_will_do and pod.gpus and pod.gpus & ~space.by_node[pod.node].mask:
                gpus = self.instance.gangs[index].roles[pod.role].gpus
                chosen = self._chosen(pod.node, gpus)
                taken.append(pod if chosen is None else replace(pod, gpus=chosen))
            else:
                taken.append(pod)
            space.set(index, taken)

    def _chosen(self, n: int, gpus: int) -> int | None:
        """A mask of so many free GPUs of a node that is not blind; None if it has not so many."""
        one = self.space.by_node[n]
        if one.blind or one.free < gpus:
            return None
        indices = self.space.pick(n, gpus)
        return None if indices is None else sum(1 << gpu for gpu in indices)

    def _gains(self, index: int) -> bool:
        """Whether the gang is faster as it is in the space."""
        return self._speed(index) > self.speeds[index]

    def _speed(self, index: int) -> int:
        """Of the gang as it is in the space; 0 unless it runs whole."""
        whole = admitted(self.instance, index, self.space.decision(index))
        return value_of(self.space, index, ()).speed if whole else 0

    def _indexed(self, nodes: Iterable[int]) -> set[int] | None:
        """Give pods GPU indices where nodes know who holds which by now, and none elsewhere.

        Returns the gangs; None if there are no such GPUs.
        """
        space, found = self.space, set[int]()
        for n in sorted(nodes):
            for gang in space.stale_indices(n):
                kept = space.pods[gang]
                stale = [
                    p for p in space.new_pods(gang) if p.node == n and self._role(gang, p).gpus
                ]
                pods = [pod for pod in kept if pod not in stale]
                space.set(gang, pods)
                for pod in stale:
                    chosen = self._chosen(n, self._role(gang, pod).gpus)
                    if chosen is None and not space.by_node[n].blind:
                        return None
                    pods.append(replace(pod, gpus=chosen))
                    space.set(gang, pods)
                found.add(gang)
        return found

    def _by_tenants(self, index: int, nodes: frozenset[int]) -> list[int]:
        """The nodes, those first from which the fewest GPUs have to go."""

        def held(n: int) -> tuple[int, int]:
            others = (self.instance.gangs[i] for i in self._tenants[n] if i != index)
            return sum(gang.least_units for gang in others), n

        return sorted(nodes, key=held)

    def by_size(self, gangs: Sequence[int]) -> list[int]:
        return sorted(gangs, key=lambda i: (-standing_gpus(self.instance, i), i))

    def returned(self, index: int, pods: Pods) -> bool:
        """Put the gang back where it was, if there is room again."""
        space, mark = self.space, self.space.mark()
        space.set(index, pods)
        nodes = sorted({pod.node for pod in pods})
        if all(space.is_valid(n) for n in nodes):
            return True
        space.undo(mark)
        return False

    def _demand(self, index: int) -> Demand:
        """All pods of the gang, at the size that it has, or at its smallest."""
        gang = self.instance.gangs[index]
        pods = self.base[index].pods
        counts = counts_of(gang, pods) if pods else gang.target_counts()
        return remaining_demand(self.instance, index, counts, ())

    def replaced(self, index: int, nodes: frozenset[int], *, faster: bool = False) -> bool:
        """Place the gang on some of the nodes, the fastest of some places; False if none is fast enough.

        ``faster``: than in the plan in which nothing moves, else running gangs are at least as fast as there.
        """
        demand = self._demand(index).within(nodes)
        if not demand.possible or demand.gpus > self.space.arrays.idle_gpus:
            return False
        held = faster or self.instance.gangs[index].running
        least = self.speeds[index] + faster if held else 0
        best: tuple[int, Pods] | None = None
        for pods in islice(placements(self.space, demand), PLACEMENTS):
            speed = value_of(self.space, index, pods).speed
            if speed >= least and (best is None or speed > best[0]):
                best = speed, pods
        if best is None:
            return False
        self.space.set(index, best[1])
        return True

    def regain(self, gangs: Sequence[int]) -> Regain | None:
        """What these gangs as they are in the space have beyond the plan in which nothing moves.

        None if nothing moves. Counts those gangs and their nodes alone: see ``confirmed``.
        """
        space = self.space
        moved = [i for i in gangs if space.pods[i] != self.base[i].pods]
        renamed = self._indexed(
            {pod.node for i in moved for pod in (*space.pods[i], *self.base[i].pods)}
        )
        if renamed is None or not any(self.instance.gangs[i].running for i in moved):
            return None
        changed = [*moved, *sorted(renamed.difference(moved))]
        effective = 0
        for i in changed:
            gained = self._speed(i) - self.speeds[i]
            effective += self.instance.gangs[i].least_units * gained
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
        if not self.ledger.keeps_rules(plan):
            return None
        evaluation = Evaluation(self.instance, plan)
        effective = sum(gpus_at_speed(evaluation)) - self.effective
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
