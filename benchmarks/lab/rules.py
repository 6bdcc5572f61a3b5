"""The rules of nine schedulers, restated from what their projects publish; no code of theirs.

Promises: each says its source, and what it lacks: gangs that ask for that wait. All start gangs whole.
Places, the order, who is stopped, and what a scheduler knows are those of the source that each names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.lab.orders import (
    IN_TURN,
    Room,
    borrowed,
    consolidated,
    fair,
    fair_above_quota,
    in_turn,
    least_attained,
    multifactor,
    of_lower_priority,
    reclaimed,
    remaining_service,
    within_fair_share,
)
from benchmarks.lab.scheduler import Ask, Fill, Rules, fitting, per_domain
from benchmarks.lab.space import Nodes, Space
from models.instance.gang import Role

Scores = NDArray[np.float64]
Score = Callable[[Space, Ask, Role, Nodes], Scores]
"""Of the nodes that are able to take one more pod; the smallest wins, the first node among equals."""


def one_by_one(score: Score) -> Fill:
    """Each pod on the best node of those that still take it."""

    def fill(space: Space, ask: Ask, number: int, indices: Sequence[int], nodes: Nodes) -> bool:
        role = ask.gang.roles[number]
        for index in indices:
            able = space.able(role, nodes)
            if not able.size:
                return False
            space.take(role, number, index, int(able[np.argmin(score(space, ask, role, able))]))
        return True

    return fill


def anywhere(space: Space, ask: Ask) -> Iterator[Nodes]:
    del ask
    yield space.everywhere


DomainKey = Callable[[Space, Ask, int, Nodes], Scores]
"""(space, gang, level, free GPUs of its domains) to a key a domain; the smallest first."""


def by_free_gpus(space: Space, ask: Ask, level: int, free: Nodes) -> Scores:
    del space, ask, level
    return free.astype(np.float64)


def domains_of(
    space: Space, ask: Ask, levels: Iterable[int], key: DomainKey = by_free_gpus
) -> Iterator[Nodes]:
    """Domains that hold the gang, level by level, and after them everything if no level is required."""
    for level in levels:
        free, fits = fitting(space, ask, level)
        found = np.flatnonzero(fits)
        keys = key(space, ask, level, free)[found]
        for domain in found[np.argsort(keys, kind="stable")]:
            yield space.members(level, int(domain))
    if ask.required is None:
        yield space.everywhere


def up_from(level: int, ask: Ask) -> range:
    """The level and wider ones, up to the required level."""
    return range(level, (ask.required or 0) - 1, -1)


# Kueue


def _kueue_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    """The tightest domain that fits: of the required level, the preferred one or a wider, or one node."""
    if ask.required is not None:
        return domains_of(space, ask, (ask.required,))
    if ask.preferred is not None:
        return domains_of(space, ask, up_from(ask.preferred, ask))
    return domains_of(space, ask, (len(space.domain) - 1,))


def _most_free(amounts: Nodes, need: int) -> Iterator[int]:
    """BestFit: the largest first, and last the smallest that holds the rest."""
    left = amounts.copy()
    while need > 0:
        enough = np.flatnonzero(left >= need)
        best = enough[np.argmin(left[enough])] if enough.size else np.argmax(left)
        if left[best] <= 0:
            return
        yield int(best)
        need -= int(left[best])
        left[best] = 0


def _kueue_fill(space: Space, ask: Ask, number: int, indices: Sequence[int], nodes: Nodes) -> bool:
    """Level by level as few domains as hold the pods, and within them as few of the next level."""
    role, rest = ask.gang.roles[number], list(indices)
    node_level = len(space.domain) - 1
    unconstrained = ask.preferred is None and ask.required is None
    for level in range(node_level if unconstrained else 0, node_level + 1):
        ids, of = np.unique(space.domain[level][nodes], return_inverse=True)
        amounts = per_domain(of, space.capacity(role, nodes), len(ids))
        chosen = list(_most_free(amounts, len(rest)))
        if amounts[chosen].sum() < len(rest):
            return False
        if level < node_level:
            nodes = nodes[np.isin(of, chosen)]
            continue
        for position in chosen:
            node = int(nodes[of == position][0])
            for _ in range(min(int(amounts[position]), len(rest))):
                space.take(role, number, rest.pop(0), node)
    return True


def _most_slices(space: Space, domains: Nodes, pods: Nodes, free: Nodes, left: int) -> Nodes:
    """The tightest domain that takes all pods left; without one the largest."""
    del space, free
    amounts = pods[domains]
    enough = amounts >= left
    ordered: Nodes = domains[np.lexsort((np.where(enough, amounts, -amounts), ~enough))]
    return ordered


KUEUE = Rules("kueue", _kueue_scopes, _kueue_fill, domain_order=_most_slices)
"""Kueue Topology Aware Scheduling, BestFit for all gangs (profile TASProfileBestFit).

The tightest domain that holds the gang; where it takes several, those with the most room, the last the
tightest that holds the rest. Two levels: one layer of slices; gangs with more layers wait.
https://github.com/kubernetes-sigs/kueue/blob/main/keps/2724-topology-aware-scheduling/README.md
"""


KUEUE_RECLAIM = replace(
    KUEUE, name="kueue-reclaim", order=fair_above_quota, rooms=(Room(borrowed),)
)
"""Kueue, a cohort of ClusterQueues with equal nominal quotas and no limit to borrowing, fair sharing on.

https://kueue.sigs.k8s.io/docs/concepts/preemption/#fair-sharing
https://github.com/kubernetes-sigs/kueue/blob/main/keps/1714-fair-sharing/README.md
"""


# KAI, Volcano


def _free_gpus(space: Space, ask: Ask, role: Role, nodes: Nodes) -> Scores:
    del ask, role
    return space.free[nodes].astype(np.float64)


def _kai_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    levels = [level for level in (ask.preferred, ask.required) if level is not None]
    return domains_of(space, ask, up_from(max(levels), ask) if levels else ())


KAI = Rules("kai", _kai_scopes, one_by_one(_free_gpus), order=fair)
"""KAI Scheduler with bin packing: the domain with the least room that holds the gang.

From the preferred level up to the required one; in it the nodes with the fewest free GPUs. Segments are
one layer of slices. The queue that holds the least goes first. No reclaim, no consolidation.

https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/developer/designs/topology-awareness/README.md
https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/operator/scheduler-config-customization.md
"""

FADING = 0.8
"""Weight of a HyperNode's usage, against that of the next narrower tier: Volcano's default."""


def _hypernode_usage(space: Space, ask: Ask, role: Role, nodes: Nodes) -> Scores:
    """Minus the usage of a node, and of its HyperNodes, wider ones fading."""
    del role
    score, weight = -(1 - space.free[nodes] / np.maximum(1, space.installed[nodes])), 1.0
    if ask.required is not None or ask.preferred is not None:
        return score
    for of in reversed(space.domain[:-1]):
        total = int(of.max()) + 1
        free = per_domain(of, space.free, total)
        used = 1 - free / np.maximum(1, per_domain(of, space.installed, total))
        weight *= FADING
        score = score - weight * used[of[nodes]]
    return score


def _left_over(space: Space, ask: Ask, level: int, free: Nodes) -> Scores:
    """Share of a HyperNode's GPUs that would still be free."""
    installed = per_domain(space.domain[level], space.installed, len(free))
    left: Scores = (free - ask.gpus) / np.maximum(1, installed)
    return left


def _volcano_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    """The lowest tier with a HyperNode that holds the gang, there the one that is fullest then."""
    if ask.required is None and ask.preferred is None:
        return anywhere(space, ask)
    return domains_of(space, ask, up_from(len(space.domain) - 1, ask), _left_over)


VOLCANO = Rules("volcano", _volcano_scopes, one_by_one(_hypernode_usage), order=fair)
"""Volcano with the drf plugin, network topology with HyperNode binpack.

The lowest tier with a HyperNode that holds the gang, and of these the fullest; without a topology wish the
node whose HyperNodes are the fullest. Hard mode is a required level, soft mode a preferred one; a subgroup
policy is one layer of slices.

https://volcano.sh/en/docs/network_topology_aware_scheduling/
https://volcano.sh/en/docs/plugins/
https://support.huaweicloud.com/usermanual-cce/cce_10_1129.html
"""

KAI_RECLAIM = replace(
    KAI,
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


# Tight


def fewest_nodes(space: Space, ask: Ask, number: int, indices: Sequence[int], nodes: Nodes) -> bool:
    """One node that takes all pods, the fewest GPUs left over; else the largest, and so on."""
    role, rest = ask.gang.roles[number], list(indices)
    while rest:
        amounts = space.capacity(role, nodes)
        enough = np.flatnonzero(amounts >= len(rest))
        if enough.size:
            best = enough[np.argmin(space.free[nodes[enough]])]
        else:
            best = np.lexsort((space.free[nodes], -amounts))[0] if len(nodes) else 0
            if not len(nodes) or not amounts[best]:
                return False
        for _ in range(min(int(amounts[best]), len(rest))):
            space.take(role, number, rest.pop(0), int(nodes[best]))
    return True


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


TIGHT = Rules("tight", _tight_scopes, fewest_nodes)
"""First come, first served, with backfill: the tightest node, the tightest rack, else the fewest racks."""

TIRESIAS = replace(TIGHT, name="tiresias", order=in_turn(least_attained), stops=least_attained)
"""Tiresias-L: jobs that got little so far first, others stop for them; places as ``TIGHT``."""

LEAST_REMAINING = replace(
    TIGHT, name="least-remaining", order=in_turn(remaining_service), stops=remaining_service
)
"""With perfect knowledge of durations, the least remaining GPU time first; others stop for them."""

SLURM_EASY = replace(TIGHT, name="slurm-easy", order=in_turn(multifactor), easy=True)
"""Slurm: multifactor priority, EASY backfill, nodes under as few switches as can be.

Time limits are the durations of the trace, more exact than users state them.
https://slurm.schedmd.com/sched_config.html, https://slurm.schedmd.com/topology.html
"""

RULES: dict[str, Rules] = {
    rules.name: rules
    for rules in (
        TIGHT,
        KUEUE,
        KUEUE_RECLAIM,
        KAI,
        KAI_RECLAIM,
        VOLCANO,
        SLURM_EASY,
        TIRESIAS,
        LEAST_REMAINING,
    )
}
"""By the names that users write."""

AT_ONCE = {
    name: replace(RULES[name], order=IN_TURN) for name in ("tight", "kueue", "kai", "volcano")
}
"""Those that differ where nobody is stopped and nothing is known of times, by priority and submission."""
