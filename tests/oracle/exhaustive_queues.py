"""Queues of a tiny instance: who could start at all, cells, limits, guarantees, who reclaims, strict order.

Promises: everything from one sum of what each gang does (``Part``), in the words of the rules; own code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

from exhaustive_gangs import (
    aged,
    least_counts,
    may_stand,
    pinned_to,
    pod_counts,
    queued_since,
    running,
    sick,
    sound_gpus,
    visits,
    whole_gpu,
)
from exhaustive_rates import ours, usable

from models.documents.gang import Hold
from models.documents.policy import Objective
from models.hardware import slug
from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount

# Whether a gang of a tiny instance could start if nothing ran and every node were in order.


EMPTY = "nothing runs"
"""In the place of the cluster's uid: nobody is asked there who could start where nothing runs."""

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")

ASIDE = Hold("Unsupported", "set aside")


def could_start(instance: Instance, g: int) -> bool:
    """Whether some plan of the empty cluster starts the gang, were every node in order."""
    return _answer(instance, g, in_order=True)


def could_start_now(instance: Instance, g: int) -> bool:
    """Whether some plan of the empty cluster starts the gang with the nodes as they are, too."""
    return could_start(instance, g) and _answer(instance, g, in_order=False)


def settle(instance: Instance, like: Instance) -> None:
    """Let the same gangs be able to start as in another instance, whose GPUs are in no parts yet.

    There the product's word counts: a plan that settles the parts first would be about other GPUs.
    """
    known = cast("dict[tuple[int, bool], bool]", instance.once(_answers))
    starts = replace(like).could_start  # whoever is asked about here is stated of the other
    for g in range(len(like.gangs)):
        known[g, True], known[g, False] = starts.can(g), starts.can(g) and starts.can_now(g)


def _answer(instance: Instance, g: int, *, in_order: bool) -> bool:
    known = cast("dict[tuple[int, bool], bool]", instance.once(_answers))
    if (g, in_order) not in known:
        known[g, in_order] = _starts(instance, g, in_order=in_order)
    return known[g, in_order]


def _answers(_instance: Instance) -> dict[tuple[int, bool], bool]:
    return {}


def _starts(instance: Instance, g: int, *, in_order: bool) -> bool:
    from exhaustive import plan

    gangs = tuple(
        replace(
            gang,
            pods=(),
            planned=(),
            hold=None if i == g else ASIDE,
            priority=1_000_000 if i == g else 0,
            evicted_at=None,
        )
        for i, gang in enumerate(instance.gangs)
    )
    policy = replace(
        instance.policy,
        objectives=(Objective("admission"),),
        now=instance.now,
        reservations=None,
        moves=None,
    )
    nodes = instance.cluster.nodes
    if in_order:
        nodes = tuple(map(_in_order, nodes))
    empty = replace(
        instance,
        cluster=replace(instance.cluster, nodes=nodes, uid=EMPTY),
        gangs=gangs,
        policy=policy,
        queues=tuple(replace(queue, strict=False) for queue in instance.queues),
        shares=None,
        reserved=(),
    )
    return plan(empty).decisions[g].decision == "place"


def _in_order(node: Node) -> Node:
    """The node as it would be: ready, with all its whole GPUs, and what pods of no gang hold given back."""
    held = dict(node.held)
    return replace(
        node,
        ready=True,
        unschedulable=False,
        unhealthy=sum(1 << gpu for one in node.mig for gpu in one.gpus),
        unknown_unhealthy=node.unknown_partitioned,
        taints=tuple(t for t in node.taints if not t.key.startswith(PASSING)),
        allocatable=tuple((name, amount + held.get(name, 0)) for name, amount in node.allocatable),
        held=(),
    )


# The GPUs of cells that find no place in a tiny cluster, by trying every way of claiming: rule 2.17.


Nameless = int | None
"""A queue by its number; None: no queue."""


@dataclass(frozen=True)
class Wanted:
    """One cell: where it may be, and by how much its absence is felt."""

    queue: int
    model: str
    places: tuple[Mapping[int, int], ...]
    weight: int


class CellPlaces:
    """``parents``: of every queue."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.nodes = instance.cluster.nodes
        self.parents = [queue.parent for queue in instance.queues]
        self.pinned = {
            (n, q): node.gpus for n, node in enumerate(self.nodes) for q in pinned_to(instance, n)
        }
        self.cells = [
            self._wanted(number, cell.level, cell.gpus, cell.model or self._usual())
            for number, queue in enumerate(instance.queues)
            for cell in queue.cells
            for _ in range(cell.count)
        ]
        self._known: dict[object, dict[str, int]] = {}

    def gpus(self, queue: int) -> int:
        """GPUs of all cells of a queue."""
        pinned = sum(gpus for (_, q), gpus in self.pinned.items() if q == queue)
        return pinned + sum(cell.weight for cell in self.cells if cell.queue == queue)

    def _usual(self) -> str:
        """The GPU model of which there are most."""
        installed: Counter[str] = Counter()
        for node in self.nodes:
            if node.model:
                installed[slug(node.model.gpu)] += node.gpus
        return min(installed, key=lambda name: (-installed[name], name), default="")

    def _wanted(self, queue: int, level: int | None, gpus: int | None, model: str) -> Wanted:
        """A cell with its places: GPUs claimed on each of their nodes."""
        alike = [
            n
            for n, node in enumerate(self.nodes)
            if node.model and slug(node.model.gpu) == model and ours(self.instance, node)
        ]
        if gpus is not None:
            return Wanted(queue, model, tuple({n: gpus} for n in alike), gpus)
        assert level is not None
        if level == len(self.instance.cluster.levels):
            groups = [[n] for n in alike]
        else:
            named = [n for n in alike if None not in self.nodes[n].domains[: level + 1]]
            paths = sorted({self.nodes[n].domains[: level + 1] for n in named}, key=str)
            groups = [[n for n in named if self.nodes[n].domains[: level + 1] == p] for p in paths]
        places = tuple({n: self.nodes[n].gpus for n in group} for group in groups)
        return Wanted(queue, model, places, min((sum(p.values()) for p in places), default=0))

    def left_out(self, firm: Mapping[tuple[int, Nameless], int]) -> dict[str, int]:
        """S by model; ``firm``: GPUs of firm pods by node and by the queue that their gang names."""
        key = frozenset(firm.items())
        if key not in self._known:
            models = sorted({cell.model for cell in self.cells})
            self._known[key] = {
                model: self._least(
                    [c for c in self.cells if c.model == model], firm, self.pinned, -1
                )
                for model in models
            }
        return self._known[key]

    def _least(
        self,
        cells: Sequence[Wanted],
        firm: Mapping[tuple[int, Nameless], int],
        claims: Mapping[tuple[int, int], int],
        last: int,
    ) -> int:
        """``last``: the place of the cell before; of two alike the first one takes the first place."""
        if not cells:
            return 0
        cell, rest = cells[0], cells[1:]
        alike = bool(rest) and rest[0] == cell
        best = cell.weight * (1 + sum(one == cell for one in rest))
        best += self._least([one for one in rest if one != cell], firm, claims, -1)
        for number, place in enumerate(cell.places):
            if number < last:
                continue
            after = dict(claims)
            for n, gpus in place.items():
                after[n, cell.queue] = after.get((n, cell.queue), 0) + gpus
            if all(self._load(n, firm, after) <= self._healthy(n) for n in place):
                best = min(best, self._least(rest, firm, after, number if alike else -1))
            if best == 0:
                break
        return best

    def _healthy(self, n: int) -> int:
        node = self.nodes[n]
        good = node.healthy.bit_count() - node.unknown_unhealthy
        return max(0, good) if usable(self.instance, node) else 0

    def _load(
        self,
        n: int,
        firm: Mapping[tuple[int, Nameless], int],
        claims: Mapping[tuple[int, int], int],
    ) -> int:
        """What is promised on a node: of a queue the larger of its claims and all that is in it."""

        def inside(queue: Nameless) -> int:
            below = [q for q, parent in enumerate(self.parents) if parent == queue]
            held = firm.get((n, queue), 0) + sum(map(inside, below))
            return held if queue is None else max(held, claims.get((n, queue), 0))

        return inside(None)


# Queues of a tiny instance: rules 2.15 to 2.17 and 2.22, who reclaims from whom, and the tiers about queues.


ANY = ""
"""GPUs of every model."""

PINNED = "pinned to "
"""Begins the key of a queue that takes back its pinned nodes, and ends with its number."""

Part = frozenset[tuple[tuple[object, ...], int]]
"""What gangs add: items of a counter."""

NOTHING: Part = frozenset()

Pods = Iterable[tuple[int, int, int, int]]
"""(role, node, GPUs, those of them that are no healthy ones of a usable node)."""


def together(*parts: Part) -> Part:
    """The sum of what gangs add."""
    parts = tuple(part for part in parts if part)
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    total: Counter[tuple[object, ...]] = Counter()
    for part in parts:
        for key, count in part:
            total[key] += count
    return frozenset(total.items())


class Promises:
    """The queues of an instance; without any of them nothing is added, and everything allowed."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.queues = instance.queues
        self.nodes = instance.cluster.nodes
        self.models = [slug(node.model.gpu) if node.model else None for node in self.nodes]
        names = {queue.name: number for number, queue in enumerate(self.queues)}
        self.named: list[Nameless] = [names.get(g.queue or "") for g in instance.gangs]
        self.cells = CellPlaces(instance)
        self.pinned = [pinned_to(instance, n) for n in range(len(self.nodes))]
        self.guarantees = [self._guarantee(number) for number in range(len(self.queues))]
        self.limits = [self._limit(number) for number in range(len(self.queues))]
        self.firm_limits = [
            dict(most.models) | ({} if most.gpus is None else {ANY: most.gpus})
            for most in (queue.non_preemptible_limit for queue in self.queues)
        ]
        self.unlent = [self._unlent(number) for number in range(len(self.queues))]
        self.promised = {key for own in self.guarantees for key, gpus in own.items() if gpus}
        self.within = self._within()
        self.counts = self._counts()
        self.comers: list[list[tuple[int, str]]] = []
        running = [self._running(g) for g in range(len(instance.gangs))]
        self.before = Counter(dict(together(*running)))
        self.short_before = self._short(self.before)
        self.lending_before = self._lending(self.before)
        self.left_out_before = self._left_out(self.before)
        self.comers = [self._comers(g) for g in range(len(instance.gangs))]

    def _guarantee(self, number: int) -> dict[str, int]:
        stated = self.queues[number].guarantee
        models = dict(stated.models)
        gpus = sum(models.values()) if stated.gpus is None else stated.gpus
        cells = whole_gpu(self.instance) * self.cells.gpus(number)
        return {ANY: max(gpus, cells), **models}

    def _limit(self, number: int) -> dict[str, int]:
        queue = self.queues[number]
        limit: Amount = queue.limit
        found = dict(limit.models) | ({} if limit.gpus is None else {ANY: limit.gpus})
        if not queue.borrowing:
            for key, gpus in self.guarantees[number].items():
                found[key] = min(found.get(key, gpus), gpus)
        return found

    def _unlent(self, number: int) -> dict[str, int]:
        """By model, how much of its guarantee nobody else may have."""
        lends: Amount = self.queues[number].lending_limit
        most = dict(lends.models) | ({} if lends.gpus is None else {ANY: lends.gpus})
        promised = self.guarantees[number]
        return {key: promised[key] - most[key] for key in most if most[key] < promised.get(key, 0)}

    def line(self, queue: Nameless) -> list[int]:
        """The queue and those above it."""
        found = []
        while queue is not None:
            found.append(queue)
            queue = self.queues[queue].parent
        return found

    # What a gang adds

    def part(self, g: int, pods: Pods, come: Collection[tuple[int, bool]]) -> Part:
        """Of gang g with these pods after the plan; ``come``: (node, whether for its GPUs) of new ones."""
        if not self.queues:
            return NOTHING
        gang, queue = self.instance.gangs[g], self.named[g]
        # Whom another scheduler starts, and who names no queue, is bound by no promise.
        outside = gang.queue is None and gang.scheduler is not None
        promised = not gang.preemptible and not outside
        found: Counter[tuple[object, ...]] = Counter()
        for role, n, gpus, odd in pods:
            found["fair", queue] += self.counts.get((g, role), 0)
            for key in {ANY, self.models[n] or ANY}:
                for what, counts in (
                    ("held", True),
                    ("not preemptible", not gang.preemptible),
                    ("ours", not outside),
                    ("firm", promised),
                ):
                    found[what, queue, key] += gpus * counts
                found["all odd", key] += odd * (not outside)
                found["odd", key] += odd * promised
            if promised and self.cells.cells:
                found["cells", queue, n] += gang.roles[role].gpus
        if come and queue is not None and self.queues[queue].strict:
            found["starts", g] = 1
        for n, gpus in sorted(come):
            if any(comer == g for of in self.comers for comer, _ in of):
                found["come", g, n] |= 2 if gpus else 1
        return frozenset((key, count) for key, count in found.items() if count)

    def owing(self, g: int, nodes: Collection[int]) -> Part:
        """Of a gang that gives way to one that reclaims a place on one of these nodes."""
        return frozenset({(("owes", g, tuple(sorted(nodes))), 1)})

    def odd(self, n: int, gpus: int, mask: int | None) -> int:
        """GPUs of a pod that stands on a node that are no healthy ones of a usable node."""
        node = self.nodes[n]
        if not usable(self.instance, node):
            return gpus
        held = (mask or 0) & sick(self.instance, node)
        return whole_gpu(self.instance) * held.bit_count()

    def _running(self, g: int) -> Part:
        gang = self.instance.gangs[g]
        pods = []
        for pod in gang.pods:
            if pod.node is not None:
                role = gang.roles[pod.role]
                gpus, mask = pod_counts(role), pod.gpus if role.gpus else 0
                pods.append((pod.role, pod.node, gpus, self.odd(pod.node, gpus, mask)))
        return self.part(g, pods, ())

    # What is allowed

    def allow(self, part: Part) -> bool:
        """Whether a plan in which gangs do this keeps every rule about queues."""
        if not self.queues:
            return True
        found = Counter(dict(part))
        return (
            self.within_limits(part)
            and self._paid(found)
            and all(short <= self.short_before[key] for key, short in self._short(found).items())
            and all(
                gpus
                <= max(
                    self.lending_before[of],
                    self.limits[of[0]].get(of[1], gpus) if of[0] is not None else 0,
                )
                for of, gpus in self._lending(found).items()
            )
            and all(
                gpus <= self.left_out_before[model] for model, gpus in self._left_out(found).items()
            )
        )

    def room_for(self, g: int, pods: Pods, part: Part) -> bool:
        """Whether gang g may have these pods, too, by its own limits, by 2.16 if firm, and by 2.22."""
        gang, line = self.instance.gangs[g], self.line(self.named[g])
        outside = gang.queue is None and gang.scheduler is not None
        found = Counter(dict(together(part, self.part(g, pods, ()))))
        bound = [("held", self.limits)]
        if not gang.preemptible:
            bound.append(("not preemptible", self.firm_limits))
        limits = all(
            self._held(found, number, key, what)
            <= max(limit, self._held(self.before, number, key, what))
            for what, of_queues in bound
            for number in line
            for key, limit in of_queues[number].items()
        )
        short = self._short(found) if not gang.preemptible and not outside else {}
        lent = {} if outside else self._lending(found)
        return (
            limits
            and all(gpus <= self.short_before[key] for key, gpus in short.items())
            and all(
                gpus <= max(self.lending_before[queue, key], self._most_taken(queue, key, gpus))
                for (queue, key), gpus in lent.items()
                if queue is None or queue in line
            )
        )

    def _most_taken(self, queue: Nameless, key: str, gpus: int) -> int:
        return 0 if queue is None else self.limits[queue].get(key, gpus)

    def standing(self, g: int) -> Part:
        """What gang g adds as it stands."""
        return self._running(g) if self.queues else NOTHING

    def within_limits(self, part: Part) -> bool:
        """2.15; what more gangs do makes it no better."""
        found = Counter(dict(part))
        bound = [("held", self.limits), ("not preemptible", self.firm_limits)]
        return all(
            self._held(found, number, key, what)
            <= max(limit, self._held(self.before, number, key, what))
            for what, of_queues in bound
            for number, limits in enumerate(of_queues)
            for key, limit in limits.items()
        )

    def _held(
        self, found: Mapping[tuple[object, ...], int], number: int, key: str, what: str = "held"
    ) -> int:
        return sum(
            found.get((what, queue, key), 0)
            for queue in range(len(self.queues))
            if number in self.line(queue)
        )

    def _short(self, found: Mapping[tuple[object, ...], int]) -> dict[str, int]:
        """2.16: by model, what is promised beyond what is there."""

        def r(queue: Nameless, key: str) -> int:
            below = [q for q, other in enumerate(self.queues) if other.parent == queue]
            held = found.get(("firm", queue, key), 0) + sum(r(q, key) for q in below)
            return held if queue is None else max(held, self.guarantees[queue].get(key, 0))

        there: Counter[str] = Counter()
        for n, node in enumerate(self.nodes):
            if usable(self.instance, node) and node.model:
                healthy = sound_gpus(self.instance, node)
                there.update({ANY: healthy, str(self.models[n]): healthy})
        return {
            key: max(0, r(None, key) - there[key] - found.get(("odd", key), 0))
            for key in self.promised
        }

    def _lending(self, found: Mapping[tuple[object, ...], int]) -> dict[tuple[Nameless, str], int]:
        """2.22: U of each queue, and by model how much all of them and others are more than is there."""
        result: dict[tuple[Nameless, str], int] = {}
        for key in {key for own in self.unlent for key in own}:
            there = sum(
                sound_gpus(self.instance, node)
                for n, node in enumerate(self.nodes)
                if usable(self.instance, node) and node.model and key in (ANY, self.models[n])
            )
            for queue in range(len(self.queues)):
                below = {q for q in range(len(self.queues)) if queue in self.line(q)[1:]}
                if any(self.unlent[q].get(key) for q in below):
                    result[queue, key] = self._used(found, queue, key)
            used = self._used(found, None, key)
            result[None, key] = max(0, used - there - found.get(("all odd", key), 0))
        return result

    def _used(self, found: Mapping[tuple[object, ...], int], queue: Nameless, key: str) -> int:
        """U of a queue; of no queue the sum over those without a parent, and others."""
        used = found.get(("ours", queue, key), 0) + sum(
            self._used(found, q, key)
            for q, other in enumerate(self.queues)
            if other.parent == queue
        )
        return used if queue is None else max(used, self.unlent[queue].get(key, 0))

    def _left_out(self, found: Mapping[tuple[object, ...], int]) -> dict[str, int]:
        """2.17: S by model."""
        firm: dict[tuple[int, Nameless], int] = {}
        for key, gpus in found.items():
            if key[0] == "cells":
                assert isinstance(key[2], int)
                queue = key[1]
                assert queue is None or isinstance(queue, int)
                firm[key[2], queue] = gpus
        return self.cells.left_out(firm)

    # Who gives way

    def _comers(self, g: int) -> list[tuple[int, str]]:
        """Gangs that may take the place of gang g whatever its priority, and for GPUs of which model."""
        return [
            (comer, key)
            for comer in range(len(self.instance.gangs))
            for key in sorted(self.promised)
            if self._owns(comer, g, key) and self._borrows(g, comer, key)
        ] + [
            (comer, PINNED + str(a))
            for a in visits(self.instance, self.instance.gangs[g])
            for comer in range(len(self.instance.gangs))
            if a in self.line(self.named[comer]) and self._has_room(comer, a, ANY)
        ]

    def _owns(self, comer: int, g: int, key: str) -> bool:
        """Whether a queue of the comer, and not of gang g, has room for it within its guarantee."""
        return any(
            a not in self.line(self.named[g]) and self._has_room(comer, a, key)
            for a in self.line(self.named[comer])
        )

    def _has_room(self, comer: int, a: int, key: str) -> bool:
        """Whether a queue reclaims, and has room for the gang within its guarantee."""
        gang = self.instance.gangs[comer]
        runs = any(pod.node is not None for pod in gang.pods)
        needs = 0 if runs else least_counts(gang)
        held, most = self._held(self.before, a, key), self.guarantees[a].get(key, 0)
        return self.queues[a].reclaim and held < most and held + needs <= most

    def _borrows(self, g: int, comer: int, key: str) -> bool:
        """Whether each queue of gang g that the comer is not in holds more than its guarantee."""
        others = set(self.line(self.named[g])) - set(self.line(self.named[comer]))
        return all(self._held(self.before, b, key) > self.guarantees[b].get(key, 0) for b in others)

    def reclaims(self, g: int, comer: int, n: int, *, gpus: bool) -> bool:
        """Whether gang g gives way to one that comes to node n, there for GPUs or without."""
        keys = {key for other, key in self.comers[g] if other == comer}
        back = any(PINNED + str(a) in keys for a in self.pinned[n])
        return ANY in keys or (gpus and (back or self.models[n] in keys))

    def _paid(self, found: Mapping[tuple[object, ...], int]) -> bool:
        """Whether to each gang that owes it somebody has come."""
        come = [(key[1], key[2], how >= 2) for key, how in found.items() if key[0] == "come"]
        for key in found:
            if key[0] == "owes":
                _, g, nodes = key
                assert isinstance(g, int)
                assert isinstance(nodes, tuple)
                if not any(
                    n in nodes and self.reclaims(g, comer, n, gpus=gpus)  # type: ignore[arg-type]
                    for comer, n, gpus in come
                ):
                    return False
        return True

    # What it is worth

    def tier_names(self) -> tuple[list[str], list[str]]:
        """Tiers of guarantees, if the policy says what gangs are worth; tiers of fair shares."""
        priorities = {g.priority for g in self.instance.gangs if g.key in self.within}
        named = {queue for queue in self.named if queue is not None}
        return (
            [f"guarantee/{p}" for p in sorted(priorities, reverse=True)],
            [f"fair/{k}" for k in range(1, min(16, len(named)) + 1)],
        )

    def values(self, part: Part) -> dict[str, int]:
        """Of the tiers of fair shares."""
        if not self.queues:
            return {}
        found = dict(part)
        shares = sorted(found.get(("fair", q), 0) for q in {q for q in self.named if q is not None})
        return {name: sum(shares[: k + 1]) for k, name in enumerate(self.tier_names()[1])}

    def _within(self) -> set[tuple[str, str]]:
        """Gangs within a guarantee: what each asks for fits into what those before it leave of one."""
        gangs, found = self.instance.gangs, set[tuple[str, str]]()
        if self.instance.cluster.uid == EMPTY:
            return found
        runs = [any(pod.node is not None for pod in gang.pods) for gang in gangs]
        firm = [runs[g] and not gang.preemptible for g, gang in enumerate(gangs)]
        ask = [g for g in range(len(gangs)) if gangs[g].hold is None or runs[g]]
        ask = [g for g in ask if firm[g] or not visits(self.instance, gangs[g])]
        # each sort keeps the order of the ones before it where it says nothing
        ask.sort(key=lambda g: gangs[g].key)
        ask.sort(key=lambda g: float("inf") if (t := queued_since(gangs[g])) is None else t)
        ask.sort(key=lambda g: (-gangs[g].priority, not runs[g]))
        left = [dict(own) for own in self.guarantees]
        for g in ask:
            if firm[g]:
                self._ask(g, self.line(self.named[g]), left, found)
        for depth in range(len(self.queues), 0, -1):  # the queues below take their part first
            for g in ask:
                line = self.line(self.named[g])
                if not firm[g] and gangs[g].key not in found and depth <= len(line):
                    self._ask(g, [line[-depth]], left, found)
        return found

    def _ask(
        self, g: int, of: list[int], left: list[dict[str, int]], found: set[tuple[str, str]]
    ) -> None:
        """Gang g asks queues for what is left of their guarantees, and takes it where it fits."""
        gang = self.instance.gangs[g]
        asked = least_counts(gang)
        runs = any(pod.node is not None for pod in gang.pods)
        models = sorted(
            model
            for model in {model for a in of for model in left[a]} - {ANY}
            if any(left[a].get(model, 0) >= asked for a in of) and self._runs_on(g, model)
        )
        inside = asked > 0 and (bool(models) or any(left[a][ANY] >= asked for a in of))
        due = asked > 0 and aged(self.instance, gang) and not inside
        if due and could_start_now(self.instance, g):
            for a in of:  # whoever comes later asks in vain
                left[a] = {key: min(0, gpus) for key, gpus in left[a].items()}
        inside = inside and (runs or could_start_now(self.instance, g))
        if inside:
            found.add(gang.key)
        if inside or (runs and not gang.preemptible):
            for a in self.line(self.named[g]):
                for key in (ANY, *models[:1]):
                    left[a][key] = left[a].get(key, 0) - asked

    def _runs_on(self, g: int, model: str) -> bool:
        """Whether each role with GPUs finds a node of the GPU model."""
        there = [node for n, node in enumerate(self.nodes) if self.models[n] == model]
        return all(
            any(may_stand(self.instance, role, node) for node in there)
            for role in self.instance.gangs[g].roles
            if role.uses_gpus
        )

    def _counts(self) -> dict[tuple[int, int], int]:
        """What a pod of each role of each gang counts in the fair share of its queue."""
        mine = [node for node in self.nodes if ours(self.instance, node)]
        unit = whole_gpu(self.instance)
        total = Counter({"gpus": unit * sum(node.gpus for node in mine)})
        for node in mine:
            for resource, amount in node.allocatable:
                total[resource] += amount
        busy = {above for queue in self.named for above in self.line(queue)}
        found = {}
        for g, gang in enumerate(self.instance.gangs):
            if self.named[g] is None:
                continue
            fraction = Fraction(1)
            for q in self.line(self.named[g]):
                siblings = [b for b in busy if self.queues[b].parent == self.queues[q].parent]
                fraction *= Fraction(
                    self.queues[q].weight, sum(self.queues[b].weight for b in siblings)
                )
            for number, role in enumerate(gang.roles):
                asked = {**dict(role.requests), "gpus": pod_counts(role)}
                d = max(
                    Fraction(asked.get(what, 0), total[what]) if total[what] else Fraction(0)
                    for what in ("gpus", "cpu", "memory")
                )
                found[g, number] = 10**6 * d // fraction
        return found


def promises(instance: Instance) -> Promises:
    """The same for every question about an instance."""
    return instance.once(Promises)


def arrived(gang: Gang, pods: Iterable[tuple[int, int, int]]) -> set[tuple[int, bool]]:
    """Nodes where pods (role, index, node) come that did not stand there, and whether for GPUs."""
    stood = {(p.role, p.index): p.node for p in gang.pods if p.node is not None}
    found = {(n, gang.roles[r].uses_gpus) for r, i, n in pods if stood.get((r, i)) != n}
    return {(n, gpus) for n, gpus in found if gpus or (n, True) not in found}


# Strict queues of a tiny instance, in their own words.


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
