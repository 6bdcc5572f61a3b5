"""Tiny instances with queues, and their best plans by trying every plan: counts of GPUs a node suffice.

Promises: a recount of its own of rules 2.15 and 2.16, reclaiming, and the tiers about queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from random import Random

from building import build, mask, node, role
from building import gang as gang_of
from building_servers import switched

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount, Queue
from models.instance.solution import GangDecision

OBJECTIVES = ("admission", "waiting", "disruption", "growth")
MODELS = ("A100", "H100")
Places = tuple[int, ...]
"""The node of each pod of a gang, by index."""


def tiny_queues(seed: int) -> Instance:
    """Two or three nodes, up to five gangs of one role, and up to four queues."""
    r = Random(seed)
    names = [f"q{i}" for i in range(r.randint(1, 4))]
    queues = tuple(_queue(r, i, name) for i, name in enumerate(names))
    nodes = [
        node(
            f"n{i}",
            switched(size := r.choice((2, 4, 4)), gpu=r.choice(MODELS) if seed % 2 else "H100"),
            unschedulable=r.random() < 0.1,
            unhealthy=(r.randrange(size),) if r.random() < 0.15 else (),
        )
        for i in range(r.randint(2, 3))
    ]
    free = [[g for g in range(n.gpus) if r.random() < 0.9] for n in nodes]
    gangs = [_gang(r, f"g{i}", names, free) for i in range(r.randint(3, 5))]
    objectives = ("fair", *OBJECTIVES) if r.random() < 0.3 else OBJECTIVES
    instance = build(nodes=nodes, gangs=gangs, objectives=objectives)
    return replace(instance, queues=queues)


def _queue(r: Random, index: int, name: str) -> Queue:
    models = tuple((m.lower(), r.randint(0, 5)) for m in MODELS if r.random() < 0.25)
    limits = tuple((m.lower(), r.randint(0, 5)) for m in MODELS if r.random() < 0.15)
    return Queue(
        name,
        parent=r.randrange(index) if index and r.random() < 0.5 else None,
        guarantee=Amount(r.choice((None, None, 0, 2, 4, 6)), models),
        limit=Amount(r.choice((None, None, 3, 5, 8)), limits),
        borrowing=r.random() < 0.8,
        reclaim=r.random() < 0.8,
        weight=r.randint(1, 3),
    )


def _gang(r: Random, name: str, queues: Sequence[str], free: list[list[int]]) -> Gang:
    pods, gpus = r.randint(1, 2), r.randint(1, 3)
    stands = []
    for index in range(pods if r.random() < 0.6 else 0):
        fitting = [n for n, left in enumerate(free) if len(left) >= gpus]
        if not fitting:
            stands = []
            break
        n = r.choice(fitting)
        taken, free[n] = free[n][:gpus], free[n][gpus:]
        stands.append((0, index, n, mask(*taken)))
    most = pods + 1 if r.random() < 0.3 else None
    found = gang_of(
        name,
        roles=[role("worker", pods, gpus, most=most, mix_models=r.random() < 0.5)],
        priority=r.choice((0, 0, 1, 2)),
        submitted=r.randint(0, 9),
        stands=stands,
        preemptible=r.random() < 0.6,
        movable=r.random() < 0.25,
    )
    return replace(found, queue=r.choice((*queues, *queues, "unknown", None)))


@dataclass(frozen=True)
class Facts:
    """The instance, and the places of pods before the plan."""

    instance: Instance
    before: tuple[Places, ...]

    @classmethod
    def of(cls, instance: Instance) -> Facts:
        return cls(
            instance,
            tuple(tuple(p.node or 0 for p in gang.running_pods) for gang in instance.gangs),
        )

    @property
    def gangs(self) -> tuple[Gang, ...]:
        return self.instance.gangs

    def above(self, name: str | None) -> list[int]:
        """The queues that a gang is in which names this one."""
        names = [queue.name for queue in self.instance.queues]
        found: list[int] = []
        at = names.index(name) if name in names else None
        while at is not None:
            found.append(at)
            at = self.instance.queues[at].parent
        return found

    def gpu(self, n: int) -> str:
        model = self.instance.cluster.nodes[n].model
        assert model is not None
        return model.gpu.lower()

    def gpus(self, g: int, places: Places, model: str | None) -> int:
        return sum(self.gangs[g].roles[0].gpus for n in places if model in (None, self.gpu(n)))

    def held(self, q: int, plan: Sequence[Places], model: str | None) -> int:
        return sum(
            self.gpus(g, places, model)
            for g, places in enumerate(plan)
            if q in self.above(self.gangs[g].queue)
        )

    def promise(self, q: int, model: str | None) -> int:
        own = self.instance.queues[q].guarantee
        if model is not None:
            return dict(own.models).get(model, 0)
        return sum(gpus for _, gpus in own.models) if own.gpus is None else own.gpus

    @property
    def models(self) -> tuple[str | None, ...]:
        return (None, "a100", "h100")

    def obeys(self, plan: Sequence[Places]) -> bool:
        """Room, rule 2.5 and 2.7, limits and guarantees."""
        return (
            self._fits(plan)
            and self._limits(plan)
            and all(
                self._short(plan, model) <= self._short(self.before, model)
                for model in self.models
                if any(self.promise(q, model) for q in range(len(self.instance.queues)))
            )
            and self._justified(plan)
        )

    def _fits(self, plan: Sequence[Places]) -> bool:
        for n, host in enumerate(self.instance.cluster.nodes):
            left, asked = host.healthy, 0
            for gang, places, before in zip(self.gangs, plan, self.before, strict=True):
                for index, at in enumerate(places):
                    if at == n and before[index : index + 1] == (n,):
                        left &= ~(gang.running_pods[index].gpus or 0)
                    elif at == n:
                        asked += gang.roles[0].gpus
            if asked > (0 if host.unschedulable else left.bit_count()):
                return False
        return True

    def _limits(self, plan: Sequence[Places]) -> bool:
        for q, queue in enumerate(self.instance.queues):
            for model in self.models:
                named = dict(queue.guarantee.models)
                limits = [
                    queue.limit.gpus if model is None else dict(queue.limit.models).get(model)
                ]
                if not queue.borrowing and (model is None or model in named):
                    limits.append(self.promise(q, model))
                stated = [limit for limit in limits if limit is not None]
                most = max(min(stated), self.held(q, self.before, model)) if stated else None
                if most is not None and self.held(q, plan, model) > most:
                    return False
        return True

    def _short(self, plan: Sequence[Places], model: str | None) -> int:
        queues = self.instance.queues
        firm = [g for g, gang in enumerate(self.gangs) if not gang.preemptible]

        def needed(q: int) -> int:
            below = sum(needed(c) for c, child in enumerate(queues) if child.parent == q)
            own = (
                self.gpus(g, plan[g], model)
                for g in firm
                if self.above(self.gangs[g].queue)[:1] == [q]
            )
            return max(self.promise(q, model), sum(own) + below)

        total = sum(needed(q) for q, queue in enumerate(queues) if queue.parent is None)
        total += sum(
            self.gpus(g, plan[g], model) for g in firm if not self.above(self.gangs[g].queue)
        )
        there = 0
        for n, host in enumerate(self.instance.cluster.nodes):
            if model in (None, self.gpu(n)) and not host.unschedulable:
                there += host.healthy.bit_count()
        for g in firm:
            for index, n in enumerate(plan[g]):
                host, stays = (
                    self.instance.cluster.nodes[n],
                    self.before[g][index : index + 1] == (n,),
                )
                if model in (None, self.gpu(n)) and stays:
                    held = self.gangs[g].running_pods[index].gpus or 0
                    there += (held if host.unschedulable else held & ~host.healthy).bit_count()
        return max(0, total - there)

    def _justified(self, plan: Sequence[Places]) -> bool:
        for g, gang in enumerate(self.gangs):
            gone = self.before[g][len(plan[g]) :]
            if gone and not (plan[g] and gang.movable):
                came = (
                    (other, n)
                    for other, places in enumerate(plan)
                    for index, n in enumerate(places)
                    if n in gone and self.before[other][index : index + 1] != (n,)
                )
                if not any(self._may_take(other, g, n) for other, n in came):
                    return False
        return True

    def _may_take(self, comer: int, victim: int, n: int) -> bool:
        one, two = self.gangs[comer], self.gangs[victim]
        if one.priority > two.priority:
            return True
        mine, theirs = self.above(one.queue), self.above(two.queue)
        comes = 0 if one.running else one.roles[0].min * one.roles[0].gpus
        for a, model in product(mine, (None, self.gpu(n))):
            held = self.held(a, self.before, model)
            owns = self.instance.queues[a].reclaim and held < self.promise(a, model)
            if owns and held + comes <= self.promise(a, model) and a not in theirs:
                others = [b for b in theirs if b not in mine]
                if all(self.held(b, self.before, model) > self.promise(b, model) for b in others):
                    return True
        return False

    @property
    def size(self) -> int:
        """How many plans there are, obeying or not."""
        return prod(sum(1 for _ in self._ways(g)) for g in range(len(self.gangs)))

    def plans(self) -> Iterator[tuple[Places, ...]]:
        """Every plan, obeying or not."""
        return product(*(list(self._ways(g)) for g in range(len(self.gangs))))

    def _ways(self, g: int) -> Iterator[Places]:
        gang, before = self.gangs[g], self.before[g]
        own, nodes = gang.roles[0], range(len(self.instance.cluster.nodes))
        if not before or gang.preemptible:
            yield ()
        for count in own.allowed_counts():
            kept = before[:count]
            shrinks = count < len(before)
            for places in product(nodes, repeat=count):
                stays = places[: len(kept)] == kept
                one_model = own.mix_models or self._one_model(places)
                allowed = (stays or gang.movable) and (one_model or places == kept)
                if allowed and (not shrinks or gang.movable or gang.preemptible):
                    yield places

    def _one_model(self, places: Places) -> bool:
        return len({self.gpu(n) for n in places}) <= 1

    def values(self, plan: Sequence[Places], names: Sequence[str]) -> tuple[int, ...]:
        """Tier values with the sign that makes larger ones better."""
        return tuple(self._value(plan, *name.partition("/")[::2]) for name in names)

    def _value(self, plan: Sequence[Places], family: str, number: str) -> int:
        p = int(number) if number else 0
        own = [g for g, gang in enumerate(self.gangs) if gang.priority == p]
        if family == "guarantee":
            return sum(self.gangs[g].weight_gpus for g in own if plan[g] and g in self.within)
        if family == "fair":
            return sum(sorted(self._fair(plan).values())[:p])
        if family == "kept":
            return sum(self.gpus(g, self.before[g][: len(plan[g])], None) for g in own)
        if family == "growth":
            elastic = [g for g in own if self.gangs[g].elastic and plan[g]]
            return sum(self.gpus(g, plan[g], None) - self.gangs[g].weight_gpus for g in elastic)
        if family == "disruption":
            return -sum(self._lost(g, plan[g]) for g in range(len(plan)))
        starts = [g for g in own if plan[g] and (family == "admission" or not self.before[g])]
        age = self.instance.age if family == "waiting" else lambda _gang: 1
        return sum(self.gangs[g].weight_gpus * age(self.gangs[g]) for g in starts)

    def _lost(self, g: int, after: Places) -> int:
        before = self.before[g]
        moved = any(a != b for a, b in zip(before, after, strict=False))
        return self.gpus(g, before if moved or not after else before[len(after) :], None)

    @cached_property
    def within(self) -> frozenset[int]:
        """Gangs of which w fits beside those before them into a guarantee; not who could never start."""
        found, within = dict[int, str | None](), set[int]()

        def consider(g: int, queues: Sequence[int]) -> None:
            models = [m for m in self.models[1:] if self._may_use(g, m)]
            models = [m for m in models if any(self._leaves_room(found, g, m, q) for q in queues)]
            if models or any(self._leaves_room(found, g, None, q) for q in queues):
                within.add(g)
            if g in within or g in firm:
                found[g] = min(models, default=None)

        every = sorted(filter(self._can_start, range(len(self.gangs))), key=self._turn)
        firm = [g for g in every if self.gangs[g].running and not self.gangs[g].preemptible]
        for g in firm:
            consider(g, self.above(self.gangs[g].queue))
        for depth in (4, 3, 2, 1):
            for g in every:
                above = self.above(self.gangs[g].queue)
                if g not in found and len(above) >= depth:
                    consider(g, [above[-depth]])
        return frozenset(within)

    def _leaves_room(
        self, found: Mapping[int, str | None], g: int, model: str | None, q: int
    ) -> bool:
        used = [
            self.gangs[other].weight_gpus
            for other, counted in found.items()
            if q in self.above(self.gangs[other].queue) and model in (None, counted)
        ]
        return sum(used) + self.gangs[g].weight_gpus <= self.promise(q, model)

    def _may_use(self, g: int, model: str | None) -> bool:
        wanted = self.gangs[g].roles[0].model
        hosts = enumerate(self.instance.cluster.nodes)
        there = any(self.gpu(n) == model and not host.unschedulable for n, host in hosts)
        return there and wanted in (None, model)

    def _can_start(self, g: int) -> bool:
        empty = [()] * len(self.gangs)
        ways = (own for own in self._ways(g) if own)
        alone = ([*empty[:g], own, *empty[g + 1 :]] for own in ways)
        return self.gangs[g].running or any(map(self._fits, alone))

    def _turn(self, g: int) -> tuple[object, ...]:
        own = self.gangs[g]
        return -own.priority, not own.running, own.submitted_at, own.name

    def _fair(self, plan: Sequence[Places]) -> dict[int, int]:
        queues = self.instance.queues
        named = {self.above(gang.queue)[0] for gang in self.gangs if self.above(gang.queue)}
        counted = {q for name in named for q in self.above(queues[name].name)}
        gpus = sum(node.gpus for node in self.instance.cluster.nodes)
        found = {}
        for name in named:
            part = Fraction(1)
            for q in self.above(queues[name].name):
                beside = [c for c in counted if queues[c].parent == queues[q].parent]
                part *= Fraction(queues[q].weight, sum(queues[c].weight for c in beside))
            found[name] = sum(
                len(plan[g]) * (10**6 * Fraction(gang.roles[0].gpus, gpus) / part).__floor__()
                for g, gang in enumerate(self.gangs)
                if self.above(gang.queue)[:1] == [name]
            )
        return found


def places_of(decisions: Sequence[GangDecision]) -> tuple[Places, ...]:
    """The node of each pod, by index."""
    return tuple(tuple(p.node for p in sorted(d.pods, key=lambda p: p.index)) for d in decisions)


def best(facts: Facts, names: Sequence[str]) -> tuple[int, ...]:
    """The values of the best plan of all."""
    return max(facts.values(plan, names) for plan in facts.plans() if facts.obeys(plan))
