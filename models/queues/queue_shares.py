"""What queues are promised, what they may hold and what they hold: 2.15, 2.16, 2.22, and fair shares.

GPUs are counted in all (the GPU model None) and of each GPU model that a queue names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from models.hardware import slug
from models.instance.gang import Gang, Role
from models.instance.instance import Instance, once, once_each
from models.instance.queue import (
    RESOURCES,
    UNITS,
    Amount,
    Cell,
    Gpu,
    Holder,
    Queue,
    QueueShares,
    QueueUse,
    path_of,
)
from models.instance.solution import PodPlacement, standing_of
from models.queues.guarantee_turns import Turn, turns
from models.queues.pins import pinned_gpus


def shares(instance: Instance) -> QueueShares | None:
    """The queues of an instance; None without any."""
    if instance.shares is not None:
        return instance.shares
    return instance.once(_shares) if instance.queues else None


def stated_shares(instance: Instance) -> QueueShares:
    """The queues of an instance that has some."""
    known = shares(instance)
    assert known is not None, "nothing is asked about queues where there are none"
    return known


def within_guarantee(instance: Instance, gang: Gang) -> bool:
    """Whether the gang goes before all that are not within the guarantee of a queue (section 4)."""
    known = shares(instance)
    return known is not None and gang.key in known.within


def counts_sizes(instance: Instance) -> bool:
    """Whether a tier about queues counts pods above ``min``: fair shares do."""
    return shares(instance) is not None and instance.policy.lists("fair")


@once
def queue_of(instance: Instance) -> tuple[int | None, ...]:
    """The queue that each gang names, None for none or one without a document."""
    number: dict[str | None, int] = {queue.name: i for i, queue in enumerate(instance.queues)}
    return tuple(number.get(gang.queue) for gang in instance.gangs)


@once
def model_of_nodes(instance: Instance) -> tuple[str | None, ...]:
    """Slug of the GPU model of each node."""
    nodes = instance.cluster.nodes
    return tuple(None if n.model is None else slug(n.model.gpu) for n in nodes)


def gpus_held(instance: Instance, gang: Gang, pods: Iterable[PodPlacement]) -> Counter[Gpu]:
    """GPUs of these pods, in all and by GPU model."""
    models, found = model_of_nodes(instance), Counter[Gpu]()
    for pod in pods:
        _count(found, models[pod.node], gang.roles[pod.role].units)
    return found


def gpus_beyond(instance: Instance, gang: Gang, pods: Iterable[PodPlacement]) -> Counter[Gpu]:
    """GPUs of these pods that are unhealthy, or on a node that takes no pods."""
    found, usable, sick = Counter[Gpu](), instance.once(_usable), instance.once(_sick)
    models = model_of_nodes(instance)
    for pod in pods:
        gpus = gang.roles[pod.role].units
        if usable[pod.node]:
            gpus = ((pod.gpus or 0) & sick[pod.node]).bit_count() * instance.gpu_unit
        _count(found, models[pod.node], gpus)
    return found


def _count(found: Counter[Gpu], model: Gpu, gpus: int) -> None:
    """Count GPUs in all, and of the model of their node if it has one."""
    if gpus:
        for gpu in (None,) if model is None else (None, model):
            found[gpu] += gpus


def _usable(instance: Instance) -> tuple[bool, ...]:
    return tuple(map(instance.schedulable, instance.cluster.nodes))


def _sick(instance: Instance) -> tuple[int, ...]:
    """By node, mask of the GPUs that no promise counts on: also those in parts where parts count nothing."""
    parts = instance.gpu_unit > 1
    nodes = instance.cluster.nodes
    return tuple(~n.healthy & ~(n.partitioned if parts else 0) for n in nodes)


def holder_of(instance: Instance, index: int) -> Holder:
    """In whose name a gang holds GPUs."""
    return _holders(instance)[index]


@once
def _holders(instance: Instance) -> tuple[Holder, ...]:
    gangs = zip(queue_of(instance), instance.gangs, strict=True)
    return tuple(Holder(queue, gang.firm, not gang.unmanaged) for queue, gang in gangs)


def add_use(
    instance: Instance,
    use: QueueUse,
    index: int,
    pods: Sequence[PodPlacement],
    sign: int = 1,
) -> None:
    """Count the pods of a gang."""
    known = shares(instance)
    if known is None or not pods:
        return
    gang, queue = instance.gangs[index], queue_of(instance)[index]
    holder, counted = holder_of(instance, index), known.gpus
    for gpu, gpus in gpus_held(instance, gang, pods).items():
        if gpu in counted:
            use.held[holder, gpu] += sign * gpus
    if holder.managed:
        for gpu, gpus in gpus_beyond(instance, gang, pods).items():
            use.beyond[holder.firm, gpu] += sign * gpus
    if queue is not None:
        units = (fair_units(instance, queue, gang.roles[pod.role]) for pod in pods)
        use.fair[queue] += sign * sum(units)


def fair_units(instance: Instance, queue: int, role: Role) -> int:
    """What a pod of a gang that names the queue counts in its fair share."""
    return _fair_units(instance, queue, role.units, role.requests)


@once_each
def _fair_units(
    instance: Instance, queue: int, units: int, requests: tuple[tuple[str, int], ...]
) -> int:
    known, others = stated_shares(instance), dict(requests)
    asked = (units, *(others.get(name, 0) for name in RESOURCES))
    largest = max(
        (Fraction(n, total) for n, total in zip(asked, known.totals, strict=True) if total),
        default=Fraction(0),
    )
    return int(UNITS * largest / known.parts[queue])


class Refusal(NamedTuple):
    """What queues do not allow: more than a queue may hold, or, without one, what is promised or ``kept``.

    ``firm``: more than gangs that are not preemptible may hold in it.
    """

    queue: int | None
    gpu: Gpu
    kept: bool = False
    firm: bool = False


class PromiseTree:
    """R(q): the larger of what q is promised and what gangs that name q hold plus R of the queues below it.

    ``total``: the sum of R over the queues without a parent, and what gangs in no queue hold.
    """

    def __init__(self, paths: Sequence[tuple[int, ...]], own: Sequence[int]) -> None:
        self._paths, self._promised = paths, own
        self._held, self._below = [0] * len(paths), [0] * len(paths)
        self.total = 0
        for q in sorted(range(len(paths)), key=lambda q: -len(paths[q])):
            promised = self.of(q)
            if len(paths[q]) > 1:
                self._below[paths[q][1]] += promised
            else:
                self.total += promised

    def of(self, queue: int) -> int:
        """R of a queue."""
        return max(self._promised[queue], self._held[queue] + self._below[queue])

    def unused(self, queue: int) -> int:
        """What a queue is promised beyond what is held there, and promised below."""
        return self.of(queue) - self._held[queue] - self._below[queue]

    def hold(self, queue: int | None, gpus: int) -> None:
        """Carry what gangs that name a queue hold up to the root."""
        added = gpus
        for position, q in enumerate(() if queue is None else self._paths[queue]):
            before = self.of(q)
            if position:
                self._below[q] += added
            else:
                self._held[q] += added
            added = self.of(q) - before
        self.total += added


class QueueCounts:
    """What gangs in every queue hold while a plan is built, and whether 2.15, 2.16 and 2.22 allow more.

    ``held``: by GPU model, a queue. Guarantees are beside what firm gangs hold, what queues do not lend
    beside what all managed gangs do.
    """

    def __init__(self, instance: Instance, known: QueueShares, use: QueueUse | None = None) -> None:
        use = use or QueueUse()
        self._instance = instance
        self.shares = known
        self.held = {gpu: [0] * len(known.names) for gpu in known.gpus}
        self.firm = {gpu: [0] * len(known.names) for gpu in known.firm_limits}
        self._promised = {g: PromiseTree(known.paths, own) for g, own in known.guarantees.items()}
        self._kept = {gpu: PromiseTree(known.paths, own) for gpu, own in known.kept.items()}
        self._beyond = Counter(use.beyond)
        self._known: dict[int, tuple[Sequence[PodPlacement], Counter[Gpu], Counter[Gpu]]] = {}
        for (holder, gpu), gpus in use.held.items():
            self._hold(holder, gpu, gpus)

    def add(self, index: int, pods: Sequence[PodPlacement], sign: int = 1) -> None:
        """Count these pods of a gang, or with -1 no longer."""
        if not pods:
            return
        known, gang = self._known.get(index), self._instance.gangs[index]
        if known is None or known[0] is not pods:  # the same ones come and go many times
            held, beyond = (count(self._instance, gang, pods) for count in (gpus_held, gpus_beyond))
            known = self._known[index] = pods, held, beyond
        holder = holder_of(self._instance, index)
        for gpu, gpus in known[1].items():
            if gpu in self.held:
                self._hold(holder, gpu, sign * gpus)
        for gpu, gpus in known[2].items() if holder.managed else ():
            self._beyond[holder.firm, gpu] += sign * gpus

    def allow(self, index: int, pods: Sequence[PodPlacement]) -> bool:
        """Whether a gang may have these pods, too."""
        gpus = gpus_held(self._instance, self._instance.gangs[index], pods)
        return self.refusal(index, gpus) is None

    def refusal(self, index: int, gpus: Mapping[Gpu, int]) -> Refusal | None:
        """What keeps a gang from so many more GPUs by model, as in ``broken``; None if nothing does."""
        holder = holder_of(self._instance, index)
        counted = [(gpu, n) for gpu, n in gpus.items() if n and gpu in self.held]
        for gpu, n in counted:
            self._hold(holder, gpu, n)
        path = self.shares.path(holder.queue)
        limits = (Refusal(q, gpu) for gpu, _ in counted for q in path if self.over(q, gpu))
        firm = (
            Refusal(q, gpu, firm=True)
            for gpu, _ in counted
            for q in (path if holder.firm else ())
            if self.too_firm(q, gpu)
        )
        reach = (Refusal(None, gpu) for gpu, _ in counted if holder.firm and self.short(gpu))
        kept = (
            Refusal(None, gpu, kept=True)
            for gpu, _ in counted
            if holder.managed and self.lent_too_much(gpu)
        )
        first = next(chain(limits, firm, reach, kept), None)
        for gpu, n in counted:
            self._hold(holder, gpu, -n)
        return first

    def over(self, queue: int, gpu: Gpu = None) -> bool:
        """Whether gangs in the queue hold more than they may, with what queues below keep to themselves."""
        if gpu not in self.held:
            return False
        most = self.shares.most[gpu][queue]
        if most is not None and self.held[gpu][queue] > most:
            return True
        taken = self.shares.most_taken[gpu][queue] if gpu in self.shares.most_taken else None
        return taken is not None and self.taken(queue, gpu) > taken

    def too_firm(self, queue: int, gpu: Gpu = None) -> bool:
        """Whether gangs in the queue that are not preemptible hold more than they may."""
        most = self.shares.most_firm[gpu][queue] if gpu in self.shares.most_firm else None
        return most is not None and self.firm[gpu][queue] > most

    def taken(self, queue: int, gpu: Gpu = None) -> int:
        """What gangs in the queue hold, and what it and those below keep to themselves and do not hold."""
        return self._kept[gpu].of(queue) if gpu in self._kept else self.held[gpu][queue]

    def short(self, gpu: Gpu = None) -> bool:
        """Whether more is promised, or held for good, than before the plan and than there is."""
        if gpu not in self._promised or gpu not in self.shares.healthy:
            return False
        there = self.shares.healthy[gpu] + self.shares.shortfall[gpu]
        return self.promised(gpu) - self.beyond(gpu) > there

    def lent_too_much(self, gpu: Gpu = None) -> bool:
        """Whether gangs hold more than queues lend, and more of it than before the plan."""
        if gpu not in self._kept:
            return False
        there = self.shares.healthy[gpu] + self.shares.kept_short[gpu]
        return self.promised(gpu, kept=True) - self.beyond(gpu, kept=True) > there

    def broken(self) -> Iterator[Refusal]:
        """Each limit that does not hold; no queue: guarantees, or what is kept, are out of reach."""
        for gpu in self.held:
            every = range(len(self.shares.names))
            yield from (Refusal(q, gpu) for q in every if self.over(q, gpu))
            yield from (Refusal(q, gpu, firm=True) for q in every if self.too_firm(q, gpu))
            if self.short(gpu):
                yield Refusal(None, gpu)
            if self.lent_too_much(gpu):
                yield Refusal(None, gpu, kept=True)

    def promised(self, gpu: Gpu = None, *, kept: bool = False) -> int:
        """The sum of R over the queues without a parent, and what gangs in no queue hold."""
        tree = (self._kept if kept else self._promised).get(gpu)
        return 0 if tree is None else tree.total

    def unused(self, queue: int, gpu: Gpu = None) -> int:
        """What is promised to a queue and not held by firm gangs in it."""
        return self._promised[gpu].unused(queue)

    def unlent(self, queue: int, gpu: Gpu = None) -> int:
        """What a queue keeps to itself beyond what gangs in it hold, and queues below keep."""
        return self._kept[gpu].unused(queue)

    def beyond(self, gpu: Gpu = None, *, kept: bool = False) -> int:
        """GPUs of firm pods, or of all managed, that are not among the healthy GPUs of usable nodes."""
        return self._beyond[True, gpu] + (self._beyond[False, gpu] if kept else 0)

    def _hold(self, holder: Holder, gpu: Gpu, gpus: int) -> None:
        for q in self.shares.path(holder.queue):
            self.held[gpu][q] += gpus
            if holder.firm and gpu in self.firm:
                self.firm[gpu][q] += gpus
        if holder.firm and gpu in self._promised:
            self._promised[gpu].hold(holder.queue, gpus)
        if holder.managed and gpu in self._kept:
            self._kept[gpu].hold(holder.queue, gpus)


class Excess(NamedTuple):
    """More GPUs than a queue may ever hold. ``gpu``: of this model, None for all models together.

    ``firm``: than gangs in it that are not preemptible may.
    """

    queue: int
    gpu: Gpu
    asked: int
    limit: int
    firm: bool = False


def beyond_limit(instance: Instance, gang: Gang) -> Excess | None:
    """What a gang at its least asks of more than some queue that it is in may hold, whatever runs."""
    known = bare_shares(instance)
    path = () if known is None else known.path(known.number(gang.queue))
    if known is None or not path:
        return None
    asked: Counter[Gpu] = Counter()
    for role, count in zip(gang.roles, gang.target_counts, strict=True):
        asked[None] += role.units * count
        names = {slug(n) for n in instance.gpu_names(instance.matching_nodes(role))}
        if role.units and len(names) == 1:
            asked[names.pop()] += role.units * count
    for firm, limits in ((False, known.limits), (True, known.firm_limits if gang.firm else {})):
        for gpu, gpus in asked.items():
            for queue in path if gpu in limits else ():
                limit = limits[gpu][queue]
                if limit is not None and gpus > limit:
                    return Excess(queue, gpu, gpus, limit, firm)
    return None


def queue_counts(instance: Instance, pods: Iterable[Sequence[PodPlacement]]) -> QueueCounts | None:
    """What gangs in queues hold with these pods, of every gang; None where there are no queues."""
    known = shares(instance)
    if known is None:
        return None
    counts = QueueCounts(instance, known)
    for index, own in enumerate(pods):
        counts.add(index, own)
    return counts


def cell_model(instance: Instance, cell: Cell) -> str | None:
    """The GPU model of a cell: the one with the most GPUs installed where it names none; None without any."""
    return cell.model if cell.model is not None else instance.once(_commonest_model)


def _commonest_model(instance: Instance) -> str | None:
    installed: Counter[str] = Counter()
    for node, model in zip(instance.cluster.nodes, model_of_nodes(instance), strict=True):
        if model is not None:
            installed[model] += node.gpus
    return min(installed, key=lambda model: (-installed[model], model), default=None)


def cell_gpus(instance: Instance, cell: Cell) -> int:
    """GPUs of one cell: the fewest that a named domain of its level has on selected nodes of its model.

    At the level ``node`` every node counts.
    """
    if cell.level is None:
        return cell.gpus or 0
    model, of_nodes = cell_model(instance, cell), model_of_nodes(instance)
    every = cell.level == instance.cluster.node_level
    found: Counter[int] = Counter()
    for n, node in enumerate(instance.cluster.nodes):
        named = every or None not in node.domains[: cell.level + 1]
        if named and node.gpus and of_nodes[n] == model and instance.ours(node):
            found[instance.cluster.domain_of[cell.level][n]] += node.gpus
    return min(found.values(), default=0)


def guarantees(instance: Instance) -> dict[Gpu, tuple[int, ...]]:
    """g(q), and g(q, m) of each model that a guarantee names, of every queue; only where some is above 0."""
    queues = instance.queues
    cells = [
        instance.gpu_unit
        * (sum(c.count * cell_gpus(instance, c) for c in queue.cells) + pinned_gpus(instance, q))
        for q, queue in enumerate(queues)
    ]
    found: dict[Gpu, tuple[int, ...]] = {None: tuple(map(_stated, queues, cells))}
    for model in sorted({name for queue in queues for name, _ in queue.guarantee.models}):
        found[model] = tuple(dict(queue.guarantee.models).get(model, 0) for queue in queues)
    return {gpu: own for gpu, own in found.items() if any(own)}


def _kept(
    queues: Sequence[Queue], promised: Mapping[Gpu, tuple[int, ...]]
) -> dict[Gpu, tuple[int, ...]]:
    """What each queue does not lend of g(q) and g(q, m); only where some is above 0."""
    found = {
        gpu: tuple(
            0 if (lent := _of(queue.lending_limit, gpu)) is None else max(0, g - lent)
            for queue, g in zip(queues, own, strict=True)
        )
        for gpu, own in promised.items()
    }
    return {gpu: own for gpu, own in found.items() if any(own)}


def _of(amount: Amount, gpu: Gpu) -> int | None:
    """GPUs of a model, None for what is not stated."""
    return amount.gpus if gpu is None else dict(amount.models).get(gpu)


def _stated(queue: Queue, cells: int) -> int:
    stated, models = queue.guarantee.gpus, queue.guarantee.models
    return max(cells, sum(gpus for _, gpus in models) if stated is None else stated)


def bare_shares(instance: Instance) -> QueueShares | None:
    """What queues are promised and may hold where nothing runs; without what is held, and who is within."""
    if instance.shares is not None:
        return instance.shares
    return instance.once(_bare) if instance.queues else None


def empty_shares(instance: Instance, *, in_order: bool) -> QueueShares | None:
    """The queues on the empty cluster, with every node in order, or with the nodes as they are."""
    bare = bare_shares(instance)
    if bare is None:
        return None
    empty, nodes = QueueCounts(instance, bare), instance.cluster.nodes
    models = model_of_nodes(instance)
    ours = [n for n, node in enumerate(nodes) if instance.ours(node)]
    there = {
        gpu: instance.gpu_unit * sum(nodes[n].gpus for n in ours if gpu is None or models[n] == gpu)
        if in_order
        else _healthy(instance, gpu)
        for gpu in bare.guarantees
    }
    return replace(
        bare,
        before={gpu: (0,) * len(bare.names) for gpu in bare.gpus},
        most=bare.limits,
        most_firm=bare.firm_limits,
        healthy=there,
        shortfall={gpu: max(0, empty.promised(gpu) - gpus) for gpu, gpus in there.items()},
        kept_short={gpu: max(0, empty.promised(gpu, kept=True) - there[gpu]) for gpu in bare.kept},
        most_taken=_most_taken(bare, empty),
        within=frozenset(),
    )


def _bare(instance: Instance) -> QueueShares:
    queues, promised = instance.queues, guarantees(instance)
    amounts = (
        amount
        for queue in queues
        for amount in (queue.limit, queue.guarantee, queue.non_preemptible_limit)
    )
    models = tuple(sorted({name for amount in amounts for name, _ in amount.models}))
    paths = tuple(path_of(queues, q) for q in range(len(queues)))
    limits = {
        gpu: tuple(_limit(queues[q], promised, q, gpu) for q in range(len(queues)))
        for gpu in (None, *models)
    }
    firm_limits = {
        gpu: own
        for gpu in (None, *models)
        for own in [tuple(_of(queue.non_preemptible_limit, gpu) for queue in queues)]
        if any(limit is not None for limit in own)
    }
    return QueueShares(
        tuple(queue.name for queue in queues),
        paths,
        promised,
        _kept(queues, promised),
        limits,
        {gpu: (None,) * len(queues) for gpu in (None, *models)},
        {},
        firm_limits,
        {},
        {},
        tuple(queue.reclaim for queue in queues),
        {},
        {},
        {},
        frozenset(),
        _parts(queues, {q for q in queue_of(instance) if q is not None}, paths),
        _totals(instance),
        models,
    )


@once
def guarantee_turns(instance: Instance) -> tuple[Turn, ...]:
    """Who uses up guarantees, in turn."""
    bare = bare_shares(instance)
    if bare is None or not instance.queues:
        return ()
    own, models = queue_of(instance), model_of_nodes(instance)
    able = instance.could_start.can_now
    return tuple(turns(instance, own, bare.paths, bare.guarantees, models, able))


def _shares(instance: Instance) -> QueueShares:
    bare, promised = instance.once(_bare), guarantees(instance)
    now = QueueCounts(instance, bare)
    for index, gang in enumerate(instance.gangs):
        if gang.running:
            now.add(index, standing_of(gang))
    healthy = {gpu: _healthy(instance, gpu) for gpu in promised}
    return replace(
        bare,
        within=frozenset(
            instance.gangs[turn.gang].key for turn in guarantee_turns(instance) if turn.within
        ),
        before={gpu: tuple(held) for gpu, held in now.held.items()},
        most=_at_most(now.held, bare.limits),
        most_firm=_at_most(now.firm, bare.firm_limits),
        most_taken=_most_taken(bare, now),
        healthy=healthy,
        shortfall={
            gpu: max(0, now.promised(gpu) - now.beyond(gpu) - healthy[gpu]) for gpu in promised
        },
        kept_short={
            gpu: max(0, now.promised(gpu, kept=True) - now.beyond(gpu, kept=True) - healthy[gpu])
            for gpu in bare.kept
        },
    )


def _at_most(
    held: Mapping[Gpu, Sequence[int]], limits: Mapping[Gpu, Sequence[int | None]]
) -> dict[Gpu, tuple[int | None, ...]]:
    """What queues may hold after the plan: as much as before it, in any case."""
    return {
        gpu: tuple(
            None if limit is None else max(before, limit)
            for before, limit in zip(held[gpu], own, strict=True)
        )
        for gpu, own in limits.items()
    }


def _most_taken(bare: QueueShares, now: QueueCounts) -> dict[Gpu, tuple[int | None, ...]]:
    """What queues may hold with what those below keep; None where they keep nothing, or without a limit."""
    found = {}
    for gpu, own in bare.kept.items():
        above = {a for q, kept in enumerate(own) if kept for a in bare.paths[q][1:]}
        found[gpu] = tuple(
            None if limit is None or q not in above else max(now.taken(q, gpu), limit)
            for q, limit in enumerate(bare.limits[gpu])
        )
    return found


def _limit(queue: Queue, promised: Mapping[Gpu, tuple[int, ...]], q: int, gpu: Gpu) -> int | None:
    """What gangs in the queue may hold; without borrowing no more than is promised."""
    if gpu is None:
        stated = [queue.limit.gpus]
        own = 0 if None not in promised else promised[None][q]
        borrows = queue.borrowing
    else:
        stated = [dict(queue.limit.models).get(gpu)]
        named = dict(queue.guarantee.models)
        own, borrows = named.get(gpu, 0), queue.borrowing or gpu not in named
    stated += [] if borrows else [own]
    return min((limit for limit in stated if limit is not None), default=None)


def _parts(
    queues: Sequence[Queue], named: Collection[int], paths: Sequence[tuple[int, ...]]
) -> dict[int, Fraction]:
    """f(q) of the queues that gangs name: weights next to queues with the same parent that count."""
    counted = sorted({q for name in named for q in paths[name]})
    weights: Counter[int | None] = Counter()
    for q in counted:
        weights[queues[q].parent] += queues[q].weight
    found = {}
    for name in sorted(named):
        part = Fraction(1)
        for q in paths[name]:
            part *= Fraction(queues[q].weight, weights[queues[q].parent])
        found[name] = part
    return found


def _totals(instance: Instance) -> tuple[int, ...]:
    """GPUs, and each of RESOURCES, of all nodes that the policy selects."""
    found = [0] * (1 + len(RESOURCES))
    for node in instance.cluster.nodes:
        if instance.ours(node):
            stated = dict(node.allocatable)
            found[0] += node.gpus * instance.gpu_unit
            for i, name in enumerate(RESOURCES, 1):
                found[i] += stated.get(name, 0)
    return tuple(found)


def _healthy(instance: Instance, gpu: Gpu) -> int:
    """Healthy GPUs of a model on the nodes that take pods; with those in parts where parts count."""
    nodes, models, unit = instance.cluster.nodes, model_of_nodes(instance), instance.gpu_unit
    usable = instance.once(_usable)
    return unit * sum(
        node.healthy_gpus if unit == 1 else node.gpus_in_order
        for n, node in enumerate(nodes)
        if usable[n] and (gpu is None or models[n] == gpu)
    )
