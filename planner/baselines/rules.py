"""The rules of ten schedulers, restated from what their projects publish; no code of theirs.

Promises: each says its source, and what it lacks: gangs that ask for that wait. All start gangs whole, which
kube-scheduler does with its coscheduling plugin; none stops or moves what runs, though some can where they
are asked to. Called by ``benchmarks.measure`` and by tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from models.instance.gang import Role
from models.instance.instance import Instance
from planner.baselines.gpu_choice import buddy, free_cells, koordinator, lowest
from planner.baselines.orders import Moment, in_turn
from planner.baselines.scheduler import (
    ANY_SLICES,
    Ask,
    DomainOrder,
    Fill,
    Rules,
    fitting,
    per_domain,
)
from planner.baselines.space import Nodes, Space

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


# kube-scheduler


def _allocated(space: Space, nodes: Nodes) -> Scores:
    """Sum over GPUs, cpu and memory of the share that is requested."""
    used = 1 - space.free[nodes] / np.maximum(1, space.installed[nodes])
    for name in ("cpu", "memory"):
        if name in space.left:
            used = used + 1 - space.left[name][nodes] / np.maximum(1, space.most[name][nodes])
    return used


def _near_own(space: Space, ask: Ask, nodes: Nodes) -> Scores:
    """1 for nodes outside the domains that the gang's pods share by preference so far."""
    own = [pod.node for pod in space.taken]
    if ask.preferred is None or not own:
        return np.zeros(len(nodes))
    of = space.domain[ask.preferred]
    return (~np.isin(of[nodes], of[own])).astype(np.float64)


def _least_allocated(space: Space, ask: Ask, role: Role, nodes: Nodes) -> Scores:
    del role
    return 1000 * _near_own(space, ask, nodes) + _allocated(space, nodes)


def _most_allocated(space: Space, ask: Ask, role: Role, nodes: Nodes) -> Scores:
    del role
    return 1000 * _near_own(space, ask, nodes) - _allocated(space, nodes)


def _first_pod_decides(score: Score) -> Callable[[Space, Ask], Iterator[Nodes]]:
    """Required pod affinity: the domain of the node that suits the first pod best, and no other."""

    def scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
        if ask.required is None or ask.standing:
            yield space.everywhere
            return
        role = ask.gang.roles[ask.roles[0][0]]
        able = space.able(role, space.everywhere)
        if able.size:
            node = int(able[np.argmin(score(space, ask, role, able))])
            yield space.members(ask.required, int(space.domain[ask.required][node]))

    return scopes


KUBE_SPREAD = Rules(
    "kube-spread", _first_pod_decides(_least_allocated), one_by_one(_least_allocated)
)
"""kube-scheduler, NodeResourcesFit with LeastAllocated, its default: the emptiest node for each pod.

Scored are GPUs, cpu and memory with weight 1 each. Required levels are required pod affinity, which follows
the first pod; preferred ones are preferred affinity, which weighs more than the resources. Slices wait.
https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
https://github.com/kubernetes-sigs/scheduler-plugins/blob/master/pkg/coscheduling/README.md
"""

KUBE_PACK = Rules("kube-pack", _first_pod_decides(_most_allocated), one_by_one(_most_allocated))
"""kube-scheduler with MostAllocated: the fullest node that takes the pod; otherwise as ``KUBE_SPREAD``.

https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/
"""


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


def _least_free(amounts: Nodes, need: int) -> Iterator[int]:
    """LeastFreeCapacity: the smallest first."""
    for best in np.argsort(amounts, kind="stable"):
        if need <= 0:
            return
        if amounts[best] > 0:
            yield int(best)
            need -= int(amounts[best])


def _kueue_fill(choose: Callable[[Nodes, int], Iterator[int]]) -> Fill:
    """Level by level, as few domains as ``choose`` needs, and within them as few of the next level."""

    def fill(space: Space, ask: Ask, number: int, indices: Sequence[int], nodes: Nodes) -> bool:
        role, rest = ask.gang.roles[number], list(indices)
        node_level = len(space.domain) - 1
        unconstrained = ask.preferred is None and ask.required is None
        for level in range(node_level if unconstrained else 0, node_level + 1):
            ids, of = np.unique(space.domain[level][nodes], return_inverse=True)
            amounts = per_domain(of, space.capacity(role, nodes), len(ids))
            chosen = list(choose(amounts, len(rest)))
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

    return fill


def _most_slices(space: Space, domains: Nodes, pods: Nodes, free: Nodes, left: int) -> Nodes:
    """The tightest domain that takes all pods left; without one the largest."""
    del space, free
    amounts = pods[domains]
    enough = amounts >= left
    ordered: Nodes = domains[np.lexsort((np.where(enough, amounts, -amounts), ~enough))]
    return ordered


def _fewest_slices(space: Space, domains: Nodes, pods: Nodes, free: Nodes, left: int) -> Nodes:
    del space, free, left
    ordered: Nodes = domains[np.argsort(pods[domains], kind="stable")]
    return ordered


def _kueue(name: str, choose: Callable[[Nodes, int], Iterator[int]], order: DomainOrder) -> Rules:
    return Rules(name, _kueue_scopes, _kueue_fill(choose), domain_order=order, slices=1)


KUEUE_BEST_FIT = _kueue("kueue-best-fit", _most_free, _most_slices)
"""Kueue Topology Aware Scheduling, BestFit for all gangs (profile TASProfileBestFit).

The tightest domain that holds the gang; where it takes several, those with the most room, the last the
tightest that holds the rest. Two levels: one layer of slices; gangs with more layers wait.
https://github.com/kubernetes-sigs/kueue/blob/main/keps/2724-topology-aware-scheduling/README.md
"""

KUEUE_LEAST_FREE = _kueue("kueue-least-free", _least_free, _fewest_slices)
"""The same with LeastFreeCapacity (profile TASProfileLeastFreeCapacity): from the least room up."""


# KAI, Volcano


def _free_gpus(space: Space, ask: Ask, role: Role, nodes: Nodes) -> Scores:
    del ask, role
    return space.free[nodes].astype(np.float64)


def _kai_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    levels = [level for level in (ask.preferred, ask.required) if level is not None]
    return domains_of(space, ask, up_from(max(levels), ask) if levels else ())


KAI = Rules("kai", _kai_scopes, one_by_one(_free_gpus), slices=1)
"""KAI Scheduler with bin packing: the domain with the least room that holds the gang.

From the preferred level up to the required one; in it the nodes with the fewest free GPUs. Segments are
one layer of slices.

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


VOLCANO = Rules("volcano", _volcano_scopes, one_by_one(_hypernode_usage), slices=1)
"""Volcano, network topology with HyperNode binpack: the lowest tier with a HyperNode that holds the gang, and
of these the fullest; without a topology wish the node whose HyperNodes are the fullest. Hard mode is a
required level, soft mode a preferred one; a subgroup policy is one layer of slices.

https://volcano.sh/en/docs/network_topology_aware_scheduling/
https://support.huaweicloud.com/usermanual-cce/cce_10_1129.html
"""


# HiveD


def _smallest_cell(free: int, gpus: int, count: int) -> int:
    """Size of the smallest free cell for a pod; without one a size no cell has."""
    sizes = [cell.bit_count() for cell in free_cells(free, gpus)]
    return min((size for size in sizes if size >= count), default=4 * gpus)


_CELL_TABLES: dict[tuple[int, int], Nodes] = {}
_TABLED_GPUS = 10
"""Servers of more GPUs would need tables of more than a thousand masks."""


def _cell_sizes(space: Space, role: Role, nodes: Nodes) -> Scores:
    """The smallest free cell on a node that holds a pod, then the node's free GPUs."""
    if not role.gpus:
        return space.free[nodes].astype(np.float64)
    sizes = np.zeros(len(nodes))
    for gpus in np.unique(space.installed[nodes]):
        here = space.installed[nodes] == gpus
        masks = space.masks[nodes[here]]
        if gpus > _TABLED_GPUS:
            sizes[here] = [_smallest_cell(int(mask), int(gpus), role.gpus) for mask in masks]
            continue
        key = (int(gpus), role.gpus)
        if key not in _CELL_TABLES:
            table = [_smallest_cell(mask, key[0], key[1]) for mask in range(1 << key[0])]
            _CELL_TABLES[key] = np.array(table, dtype=np.int64)
        sizes[here] = _CELL_TABLES[key][masks]
    return 100 * sizes + space.free[nodes]


def _hived_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    """The lowest cell that holds the gang: node, rack, ...; of these the one with the fewest free GPUs."""
    return domains_of(space, ask, up_from(len(space.domain) - 1, ask))


HIVED = Rules(
    "hived",
    _hived_scopes,
    one_by_one(lambda space, _ask, role, nodes: _cell_sizes(space, role, nodes)),
    pick_gpus=buddy,
)
"""HiveD buddy cells, the whole cluster being one virtual cluster: a gang in the lowest cell of the tree that
holds it, each pod in the smallest free cell, which is split. Slices wait.

Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020:
https://www.usenix.org/conference/osdi20/presentation/zhao-hanyu
https://github.com/microsoft/hivedscheduler
"""


# Koordinator, ACK


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


def _best_sets(space: Space) -> None:
    """On every node the best set for all pods of the gang together, then cut into theirs."""
    by_node: dict[int, list[int]] = {}
    for position, pod in enumerate(space.taken):
        if pod.gpus:
            by_node.setdefault(pod.node, []).append(position)
    for node, positions in by_node.items():
        model = space.instance.cluster.nodes[node].model
        assert model is not None, "only a node with GPUs gives GPUs"
        own = 0
        for position in positions:
            own |= space.taken[position].gpus or 0
            space.exchange(position, 0)
        chosen = koordinator(model, int(space.masks[node]), own.bit_count())
        for position in positions:
            part = lowest(chosen, space.taken[position].role.gpus)
            chosen &= ~part
            space.exchange(position, part)


KOORDINATOR = Rules(
    "koordinator", _kai_scopes, fewest_nodes, pick_gpus=koordinator, settle=_best_sets
)
"""Koordinator and ACK, GPU topology: a gang on as few nodes as can be, with the best set of GPUs on each.

Of equally few nodes those with the fewest GPUs left over; of the sets of GPUs that with the largest
bottleneck, then that which keeps blocks whole. Network levels by the tightest domain. Slices wait.

https://github.com/koordinator-sh/koordinator/blob/main/docs/proposals/scheduling/20230314-gpu-topology-aware-scheduling.md
https://github.com/koordinator-sh/koordinator/blob/main/docs/proposals/scheduling/20250611-networktopology-aware-scheduling.md
https://www.alibabacloud.com/help/en/ack/topology-aware-gpu-scheduling
"""


# First-fit decreasing, FGD


def _first_fit_scopes(space: Space, ask: Ask) -> Iterator[Nodes]:
    levels = () if ask.required is None else (ask.required,)
    return domains_of(space, ask, levels, lambda *of: np.arange(len(of[-1]), dtype=np.float64))


def _decreasing(moment: Moment, index: int) -> tuple[float, ...]:
    gang = moment.instance.gangs[index]
    return (-gang.priority, -gang.weight_gpus, gang.submitted_at or 0)


def _as_listed(space: Space, domains: Nodes, pods: Nodes, free: Nodes, left: int) -> Nodes:
    del space, pods, free, left
    return domains


FIRST_FIT_DECREASING = Rules(
    "first-fit-decreasing",
    _first_fit_scopes,
    one_by_one(lambda _space, _ask, _role, nodes: nodes.astype(np.float64)),
    pick_gpus=lambda _model, free, count: lowest(free, count),
    domain_order=_as_listed,
    order=in_turn(_decreasing),
    slices=ANY_SLICES,
)
"""First-fit decreasing: in each priority the largest gangs first, each pod on the first node that takes it.

Of domains that must be shared the first that holds the pods. Preferred levels mean nothing to it.

Johnson, "Near-optimal bin packing algorithms", MIT 1973: https://dspace.mit.edu/handle/1721.1/57819
"""

_MOST_TYPES = 24
"""Pod types of the queue that FGD weighs, the most frequent ones."""

_TYPES: dict[int, tuple[Instance, list[tuple[float, Role]]]] = {}


def _types(instance: Instance) -> list[tuple[float, Role]]:
    """Pods of the queue by type: share, and a role with their requests."""
    if id(instance) not in _TYPES:
        counts: Counter[tuple[int, tuple[tuple[str, int], ...]]] = Counter()
        for gang in instance.gangs:
            for number, _ in gang.missing():
                role = gang.roles[number]
                if role.gpus:
                    counts[role.gpus, role.requests] += 1
        common = counts.most_common(_MOST_TYPES)
        total = sum(count for _, count in common)
        types = [(n / total, Role("", 1, 1, 1, k[0], requests=k[1])) for k, n in common]
        _TYPES.clear()
        _TYPES[id(instance)] = (instance, types)
    return _TYPES[id(instance)][1]


def _fragment_growth(space: Space, ask: Ask, role: Role, nodes: Nodes) -> Scores:
    """How much each node's fragment grows: free GPUs times the share of pods that cannot run there."""
    del ask
    asked, free = dict(role.requests), space.free[nodes]
    left = {name: amounts[nodes] for name, amounts in space.left.items()}
    growth = np.zeros(len(nodes))
    for share, kind in _types(space.instance):
        before, after = free < kind.gpus, free - role.gpus < kind.gpus
        for name, amount in kind.requests:
            if name in left:
                before = before | (left[name] < amount)
                after = after | (left[name] - asked.get(name, 0) < amount)
        growth += share * (after * (free - role.gpus) - before * free)
    return growth


FGD = Rules("fgd", anywhere, one_by_one(_fragment_growth), topology=False)
"""Fragmentation gradient descent: each pod on the node whose expected fragment grows least, given the mix of
pods in the queue. Whole GPUs only; it knows no topology: gangs with required levels or slices wait.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023: https://www.usenix.org/conference/atc23/presentation/weng
https://github.com/hkust-adsl/kubernetes-scheduler-simulator
"""

BASELINES: dict[str, Rules] = {
    rules.name: rules
    for rules in (
        KUBE_SPREAD,
        KUBE_PACK,
        KUEUE_BEST_FIT,
        KUEUE_LEAST_FREE,
        KAI,
        VOLCANO,
        HIVED,
        KOORDINATOR,
        FIRST_FIT_DECREASING,
        FGD,
    )
}
"""Every baseline by its name."""
