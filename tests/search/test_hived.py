"""HiveD's promise: what fits into the cells of a queue is always placed, whatever the others run.

And HiveD's published cases, as far as gangplan has the words: cells are not pinned, and a queue without a
limit borrows what is promised to nobody, where HiveD refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from building_servers import switched
from stated_cases import queues_of

from models.documents.cluster import Level
from models.documents.policy import Objective, SolveLimits
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.queue import Cell, Queue
from models.program.base_state import base_decisions
from models.queues.cells import Reach, allowed_losses
from models.starts.empty_starts import EmptyStarts
from planner.search.solve import solve
from planner.search.start.greedy import greedy

RACK, PAIR, NODE = 0, 1, 2
LEVELS = (Level("rack", "example.com/rack"), Level("pair", "example.com/pair"))
POLICY = Policy(
    objectives=tuple(Objective(name) for name in ("admission", "waiting", "disruption", "span")),
    solve=SolveLimits(budget=4, workers=1),
)
V100, P100, CT1, IB = "dgx2-v100", "dgx1-p100", "ct1", "ib-dgx2-v100"
GPUS = {V100: 16, P100: 8, CT1: 2, IB: 16}


def example() -> Instance:
    """``example/config/design/hivedscheduler.yaml`` of HiveD, without gangs.

    Source: github.com/microsoft/hivedscheduler. Cells of sockets and switches become cells of as many GPUs,
    pinned cells are promised, not pinned.
    """
    models = {name: switched(gpus, gpu=name) for name, gpus in GPUS.items()}
    places: list[tuple[str, str, str | None, str | None]] = [
        *((CT1, name, None, None) for name in ("0.0.0.0", "0.0.0.1", "1.0.0.2-ct1")),
        *((P100, f"1.0.0.{i}", "p100", None) for i in range(3)),
        *((V100, name, None, None) for name in ("0.0.1.0", "0.0.5.0")),
        *((V100, f"0.0.2.{i}", "v2", None) for i in range(3)),
        *((V100, f"0.0.{r}.{i}", f"v{r}", f"{i // 2}") for r in (3, 4) for i in range(4)),
        *((IB, f"0.1.0.{i}", "ib", None) for i in range(2)),
    ]
    nodes = [Node(name, models[model], (rack, pair)) for model, name, rack, pair in places]
    first = (
        Cell(6, NODE, model=V100),  # in three kinds of cells of two
        Cell(2, PAIR, model=V100),  # 4-DGX2-V100-NODE.2-DGX2-V100-NODE, VC1-YQW-DGX2
        Cell(1, None, 1, model=CT1),  # VC1-YQW-CT1
        Cell(1, RACK, model=IB),  # VC1-YQW-IB-DGX2
    )
    second = (Cell(2, NODE, model=P100), Cell(2, None, 4, model=P100), Cell(1, NODE, model=CT1))
    cluster = Cluster("hived", LEVELS, tuple(sorted(nodes, key=lambda one: one.name)))
    queues = (Queue("VC1", cells=first), Queue("VC2", cells=second))
    return Instance(cluster, (), POLICY, queues=queues, starts=EmptyStarts)


def drawn(seed: int) -> Instance:
    """Racks of different sizes, some nodes out, and queues whose cells all have a place."""
    r = Random(seed)
    models = [switched(gpus, gpu=f"M{gpus}") for gpus in r.sample((2, 4, 8), r.randint(1, 2))]
    nodes = []
    for rack in range(r.randint(2, 5)):
        model = r.choice(models)
        for i in range(r.randint(1, 4)):
            where, out = (f"r{rack}", f"{i // 2}"), r.random() < 0.08
            nodes.append(Node(f"r{rack}-{i}", model, where, unschedulable=out))
    found = Instance(Cluster("drawn", LEVELS, tuple(nodes)), (), POLICY, starts=EmptyStarts)
    parent = " parent=a" if r.random() < 0.5 else ""
    queues = list(queues_of({"a": "", "b": "", "c": parent}))
    for _ in range(12):
        q, level = r.randrange(3), r.choice((RACK, PAIR, NODE, NODE, None, None))
        gpus = r.choice((1, 2, 4)) if level is None else None
        more = [*queues]
        cell = Cell(1, level, gpus, r.choice(models).gpu.lower())
        more[q] = replace(queues[q], cells=(*queues[q].cells, cell))
        reach = Reach(replace(found, queues=tuple(more)))
        reach.pack()
        queues = queues if any(reach.lacking()) else more
    return replace(found, queues=tuple(queues))


class Shared:
    """A cluster with the gangs that run there, and how many came of a kind."""

    def __init__(self, instance: Instance, seed: int = 0) -> None:
        self.instance, self.random = instance, Random(seed)
        self.number = self.promised = self.refused = self.stopped = 0

    def steps(self, count: int) -> Shared:
        """A gang departs, or one comes: what fits into the cells of its queue starts."""
        for _ in range(count):
            gangs, r = self.instance.gangs, self.random
            if gangs and r.random() < 0.1 + 0.02 * len(gangs):
                gone = r.choice(gangs)
                left = tuple(one for one in gangs if one is not gone)
                self.instance = replace(self.instance, gangs=left)
            else:
                self.number += 1
                self.come(self._gang(), thorough=r.random() < 0.1)
        return self

    def _gang(self) -> Gang:
        r, model = self.random, self.random.choice(self.instance.cluster.nodes).model
        assert model is not None
        gpus = r.choice([size for size in (1, 2, 4, 8, 16) if size <= model.gpus])
        pods, lent = r.choice((1, 1, 2, 3)), r.random() < 0.4
        return Gang(
            "default",
            f"g{self.number:05}",
            (Role("worker", pods, pods, 1, gpus, model=model.gpu.lower()),),
            priority=0 if lent else 1,
            queue=r.choice([*(queue.name for queue in self.instance.queues), None]),
            preemptible=lent,
            required=r.choice((None, None, RACK, PAIR, NODE)),
        )

    def come(self, gang: Gang, *, thorough: bool = True) -> str:
        """What becomes of one gang that comes; asserts the promise.

        ``thorough``: with the full search if the greedy start finds no place; as for what is promised.
        """
        inside = not gang.preemptible and self._fits_inside(gang)
        instance = replace(self.instance, gangs=(*self.instance.gangs, gang))
        decisions = greedy(instance, base_decisions(instance))
        if decisions[-1].decision == "wait" and (inside or thorough):
            decisions = solve(instance).decisions
        assert not inside or decisions[-1].decision == "place", gang
        self.promised += inside
        self.refused += decisions[-1].decision == "wait"
        self.stopped += sum(one.decision == "preempt" for one in decisions)
        gangs = []
        for own, one in zip(instance.gangs, decisions, strict=True):
            pods = (
                ExistingPod(f"{own.name}-{p.index}", p.role, p.index, node=p.node, gpus=p.gpus)
                for p in one.pods
            )
            gangs += [replace(own, pods=tuple(pods))] if one.pods else []
        self.instance = replace(self.instance, gangs=tuple(gangs))
        assert not any(allowed_losses(self.instance)), "every cell has a place after every step"
        return decisions[-1].decision

    def _fits_inside(self, gang: Gang) -> bool:
        """Whether the gang fits into what its queue has not used of its cells, as if nothing else were."""
        reach = Reach(self.instance, enumerate(self.instance.standing))
        assert reach.keep()
        left: dict[int, int] = {}
        for claims in reach.claims:
            row = claims.cells.row(gang)
            if row >= 0:
                left |= zip(claims.cells.nodes, claims.unused(row).tolist(), strict=True)
        cluster = self.instance.cluster
        nodes = (
            replace(one, unhealthy=one.healthy & ~((1 << left.get(n, 0)) - 1))
            for n, one in enumerate(cluster.nodes)
        )
        private = Cluster("private", cluster.levels, tuple(nodes))
        alone = Instance(private, (gang,), self.instance.policy, starts=EmptyStarts)
        return greedy(alone, base_decisions(alone))[0].decision == "place"


def test_hiveds_example_keeps_its_promise_through_arrivals_and_departures() -> None:
    shared = Shared(example()).steps(100)
    assert (shared.promised > 10, shared.refused > 5) == (True, True)


def test_drawn_clusters_keep_their_promise() -> None:
    runs = [Shared(drawn(seed), seed).steps(40) for seed in range(3, 6)]
    assert sum(one.promised for one in runs) > 8
    assert sum(one.stopped for one in runs) > 0


def asked(name: str, queue: str, model: str, gpus: Sequence[int], priority: int) -> Gang:
    """A gang of one role for each pod; of priority 0 it is HiveD's opportunistic job."""
    roles = tuple(Role(f"r{i}", 1, 1, 1, size, model=model) for i, size in enumerate(gpus))
    lent = priority == 0 or name in ("group15", "group16")  # preempted lazily
    return Gang("default", name, roles, priority=priority, queue=queue, preemptible=lent)


CASES = [
    ("group1", "VC1", V100, [1], 1, "place"),
    ("group2", "VC1", V100, [1], 2, "place"),
    ("group3", "VC1", V100, [8], 3, "place"),
    ("group4", "VC1", V100, [1], 0, "place"),
    ("group5", "VC1", V100, [16, 16], 2, "place"),
    ("group9", "VC2", P100, [7, 5], 2, "place"),
    ("group12", "VC1", V100, [16, 16], 2, "place"),
    ("group13", "VC1", V100, [16, 16], 2, "place"),
    ("group14", "VC1", V100, [16, 16], 0, "place"),
    ("group15", "VC2", CT1, [2], 1, "place"),
    ("group16", "VC2", CT1, [2], 2, "place"),
    # there it stops group16 at once, here it takes the third node: VC1's GPU is reachable on the others
    ("group17", "VC2", CT1, [2], 3, "place"),
    ("more", "VC2", CT1, [2], 3, "place"),
    # now only one node is left without firm pods, of which VC1 is promised a GPU
    ("most", "VC2", CT1, [2], 3, "wait"),
    # VC1 holds 7 of its 10 DGX2 nodes, 13 are there: 3 are promised to nobody, and that is all VC2 gets
    ("group6", "VC2", V100, [16] * 4, 1, "wait"),
    ("group6", "VC1", V100, [16] * 3, 1, "place"),
]


def test_hiveds_published_cases_start_as_there() -> None:
    """``casesThatShouldSucceed`` of pkg/algorithm/hived_algorithm_test.go.

    Source: github.com/microsoft/hivedscheduler, Copyright (c) Microsoft Corporation, MIT License. Left out:
    what is about pinned cells (groups 11, 18 to 23), invalid requests, and group 7, which waits there, as
    half nodes make no node, and starts here on nodes that are all promised to its own queue.
    """
    shared = Shared(example())
    came = [shared.come(asked(*case[:5])) for case in CASES]
    assert came == [case[5] for case in CASES]
    assert shared.stopped == 1
