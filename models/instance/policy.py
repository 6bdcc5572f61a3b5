"""Policy: the order of the objective tiers, the mix of future requests, limits and Kubernetes settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from models.documents.base import made
from models.documents.policy import (
    DAY_S,
    DEFAULT_PRESET,
    QUEUE_LIMIT,
    SLURM_PRIORITIES,
    Disruption,
    EvictionBackoff,
    KubernetesDocument,
    Objective,
    Order,
    Reservations,
    SolveLimits,
    preset_objectives,
)

DEFAULT_OBJECTIVES = preset_objectives(DEFAULT_PRESET)


@dataclass(frozen=True, slots=True)
class Moves:
    """Limits on the moves of one plan (None: unlimited), and their minimum gain.

    ``max_gangs``: gangs of which any pod moves; documents that state none get ``default_max_gangs``.
    ``max_gpus``: all GPUs of those gangs.
    ``min_gain``: GPUs gained per GPU restarted; sets of moves below it are dropped.
    """

    max_gangs: int | None = None
    max_gpus: int | None = None
    min_gain: Fraction = Fraction(0)

    @property
    def or_none(self) -> Moves | None:
        """None where there are no limits."""
        return None if self == Moves() else self

    def allow(self, gangs: int, gpus: int) -> bool:
        """Whether so many gangs with so many GPUs may move."""
        pairs = ((gangs, self.max_gangs), (gpus, self.max_gpus))
        return all(most is None or count <= most for count, most in pairs)


MOST_MOVED = 10
"""Gangs that one plan may move however few run, unless the policy says otherwise."""

MOST_MOVED_PERCENT = 5
"""The same in percent of the gangs that run, where that is more."""


def default_max_gangs(running: int) -> int:
    """The most gangs that one plan moves where the policy states no limit. ``running``: gangs before it."""
    return max(MOST_MOVED, running * MOST_MOVED_PERCENT // 100)


EVERY_SCHEDULER = "*"
"""In place of the name of a scheduler: every one."""

SLURM, KUEUE = "slurm", "kueue"
"""The schedulers of gangs that are jobs of Slurm, and of those that Kueue suspends."""

GPU_BACKENDS = ("annotation", "none", "hami", "dra", "kai")
"""Ways to pass the planned GPU indices to a node, the default first."""


@dataclass(frozen=True, slots=True)
class KubernetesPolicy(KubernetesDocument):
    """How Kubernetes objects are read and a plan is applied; no tier depends on it.

    Names are sorted, and host ranges written out.
    """

    def plans(self, scheduler: str) -> bool:
        """Whether waiting pods of a scheduler are planned, whatever their scheduling gates."""
        return not {scheduler, EVERY_SCHEDULER}.isdisjoint(self.scheduler_names)

    def server_model_of(self, labels: Mapping[str, str]) -> str | None:
        """The server model of nodes with these labels, as the Policy names it; the first match counts."""
        fits = (o.model for o in self.server_models if labels.items() >= o.node_selector.items())
        return next(fits, None)

    @property
    def plans_others(self) -> bool:
        """Whether waiting pods of other schedulers are planned: such a plan is a what-if."""
        return bool(self.scheduler_names)


def kubernetes_policy(document: KubernetesDocument) -> KubernetesPolicy:
    """The settings of a Policy document."""
    levels, others = document.levels, document.other_schedulers
    return made(
        KubernetesPolicy,
        document,
        scheduler_names=tuple(sorted(document.scheduler_names)),
        levels=None if levels is None else tuple(one.written_out() for one in levels),
        ignore=tuple(sorted(document.ignore)),
        other_schedulers=None if others is None else tuple(sorted(others)),
    )


def may_reserve(rules: Reservations, priority: int) -> bool:
    """Whether gangs of a priority may hold a reservation."""
    return not rules.priorities or any(
        {">=": priority >= n, "<=": priority <= n, ">": priority > n, "<": priority < n}.get(
            comparison, priority == n
        )
        for comparison, n in rules.priorities
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """What a ``PolicySpec`` says, with every default filled in and its maps as sorted pairs.

    ``mix``: (GPUs, permille) of future requests, as used. ``moves``: None for no limits.
    ``starvation_after_s``: None for never. ``now``: None for the latest time in the input (``Instance.now``).
    """

    name: str = "default"
    objectives: tuple[Objective, ...] = tuple(Objective(name) for name in DEFAULT_OBJECTIVES)
    mix: tuple[tuple[int, int], ...] = ()
    min_bandwidth_share: Fraction = Fraction(0)
    gpu_binding: str = "exact"
    node_selector: tuple[tuple[str, str], ...] = ()
    solve: SolveLimits = SolveLimits()
    kubernetes: KubernetesPolicy = KubernetesPolicy()
    moves: Moves | None = None
    disruption: Disruption = Disruption()
    starvation_after_s: int | None = DAY_S
    now: int | None = None
    queue_limit: int | None = QUEUE_LIMIT
    reservations: Reservations | None = None
    spares: tuple[tuple[str, int], ...] = ()
    suspect_for_s: int = DAY_S
    per_gpu: tuple[tuple[str, int], ...] = ()
    gpu_hour_price: Fraction | None = None
    min_run_time_s: int = 0
    eviction_backoff: EvictionBackoff | None = EvictionBackoff()
    slurm_priorities: int = SLURM_PRIORITIES
    order: Order = "submitted"
    trust_durations: bool = False

    def lists(self, objective: str) -> bool:
        """Whether the policy has the objective."""
        return any(listed.name == objective for listed in self.objectives)


def lengthened_s(policy: Policy, stated_s: int, evictions: int) -> int:
    """The minimum run time of a gang after so many evictions; none counts as one.

    It ends at ``starvation``, a day without one: nobody waits for the gang until he starves himself.
    """
    backoff, most = policy.eviction_backoff, policy.starvation_after_s
    if backoff is None:
        return stated_s
    doubled = max(stated_s, backoff.base_s) << min(max(evictions, 1), 62)
    return max(stated_s, min(doubled, DAY_S if most is None else most))
