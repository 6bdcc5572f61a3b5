"""Policy: the order of the objective tiers, the mix of future requests, the search budget.

Promises: frozen data; defaults are those of the contract, written out.
Called by the readers (which build it) and by solving and evaluating.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from models.cluster import Level
from models.tiers import objective_names

DEFAULT_OBJECTIVES = objective_names(default_only=True)


@dataclass(frozen=True, slots=True)
class Objective:
    """One tier, by name; ``tolerance``: how much of it later tiers may give away (exact)."""

    name: str
    tolerance: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """``budget``: deterministic effort (1 is about a second of one core). ``time_limit_s``: the clock."""

    budget: int = 60
    time_limit_s: int = 120
    workers: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Moves:
    """How much may restart elsewhere in one plan, None for no limit, and what it must be worth.

    ``max_gangs``: gangs of which any pod moves. ``max_gpus``: all GPUs of those gangs.
    ``min_gain``: GPUs a set of moves must buy for each GPU it restarts (exact); poorer sets are dropped.
    """

    max_gangs: int | None = None
    max_gpus: int | None = None
    min_gain: Fraction = Fraction(0)


GPUS = "gpus"
LOST_RUNTIME = "lostRuntime"

DAY_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Disruption:
    """What stopping, moving or shrinking costs. ``weight``: GPUs, or GPUs x seconds of lost runtime.

    ``cap_s``: the most seconds that count, and what an unknown start counts.
    """

    weight: str = GPUS
    cap_s: int = DAY_S


UNMODELLED = ("podAntiAffinity", "podAffinity", "topologySpread", "volumeZone", "hostPort")
"""Constraints of pods that no plan can promise: a gang with one waits unless they are ignored."""

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "aliyun.com/gpu", "habana.ai/gaudi")

GPU_BACKENDS = ("annotation", "none", "hami", "koordinator", "dra")
"""Who makes a node use the GPUs that a plan chose, the default first."""

Domains = tuple[tuple[str, tuple[str, ...]], ...]
"""(domain, names of its nodes), both sorted."""


@dataclass(frozen=True, slots=True)
class KubernetesPolicy:
    """How Kubernetes objects are read and a plan is applied; no tier depends on it.

    ``scheduler_name``, ``scheduling_gate``: which waiting pods are ours to place. ``gpu_resources``:
    resource names that mean whole GPUs. ``levels``: None to find them on the nodes.
    ``level_domains``: (name of a level, its domains) of levels that have no label.
    ``server_models``: (node selector, model), the first match counts. ``ignore``: of UNMODELLED.
    ``trust_submitted_at``: whether an annotation may say since when a gang waits.
    ``nvlink_across_nodes``: NVLink between servers counts for every gang (``assumed``), or only for
    those whose pods with GPUs all hold a ComputeDomain claim (``claimed``).
    ``gpu_backend``: of GPU_BACKENDS, how the GPUs that a plan chose reach the nodes.
    """

    scheduler_name: str = "gangplan"
    scheduling_gate: str = "gangplan.dev/placement"
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    levels: tuple[Level, ...] | None = None
    server_models: tuple[tuple[tuple[tuple[str, str], ...], str], ...] = ()
    ignore: tuple[str, ...] = ()
    trust_submitted_at: bool = False
    level_domains: tuple[tuple[str, Domains], ...] = ()
    nvlink_across_nodes: str = "assumed"
    gpu_backend: str = GPU_BACKENDS[0]


@dataclass(frozen=True, slots=True)
class Policy:
    """``mix``: (GPUs, permille) of future requests, ascending by GPUs, as used (default filled in).

    ``moves``: None for no limits. ``starvation_after_s``: a gang that waited longer goes before its
    priority peers, None for never. ``now``: seconds since the epoch that ages are counted to, None for
    the latest time the input names (``Instance.now``).
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
    starvation_after_s: int | None = None
    now: int | None = None

    def lists(self, objective: str) -> bool:
        """Whether the objective is one of those asked for."""
        return any(listed.name == objective for listed in self.objectives)
