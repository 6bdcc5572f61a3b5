"""What other schedulers decide about an instance, gang by gang.

Promises: every rule holds for the plan; a gang starts whole, at its smallest size, or waits;
what runs keeps running where it is. One gang after another, highest priority first, then by submission.
Their rules are in ``benchmarks.lab.rules``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.lab.orders import IN_TURN, Moment, Order, Profile, Room, latest_first
from benchmarks.lab.space import Able, Nodes, Space
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import (
    Decision,
    GangDecision,
    PodPlacement,
    Solution,
    TierResult,
)
from models.tiers import sign
from models.values.tier_values import Evaluation, gang_value, known_masks, tiers_of

Slices = tuple[tuple[int | None, int], ...]
"""(size, level) of groups of pods that share a domain, outermost first; None: all pods of the role."""

NO_BOUND = 10**18

MOST_SLICES = 1
"""Layers of slices that the schedulers know; a gang with more waits."""


@dataclass(frozen=True)
class Ask:
    """The pods that one gang wants. ``roles``: (role, indices), those with the most GPUs a pod first.

    ``standing``: nodes of the pods that run already, (role, node).
    """

    gang: Gang
    roles: tuple[tuple[int, tuple[int, ...]], ...]
    standing: tuple[tuple[int, int], ...]

    @cached_property
    def pods(self) -> int:
        return sum(len(indices) for _, indices in self.roles)

    @property
    def gpus(self) -> int:
        return sum(self.gang.roles[role].gpus * len(indices) for role, indices in self.roles)

    @property
    def together(self) -> bool:
        """Whether a topology level means anything: there is more than one pod."""
        return self.pods + len(self.standing) > 1

    @property
    def required(self) -> int | None:
        return self.gang.required if self.together else None

    @property
    def preferred(self) -> int | None:
        return self.gang.preferred if self.together else None

    @property
    def slice_layers(self) -> int:
        return max(
            (len(self.gang.roles[r].slice_layers) for r, pods in self.roles if len(pods) > 1),
            default=0,
        )


Scopes = Callable[[Space, Ask], Iterator[Nodes]]
"""Where the whole gang is tried, one place after another."""

Fill = Callable[[Space, Ask, int, Sequence[int], Nodes], bool]
"""Put pods of a role on some of the nodes; False, with some perhaps taken, if they do not fit."""

DomainOrder = Callable[[Space, Nodes, Nodes, Nodes, int], Nodes]
"""(space, domains, pods that each takes, its free GPUs, pods left to place) to the domains in order."""


def tightest(space: Space, domains: Nodes, pods: Nodes, free: Nodes, left: int) -> Nodes:
    """Domains with the fewest free GPUs first."""
    del space, left
    ordered: Nodes = domains[np.lexsort((domains, pods[domains], free[domains]))]
    return ordered


@dataclass(frozen=True)
class Rules:
    """One scheduler.

    ``order``: in which gangs are taken; ``easy``: whether those behind the first that waits may start only if
    by counts of GPUs they do not delay it. ``stops``: a key of all gangs: those of the lowest keys run, and
    others are stopped for them. ``rooms``: how room is made, one way after the other, for each gang that
    waits still, in the order.
    """

    name: str
    scopes: Scopes
    fill: Fill
    domain_order: DomainOrder = tightest
    order: Order = IN_TURN
    easy: bool = False
    stops: Callable[[Moment, int], tuple[float, ...]] | None = None
    rooms: tuple[Room, ...] = ()


def schedule(
    instance: Instance, rules: Rules, moment: Moment | None = None
) -> tuple[GangDecision, ...]:
    """The decision about every gang, in Instance order."""
    return _Scheduling(moment or Moment(instance), rules).run()


class _Scheduling:
    """One pass over the gangs of a moment. ``refused``: shapes that found no place since the last start."""

    def __init__(self, moment: Moment, rules: Rules) -> None:
        self.moment, self.rules, self.instance = moment, rules, moment.instance
        self.facts = moment.facts
        self.decisions = [facts.base for facts in self.facts]
        self.space = moment.kept.space(self.instance)
        self.stopped = [] if rules.stops is None else self._stop(rules.stops)
        self.refused = set[Hashable]()

    def run(self) -> tuple[GangDecision, ...]:
        order, waits = self.rules.order(self.moment), _Waits(self.moment, easy=self.rules.easy)
        waiting: list[int] = []
        least = min((self.facts[i].lacks or 0 for i in self.moment.wanting), default=0)
        free = self.space.free_gpus
        index = next(order, None)
        while index is not None and (least <= free or self.rules.rooms):  # else nobody else starts
            starts = waits.may_start(index) and self._place(index)
            if starts:
                waits.started(index)
                free = self.space.free_gpus
            elif not self.facts[index].base.pods:
                waits.waits(index)
                waiting.append(index)
            try:
                index = order.send(starts)
            except StopIteration:
                break
        for index in self.stopped:  # who was stopped for nobody goes on
            self._stand_again(index)
        for room in self.rules.rooms if waiting else ():
            self._make_rooms(room, waiting)
        return tuple(self.decisions)

    def _make_rooms(self, room: Room, waiting: Sequence[int]) -> None:
        """Make room for each gang that waits still, where the rules allow that."""
        held, refused = Counter(self.moment.kept.held), set[Hashable]()
        for index in self.moment.wanting:
            if self.decisions[index].decision == "place":
                held[self.facts[index].queue] += self.facts[index].gpus
        for facts, decision in zip(self.facts, self.decisions, strict=True):
            if decision.decision == "preempt":
                held[facts.queue] -= facts.held
        running = self._running()
        for index in waiting:
            own = self.facts[index]
            asks = (own.shape, *(() if room.again else (own.queue, own.gang.priority)))
            if self.decisions[index].pods or asks in refused:
                continue
            after = self._room_for(index, room, running, Counter(held))
            if after is None:
                refused.add(asks)
            else:
                held, running = after, self._running()
                refused.clear()

    def _running(self) -> list[int]:
        """Who has run since before this moment, and goes on where it is."""
        held = (i for i, facts in enumerate(self.facts) if facts.held)
        stay = [i for i in held if self.decisions[i] is self.facts[i].base]
        return latest_first(self.moment, stay)

    def _room_for(
        self, index: int, room: Room, running: Sequence[int], held: Counter[str]
    ) -> Counter[str] | None:
        """What queues hold once room was made for a gang; None, with nothing changed, if there is none."""
        own, before = self.facts[index], self.space
        if room.again and before.free_gpus < own.gpus:
            return None
        gone: list[int] = []
        for victim in room.victims(self.moment, held, index, running):
            if not gone:
                self.space = before.copy()
            facts = self.facts[victim]
            gone.append(victim)
            held[facts.queue] -= facts.held
            self.space.hold(facts.gang, facts.base.pods, -1)
            if self.space.free_gpus < own.gpus:
                continue
            standing = self.space.copy()
            pods = _placed(self.space, self.rules, _ask(own.gang), self.decisions)
            found = self._settled(gone, room) if pods else None
            if found is not None:
                for other, decision in found.items():
                    held[self.facts[other].queue] += self.facts[other].held * bool(decision.pods)
                held[own.queue] += own.gpus
                gave = {self.facts[i].queue for i, one in found.items() if not one.pods}
                if room.fair(self.moment, held, index, gave):
                    for other, decision in found.items():
                        self.decisions[other] = decision
                    self.decisions[index] = GangDecision("place", tuple(sorted(pods)))
                    return held
                break
            self.space = standing
        self.space = before
        return None

    def _settled(self, gone: Sequence[int], room: Room) -> dict[int, GangDecision] | None:
        """What becomes of those who were stopped: who can goes on where he was, the last one stopped first.

        Others find another place, where all of them must; None if one finds none.
        """
        found: dict[int, GangDecision] = {}
        for index in reversed(gone):
            gang, base = self.facts[index].gang, self.facts[index].base
            if self.space.stand([(gang.roles[pod.role], pod) for pod in base.pods]):
                found[index] = base
        for index in gone:
            if index in found:
                continue
            found[index] = GangDecision("preempt", ())
            if room.again:
                afresh = replace(self.facts[index].gang, pods=())
                pods = _placed(self.space, self.rules, _ask(afresh), self.decisions)
                if not pods:
                    return None
                found[index] = GangDecision("move", tuple(sorted(pods)))
        return found

    def _stop(self, key: Callable[[Moment, int], tuple[float, ...]]) -> list[int]:
        """Stop the gangs that are not among those of the lowest keys that the GPUs are enough for."""
        left, stopped = self.moment.gpus, []
        able = [i for i, one in enumerate(self.facts) if one.lacks is not None or one.base.pods]
        if sum(self.facts[i].held or self.facts[i].gpus for i in able) <= left:
            return []
        for index in sorted(able, key=lambda i: (key(self.moment, i), i)):
            facts = self.facts[index]
            gpus = facts.held if facts.base.pods else facts.gpus
            if gpus <= left:
                left -= gpus
            elif facts.base.pods:
                stopped.append(index)
                self.decisions[index] = GangDecision("preempt", ())
                self.space.hold(facts.gang, facts.base.pods, -1)
        return stopped

    def _stand_again(self, index: int) -> None:
        gang, base = self.facts[index].gang, self.facts[index].base
        if self.space.stand([(gang.roles[pod.role], pod) for pod in base.pods]):
            self.decisions[index] = base

    def _place(self, index: int) -> bool:
        gang, shape = self.facts[index].gang, None
        if not gang.running:
            shape = (self.facts[index].shape, self.instance.min_share(gang))
            if shape in self.refused:
                return False
        pods = _placed(self.space, self.rules, _ask(gang), self.decisions)
        if not pods:
            if shape is not None:
                self.refused.add(shape)
            return False
        self.refused.clear()
        decided: Decision = "complete" if gang.running else "place"
        standing = self.decisions[index].pods
        self.decisions[index] = GangDecision(decided, tuple(sorted((*standing, *pods))))
        return True


class _Waits:
    """Who may start past those that wait already. ``easy``: of ``Rules``."""

    def __init__(self, moment: Moment, *, easy: bool) -> None:
        self._moment = moment
        self._profile = Profile(moment) if easy and moment.wanting else None
        self._waiting = False

    def may_start(self, index: int) -> bool:
        if self._profile is None or not self._waiting:
            return True
        return self._profile.fits_now(*self._asks(index))

    def started(self, index: int) -> None:
        if self._profile is not None:
            gpus, seconds = self._asks(index)
            self._profile.reserve(self._moment.instance.now, seconds, gpus)

    def waits(self, index: int) -> None:
        if self._profile is not None and not self._waiting:
            gpus, seconds = self._asks(index)
            now = self._moment.instance.now
            begin = self._profile.earliest(gpus, seconds)
            if begin is not None:  # it may fit by counts, and find no place
                self._profile.reserve(max(begin, now + 1), seconds, gpus)
        self._waiting = True

    def _asks(self, index: int) -> tuple[int, int]:
        return self._moment.facts[index].gpus, self._moment.of(index).left_s


def _ask(gang: Gang) -> Ask:
    wanted: dict[int, list[int]] = {}
    for role, index in gang.missing:
        wanted.setdefault(role, []).append(index)
    order = sorted(wanted, key=lambda role: (-gang.roles[role].gpus, role))
    standing = ((pod.role, pod.node) for pod in gang.running_pods if pod.node is not None)
    return Ask(gang, tuple((role, tuple(wanted[role])) for role in order), tuple(standing))


def _placed(
    space: Space, rules: Rules, ask: Ask, decisions: Sequence[GangDecision]
) -> tuple[PodPlacement, ...]:
    """The pods of the gang, committed; empty if it waits."""
    if ask.slice_layers > (0 if ask.standing else MOST_SLICES):
        return ()
    for scope in rules.scopes(space, ask):
        nodes = _beside_standing(space, ask, scope, ask.required)
        if not _fits(space, ask, nodes):
            continue
        whole = all(_role(space, rules, ask, role, pods, nodes) for role, pods in ask.roles)
        if whole and _fast_enough(space, ask, decisions):
            return space.commit()
        space.undo()
    return ()


def _fits(space: Space, ask: Ask, nodes: Nodes) -> bool:
    """Whether each role alone fits on the nodes."""
    return all(
        space.capacity(ask.gang.roles[role], nodes).sum() >= len(indices)
        for role, indices in ask.roles
    )


def _beside_standing(space: Space, ask: Ask, nodes: Nodes, level: int | None) -> Nodes:
    """Those of the nodes that share a domain of the level with every pod that stands."""
    if level is None or not ask.standing:
        return nodes
    domains = {int(space.domain[level][node]) for _, node in ask.standing}
    kept: Nodes = nodes[np.isin(space.domain[level][nodes], sorted(domains))]
    return kept if len(domains) == 1 else kept[:0]


def _fast_enough(space: Space, ask: Ask, decisions: Sequence[GangDecision]) -> bool:
    """Whether the gang reaches minBandwidthShare; no scheduler here knows that rule."""
    instance, gang = space.instance, ask.gang
    if not instance.min_share(gang):
        return True
    after = known_masks(instance, decisions)
    for pod in space.taken:
        after[pod.node] |= pod.gpus or 0
    pods = [PodPlacement(p.role, p.index, p.node or 0, p.gpus) for p in gang.running_pods]
    pods += [PodPlacement(t.number, t.index, t.node, t.gpus) for t in space.taken]
    return gang_value(instance, gang, pods, after).meets_min_share


def _role(
    space: Space, rules: Rules, ask: Ask, number: int, indices: tuple[int, ...], nodes: Nodes
) -> bool:
    """Place the pods of one role, on one GPU model unless it may mix them."""
    role = ask.gang.roles[number]
    standing = [node for r, node in ask.standing if r == number]
    layers: Slices = tuple(reversed(role.slice_layers)) if len(indices) > 1 else ()
    if role.required is not None and (len(indices) > 1 or standing):
        own = Ask(ask.gang, ask.roles, tuple((number, node) for node in standing))
        nodes = _beside_standing(space, own, nodes, role.required)
        layers = ((None, role.required), *layers)
    for part in _one_model(space, role, standing, nodes, len(indices)):
        mark = len(space.taken)
        if _layered(space, rules, ask, number, indices, part, layers):
            return True
        space.undo(mark)
    return False


def _one_model(
    space: Space, role: Role, standing: list[int], nodes: Nodes, count: int
) -> Iterator[Nodes]:
    models = space.gpu[nodes]
    if not role.gpus or role.mix_models or (count == 1 and not standing):
        yield nodes
        return
    used = {int(space.gpu[node]) for node in standing}
    for model in np.unique(models[models >= 0]):
        if used <= {int(model)}:
            yield nodes[models == model]


def _layered(
    space: Space,
    rules: Rules,
    ask: Ask,
    number: int,
    indices: Sequence[int],
    nodes: Nodes,
    layers: Slices,
) -> bool:
    """Place pods so that every group of the outermost layer shares a domain, then those within it."""
    if not layers:
        return rules.fill(space, ask, number, indices, nodes)
    (size, level), *inner = layers
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(index // size if size else 0, []).append(index)
    left = len(indices)
    for group in groups.values():
        for domain in domains(space, ask.gang.roles[number], nodes, level, len(group), left, rules):
            mark = len(space.taken)
            within = nodes[space.domain[level][nodes] == domain]
            if _layered(space, rules, ask, number, group, within, tuple(inner)):
                break
            space.undo(mark)
        else:
            return False
        left -= len(group)
    return True


def domains(
    space: Space, role: Role, nodes: Nodes, level: int, count: int, left: int, rules: Rules
) -> Nodes:
    """Domains of the level that hold ``count`` pods of the role, in the scheduler's order."""
    of = space.domain[level][nodes]
    total = len(space.instance.cluster.domains[level])
    pods = per_domain(of, space.capacity(role, nodes), total)
    free = per_domain(of, space.free[nodes], total)
    return rules.domain_order(space, np.flatnonzero(pods >= count), pods, free, left)


def per_domain(of: Nodes, amounts: Nodes, total: int) -> Nodes:
    """Sum of an amount over the nodes of every domain."""
    capped = np.minimum(amounts, 1 << 30)  # a pod that asks for nothing fits any number of times
    return np.bincount(of, weights=capped, minlength=total).astype(np.int64)


def fitting(space: Space, ask: Ask, level: int, nodes: Nodes | None = None) -> tuple[Nodes, Able]:
    """Free GPUs of every domain of a level, and whether each role of the gang alone fits there."""
    nodes = space.everywhere if nodes is None else nodes
    of = space.domain[level][nodes]
    total = len(space.instance.cluster.domains[level])
    fits = np.ones(total, dtype=np.bool_)
    for role, indices in ask.roles:
        pods = per_domain(of, space.capacity(ask.gang.roles[role], nodes), total)
        fits &= pods >= len(indices)
    return per_domain(of, space.free[nodes], total), fits


def signed_values(solution: Solution) -> tuple[int, ...]:
    """The tier vector: the larger tuple is the better plan."""
    return tuple(sign(tier.sense) * tier.value for tier in solution.tiers)


def solution_of(instance: Instance, decisions: tuple[GangDecision, ...], name: str) -> Solution:
    """The decisions as a Solution, of which only what is 0 at least is proven."""
    values = Evaluation(instance, decisions).vector()
    tiers = tuple(
        # Nothing is less than 0, so that a tier with this value is proven.
        TierResult(t.name, t.sense, v, v, NO_BOUND, None)
        if t.sense == "max"
        else TierResult(t.name, t.sense, v, v, 0, None if v else "exact")
        for t, v in zip(tiers_of(instance), values, strict=True)
    )
    return Solution(decisions, tiers, "budget", name)
