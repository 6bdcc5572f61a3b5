"""Orders of queues with places: what products do over time, and what the literature says is better.

Promises: the order, who is stopped, and what a scheduler knows are those of the source that each names.
Called by replays; where time does not matter ``planner.baselines.rules`` is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.baselines.orders import (
    Room,
    borrowed,
    consolidated,
    expected_service,
    fair,
    fair_above_quota,
    in_turn,
    least_attained,
    multifactor,
    of_lower_priority,
    reclaimed,
    remaining_service,
    remaining_time,
    within_fair_share,
)
from planner.baselines.rules import KAI, KUEUE_BEST_FIT, VOLCANO, fewest_nodes
from planner.baselines.scheduler import Ask, Rules, fitting, per_domain
from planner.baselines.space import Nodes, Space


def _tight_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    """The tightest node, then rack, ...; then the fewest of the narrowest domains that hold the gang."""
    widest = 0 if ask.required is None else ask.required
    node_level = len(space.domain) - 1
    for level in range(node_level, widest - 1, -1):
        free, fits = fitting(space, ask, level)
        found = np.flatnonzero(fits)
        for domain in found[np.argsort(free[found], kind="stable")]:
            yield space.members(level, int(domain))
    if ask.required is None:
        yield from _fewest_domains(space, ask, max(0, node_level - 1))
        yield space.everywhere


def _fewest_domains(space: Space, ask: Ask, level: int) -> Iterator[Nodes]:
    """As few domains as hold each role alone, those with the most room first, the last the tightest."""
    total = len(space.instance.cluster.domains[level])
    room = [
        per_domain(
            space.domain[level], space.capacity(ask.gang.roles[role], space.everywhere), total
        )
        for role, _ in ask.roles
    ]
    needs = [len(indices) for _, indices in ask.roles]
    chosen: list[int] = []
    order = np.argsort(-room[0], kind="stable")
    for domain in order:
        lacking = [need - int(own[chosen].sum()) for need, own in zip(needs, room, strict=True)]
        last = [
            d
            for d in order
            if d not in chosen
            and all(own[d] >= need for own, need in zip(room, lacking, strict=True))
        ]
        if last:
            chosen.append(int(last[-1]))
            yield np.concatenate([space.members(level, d) for d in chosen])
            return
        chosen.append(int(domain))


TIGHT = Rules("tight", _tight_scopes, fewest_nodes, slices=1)
"""First come, first served, with backfill: the tightest node, the tightest rack, else the fewest racks."""

QUARTER_S, DAY_S = 15 * 60, 24 * 60 * 60

DELAYED = replace(TIGHT, name="delay", patience_s=QUARTER_S)
"""Delay scheduling: a gang waits 15 minutes for room in one rack before it takes what there is.

Zaharia et al., "Delay Scheduling", EuroSys 2010: https://dl.acm.org/doi/10.1145/1755913.1755940
"""

DELAYED_DAY = replace(TIGHT, name="delay-day", patience_s=DAY_S)
"""The same for 24 hours."""

TIRESIAS = replace(TIGHT, name="tiresias", order=in_turn(least_attained), stops=least_attained)
"""Tiresias-L: jobs that got little so far first, others stop for them; places as ``TIGHT``."""

QSSF = replace(TIGHT, name="qssf", order=in_turn(expected_service))
"""Quasi-Shortest-Service-First: who is expected to need the least GPU time goes first; nobody is stopped.

Expected from jobs of the same queue and size that have ended (``models.values.expected_durations``), where
the paper blends such a mean with a trained model.

Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC
2021: https://arxiv.org/abs/2109.01313
"""

SHORTEST_REMAINING = replace(
    TIGHT, name="shortest-remaining", order=in_turn(remaining_time), stops=remaining_time
)
"""With perfect knowledge of durations, the shortest remaining time first; others stop for them."""

LEAST_REMAINING = replace(
    TIGHT, name="least-remaining", order=in_turn(remaining_service), stops=remaining_service
)
"""The same by remaining GPU time."""

SLURM = replace(TIGHT, name="slurm", order=in_turn(multifactor), backfill="conservative")
"""Slurm: multifactor priority, backfill that delays nobody, nodes under as few switches as can be.

Time limits are the durations of the trace, more exact than users state them.
https://slurm.schedmd.com/sched_config.html, https://slurm.schedmd.com/topology.html
"""

SLURM_EASY = replace(SLURM, name="slurm-easy", backfill="easy")
"""The same with a reservation for the first that waits alone (EASY)."""

KAI_FAIR = replace(KAI, order=fair)
"""KAI with its own queue order: the queue that holds the least first. No reclaim, no consolidation.

https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/fairness/README.md
"""

KAI_RECLAIM = replace(
    KAI_FAIR,
    name="kai-reclaim",
    rooms=(
        Room(consolidated, again=True),
        Room(reclaimed, fair=within_fair_share),
        Room(of_lower_priority),
    ),
)
"""KAI with its actions that stop jobs: consolidation, reclaim between queues, preemption within one.

No queue has a quota of its own, all the same weight over quota. All jobs are preemptible.
https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/developer/action-framework.md
https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/fairness/README.md
"""

VOLCANO_FAIR = replace(VOLCANO, order=fair)
"""Volcano with the drf plugin. https://volcano.sh/en/docs/plugins/"""

KUEUE_FAIR = replace(KUEUE_BEST_FIT, name="kueue-fair", order=fair)
"""Kueue with fair sharing of a cohort without quotas of its own: the ClusterQueue of the least share first.

https://kueue.sigs.k8s.io/docs/concepts/fair_sharing/
"""

KUEUE_RECLAIM = replace(
    KUEUE_FAIR, name="kueue-reclaim", order=fair_above_quota, rooms=(Room(borrowed),)
)
"""Kueue, a cohort of ClusterQueues with equal nominal quotas and no limit to borrowing, fair sharing on.

https://kueue.sigs.k8s.io/docs/concepts/preemption/#fair-sharing
https://github.com/kubernetes-sigs/kueue/blob/main/keps/1714-fair-sharing/README.md
"""
