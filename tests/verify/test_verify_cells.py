"""The judge's places for cells against every way of claiming, and by hand where ways are too many."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from building import build, instance_document
from effort import examples
from exhaustive_queues import CellPlaces, Nameless

from models.documents.plan import PlanInstance
from models.instance.instance import Instance
from models.instance.queue import Cell, Queue
from models.verify import cells
from models.verify.cells import Packing
from models.verify.instance_facts import Faults, read_instance
from models.verify.queues import Queues

Firm = dict[tuple[int, Nameless], int]
"""GPUs of firm pods, by node and the number of the queue that their gang names."""


def packing(instance: Instance, firm: Firm) -> Packing:
    """The judge's, of the one GPU model."""
    faults = Faults()
    document = PlanInstance.model_validate(instance_document(instance), context={})
    facts, _ = read_instance(faults, document)
    assert faults.found == []
    (ground,) = Queues(facts).cells.grounds.values()
    held: dict[int, dict[str | None, int]] = {}
    for (n, queue), gpus in firm.items():
        name = None if queue is None else instance.queues[queue].name
        held.setdefault(n, {})[name] = gpus
    return Packing(ground, held)


def drawn(seed: int) -> tuple[Instance, Firm]:
    """One to three racks of one or two nodes, some of them in no good condition, and up to three queues."""
    r = Random(seed)
    instance = build(racks=r.choice((1, 2, 3)), nodes_per_rack=r.choice((1, 2)), gpus=4)
    queues = []
    for number in range(r.randint(1, 3)):
        sizes = [{"level": r.choice((1, 2))}, {"gpus": r.choice((1, 2, 3))}]
        own = [Cell(r.choice((1, 2)), **r.choice(sizes)) for _ in range(r.choice((1, 2)))]
        parent = r.choice((None, *range(number))) if r.random() < 0.4 else None
        queues.append(Queue(f"q{number}", parent, cells=tuple(own)))
    nodes, firm = [], {}
    for n, node in enumerate(instance.cluster.nodes):
        turned = r.choice((replace(node, unhealthy=1), replace(node, unschedulable=True)))
        nodes.append(turned if r.random() < 0.1 else node)
        for queue in (None, *range(len(queues))):
            if r.random() < 0.2 and (n, None) not in firm:
                firm[n, queue] = r.randint(1, 4)
    cluster = replace(instance.cluster, nodes=tuple(nodes))
    return replace(instance, queues=tuple(queues), cluster=cluster), firm


def test_the_gpus_left_out_are_those_of_the_best_way_of_claiming_or_lie_between_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact, every = 0, examples(1000, 80)
    for seed in range(every):
        instance, firm = drawn(seed)
        (least,) = CellPlaces(instance).left_out(firm).values()
        found = packing(instance, firm)
        assert (found.low, found.high) == (least, least), seed
        with monkeypatch.context() as patch:  # without trying all ways
            patch.setattr(cells, "DEPTH", 0)
            found = packing(instance, firm)
        assert found.low <= least <= found.high, seed
        exact += found.low == found.high
    assert exact > 0.7 * every


def test_racks_and_nodes_of_a_large_cluster_are_counted_together() -> None:
    # 4 racks of 8 nodes: 2 racks and 16 nodes of 8 GPUs are just there, next to a firm pod 15 are
    racks = build(racks=4, nodes_per_rack=8)
    queue = Queue("q", cells=(Cell(2, level=1), Cell(16, level=2)))
    whole = replace(racks, queues=(queue,))
    found = packing(whole, {})
    assert (found.low, found.high) == (0, 0)
    found = packing(whole, {(0, None): 1})
    assert (found.low, found.high) == (8, 8)
