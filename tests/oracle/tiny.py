"""Random tiny instances: 1-4 servers of 2-8 GPUs, 2-5 gangs of at most 6 pods, every rule in some of them.

Promises: the same seed gives the same instance; each feature can be switched off by name and leaves
the draws of the others as they are, so that a failing case can be narrowed; most instances are contended.
Called by the comparison with the exhaustive planner and by its sweep.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

from tiny_counts import counted
from tiny_draws import Draws
from tiny_gangs import draw_gangs
from tiny_instances import with_instances
from tiny_queues import with_queues
from tiny_servers import draw_cluster
from tiny_shape import shaped_policy, suspected

from models.documents.policy import Objective, SolveLimits, preset_objectives
from models.instance.cluster import Cluster
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.starts.empty_starts import EmptyStarts

OBJECTIVES = preset_objectives("admission")
"""Most instances have these; ``tiny_speeds`` puts goodput in the place of the first."""


def tiny(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    """The instance of a seed, ``without`` some features, with ``more`` of others.

    Raises ValueError for a feature that does not exist.
    """
    draws = Draws(seed, without, more)
    cluster = draw_cluster(draws)
    gangs, cluster = draw_gangs(draws, cluster)
    instance = Instance(cluster, gangs, draw_policy(draws, cluster, gangs), starts=EmptyStarts)
    return counted(with_instances(draws, suspected(draws, with_queues(draws, instance))))


def draw_policy(draws: Draws, cluster: Cluster, gangs: tuple[Gang, ...]) -> Policy:
    """What is best: mix, binding, which nodes are ours, least share, sometimes other tiers."""
    r = draws.random("policy")
    policy = Policy(
        objectives=tuple(Objective(name) for name in OBJECTIVES),
        mix=_mix(draws.random("mix"), cluster, gangs),
        solve=SolveLimits(workers=1),
        gpu_binding="none" if draws.on("binding_none", r, 0.12) else "exact",
        node_selector=(("pool", "a"),) if draws.on("ours", r, 0.08) else (),
    )
    if draws.on("min_share", r, 0.15):
        policy = replace(policy, min_bandwidth_share=draws.share(r))
    if draws.on("objectives", r, 0.2):
        policy = replace(policy, objectives=_objectives(draws.random("objectives")))
    return shaped_policy(draws, policy, cluster)


def _objectives(r: Random) -> tuple[Objective, ...]:
    """Some of the tiers in some order; ``stranded`` or ``span`` may come before ``bandwidth``."""
    names = list(OBJECTIVES)
    r.shuffle(names)
    return tuple(Objective(name) for name in names[: r.randint(1, len(names))])


def _mix(r: Random, cluster: Cluster, gangs: tuple[Gang, ...]) -> tuple[tuple[int, int], ...]:
    """Permille by size: small sizes, the gangs' sizes, or sizes above a whole server."""
    largest = max(node.gpus for node in cluster.nodes)
    choices = (
        {1: 1000},
        {1: 300, 2: 300, 4: 400},
        {1: 250, 3: 250, largest: 250, 2 * largest: 250},
        {largest: 400, largest + 1: 600},
        _even({g.weight_gpus for g in gangs}),
    )
    return tuple(sorted(r.choice(choices).items()))


def _even(sizes: set[int]) -> dict[int, int]:
    """1000 permille shared by the sizes, the rest to the smallest."""
    each, rest = divmod(1000, len(sizes))
    return {size: each + (rest if size == min(sizes) else 0) for size in sorted(sizes)}
