"""Whether there is a place for each cell that queues are promised: the GPUs of those left out.

Each GPU model by itself. Which cells find a place is a packing: it is bounded from both sides, and tried in
full where that takes little effort.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from models.documents.queue import CellDocument
from models.hardware import slug
from models.verify.facts import Facts, Gang, Pod

STEPS = 20_000
"""Places that are tried for an exact answer."""

DEPTH = 200
"""Cells in places, beyond which no exact answer is tried."""

PLACE_VISITS = 10
"""Visits for each node that may be claimed."""

Kind = tuple[int, int]
"""(level, 0) or, for GPUs of one server, (the node level + 1, -gpus): the widest and largest first."""

Place = tuple[int, ...]
"""Nodes of a domain, ascending."""

Held = Mapping[int, Mapping[str | None, int]]
"""By node, GPUs of firm pods by the queue that their gang names, None: no queue."""


@dataclass(frozen=True, slots=True)
class _Item:
    """``count`` cells of one kind and queue."""

    queue: str
    kind: Kind
    count: int


class Cells:
    """``models``: of every node; ``above``: by queue, itself and those above it."""

    def __init__(
        self, facts: Facts, models: Sequence[str | None], above: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.facts = facts
        self.models = models
        self.above = above
        self.pinned = pinned(facts)
        counts: dict[str, Counter[tuple[Kind, str]]] = {}
        for name, spec in sorted(facts.queues.items()):
            for cell in spec.cells:
                if cell.pinned:
                    continue
                model = self.model_of(cell)
                kind = self._kind(cell.level, cell.gpus)
                counts.setdefault(model, Counter())[kind, name] += cell.count or 0
        self.grounds = {
            model: Ground(
                facts,
                [n for n, own in enumerate(models) if own == model and facts.nodes[n].selected],
                above,
                [_Item(name, kind, count) for (kind, name), count in sorted(found.items())],
                self.pinned,
            )
            for model, found in sorted(counts.items())
        }

    def model_of(self, cell: CellDocument) -> str:
        """Slug of its GPU model, "" for a cell without one in a cluster without GPUs."""
        return self._most_installed() if cell.model is None else slug(cell.model)

    def _most_installed(self) -> str:
        installed: Counter[str] = Counter()
        for node, model in zip(self.facts.nodes, self.models, strict=True):
            if model is not None:
                installed[model] += node.gpus
        return min(installed, key=lambda model: (-installed[model], model), default="")

    def _kind(self, level: str | None, gpus: int | None) -> Kind:
        last = self.facts.node_level
        if level is None:
            return (last + 1, -(gpus or 1))
        return ([self.facts.level_name(i) for i in range(last + 1)].index(level), 0)

    def gpus_of(self, queue: str) -> int:
        """GPUs of all cells of a queue."""
        fixed = sum(self.facts.nodes[n].gpus for n, of in self.pinned.items() if queue in of)
        return fixed + sum(
            item.count * ground.size(item.kind)
            for ground in self.grounds.values()
            for item in ground.items
            if item.queue == queue
        )

    def packings(self, pods: Iterable[tuple[Gang, Iterable[Pod]]]) -> dict[str, Packing]:
        """By GPU model, where its cells may be next to the firm pods of these gangs."""
        held: dict[str, dict[int, Counter[str | None]]] = {m: {} for m in self.grounds}
        for gang, own in pods:
            if not (gang.counts_against_promises and self.grounds):
                continue
            queue = gang.queue if gang.queue in self.above else None
            for pod in own:
                model, gpus = self.models[pod.node], gang.held(pod)
                if gpus and model in held:
                    held[model].setdefault(pod.node, Counter())[queue] += gpus
        return {model: Packing(ground, held[model]) for model, ground in self.grounds.items()}


def pinned(facts: Facts) -> dict[int, set[str]]:
    """The queues that pin each selected node with GPUs, of the nodes that any does."""
    found: dict[int, set[str]] = {}
    cells = [(name, c) for name, spec in facts.queues.items() for c in spec.cells if c.pinned]
    called: dict[tuple[str | None, str], list[int]] = {}
    for n, node in enumerate(facts.nodes if cells else ()):
        if node.selected and node.gpus:
            called[None, node.name] = [n]
            for level in range(node.named):
                path = "/".join(node.names[: level + 1])
                called.setdefault((facts.level_name(level), path), []).append(n)
    for name, cell in cells:
        places: list[tuple[str | None, str]] = [(None, node) for node in cell.to_nodes()]
        for place in places or [(cell.level, cell.domain or "")]:
            for n in called.get(place, ()):
                found.setdefault(n, set()).add(name)
    return found


class Ground:
    """The selected ``nodes`` of one GPU model, and the cells of queues on them, the largest first."""

    def __init__(
        self,
        facts: Facts,
        nodes: Sequence[int],
        above: Mapping[str, tuple[str, ...]],
        items: Sequence[_Item],
        pins: Mapping[int, AbstractSet[str]],
    ) -> None:
        self.facts = facts
        self.pins = {n: pins[n] for n in nodes if n in pins}
        self.nodes = nodes
        self.above = above
        self.capacity = {n: self._healthy(n) for n in nodes}
        self._places: dict[Kind, list[Place]] = {}
        self.items = items

    def _healthy(self, n: int) -> int:
        node = self.facts.nodes[n].as_it_was
        return max(0, node.healthy.bit_count() - node.unknown_unhealthy) if node.usable else 0

    def places(self, kind: Kind) -> list[Place]:
        """Domains of the level; nodes without a value there are in none. Of GPUs of a server: its nodes."""
        if kind not in self._places:
            level = min(kind[0], self.facts.node_level)
            members: defaultdict[int, list[int]] = defaultdict(list)
            for n in self.nodes:
                if self.facts.nodes[n].has(level):
                    members[self.facts.nodes[n].domain[level]].append(n)
            self._places[kind] = [tuple(place) for place in members.values()]
        return self._places[kind]

    def claimed(self, kind: Kind, n: int) -> int:
        """GPUs that a cell claims on a node of its place."""
        return -kind[1] or self.facts.nodes[n].gpus

    def size(self, kind: Kind) -> int:
        """GPUs of a cell: of a level the fewest that a domain has."""
        if kind[1]:
            return -kind[1]
        sums = (sum(self.facts.nodes[n].gpus for n in place) for place in self.places(kind))
        return min(sums, default=0)

    @property
    def visits(self) -> int:
        """What one packing looks at, about a microsecond each."""
        return PLACE_VISITS * sum(len(self.nodes) for _ in self.items)

    @cached_property
    def highest(self) -> list[_Item]:
        """Cells of queues above which none has cells: no two of these share a place."""
        having = {item.queue for item in self.items}
        return [i for i in self.items if having.isdisjoint(self.above[i.queue][1:])]

    def inside(self, wide: Kind, narrow: Kind) -> int:
        """Cells of a kind for which there is room in any place of a wider or larger one."""
        if wide[1]:
            return wide[1] // narrow[1]
        place_of = {n: i for i, place in enumerate(self.places(narrow)) for n in place}
        found = []
        for place in self.places(wide):
            if narrow[1]:
                found.append(sum(self.facts.nodes[n].gpus // -narrow[1] for n in place))
            else:
                found.append(len({place_of[n] for n in place if n in place_of}))
        return min(found, default=0)


class Packing:
    """Places for the cells of one ground next to firm pods. ``low``, ``high``: GPUs of cells left out."""

    def __init__(self, ground: Ground, held: Held) -> None:
        self.ground = ground
        self.held = held
        self.claims = self._fixed()
        self._loads: dict[int, int] = {}
        self.items = [item for item in ground.items if ground.size(item.kind)]
        self.high = self._greedy()

    @cached_property
    def low(self) -> int:
        """No way leaves out less. By counting, and exact if trying all ways takes little effort."""
        total = 0
        for item in self.items:
            there = sum(self._alone(item, place) for place in self.ground.places(item.kind))
            total += max(0, item.count - there) * self.ground.size(item.kind)
        counted = min(self.high, max((total), self._cumulated()))
        if counted == self.high or self._depth() > DEPTH:
            return counted
        self.claims, self._loads = self._fixed(), {}
        search = _Search(self, counted)
        self.high = search.best
        return search.best if search.steps > 0 else counted

    def _fixed(self) -> dict[int, dict[str, int]]:
        """What pinned cells claim, whatever stands there."""
        nodes = self.ground.facts.nodes
        return {n: dict.fromkeys(of, nodes[n].gpus) for n, of in self.ground.pins.items()}

    def _depth(self) -> int:
        """Cells that may find places."""
        places = self.ground.places
        most = sum(self.ground.capacity.values())
        return sum(
            min(item.count, most if item.kind[1] else len(places(item.kind))) for item in self.items
        )

    def load(self, n: int) -> int:
        """Sum of r over the queues without a parent, with what is in no queue, on a node."""
        found = self._loads.get(n)
        if found is None:
            found = self._loads[n] = self._load(n)
        return found

    def _load(self, n: int) -> int:
        held, claims = self.held.get(n, {}), self.claims.get(n)
        if not claims:
            return sum(held.values())
        if not held and len(claims) == 1:
            return sum(claims.values())
        above = self.ground.above
        names = {name for own in (*held, *claims) if own is not None for name in above[own]}
        below: Counter[str] = Counter()
        total = held.get(None, 0)
        for name in sorted(names, key=lambda name: -len(above[name])):
            r = max(claims.get(name, 0), held.get(name, 0) + below[name])
            if len(above[name]) > 1:
                below[above[name][1]] += r
            else:
                total += r
        return total

    def claim(self, item: _Item, place: Place, times: int = 1) -> None:
        for n in place:
            claims = self.claims.setdefault(n, {})
            claims[item.queue] = claims.get(item.queue, 0) + times * self.ground.claimed(
                item.kind, n
            )
            if not claims[item.queue]:
                del claims[item.queue]
            self._loads.pop(n, None)

    def fits(self, item: _Item, place: Place) -> bool:
        """Claims the place, unless it is more than there is."""
        self.claim(item, place)
        if all(self.load(n) <= self.ground.capacity[n] for n in place):
            return True
        self.claim(item, place, -1)
        return False

    def _greedy(self) -> int:
        """The widest and largest first, each where it takes the least from what is left."""
        left_out = 0
        for item in self.items:
            missing = item.count
            for place in self._ordered(item):
                while missing and self.fits(item, place):
                    missing -= 1
                if not missing:
                    break
            left_out += missing * self.ground.size(item.kind)
        return left_out

    def _ordered(self, item: _Item) -> list[Place]:
        """Places by what a cell takes there, then the fullest, then the first."""
        ground, found = self.ground, []
        for place in ground.places(item.kind):
            if any(ground.capacity[n] < ground.claimed(item.kind, n) for n in place):
                continue
            before = sum(map(self.load, place))
            taken = sum(ground.claimed(item.kind, n) for n in place)
            if before:
                self.claim(item, place)
                taken = sum(map(self.load, place)) - before
                self.claim(item, place, -1)
            found.append((taken, sum(ground.capacity[n] for n in place) - before, place))
        return [place for _, _, place in sorted(found)]

    def _alone(self, item: _Item, place: Place) -> int:
        """Cells of the item for which the place has room if nobody else claims anything."""
        above, found = self.ground.above, []
        for n in place:
            own = {q for q in self.held.get(n, {}) if q is not None and item.queue in above[q]}
            strangers = sum(gpus for q, gpus in self.held.get(n, {}).items() if q not in own)
            room = self.ground.capacity[n] - strangers
            if any(
                item.queue == q or (item.queue not in above[q] and q not in above[item.queue])
                for q in self.ground.pins.get(n, ())
            ):
                room = 0
            found.append(max(0, room) // self.ground.claimed(item.kind, n))
        return min(found)

    def _cumulated(self) -> int:
        """Wider cells counted as the narrower ones that are in them, of unrelated queues together."""
        ground, most = self.ground, 0
        highest = [item for item in ground.highest if ground.size(item.kind)]
        for kind in sorted({item.kind for item in highest}):
            larger = [item for item in highest if item.kind <= kind]
            wanted = sum(item.count * ground.inside(item.kind, kind) for item in larger)
            queues = {item.queue for item in larger}
            there = sum(self._anyones(queues, kind, place) for place in ground.places(kind))
            most = max(most, (wanted - there) * ground.size(kind))
        return most

    def _anyones(self, queues: AbstractSet[str], kind: Kind, place: Place) -> int:
        """Cells of a kind that find room in a place, whichever of the queues claims them.

        Queues share a server, but no domain.
        """
        if not kind[1]:
            return max(self._alone(_Item(queue, kind, 1), place) for queue in queues)
        (n,) = place
        others = sum(
            gpus
            for queue, gpus in self.held.get(n, {}).items()
            if queue is None or queues.isdisjoint(self.ground.above[queue])
        )
        return max(0, self.ground.capacity[n] - others) // -kind[1]


class _Search:
    """Every way of claiming, until one leaves out no more than ``enough`` or the effort is used up."""

    def __init__(self, packing: Packing, enough: int) -> None:
        self.packing = packing
        self.enough = enough
        self.best = packing.high
        self.steps = STEPS
        self._try(0, 0, packing.items[0].count if packing.items else 0, 0)

    def _try(self, number: int, first: int, count: int, left_out: int) -> None:
        """Cells of item ``number`` that are left, in places from ``first`` on."""
        items = self.packing.items
        if left_out >= self.best or self.best <= self.enough:
            return
        if number == len(items):
            self.best = left_out
            return
        item = items[number]
        if count:
            places = self.packing.ground.places(item.kind)
            for position in range(first, len(places)):
                self.steps -= 1
                if self.steps <= 0:
                    return
                if self.packing.fits(item, places[position]):
                    self._try(number, position, count - 1, left_out)
                    self.packing.claim(item, places[position], -1)
        after = items[number + 1].count if number + 1 < len(items) else 0
        self._try(number + 1, 0, after, left_out + count * self.packing.ground.size(item.kind))


def certainly_more(after: Packing, before: Packing) -> int:
    """GPUs of cells that find no place after a plan, beyond those before it; 0 where that is not certain."""
    least = before.low  # makes ``high`` as low as it gets
    if after.high <= max(least, before.high):
        return 0
    return max(0, after.low - before.high)
