"""Shared clusters through arrivals and departures: HiveD's example configuration, and random ones.

Promises: deterministic by the seed. Called by the tests of HiveD's promise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from building_servers import switched

from models.documents.cluster import Level
from models.documents.policy import Objective, SolveLimits
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.queue import Cell, Queue
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from models.queues.cell_places import Reach, allowed_losses
from models.starts.empty_starts import EmptyStarts
from planner.search.solve import solve
from planner.search.start.greedy import greedy

RACK, PAIR, NODE = 0, 1, 2
LEVELS = (Level("rack", "example.com/rack"), Level("pair", "example.com/pair"))
POLICY = Policy(
    objectives=tuple(Objective(name) for name in ("admission", "waiting", "disruption", "span")),
    solve=SolveLimits(budget=4, workers=1),
)


def example() -> Instance:
    """``example/config/design/hivedscheduler.yaml`` of HiveD, without gangs.

    Source: github.com/microsoft/hivedscheduler. Cells of sockets and switches become cells of as many GPUs,
    pinned cells are promised, not pinned.
    """
    models = {
        "CT1": switched(2, gpu="CT1"),
        "DGX1-P100": switched(8, gpu="DGX1-P100"),
        "DGX2-V100": switched(16, gpu="DGX2-V100"),
        "IB-DGX2-V100": switched(16, gpu="IB-DGX2-V100"),
    }
    places: list[tuple[str, str, str | None, str | None]] = [
        ("CT1", "0.0.0.0", None, None),
        ("CT1", "0.0.0.1", None, None),
        ("CT1", "1.0.0.2-ct1", None, None),
        *(("DGX1-P100", f"1.0.0.{i}", "p100", None) for i in range(3)),
        ("DGX2-V100", "0.0.1.0", None, None),
        ("DGX2-V100", "0.0.5.0", None, None),
        *(("DGX2-V100", f"0.0.2.{i}", "v2", None) for i in range(3)),
        *(("DGX2-V100", f"0.0.3.{i}", "v3", f"{i // 2}") for i in range(4)),
        *(("DGX2-V100", f"0.0.4.{i}", "v4", f"{i // 2}") for i in range(4)),
        *(("IB-DGX2-V100", f"0.1.0.{i}", "ib", None) for i in range(2)),
    ]
    nodes = [Node(name, models[model], (rack, pair)) for model, name, rack, pair in places]
    queues = (
        Queue(
            "VC1",
            cells=(
                Cell(
                    2, NODE, model="dgx2-v100"
                ),  # 4-DGX2-V100-NODE.2-DGX2-V100-NODE.DGX2-V100-NODE
                Cell(2, NODE, model="dgx2-v100"),  # 3-DGX2-V100-NODE.DGX2-V100-NODE
                Cell(2, NODE, model="dgx2-v100"),  # DGX2-V100-NODE
                Cell(1, PAIR, model="dgx2-v100"),  # 4-DGX2-V100-NODE.2-DGX2-V100-NODE
                Cell(1, None, 1, model="ct1"),  # VC1-YQW-CT1
                Cell(1, PAIR, model="dgx2-v100"),  # VC1-YQW-DGX2
                Cell(1, RACK, model="ib-dgx2-v100"),  # VC1-YQW-IB-DGX2
            ),
        ),
        Queue(
            "VC2",
            cells=(
                Cell(2, NODE, model="dgx1-p100"),
                Cell(2, None, 4, model="dgx1-p100"),  # CPU sockets
                Cell(1, NODE, model="ct1"),
            ),
        ),
    )
    cluster = Cluster("hived", LEVELS, tuple(sorted(nodes, key=lambda one: one.name)))
    return Instance(cluster, (), POLICY, queues=queues, starts=EmptyStarts)


def drawn(seed: int) -> Instance:
    """Racks of different sizes, some nodes out, and queues whose cells all have a place."""
    r = random.Random(seed)
    models = [switched(gpus, gpu=f"M{gpus}") for gpus in r.sample((2, 4, 8), r.randint(1, 2))]
    nodes = []
    for rack in range(r.randint(2, 5)):
        model = r.choice(models)
        for i in range(r.randint(1, 4)):
            name = f"r{rack}-{i}"
            out = r.random() < 0.08
            nodes.append(Node(name, model, (f"r{rack}", f"{i // 2}"), unschedulable=out))
    found = Instance(Cluster("drawn", LEVELS, tuple(nodes)), (), POLICY, starts=EmptyStarts)
    queues = [
        Queue(name, parent=0 if i == 2 and r.random() < 0.5 else None)
        for i, name in enumerate("abc")
    ]
    for _ in range(12):
        q, level = r.randrange(3), r.choice((RACK, PAIR, NODE, NODE, None, None))
        cell = Cell(
            1, level, r.choice((1, 2, 4)) if level is None else None, r.choice(models).gpu.lower()
        )
        more = [*queues]
        more[q] = replace(queues[q], cells=(*queues[q].cells, cell))
        reach = Reach(replace(found, queues=tuple(more)))
        reach.pack()
        if not any(reach.lacking()):
            queues = more
    return replace(found, queues=tuple(queues))


@dataclass
class Shared:
    """A cluster with the gangs that run there. ``searches``: how often the full search was asked."""

    instance: Instance
    random: random.Random
    searches: int = 0
    promised: int = 0
    refused: int = 0
    stopped: int = 0
    _number: int = field(default=0)

    def step(self) -> None:
        """A gang departs, or one comes: what fits into the cells of its queue starts."""
        gangs, r = self.instance.gangs, self.random
        if gangs and r.random() < 0.1 + 0.02 * len(gangs):
            gone = r.choice(gangs)
            self.instance = replace(self.instance, gangs=tuple(g for g in gangs if g is not gone))
            return
        self._number += 1
        self.come(self._gang(), thorough=r.random() < 0.1)

    def _gang(self) -> Gang:
        r, nodes = self.random, self.instance.cluster.nodes
        model = r.choice(nodes).model
        assert model is not None
        gpus = r.choice([size for size in (1, 2, 4, 8, 16) if size <= model.gpus])
        pods = r.choice((1, 1, 2, 3))
        lent = r.random() < 0.4
        return Gang(
            "default",
            f"g{self._number:05}",
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
        last = len(instance.gangs) - 1
        decisions = greedy(instance, base_decisions(instance))
        if decisions[last].decision == "wait" and (inside or thorough):
            self.searches += 1
            decisions = solve(instance).decisions
        assert not inside or decisions[last].decision == "place", gang
        self.promised += inside
        self.refused += decisions[last].decision == "wait"
        self.stopped += sum(one.decision == "preempt" for one in decisions)
        self._take(instance, decisions)
        return decisions[last].decision

    def _take(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        """The gangs run where the plan has them."""
        gangs = (
            replace(
                gang,
                pods=tuple(
                    ExistingPod(f"{gang.name}-{p.index}", p.role, p.index, node=p.node, gpus=p.gpus)
                    for p in one.pods
                ),
            )
            for gang, one in zip(instance.gangs, decisions, strict=True)
            if one.pods
        )
        self.instance = replace(self.instance, gangs=tuple(gangs))
        assert not any(allowed_losses(self.instance)), "every cell has a place after every step"

    def _fits_inside(self, gang: Gang) -> bool:
        """Whether the gang fits into what its queue has not used of its cells, as if nothing else were."""
        reach = Reach(self.instance, enumerate(self.instance.standing))
        assert reach.keep()
        left: dict[int, int] = {}
        for claims in reach.claims:
            row = claims.cells.row(gang)
            if row >= 0:
                left.update(zip(claims.cells.nodes, claims.unused(row).tolist(), strict=True))
        cluster = self.instance.cluster
        nodes = (
            replace(one, unhealthy=one.healthy & ~((1 << left.get(n, 0)) - 1))
            for n, one in enumerate(cluster.nodes)
        )
        private = Cluster("private", cluster.levels, tuple(nodes))
        alone = Instance(private, (gang,), self.instance.policy, starts=EmptyStarts)
        return greedy(alone, base_decisions(alone))[0].decision == "place"
