"""Random small clusters with cells of queues, and what cells lose, counted by trying every way of claiming.

Promises: deterministic by the seed; own code, word for word after rule 2.17 of docs/formulation.md.
Called by the tests of cells.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

from building import LEVELS, build, gang, mask, node
from building_servers import switched

from models.instance.cluster import Node
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.queue import Cell, Queue
from models.queues.queue_shares import shares

Firm = Counter[tuple[int, str | None]]
"""GPUs of firm pods, by node and the queue that their gang names."""


def celled(seed: int, waiting: int = 4) -> Instance:
    """Two or three unequal racks, up to three queues with cells, gangs that run and gangs that wait."""
    r = random.Random(seed)
    models = [switched(4), replace(switched(2), name="two", gpu="B")]
    nodes = []
    for rack in range(r.randint(2, 3)):
        for _ in range(r.randint(1, 3)):
            bad = r.random()
            nodes.append(
                node(
                    f"n{len(nodes) + 1:02}",
                    models[r.random() < 0.15],
                    "b1",
                    f"r{rack}" if r.random() < 0.95 else None,
                    ready=bad > 0.05,
                    unhealthy=(0,) if bad > 0.93 else (),
                )
            )
    queues = [
        Queue(name, parent=0 if i and r.random() < 0.4 else None, cells=tuple(_cells(r)))
        for i, name in enumerate("abc"[: r.randint(1, 3)])
    ]
    free = [list(range(one.gpus)) for one in nodes]
    names = [queue.name for queue in queues]
    gangs = [_gang(r, f"w{i}", names) for i in range(waiting)]
    # what runs has the highest priority and does not move, so that nothing that runs changes
    for i in range(3):
        one = replace(_gang(r, f"r{i}", names), movable=False, priority=3)
        gangs += _started(r, one, nodes, free)
    return only_cells(replace(build(nodes=nodes, gangs=gangs), queues=tuple(queues)))


def only_cells(instance: Instance) -> Instance:
    """The instance in which queues have cells, but no limits and guarantees in GPUs (2.15, 2.16)."""
    known = shares(instance)
    if known is None:
        return instance
    return replace(instance, shares=replace(known.unlimited(), within=frozenset()))


def _cells(r: random.Random) -> Iterator[Cell]:
    for _ in range(r.randint(0, 2)):
        level = r.choice([LEVELS.index("rack"), LEVELS.index("node"), LEVELS.index("node"), None])
        gpus = r.choice((1, 2, 4)) if level is None else None
        yield Cell(r.randint(1, 2), level, gpus, r.choice((None, None, None, "b")))


def _gang(r: random.Random, name: str, queues: Sequence[str]) -> Gang:
    return replace(
        gang(
            name,
            r.randint(1, 2),
            r.choice((1, 2, 2, 4)),
            same=r.choice((None, None, "rack", "node")),
            priority=r.randint(1, 2),
            preemptible=r.random() < 0.25,
            movable=r.random() < 0.25,
        ),
        queue=r.choice((None, *queues)),
    )


def _started(
    r: random.Random, one: Gang, nodes: Sequence[Node], free: Sequence[list[int]]
) -> Iterator[Gang]:
    """The gang on one node, if there is room for it."""
    n, gpus, count = r.randrange(len(nodes)), one.roles[0].gpus, one.roles[0].min
    if len(free[n]) >= gpus * count:
        own = [mask(*(free[n].pop() for _ in range(gpus))) for _ in range(count)]
        pods = (ExistingPod(f"{one.name}-{i}", 0, i, node=n, gpus=m) for i, m in enumerate(own))
        yield replace(one, pods=tuple(pods))


def lost(instance: Instance, firm: Firm) -> dict[str, int]:
    """S(m) of rule 2.17 for each GPU model."""
    installed = Counter[str]()
    for one in instance.cluster.nodes:
        installed[_model(one)] += one.gpus
    most = min(installed, key=lambda name: (-installed[name], name))
    cells: dict[str, list[tuple[str, int, list[dict[int, int]]]]] = {}
    for queue in instance.queues:
        for cell in queue.cells:
            model = cell.model or most
            ways = list(_ways(instance, cell, model))
            weight = cell.gpus or min((sum(way.values()) for way in ways), default=0)
            cells.setdefault(model, []).extend([(queue.name, weight, ways)] * cell.count)
    return {model: _least(instance, firm, own, {}) for model, own in cells.items()}


def _model(one: Node) -> str:
    return one.model.gpu.lower() if one.model else ""


def _ways(instance: Instance, cell: Cell, model: str) -> Iterator[dict[int, int]]:
    """What one cell may claim: GPUs by node."""
    cluster, domains = instance.cluster, dict[tuple[str | None, ...], dict[int, int]]()
    for n, one in enumerate(cluster.nodes):
        if _model(one) != model:
            continue
        if cell.level is None:
            yield {n: cell.gpus or 0}
        elif cell.level == cluster.node_level:
            yield {n: one.gpus}
        elif None not in one.domains[: cell.level + 1]:
            domains.setdefault(one.domains[: cell.level + 1], {})[n] = one.gpus
    yield from domains.values()


def _least(
    instance: Instance,
    firm: Firm,
    cells: list[tuple[str, int, list[dict[int, int]]]],
    claimed: dict[tuple[int, str], int],
    first: int = 0,
) -> int:
    """The least GPUs of cells without a claim. ``first``: first way of the first cell that is tried."""
    if not cells:
        return 0
    (name, weight, ways), rest = cells[0], cells[1:]
    alike = bool(rest) and rest[0] == cells[0]
    best = weight + _least(instance, firm, [one for one in rest if one != cells[0]], claimed)
    best += weight * sum(one == cells[0] for one in rest)
    for number in range(first, len(ways)):
        more = dict(claimed)
        for n, gpus in ways[number].items():
            more[n, name] = more.get((n, name), 0) + gpus
        if all(_fit(instance, firm, more, n) for n in ways[number]):
            best = min(best, _least(instance, firm, rest, more, number if alike else 0))
    return best


def _fit(instance: Instance, firm: Firm, claimed: dict[tuple[int, str], int], n: int) -> bool:
    """Whether what is claimed on a node, and its firm pods, are no more than it has."""
    queues, one = instance.queues, instance.cluster.nodes[n]

    def needed(q: int) -> int:
        below = sum(needed(other) for other, queue in enumerate(queues) if queue.parent == q)
        return max(claimed.get((n, queues[q].name), 0), firm[n, queues[q].name] + below)

    known = {queue.name for queue in queues}
    others = sum(gpus for (where, name), gpus in firm.items() if where == n and name not in known)
    usable = 0 if one.unschedulable or not one.ready else one.gpus - one.unhealthy.bit_count()
    return (
        others + sum(needed(q) for q, queue in enumerate(queues) if queue.parent is None) <= usable
    )


def firm_pods(instance: Instance, pods: Sequence[Sequence[tuple[int, int]]]) -> Firm:
    """``pods``: of every gang, (role, node) of each."""
    found: Firm = Counter()
    for spec, own in zip(instance.gangs, pods, strict=True):
        for role, n in own:
            found[n, spec.queue] += 0 if spec.preemptible else spec.roles[role].gpus
    return found


def most_admitted(instance: Instance) -> dict[int, int]:
    """GPUs of the gangs that start, by priority, in the best plan in which nothing that runs changes."""
    gangs = instance.gangs
    pods = [[(p.role, p.node or 0) for p in one.running_pods] for one in gangs]
    before = lost(instance, firm_pods(instance, pods))
    free = _free(instance)
    waiting = sorted((g for g, own in enumerate(pods) if not own), key=lambda g: -gangs[g].priority)
    best: list[tuple[int, ...]] = [(-1,)]

    def place(turn: int, admitted: tuple[int, ...]) -> None:
        """Every way for the gangs from this turn on, if that may be better than the best."""
        if turn == len(waiting):
            after = lost(instance, firm_pods(instance, pods))
            if all(after[model] <= most for model, most in before.items()):
                best[0] = max(best[0], _by_priority(instance, waiting, admitted))
            return
        spec = gangs[waiting[turn]]
        rest = tuple(gangs[g].weight_gpus for g in waiting[turn + 1 :])
        for where in (*_spreads(instance, spec), ()):
            now = (*admitted, spec.weight_gpus if where else 0)
            if _by_priority(instance, waiting, (*now, *rest)) > best[0]:
                pods[waiting[turn]] = [(0, n) for n in where]
                for n in where:
                    free[n] -= spec.roles[0].gpus
                if all(free[n] >= 0 for n in where):
                    place(turn + 1, now)
                for n in where:
                    free[n] += spec.roles[0].gpus
        pods[waiting[turn]] = []

    place(0, ())
    priorities = sorted({gangs[g].priority for g in waiting}, reverse=True)
    return dict(zip(priorities, best[0], strict=True))


def _free(instance: Instance) -> Counter[int]:
    """Healthy GPUs of the nodes that are ready, without those in use."""
    free: Counter[int] = Counter()
    for n, one in enumerate(instance.cluster.nodes):
        used = one.unhealthy
        for spec in instance.gangs:
            for pod in spec.running_pods:
                used |= (pod.gpus or 0) if pod.node == n else 0
        free[n] = one.gpus - used.bit_count() if one.ready else 0
    return free


def _by_priority(
    instance: Instance, waiting: Sequence[int], gpus: Sequence[int]
) -> tuple[int, ...]:
    """GPUs of these gangs by falling priority."""
    found: dict[int, int] = {}
    for g, own in zip(waiting, gpus, strict=True):
        priority = instance.gangs[g].priority
        found[priority] = found.get(priority, 0) + own
    return tuple(found.values())


def _spreads(instance: Instance, spec: Gang) -> Iterator[tuple[int, ...]]:
    """Nodes of the pods of a gang: on one GPU model, in one domain of its required level."""
    cluster = instance.cluster
    for where in combinations_with_replacement(range(len(cluster.nodes)), spec.roles[0].min):
        one_model = len({_model(cluster.nodes[n]) for n in where}) == 1
        level = spec.required
        if one_model and (level is None or len({cluster.domain_of[level][n] for n in where}) == 1):
            yield where
