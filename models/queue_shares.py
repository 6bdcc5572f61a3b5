"""What queues are promised, what they may hold and what they hold: rules 2.15 and 2.16, and fair shares.

GPUs are counted in all (the GPU model None) and of each GPU model that a queue names. A part of an instance
gets the facts of the whole, with what the gangs outside hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from models.gang import Gang, Role
from models.guarantee_turns import gangs_within
from models.hardware import slug
from models.instance import Instance
from models.queue import Cell, Queue
from models.solution import PodPlacement, placed

Gpu = str | None
"""Slug of a GPU model; None for all models together."""

RESOURCES = ("cpu", "memory")
"""Counted in fair shares besides GPUs."""

UNITS = 10**6
"""A fair share of 1."""


class Holder(NamedTuple):
    """Gangs that hold GPUs. ``queue``: that they name, None for none; ``firm``: see ``Gang``."""

    queue: int | None
    firm: bool


@dataclass
class QueueUse:
    """GPUs by holder and GPU model.

    ``beyond``: of firm pods, those that are not among the healthy GPUs of usable nodes. ``fair``: by queue,
    what its pods count in fair shares.
    """

    held: Counter[tuple[Holder, Gpu]] = field(default_factory=Counter)
    beyond: Counter[Gpu] = field(default_factory=Counter)
    fair: Counter[int] = field(default_factory=Counter)

    def copy(self) -> QueueUse:
        return QueueUse(Counter(self.held), Counter(self.beyond), Counter(self.fair))


@dataclass(frozen=True)
class QueueShares:
    """The queues of an input; every sequence has one entry a queue.

    ``paths``: the queue and all above it, itself first. ``guarantees``, ``before``: by GPU model, what a
    queue is promised, and what gangs in it hold before the plan; a model without guarantees is not in the
    first. ``limits``: what they may hold if nothing runs before, None for any number; ``most``: after the
    plan. ``healthy``: GPUs of usable nodes.
    ``shortfall``: how many promised GPUs there are not, before the plan. ``within``: keys of the
    gangs that are within the guarantee of a queue. ``parts``: f of the queues that gangs name. ``totals``:
    GPUs and RESOURCES of all selected nodes. ``outside``: what gangs outside of a part hold.
    """

    names: tuple[str, ...]
    paths: tuple[tuple[int, ...], ...]
    guarantees: Mapping[Gpu, tuple[int, ...]]
    limits: Mapping[Gpu, tuple[int | None, ...]]
    most: Mapping[Gpu, tuple[int | None, ...]]
    before: Mapping[Gpu, tuple[int, ...]]
    reclaim: tuple[bool, ...]
    healthy: Mapping[Gpu, int]
    shortfall: Mapping[Gpu, int]
    within: frozenset[tuple[str, str]]
    parts: Mapping[int, Fraction]
    totals: tuple[int, ...]
    models: tuple[str, ...]
    outside: QueueUse = field(default_factory=QueueUse)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All models together, and each that is counted."""
        return (None, *self.models)

    def number(self, name: str | None) -> int | None:
        """The index of a queue; None without a name or a document."""
        return self._numbers.get(name)

    @cached_property
    def _numbers(self) -> dict[str | None, int]:
        return {name: i for i, name in enumerate(self.names)}

    def path(self, queue: int | None) -> tuple[int, ...]:
        """The queues that a gang is in which names this one."""
        return () if queue is None else self.paths[queue]

    def guarantee(self, queue: int, gpu: Gpu = None) -> int:
        """g(q), or g(q, m)."""
        own = self.guarantees.get(gpu)
        return 0 if own is None else own[queue]

    def unlimited(self) -> QueueShares:
        """The same without limits and guarantees; who may reclaim from whom stays."""
        most = {gpu: (None,) * len(self.names) for gpu in self.most}
        return replace(self, limits=most, most=most, healthy={}, outside=QueueUse())

    def fairness(self, rank: int, fair: Mapping[int, int]) -> int:
        """The sum of the ``rank`` smallest x of the queues that gangs name."""
        return sum(sorted(fair.get(queue, 0) for queue in self.parts)[:rank])

    def fair_units(self, queue: int, role: Role) -> int:
        """What a pod of a gang that names the queue counts in its fair share."""
        requests = dict(role.requests)
        asked = (role.gpus, *(requests.get(name, 0) for name in RESOURCES))
        largest = max(
            (Fraction(n, total) for n, total in zip(asked, self.totals, strict=True) if total),
            default=Fraction(0),
        )
        return int(UNITS * largest / self.parts[queue])


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


def queue_of(instance: Instance) -> tuple[int | None, ...]:
    """The queue that each gang names, None for none or one without a document."""
    return instance.once(_queue_of)


def _queue_of(instance: Instance) -> tuple[int | None, ...]:
    number: dict[str | None, int] = {queue.name: i for i, queue in enumerate(instance.queues)}
    return tuple(number.get(gang.queue) for gang in instance.gangs)


def model_of_nodes(instance: Instance) -> tuple[str | None, ...]:
    """Slug of the GPU model of each node."""
    return instance.once(_model_of_nodes)


def _model_of_nodes(instance: Instance) -> tuple[str | None, ...]:
    nodes = instance.cluster.nodes
    return tuple(None if n.model is None else slug(n.model.gpu) for n in nodes)


def gpus_held(instance: Instance, gang: Gang, pods: Iterable[PodPlacement]) -> Counter[Gpu]:
    """GPUs of these pods, in all and by GPU model."""
    models, found = model_of_nodes(instance), Counter[Gpu]()
    for pod in pods:
        _count(found, models[pod.node], gang.roles[pod.role].gpus)
    return found


def gpus_beyond(instance: Instance, gang: Gang, pods: Iterable[PodPlacement]) -> Counter[Gpu]:
    """GPUs of these pods that are unhealthy, or on a node that takes no pods."""
    found, usable, nodes = Counter[Gpu](), instance.once(_usable), instance.cluster.nodes
    models = model_of_nodes(instance)
    for pod in pods:
        gpus, node = gang.roles[pod.role].gpus, nodes[pod.node]
        if usable[pod.node]:
            gpus = ((pod.gpus or 0) & ~node.healthy).bit_count()
        _count(found, models[pod.node], gpus)
    return found


def _count(found: Counter[Gpu], model: Gpu, gpus: int) -> None:
    """Count GPUs in all, and of the model of their node if it has one."""
    if gpus:
        for gpu in (None,) if model is None else (None, model):
            found[gpu] += gpus


def _usable(instance: Instance) -> tuple[bool, ...]:
    return tuple(map(instance.schedulable, instance.cluster.nodes))


def holder_of(instance: Instance, index: int) -> Holder:
    """In whose name a gang holds GPUs."""
    gang = instance.gangs[index]
    return Holder(queue_of(instance)[index], gang.firm)


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
    if holder.firm:
        for gpu, gpus in gpus_beyond(instance, gang, pods).items():
            use.beyond[gpu] += sign * gpus
    if queue is not None:
        units = instance.once(_FairUnits)
        use.fair[queue] += sign * sum(units.of(queue, gang.roles[pod.role]) for pod in pods)


class _FairUnits:
    """What pods count in fair shares, by queue and what they ask for."""

    def __init__(self, instance: Instance) -> None:
        self._shares = stated_shares(instance)
        self._known: dict[object, int] = {}

    def of(self, queue: int, role: Role) -> int:
        key = (queue, role.gpus, role.requests)
        if key not in self._known:
            self._known[key] = self._shares.fair_units(queue, role)
        return self._known[key]


def fair_units(instance: Instance, queue: int, role: Role) -> int:
    """What a pod of a gang that names the queue counts in its fair share."""
    return instance.once(_FairUnits).of(queue, role)


class QueueCounts:
    """What gangs in every queue hold while a plan is built, and whether rules 2.15 and 2.16 allow more.

    ``held``: by GPU model, a queue. R(q) is the larger of g(q) and what firm gangs that name q hold plus the
    sum of R of the queues right below it.
    """

    def __init__(self, instance: Instance, known: QueueShares, use: QueueUse | None = None) -> None:
        use = known.outside if use is None else use
        self._instance = instance
        self.shares = known
        self.held = {gpu: [0] * len(known.names) for gpu in known.gpus}
        self._own = {gpu: [0] * len(known.names) for gpu in known.guarantees}
        self._below = {gpu: _below(known, gpu) for gpu in known.guarantees}
        self._total = {gpu: _roots(known, gpu) for gpu in known.guarantees}
        self._beyond = Counter(use.beyond)
        for (holder, gpu), gpus in use.held.items():
            self._hold(holder.queue, gpu, gpus, firm=holder.firm)

    def add(self, index: int, pods: Sequence[PodPlacement], sign: int = 1) -> None:
        """Count these pods of a gang, or with -1 no longer."""
        gang, queue = self._instance.gangs[index], queue_of(self._instance)[index]
        for gpu, gpus in gpus_held(self._instance, gang, pods).items():
            if gpu in self.held:
                self._hold(queue, gpu, sign * gpus, firm=gang.firm)
        if gang.firm:
            for gpu, gpus in gpus_beyond(self._instance, gang, pods).items():
                self._beyond[gpu] += sign * gpus

    def allow(self, index: int, pods: Sequence[PodPlacement]) -> bool:
        """Whether a gang may have these pods, too."""
        return (
            self.refusal(index, gpus_held(self._instance, self._instance.gangs[index], pods))
            is None
        )

    def refusal(self, index: int, gpus: Mapping[Gpu, int]) -> tuple[int | None, Gpu] | None:
        """What keeps a gang from so many more GPUs by model, as in ``broken``; None if nothing does."""
        queue, firm = queue_of(self._instance)[index], self._instance.gangs[index].firm
        counted = [(gpu, n) for gpu, n in gpus.items() if n and gpu in self.held]
        for gpu, n in counted:
            self._hold(queue, gpu, n, firm=firm)
        path = self.shares.path(queue)
        limits = ((q, gpu) for gpu, _ in counted for q in path if self.over(q, gpu))
        reach = ((None, gpu) for gpu, _ in counted if firm and self.short(gpu))
        first = next(chain(limits, reach), None)
        for gpu, n in counted:
            self._hold(queue, gpu, -n, firm=firm)
        return first

    def over(self, queue: int, gpu: Gpu = None) -> bool:
        """Whether gangs in the queue hold more than they may."""
        if gpu not in self.held:
            return False
        most = self.shares.most[gpu][queue]
        return most is not None and self.held[gpu][queue] > most

    def short(self, gpu: Gpu = None) -> bool:
        """Whether more is promised, or held for good, than before the plan and than there is."""
        if gpu not in self._total or gpu not in self.shares.healthy:
            return False
        there = self.shares.healthy[gpu] + self._beyond[gpu]
        return self._total[gpu] > there + self.shares.shortfall[gpu]

    def broken(self) -> Iterator[tuple[int | None, Gpu]]:
        """(queue, GPU model) of each limit that does not hold; no queue: guarantees are out of reach."""
        for gpu in self.held:
            yield from ((q, gpu) for q in range(len(self.shares.names)) if self.over(q, gpu))
            if self.short(gpu):
                yield None, gpu

    def promised(self, gpu: Gpu = None) -> int:
        """The sum of R over the queues without a parent, and what firm gangs in no queue hold."""
        return self._total.get(gpu, 0)

    def unused(self, queue: int, gpu: Gpu = None) -> int:
        """What is promised to a queue and not held by firm gangs in it."""
        own, below = self._own[gpu][queue], self._below[gpu][queue]
        return max(0, self.shares.guarantee(queue, gpu) - own - below)

    def beyond(self, gpu: Gpu = None) -> int:
        """GPUs of firm pods that are not among the healthy GPUs of usable nodes."""
        return self._beyond[gpu]

    def _hold(self, queue: int | None, gpu: Gpu, gpus: int, *, firm: bool) -> None:
        for q in self.shares.path(queue):
            self.held[gpu][q] += gpus
        if firm and gpu in self._total:
            self._promise(queue, gpu, gpus)

    def _promise(self, queue: int | None, gpu: Gpu, gpus: int) -> None:
        """Carry what a queue itself holds for good up to the root."""
        own, below, guarantee = self._own[gpu], self._below[gpu], self.shares.guarantees[gpu]
        added = gpus
        for position, q in enumerate(self.shares.path(queue)):
            before = max(guarantee[q], own[q] + below[q])
            if position:
                below[q] += added
            else:
                own[q] += added
            added = max(guarantee[q], own[q] + below[q]) - before
        self._total[gpu] += added


class Excess(NamedTuple):
    """More GPUs than a queue may ever hold. ``gpu``: of this model, None for all models together."""

    queue: int
    gpu: Gpu
    asked: int
    limit: int


def beyond_limit(instance: Instance, gang: Gang) -> Excess | None:
    """What a gang at its least asks of more than some queue that it is in may hold, whatever runs."""
    known = shares(instance)
    path = () if known is None else known.path(known.number(gang.queue))
    if known is None or not path:
        return None
    asked: Counter[Gpu] = Counter()
    for role, count in zip(gang.roles, gang.target_counts(), strict=True):
        asked[None] += role.gpus * count
        names = {slug(n) for n in instance.gpu_names(instance.matching_nodes(role))}
        if role.gpus and len(names) == 1:
            asked[names.pop()] += role.gpus * count
    for gpu, gpus in asked.items():
        for queue in path if gpu in known.limits else ():
            limit = known.limits[gpu][queue]
            if limit is not None and gpus > limit:
                return Excess(queue, gpu, gpus, limit)
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


def _below(known: QueueShares, gpu: Gpu) -> list[int]:
    """By queue, the sum of R over those right below it where no gang runs."""
    below = [0] * len(known.names)
    for q in sorted(range(len(known.names)), key=lambda q: -len(known.paths[q])):
        if len(known.paths[q]) > 1:
            below[known.paths[q][1]] += max(known.guarantee(q, gpu), below[q])
    return below


def _roots(known: QueueShares, gpu: Gpu) -> int:
    """The sum of R over the queues without a parent, where no gang runs."""
    below = _below(known, gpu)
    roots = (q for q, path in enumerate(known.paths) if len(path) == 1)
    return sum(max(known.guarantee(q, gpu), below[q]) for q in roots)


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
    cells = [sum(c.count * cell_gpus(instance, c) for c in queue.cells) for queue in queues]
    found: dict[Gpu, tuple[int, ...]] = {None: tuple(map(_stated, queues, cells))}
    for model in sorted({name for queue in queues for name, _ in queue.guarantee.models}):
        found[model] = tuple(dict(queue.guarantee.models).get(model, 0) for queue in queues)
    return {gpu: own for gpu, own in found.items() if any(own)}


def _stated(queue: Queue, cells: int) -> int:
    stated, models = queue.guarantee.gpus, queue.guarantee.models
    return max(cells, sum(gpus for _, gpus in models) if stated is None else stated)


def _shares(instance: Instance) -> QueueShares:
    queues, promised = instance.queues, guarantees(instance)
    amounts = (amount for queue in queues for amount in (queue.limit, queue.guarantee))
    models = tuple(sorted({name for amount in amounts for name, _ in amount.models}))
    paths = tuple(_path(queues, q) for q in range(len(queues)))
    use = QueueUse()
    limits = {
        gpu: tuple(_limit(queues[q], promised, q, gpu) for q in range(len(queues)))
        for gpu in (None, *models)
    }
    bare = QueueShares(
        tuple(queue.name for queue in queues),
        paths,
        promised,
        limits,
        {gpu: (None,) * len(queues) for gpu in (None, *models)},
        {},
        tuple(queue.reclaim for queue in queues),
        {},
        {},
        gangs_within(instance, queue_of(instance), paths, promised, model_of_nodes(instance)),
        _parts(queues, {q for q in queue_of(instance) if q is not None}, paths),
        _totals(instance),
        models,
        use,
    )
    now = QueueCounts(instance, bare)
    for index, gang in enumerate(instance.gangs):
        if gang.running:
            now.add(index, placed(gang, gang.running_pods))
    healthy = {gpu: _healthy(instance, gpu) for gpu in promised}
    return replace(
        bare,
        before={gpu: tuple(held) for gpu, held in now.held.items()},
        most={
            gpu: tuple(
                None if limit is None else max(held, limit)
                for held, limit in zip(now.held[gpu], limits[gpu], strict=True)
            )
            for gpu in bare.gpus
        },
        healthy=healthy,
        shortfall={
            gpu: max(0, now.promised(gpu) - now.beyond(gpu) - healthy[gpu]) for gpu in promised
        },
    )


def _path(queues: Sequence[Queue], q: int) -> tuple[int, ...]:
    found, at = [], q
    while True:
        found.append(at)
        parent = queues[at].parent
        if parent is None:
            return tuple(found)
        at = parent


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
            found[0] += node.gpus
            for i, name in enumerate(RESOURCES, 1):
                found[i] += stated.get(name, 0)
    return tuple(found)


def _healthy(instance: Instance, gpu: Gpu) -> int:
    """Healthy GPUs of a model on the nodes that take pods."""
    nodes, models = instance.cluster.nodes, model_of_nodes(instance)
    usable = instance.once(_usable)
    return sum(
        node.healthy_gpus
        for n, node in enumerate(nodes)
        if usable[n] and (gpu is None or models[n] == gpu)
    )
