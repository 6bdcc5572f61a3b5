"""What queues are promised, what gangs in them hold, and which gangs give way to a queue.

Facts of one instance and its pods before the plan; ``ALL`` stands for GPUs of every model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from itertools import product

from models.documents.queue import AmountDocument
from models.hardware import slug
from models.verify.cells import Cells, Packing
from models.verify.eligibility import accepting, labelled, open_to, selected
from models.verify.facts import Facts, Gang, Node, Pod, Role, uses_gpus

ALL = ""
"""In place of the slug of a GPU model: GPUs of all models together."""

FAIR = 10**6
"""What a queue counts that holds exactly its fair share."""

SHARED = ("cpu", "memory")
"""Resources besides GPUs of which the largest share counts."""

Amounts = Mapping[str, int]
"""GPUs by the slug of their model, and of ``ALL``."""


class Queues:
    """Queues of ``facts``, by name. A gang that names none of them is in no queue.

    ``unable``: namespace/name of gangs that use up no guarantee, for they are not known to be able to start.
    """

    def __init__(self, facts: Facts, unable: Collection[str] = ()) -> None:
        self.facts = facts
        self._unable = unable
        self.specs = facts.queues
        self.models = tuple(None if n.model is None else slug(n.model.gpu) for n in facts.nodes)
        self.cells = Cells(facts, self.models, {name: self.above(name) for name in self.specs})
        self.guarantee: dict[str, Amounts] = {name: self._guarantee(name) for name in self.specs}
        self.limit: dict[str, Amounts] = {name: self._limit(name) for name in self.specs}
        self.firm_limit: dict[str, Amounts] = {
            name: self._stated(spec.non_preemptible_limit) for name, spec in self.specs.items()
        }
        self.kept: dict[str, Amounts] = {name: self._kept(name) for name in self.specs}
        self._accepted: dict[object, bool] = {}
        self._labelled: dict[object, set[int]] = {}

    def above(self, name: str | None) -> tuple[str, ...]:
        """The queue and those above it, () where no document describes it."""
        found: list[str] = []
        while name is not None and name in self.specs:
            found.append(name)
            name = self.specs[name].parent
        return tuple(found)

    def _guarantee(self, name: str) -> Amounts:
        """g(q) and g(q, m) of the models that it names."""
        found, unit = self._stated(self.specs[name].guarantee), self.facts.gpu_unit
        stated = found.get(ALL, sum(found.values()))
        return {**found, ALL: max(stated, unit * self.cells.gpus_of(name))}

    def _limit(self, name: str) -> Amounts:
        """The most it may hold, in all and of each model for which something is said."""
        spec = self.specs[name]
        found = self._stated(spec.limit)
        if not spec.borrowing:
            for key, gpus in self.guarantee[name].items():
                found[key] = min(gpus, found.get(key, gpus))
        return found

    def _stated(self, amount: AmountDocument) -> dict[str, int]:
        """In all and of each model, where something is said."""
        found = {slug(name): gpus for name, gpus in amount.models.items()}
        found |= {} if amount.gpus is None else {ALL: amount.gpus}
        return {key: round(self.facts.gpu_unit * gpus) for key, gpus in found.items()}

    def _kept(self, name: str) -> Amounts:
        """What it keeps to itself: its guarantee beyond what it lends at most."""
        most = self._stated(self.specs[name].lending_limit)
        own = self.guarantee[name]
        return {key: own[key] - gpus for key, gpus in most.items() if own.get(key, 0) > gpus}

    def held(self, gang: Gang, pods: Iterable[Pod]) -> Counter[str]:
        """GPUs of the pods, in all and by model."""
        found: Counter[str] = Counter()
        for pod in pods:
            gpus, model = gang.counted((pod,)), self.models[pod.node]
            found[ALL] += gpus
            if model is not None:
                found[model] += gpus
        return found

    @cached_property
    def before(self) -> tuple[Counter[str], ...]:
        """By gang, GPUs of the pods that run before the plan."""
        return tuple(self.held(gang, gang.running_pods.values()) for gang in self.facts.gangs)

    @cached_property
    def held_before(self) -> dict[str, Counter[str]]:
        return self.sums(self.before)

    @cached_property
    def firm_before(self) -> dict[str, Counter[str]]:
        return self.sums(self.before, firm=True)

    def sums(
        self, by_gang: Iterable[Counter[str]], *, firm: bool = False
    ) -> dict[str, Counter[str]]:
        """By queue, GPUs of the gangs in it; ``firm``: of those that are not preemptible."""
        found: dict[str, Counter[str]] = {name: Counter() for name in self.specs}
        for gang, gpus in zip(self.facts.gangs, by_gang, strict=True):
            for name in () if firm and gang.preemptible else self.above(gang.queue):
                found[name].update(gpus)
        return found

    def beyond_limits(
        self, by_gang: Iterable[Counter[str]], *, firm: bool
    ) -> Iterator[tuple[str, str, int, int, int]]:
        """(queue, GPUs of which models, held, limit, held before) where more is held than may be.

        ``firm``: by gangs that are not preemptible, of which they have limits of their own.
        """
        limits = self.firm_limit if firm else self.limit
        if any(limits.values()):
            held, before = (
                self.sums(by_gang, firm=firm),
                self.firm_before if firm else self.held_before,
            )
            for name, own in limits.items():
                for key, limit in own.items():
                    if held[name][key] > max(limit, before[name][key]):
                        yield name, key, held[name][key], limit, before[name][key]

    # What is promised

    @cached_property
    def guaranteed(self) -> tuple[str, ...]:
        """Models, and ``ALL``, of which any queue has a guarantee."""
        amounts = self.guarantee.values()
        return tuple(sorted({key for own in amounts for key, gpus in own.items() if gpus}))

    def shortfall(self, by_gang: Iterable[Counter[str]], beyond: Mapping[str, int]) -> Amounts:
        """GPUs promised, to queues or to gangs that hold them and may not stop, that are not there.

        ``by_gang``: what each holds; ``beyond``: GPUs of firm pods that are no healthy ones of usable nodes.
        """
        firm = self.firm_sums(by_gang)
        return {
            key: max(0, self._claims(self.guarantee, firm, key)[None] - self._there(key, beyond))
            for key in self.guaranteed
        }

    def lacking_with(
        self, firm: Mapping[str | None, Counter[str]], name: str | None, gpus: Counter[str]
    ) -> Amounts:
        """At most what would be promised and not there if firm gangs held so much more in a queue.

        ``firm``: what they hold by the queue that they name. Those on GPUs out of order make it less.
        """
        queue = name if name in self.specs else None
        held = {**firm, queue: firm.get(queue, Counter()) + gpus}
        return {
            key: self._claims(self.guarantee, held, key)[None] - self._there(key, {})
            for key in gpus
        }

    def firm_sums(self, by_gang: Iterable[Counter[str]]) -> dict[str | None, Counter[str]]:
        """What gangs hold that no promise may count on, by the queue that they name."""
        return self._named_sums(by_gang, lambda gang: gang.counts_against_promises)

    @cached_property
    def unlent(self) -> tuple[str, ...]:
        """Models, and ``ALL``, of which any queue keeps some to itself."""
        return tuple(sorted({key for own in self.kept.values() for key in own}))

    def above_unlent(self, key: str) -> set[str]:
        """Queues with one below that keeps some to itself."""
        keeping = (name for name, own in self.kept.items() if own.get(key))
        return {above for name in keeping for above in self.above(name)[1:]}

    def lent_too_much(
        self, by_gang: Iterable[Counter[str]], beyond: Mapping[str, int]
    ) -> dict[tuple[str | None, str], int]:
        """By (queue, GPUs): what gangs in it hold, and what it and those below keep and do not hold.

        Without a queue: how much more than there is. ``by_gang``: what each holds; ``beyond``: GPUs of
        managed pods that are no healthy ones of usable nodes.
        """
        managed = self._named_sums(by_gang, lambda gang: gang.managed)
        found: dict[tuple[str | None, str], int] = {}
        for key in self.unlent:
            for name, gpus in self._claims(self.kept, managed, key).items():
                found[name, key] = gpus
            found[None, key] = max(0, found[None, key] - self._there(key, beyond))
        return found

    def _named_sums(
        self, by_gang: Iterable[Counter[str]], counts: Callable[[Gang], bool]
    ) -> dict[str | None, Counter[str]]:
        """What the gangs that count hold, by the queue that they name."""
        found: dict[str | None, Counter[str]] = {}
        for gang, gpus in zip(self.facts.gangs, by_gang, strict=True):
            if counts(gang):
                name = gang.queue if gang.queue in self.specs else None
                found.setdefault(name, Counter()).update(gpus)
        return found

    def _claims(
        self, promised: Mapping[str, Amounts], held: Mapping[str | None, Counter[str]], key: str
    ) -> dict[str | None, int]:
        """Of each queue, and in all, the larger of what it is promised and what is held and claimed in it."""
        found: dict[str | None, int] = {}
        below: Counter[str | None] = Counter()
        for name in sorted(self.specs, key=lambda name: -len(self.above(name))):
            used = held.get(name, Counter())[key] + below[name]
            found[name] = max(promised[name].get(key, 0), used)
            below[self.specs[name].parent] += found[name]
        found[None] = below[None] + held.get(None, Counter())[key]
        return found

    def _there(self, key: str, beyond: Mapping[str, int]) -> int:
        return self._healthy[key] + beyond.get(key, 0)

    @cached_property
    def _healthy(self) -> Counter[str]:
        """Healthy GPUs of usable nodes."""
        found: Counter[str] = Counter()
        for node, model in zip(self.facts.nodes, self.models, strict=True):
            if node.usable and model is not None:
                was, unit = node.as_it_was, self.facts.gpu_unit
                unknown = was.unknown_unhealthy - (was.unknown_partitioned if unit > 1 else 0)
                gpus = unit * max(0, (was.all_gpus & ~self._sick(node)).bit_count() - unknown)
                found[ALL] += gpus
                found[model] += gpus
        return found

    def _sick(self, node: Node) -> int:
        """Mask of GPUs on which no promise counts: in whole GPUs also those that have parts."""
        was = node.as_it_was
        return ~was.healthy & ~(was.partitioned if self.facts.gpu_unit > 1 else 0)

    @cached_property
    def odd_nodes(self) -> tuple[int, ...]:
        """Nodes where pods may hold other GPUs than healthy ones of usable nodes."""
        nodes = enumerate(self.facts.nodes)
        return tuple(n for n, node in nodes if not node.usable or node.as_it_was.unhealthy)

    def beyond(self, pods: Iterable[tuple[Gang, Pod]], *, firm: bool = True) -> Counter[str]:
        """GPUs that these pods, or the firm ones, hold on unusable nodes, and unhealthy ones."""
        found: Counter[str] = Counter()
        for gang, pod in pods:
            node, model = self.facts.nodes[pod.node], self.models[pod.node]
            if not (gang.counts_against_promises if firm else gang.managed):
                continue
            count = self.facts.gpu_unit * ((pod.gpus or 0) & self._sick(node)).bit_count()
            gpus = count if node.usable else gang.counted((pod,))
            found[ALL] += gpus
            if model is not None:
                found[model] += gpus
        return found

    def promised_with(self, gang: Gang) -> int:
        """GPUs that are promised if nothing runs but this gang."""
        held = Counter({gang.queue if gang.queue in self.specs else None: gang.counts_at_min})
        for name in sorted(self.specs, key=lambda name: -len(self.above(name))):
            own = max(self.guarantee[name].get(ALL, 0), held[name])
            held[self.specs[name].parent] += own
        return held[None]

    @cached_property
    def shortfall_before(self) -> Amounts:
        running = ((gang, pod) for gang in self.facts.gangs for pod in gang.running_pods.values())
        return self.shortfall(self.before, self.beyond(running))

    @cached_property
    def lent_before(self) -> dict[tuple[str | None, str], int]:
        running = ((gang, pod) for gang in self.facts.gangs for pod in gang.running_pods.values())
        return self.lent_too_much(self.before, self.beyond(running, firm=False))

    @cached_property
    def packings_before(self) -> dict[str, Packing]:
        """Places of cells before the plan."""
        return self.cells.packings((g, g.running_pods.values()) for g in self.facts.gangs)

    # Who is within a guarantee

    @cached_property
    def within(self) -> frozenset[tuple[str, str]]:
        """Keys of the gangs that fit into what others, before them, leave of a guarantee."""
        used: dict[str, Counter[str]] = {name: Counter() for name in self.specs}
        found: set[tuple[str, str]] = set()
        for gang, names in self._asking():
            if gang.key in found:
                continue
            w = gang.counts_at_min
            fits = [
                key
                for key in self.guaranteed
                if any(used[a][key] + w <= self.guarantee[a].get(key, 0) for a in names)
                and (
                    key == ALL
                    or all(self._accepts(role, key) for role in gang.roles if uses_gpus(role))
                )
            ]
            if fits:
                found.add(gang.key)
            if fits or _firm(gang):
                for key in (ALL, *[key for key in fits if key != ALL][:1]):
                    for name in self.above(gang.queue):
                        used[name][key] += w
            elif self.facts.aged(gang):  # too large: what is left now is left for it
                for name, key in product(names, self.guaranteed):
                    used[name][key] = max(used[name][key], self.guarantee[name].get(key, 0))
        return frozenset(found)

    def _asking(self) -> Iterator[tuple[Gang, tuple[str, ...]]]:
        """Gangs in their turn, and the queues that they ask.

        First all queues of those that hold their GPUs whatever the plan does. The others ask one queue after
        another, the innermost first, so that what a queue is promised goes first to those below it.
        """
        asking = []
        for gang in self.facts.gangs:
            names = self.above(gang.queue)
            if not gang.counts_at_min or (gang.hold is not None and not gang.running):
                continue
            if not gang.running and "/".join(gang.key) in self._unable:
                continue
            if not _firm(gang) and gang.key in self.guests:
                continue
            if _firm(gang):
                asking.append((0, gang, names))
            else:
                depths = range(len(names), 0, -1)
                asking += [(-d, gang, (a,)) for d, a in zip(depths, names, strict=True)]
        asking.sort(key=lambda one: (not _firm(one[1]), one[0], *_turn(one[1])))
        for _, gang, names in asking:
            yield gang, names

    def _accepts(self, role: Role, model: str) -> bool:
        key = (accepting(role), model)
        if key not in self._accepted:
            nodes = self.facts.nodes
            there = labelled(nodes, role, self._labelled)
            self._accepted[key] = any(
                selected(nodes[n], role)
                for first, alike in self._alike.items()
                if self.models[first] == model and open_to(nodes[first], role)
                for n in alike.intersection(there)
            )
        return self._accepted[key]

    @cached_property
    def _alike(self) -> Mapping[int, set[int]]:
        """Nodes that differ by name and labels alone, by the first of them."""
        found: dict[object, set[int]] = {}
        for n, node in enumerate(self.facts.nodes):
            found.setdefault((node.usable, node.taints, id(node.model)), set()).add(n)
        return {min(alike): alike for alike in found.values()}

    # Reclaiming

    def closed(self, gang: Gang) -> dict[int, str]:
        """Nodes that are pinned by queues that a gang is not in, with the first of these by name.

        Empty for those that can be stopped, or that know of no promise.
        """
        if not gang.counts_against_promises or not self.cells.pinned:
            return {}
        own = set(self.above(gang.queue))
        pins = self.cells.pinned.items()
        return {n: min(of - own) for n, of in pins if not of <= own}

    @cached_property
    def guests(self) -> dict[tuple[str, str], set[str]]:
        """By gang, queues that it is not in, and which pin a node where its pods with GPUs run."""
        found: dict[tuple[str, str], set[str]] = {}
        for gang in self.facts.gangs if self.cells.pinned else ():
            nodes = {pod.node for pod in gang.running_pods.values() if gang.held(pod)}
            hosts = set[str]().union(*(self.cells.pinned.get(n, ()) for n in nodes))
            if hosts := hosts - set(self.above(gang.queue)):
                found[gang.key] = hosts
        return found

    def gives_way(self, gang: Gang, comer: Gang, node: int, *, gpus: bool) -> bool:
        """Whether a gang gives way to one that comes to its node, whatever their priorities.

        ``gpus``: whether the pod that comes takes any.
        """
        model = self.models[node] if gpus else None
        if not self.specs:
            return False
        own, others = self.above(comer.queue), self.above(gang.queue)
        needed = 0 if comer.running else comer.counts_at_min

        def left(a: str, key: str) -> int:
            """What a queue is guaranteed beyond what it held before."""
            return self.guarantee[a].get(key, 0) - self.held_before[a][key]

        able = [a for a in own if self.specs[a].reclaim and a not in others]
        for key in (ALL,) if model is None else (ALL, model):
            reclaims = any(left(a, key) >= max(1, needed) for a in able)
            if reclaims and all(left(b, key) < 0 for b in others if b not in own):
                return True
        pinned = self.cells.pinned.get(node, ())
        return gpus and any(a in pinned and left(a, ALL) >= max(1, needed) for a in able)

    # Fair shares

    @cached_property
    def named(self) -> tuple[str, ...]:
        """Queues that gangs name, sorted."""
        found = {gang.queue for gang in self.facts.gangs if gang.queue in self.specs}
        return tuple(sorted(name for name in found if name is not None))

    @cached_property
    def _fractions(self) -> dict[str, Fraction]:
        """f(q) of the queues that gangs name."""
        active = {above for name in self.named for above in self.above(name)}
        siblings: Counter[str | None] = Counter()
        for name in active:
            siblings[self.specs[name].parent] += self.specs[name].weight
        found = {}
        for name in self.named:
            part = Fraction(1)
            for above in self.above(name):
                part *= Fraction(self.specs[above].weight, siblings[self.specs[above].parent])
            found[name] = part
        return found

    @cached_property
    def _total(self) -> dict[str, Fraction]:
        """What all selected nodes have."""
        selected = [node for node in self.facts.nodes if node.selected]
        sums = {
            resource: Fraction(sum(n.allocatable.get(resource, 0) for n in selected))
            for resource in SHARED
        }
        gpus = self.facts.gpu_unit * sum(node.gpus for node in selected)
        return {ALL: Fraction(gpus), **sums}

    def fair_count(self, name: str, role: Role) -> int:
        """What each pod of a role counts in x of the queue that its gang names."""
        asked = {ALL: role.counts, **{r: role.requests.get(r, 0) for r in SHARED}}
        largest = max(
            (asked[r] / total for r, total in self._total.items() if total), default=Fraction(0)
        )
        return int(FAIR * largest / self._fractions[name])


def _firm(gang: Gang) -> bool:
    return gang.running and not gang.preemptible


def _turn(gang: Gang) -> tuple[object, ...]:
    """By priority; of one, those that run first, then the oldest."""
    age = (gang.submitted is None, gang.submitted or 0)
    return -gang.priority, not gang.running, *age, gang.key
