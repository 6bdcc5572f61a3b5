"""Policy: the order of the objective tiers, the mix of future requests, limits and Kubernetes settings."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from models.instance.cluster import Level
from models.instance.gang import Patience
from models.tiers import MAINS, Main, objective_names

Preset = Main

DEFAULT_PRESET: Preset = "goodput"


def preset_objectives(preset: Preset) -> tuple[str, ...]:
    """The objectives of a preset, in order: that one in the place of the other ones like it."""
    names = objective_names(default_only=True)
    return (preset, *(name for name in names if name not in MAINS))


DEFAULT_OBJECTIVES = preset_objectives(DEFAULT_PRESET)


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective; ``tolerance``: how much of it later objectives may give up."""

    name: str
    tolerance: Fraction = Fraction(0)


MAX_BUDGET = 1_000_000

QUEUE_LIMIT = 5000
"""Waiting gangs of one namespace that are planned, unless the policy says otherwise."""


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """``budget``: deterministic (1 is about a second of one core). ``time_limit_s``: wall clock."""

    budget: int = 60
    time_limit_s: int = 120
    workers: int = 2
    seed: int = 0


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


GPUS = "gpus"
LOST_RUNTIME = "lostRuntime"
NO_COST = "none"

DAY_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Disruption:
    """Cost of stopping, moving or shrinking. ``weight``: GPUs, GPUs x seconds of lost runtime, or nothing.

    NO_COST also lets a running gang count the speed that it has after the plan, whatever it was before.
    ``cap_s``: the most seconds that count, and the seconds of an unknown start.
    """

    weight: str = GPUS
    cap_s: int = DAY_S


QUOTAS = "quotas"
CONSTRAINTS = ("podAntiAffinity", "podAffinity", "topologySpread", "volumeZone", "hostPort", QUOTAS)
"""Constraints of pods that a plan obeys, or makes a gang wait for, unless the policy ignores them."""

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "aliyun.com/gpu", "habana.ai/gaudi")

EVERY_SCHEDULER = "*"
"""In place of the name of a scheduler: every one."""

SLURM = "slurm"
"""The scheduler of gangs that are jobs of Slurm."""

SLURM_PRIORITIES = 8
"""Most priorities of jobs of Slurm, unless the policy says otherwise."""

SHOWN_SCHEDULERS = 4
"""Most schedulers that a sentence names."""

PENDING_LIMIT_S = 300
"""Seconds that a started pod may wait for its scheduler, unless the policy says otherwise."""

GPU_BACKENDS = ("annotation", "none", "hami", "koordinator", "dra")
"""Ways to pass the planned GPU indices to a node, the default first."""

Domains = tuple[tuple[str, tuple[str, ...]], ...]
"""(domain, names of its nodes), both sorted."""


@dataclass(frozen=True, slots=True)
class KubernetesPolicy:
    """How Kubernetes objects are read and a plan is applied; no tier depends on it.

    ``scheduler_name``, ``scheduling_gate``: which waiting pods are gangplan's. ``scheduler_names``: others
    whose waiting pods are planned too, as a what-if (EVERY_SCHEDULER: all). ``gpu_resources``: resource
    names that count whole GPUs. ``levels``: None to detect them on the nodes.
    ``level_domains``: (name of a level, its domains) of levels that have no label.
    ``server_models``: (node selector, model), the first match counts. ``ignore``: of CONSTRAINTS.
    ``trust_submitted_at``: whether an annotation may set the submission time of a gang.
    ``trust_communication``: whether annotations may make a gang count as faster than one without.
    ``trust_min_run_time``: whether one may state more than its queue or the policy grants.
    ``trust_elastic_quotas``: whether only administrators write ElasticQuotas.
    ``nvlink_across_nodes``: NVLink between servers counts for every gang (``assumed``), or only for
    those whose pods with GPUs all have a ComputeDomain claim (``claimed``).
    ``gpu_backend``: one of GPU_BACKENDS. ``other_schedulers``: those whose pods hold room on the node that
    they select before they are bound; None: the default scheduler and those seen at work.
    ``pending_limit_s``: a gang with a started pod that is not bound by then is stuck; None for never.
    """

    scheduler_name: str = "gangplan"
    scheduling_gate: str = "gangplan.dev/placement"
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    levels: tuple[Level, ...] | None = None
    server_models: tuple[tuple[tuple[tuple[str, str], ...], str], ...] = ()
    ignore: tuple[str, ...] = ()
    trust_submitted_at: bool = False
    trust_communication: bool = False
    trust_min_run_time: bool = False
    trust_elastic_quotas: bool = False
    level_domains: tuple[tuple[str, Domains], ...] = ()
    nvlink_across_nodes: str = "assumed"
    gpu_backend: str = GPU_BACKENDS[0]
    other_schedulers: tuple[str, ...] | None = None
    pending_limit_s: int | None = PENDING_LIMIT_S
    scheduler_names: tuple[str, ...] = ()

    def plans(self, scheduler: str) -> bool:
        """Whether waiting pods of a scheduler are planned, whatever their scheduling gates."""
        names = (self.scheduler_name, *self.scheduler_names)
        return scheduler in names or EVERY_SCHEDULER in names[1:]

    @property
    def plans_others(self) -> bool:
        """Whether waiting pods of other schedulers are planned: such a plan is a what-if."""
        return any(name != self.scheduler_name for name in self.scheduler_names)


@dataclass(frozen=True, slots=True)
class EvictionBackoff:
    """A gang starts again ``base_s`` after its first eviction, each time twice as long, at most ``max_s``."""

    base_s: int = 10 * 60
    max_s: int = 2 * 60 * 60

    def after(self, evictions: int) -> int:
        """Seconds after the last of so many evictions; none counts as one."""
        return min(self.max_s, self.base_s << min(max(evictions, 1) - 1, 62))


COMPARISONS = (">=", "<=", ">", "<", "=")


@dataclass(frozen=True, slots=True)
class Reservations:
    """Which waiting gangs hold a reservation: ``per_priority`` of each priority at most, within the horizon.

    ``priorities``: (one of COMPARISONS, priority), any of which must hold; empty: every priority.
    """

    per_priority: int = 1
    horizon_s: int = DAY_S
    priorities: tuple[tuple[str, int], ...] = ()

    def admits(self, priority: int) -> bool:
        """Whether gangs of a priority may hold one."""
        return not self.priorities or any(
            {">=": priority >= n, "<=": priority <= n, ">": priority > n, "<": priority < n}.get(
                comparison, priority == n
            )
            for comparison, n in self.priorities
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """``mix``: (GPUs, permille) of future requests, ascending by GPUs, as used (default filled in).

    ``moves``: None for no limits. ``starvation_after_s``: a gang that has waited longer goes
    before its peers, None for never. ``now``: reference time of ages in seconds since the
    epoch, None for the latest time in the input (``Instance.now``). ``queue_limit``: the most
    waiting gangs of a namespace that may start, None for all. ``hold_room_from``: the least priority
    of the gangs that hold room while they wait, None where none does. ``reservations``: None for none.
    ``patience``: of gangs that state none. ``suspect_for_s``: how long
    a failure of a node counts. ``spares``: (name of a level, nodes that stay free in each
    of its domains), sorted. ``per_gpu``: (resource, units) that a free GPU needs to be of use, sorted.
    ``gpu_hour_price``: of one GPU for an hour, in any currency; no tier depends on it.
    ``min_run_time_s``: of gangs whose queues state none. ``eviction_backoff``: None for none.
    ``slurm_priorities``: most priorities that gangs read from a queue of Slurm have.
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
    hold_room_from: int | None = None
    reservations: Reservations | None = None
    patience: Patience | None = None
    spares: tuple[tuple[str, int], ...] = ()
    suspect_for_s: int = DAY_S
    per_gpu: tuple[tuple[str, int], ...] = ()
    gpu_hour_price: Fraction | None = None
    min_run_time_s: int = 0
    eviction_backoff: EvictionBackoff | None = EvictionBackoff()
    slurm_priorities: int = SLURM_PRIORITIES

    def lists(self, objective: str) -> bool:
        """Whether the policy has the objective."""
        return any(listed.name == objective for listed in self.objectives)
