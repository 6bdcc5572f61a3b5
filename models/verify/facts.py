"""The facts of the instance as the judge reads them, and one pod's place.

Promises: plain data in dense indices, ``len(levels)`` meaning the level ``node``; GPU sets are masks.
Built by ``clusters``, ``groups`` and ``policies``; read by the rules, the bandwidth and the tiers.

What time makes of a gang: whether it is aged, whether its size is held, what a stop would cost it.

All of it is counted to ``now``: the policy's, else the latest submittedAt, startedAt or lastCheckpoint.
Promises: whole seconds, no clock. Called by the rules, the tiers and the comparison with what is stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from models.hardware import Nic, ServerModel


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod on one node, by indices. ``gpus``: a mask, None where unknown, 0 for a pod without."""

    role: int
    index: int
    node: int
    gpus: int | None


PodKey = tuple[int, int]
"""(role, index): which pod of its gang."""


@dataclass(frozen=True, slots=True)
class Level:
    """``oversubscription`` >= 1 divides what crosses its domains."""

    name: str
    label: str | None
    oversubscription: Fraction
    nvlink: bool


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a node affinity. ``key`` None: the node's name. ``limit``: of Gt and Lt."""

    key: str | None
    operator: str
    values: frozenset[str]
    limit: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """``domain[l]``: dense index of its domain at level l, the node level last.

    ``allocatable``: resource to exact amount. ``labels`` include the implied ones. ``taints``: (key, value,
    effect), those that keep pods out. ``usable``: ready, not cordoned, ours. ``unhealthy``: mask.
    """

    name: str
    model: ServerModel | None
    domain: tuple[int, ...]
    allocatable: Mapping[str, Fraction]
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    nics: tuple[Nic, ...]
    usable: bool
    unhealthy: int
    unknown_unhealthy: int

    @property
    def gpus(self) -> int:
        return self.model.gpus if self.model else 0

    @property
    def all_gpus(self) -> int:
        return (1 << self.gpus) - 1

    @property
    def healthy(self) -> int:
        """Mask of the GPUs not known to be sick."""
        return self.all_gpus & ~self.unhealthy


@dataclass(frozen=True, slots=True)
class Role:
    """``requests``: resource to exact amount a pod; ``model``: slug of a GPU or server model.

    ``first``: index of its first pod; the others follow without a gap. ``affinity``: terms, any of them.
    ``slices``: (size, level) of every layer.
    """

    name: str
    min: int
    max: int
    step: int
    elastic: bool
    gpus: int
    requests: Mapping[str, Fraction]
    required: int | None
    preferred: int | None
    slices: tuple[tuple[int, int], ...]
    selector: tuple[tuple[str, str], ...]
    tolerations: tuple[Toleration, ...]
    model: str | None
    mix_models: bool
    first: int = 0
    affinity: tuple[tuple[Expression, ...], ...] = ()

    def allows(self, count: int) -> bool:
        """Whether the role may run with so many pods."""
        return self.min <= count <= self.max and (count - self.min) % self.step == 0


@dataclass(frozen=True)
class Gang:
    """``existing``: (name, uid) of every pod that exists; ``standing``: those that run.

    ``hold``: code of the reason why no pod of it may be placed, None where they may.
    ``joined``: whether NVLink between servers counts for it. ``started``, ``checkpoint``,
    ``resize_after``: seconds since 1970. ``planned``: nodes where an earlier plan wanted its pods.
    """

    namespace: str
    name: str
    priority: int
    submitted: int | None
    preemptible: bool
    movable: bool
    required: int | None
    preferred: int | None
    min_share: Fraction
    pattern: str
    weight: int
    roles: tuple[Role, ...]
    existing: Mapping[PodKey, tuple[str, str | None]]
    standing: Mapping[PodKey, Pod]
    hold: str | None = None
    joined: bool = True
    started: int | None = None
    checkpoint: int | None = None
    resize_after: int | None = None
    planned: Mapping[PodKey, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def running(self) -> bool:
        return bool(self.standing)

    @property
    def elastic(self) -> bool:
        return any(role.elastic for role in self.roles)

    @cached_property
    def gpus_at_min(self) -> int:
        return sum(role.min * role.gpus for role in self.roles)

    @property
    def w(self) -> int:
        """Its GPUs, or 1 if it asks for none; elastic: at ``min``."""
        return self.gpus_at_min or 1

    def held(self, pod: Pod) -> int:
        """GPUs the pod holds: as many as are named, as its role asks for where they are unknown."""
        return self.roles[pod.role].gpus if pod.gpus is None else pod.gpus.bit_count()


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """What may restart elsewhere in one plan; None: any number.

    ``least_gain``: of a set, a GPU moved; 0 asks for nothing, sets may even lose.
    """

    gangs: int | None = None
    gpus: int | None = None
    least_gain: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Policy:
    """``objectives``: (name, tolerance) in order; ``mix``: (GPUs, permille).

    ``lost_cap``: most seconds of lost runtime that a GPU counts in disruption, None where every GPU
    counts 1. ``starvation``: seconds after which a waiting gang is aged, None for never. ``now``:
    seconds since 1970, None where the policy does not say.
    """

    objectives: tuple[tuple[str, Fraction], ...]
    mix: tuple[tuple[int, int], ...]
    min_share: Fraction
    binds_exactly: bool
    selector: tuple[tuple[str, str], ...]
    seed: int
    moves: MoveLimits = MoveLimits()
    lost_cap: int | None = None
    starvation: int | None = None
    now: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Nodes sorted by name, gangs by (namespace, name)."""

    levels: tuple[Level, ...]
    nodes: tuple[Node, ...]
    gangs: tuple[Gang, ...]
    policy: Policy

    @property
    def node_level(self) -> int:
        return len(self.levels)

    def level_name(self, level: int) -> str:
        return "node" if level == len(self.levels) else self.levels[level].name


class Ages:
    """Times of one instance."""

    def __init__(self, facts: Facts) -> None:
        self.policy = facts.policy
        # T of the contract
        self.latest_submission = max(
            (gang.submitted for gang in facts.gangs if gang.submitted is not None), default=0
        )
        named = (t for g in facts.gangs for t in (g.submitted, g.started, g.checkpoint))
        latest = max((time for time in named if time is not None), default=0)
        self.now = latest if self.policy.now is None else self.policy.now

    def aged(self, gang: Gang) -> bool:
        """It waits, and has waited for longer than the limit."""
        limit = self.policy.starvation
        if limit is None or gang.running or gang.submitted is None:
            return False
        return self.now - gang.submitted > limit

    def size_held(self, gang: Gang) -> bool:
        """It runs, and its number of pods stays until a checkpoint that is yet to come."""
        return gang.running and gang.resize_after is not None and gang.resize_after > self.now

    def harm(self, gang: Gang) -> int:
        """What one of its GPUs counts in disruption: 1, or the seconds of runtime it would lose.

        Seconds since it started or last wrote a checkpoint, whichever is later, from 1 to the cap; the
        cap where neither is known.
        """
        cap = self.policy.lost_cap
        if cap is None:
            return 1
        times = [time for time in (gang.started, gang.checkpoint) if time is not None]
        lost = self.now - max(times) if times else cap
        return max(1, min(cap, lost))
