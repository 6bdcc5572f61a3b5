"""Draws by seed and topic, with features that can be switched off.

Promises: what is drawn for one topic never depends on the draws, or on the switches, of another.
Called by the parts of the generator of tiny instances.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from random import Random
from types import MappingProxyType

FEATURES = (
    "levels",  # topology levels beside node
    "oversubscription",
    "gaps",  # nodes without a value at a level
    "uncounted",  # levels that only rules name
    "nics",  # anything but one fast NIC near all GPUs
    "own_nics",
    "mixed",  # two server models
    "wide",  # more servers: 5 to 8 (busy clusters: 4); never unless asked for more
    "cpu_nodes",  # a node without GPUs
    "cpu_gangs",  # gangs that ask for no GPU at all
    "waiting_pods",  # pods of waiting gangs that exist already, with uids
    "launchers",  # a role without GPUs
    "roles",  # two roles with GPUs
    "slices",
    "slice_layers",  # slices around slices
    "first_index",  # roles whose indices do not start at 0
    "required",
    "preferred",
    "role_topology",  # required and preferred of one role
    "priorities",
    "submitted",
    "weights",
    "pattern_none",
    "network_only",  # gangs that may not use NVLink between servers
    "resources",  # cpu, memory and pods limits that bind
    "selectors",
    "affinity",  # node affinities
    "taints",
    "cordons",
    "not_ready",
    "ours",  # the policy's nodeSelector
    "unhealthy",
    "unknown_unhealthy",
    "running",
    "unknown_gpus",  # running pods whose GPUs nobody knows
    "overfull",  # running pods that hold more than their node has left
    "sick_holders",  # running pods on sick GPUs
    "incomplete",
    "held",  # gangs that may not be placed or completed
    "elastic",
    "movable",
    "preemptible",
    "mix_models",
    "role_model",
    "min_share",
    "binding_none",
    "objectives",
    # Rules about pods, never unless asked for more:
    "apart",  # anti-affinity, between gangs and within
    "together",  # affinity
    "even",  # spread
    "pods_of_no_gang",  # that are in sets
    "growing_launchers",  # elastic roles without GPUs; never unless asked for more
    # Queues; never unless asked for more:
    "queues",  # with guarantees and limits
    "lending",  # that lend a part of their guarantees
    "firm_limits",  # with limits for gangs that are not preemptible
    "strict",  # that start their gangs in order
    "cells",  # with cells
    "pins",  # with pinned cells
    "fair",  # and the tiers of fair shares
    # Shapes, never unless asked for more (``tiny_shape``):
    "balance",  # gangs that are shared evenly by domains
    "exclusive",  # gangs that want domains for themselves
    "spares",  # nodes that stay idle
    "per_gpu",  # what a free GPU needs of its node; with "resources"
    "suspects",  # nodes that failed lately, and the tier
    "instances",  # of partitioned GPUs, beside whole ones; never unless asked for more
    "near",  # gangs that should be near others; never unless asked for more
    "preferred_groups",  # roles that should share a domain; never unless asked for more
    "parallelism",  # groups, patterns of own formulas and ranks; never unless asked for more
    # What only busy clusters have (``tiny_busy``):
    "elastic_running",  # elastic gangs that run; with "elastic" alone only those that wait
    "stragglers",  # pods that stand on nodes that are cordoned, tainted or sick
    "moves_limit",
    "resize_after",
    "starvation",
    "lost_runtime",
    "checkpoints",  # when gangs started, and wrote a checkpoint
    "budgets",  # disruption budgets over pods that run
    "clock",  # the policy says what ages are counted to
    "stability",  # an earlier plan, and the tier
    "defragment",
    "run_times",  # minimum run times; never unless asked for more
    "evictions",  # gangs that plans stopped before; never unless asked for more
    # What only instances with goodput have (``tiny_speeds``):
    "generations",  # servers of which some are older
    "unknown_speeds",  # server models without a relative speed
    "fractions",  # of a step that gangs communicate
    "speed_ignored",  # gangs that run as fast on slower GPUs
    "services",
    "finished",  # running gangs that have gone
)


class Draws:
    """Random numbers of one seed; ``without``: features that never occur, ``more``: three times as often.

    ``chances``: of features that are to be drawn with another chance than the one named at the draw.
    """

    def __init__(
        self,
        seed: int,
        without: Collection[str],
        more: Collection[str],
        chances: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        unknown = sorted({*without, *more} - set(FEATURES))
        if unknown:
            raise ValueError(f"no such feature: {', '.join(unknown)}")
        self.seed = seed
        self.without = frozenset(without)
        self.more = frozenset(more)
        self.chances = chances

    def random(self, topic: str) -> Random:
        """A fresh source for one topic."""
        return Random(f"{self.seed}/{topic}")

    def on(self, feature: str, r: Random, chance: float) -> bool:
        """Whether a feature occurs here; always draws, so that switching it off moves nothing else."""
        assert feature in FEATURES, feature
        chance = self.chances.get(feature, chance)
        often = min(0.9, 3 * chance) if feature in self.more else chance
        return (r.random() < often) and feature not in self.without

    def asked(self, feature: str) -> bool:
        """Whether a feature that occurs only on request was requested."""
        return feature in self.more and feature not in self.without

    def share(self, r: Random) -> Fraction:
        """A minBandwidthShare."""
        return Fraction(r.choice((100, 250, 500, 500, 800, 1000)), 1000)
