"""Random small clusters with cells of queues, and what cells lose, counted by trying every way of claiming.

Promises: deterministic by the seed; own code, word for word after rule 2.17 of docs/formulation.md.
Called by the tests of cells.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from building import LEVELS, build, gang, mask, node
from building_servers import switched

from models.cluster import Node
from models.gang import ExistingPod, Gang
from models.instance import Instance
from models.queue import Cell, Queue

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
    gangs += [_started(r, _gang(r, f"r{i}", names), nodes, free) for i in range(3)]
    return replace(build(nodes=nodes, gangs=gangs), queues=tuple(queues))


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
            priority=r.randint(0, 2),
            preemptible=r.random() < 0.25,
            movable=r.random() < 0.25,
        ),
        queue=r.choice((None, *queues)),
    )


def _started(r: random.Random, one: Gang, nodes: Sequence[Node], free: Sequence[list[int]]) -> Gang:
    """The gang, with as many pods as there is room for on one node."""
    n, gpus, pods = r.randrange(len(nodes)), one.roles[0].gpus, []
    for index in range(one.roles[0].min):
        if len(free[n]) >= gpus:
            own = mask(*(free[n].pop() for _ in range(gpus)))
            pods.append(ExistingPod(f"{one.name}-{index}", 0, index, node=n, gpus=own))
    return replace(one, pods=tuple(pods))


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
