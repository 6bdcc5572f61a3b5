"""The audit of a cluster: what stands, a re-plan in which gangs move at no price, and what its gains take.

Figures of plans that were found elsewhere; nothing is searched here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from models.instance.instance import Instance
from models.instance.solution import NEVER, STARTS, GangDecision, PodPlacement
from models.program.base_state import base_decisions
from models.program.options import standing_gpus
from models.starts.empty_starts import Answer, EmptyStarts
from models.units import first_of, number
from models.values.effective_gpus import gpus_at_speed
from models.values.leftover import CAUSES, free_gpus, stranded_by_cause
from models.values.tier_values import Evaluation

MAX_NAMED = 5
"""Nodes named for one cause."""

DAY_H = 24

StartsIf = Literal["now", "others moved", "others ended", "held", "never"]


@dataclass(frozen=True, slots=True)
class AuditCause:
    """Why free GPUs are of no use to the next request of the policy's mix: ``nodes`` have so many."""

    cause: str
    gpus: float
    nodes: int
    detail: str


@dataclass(frozen=True, slots=True)
class AuditGpus:
    """``installed``: without partitioned ones. ``stranded``: of the free ones."""

    installed: int
    held: int
    free: int
    stranded: float


@dataclass(frozen=True, slots=True)
class AuditEffective:
    """GPUs of the gangs that run whole, times their speed: now, with what starts without a move, re-planned.

    ``at_most``: what no better re-plan exceeds; None if not known. ``lost_per_day``: the price of what the
    re-plan has more than now, for a day; None without a price.
    """

    now: float
    unmoved: float
    replanned: float
    at_most: float | None
    lost_per_day: float | None


@dataclass(frozen=True, slots=True)
class AuditWaiting:
    """A gang that waits, or of which pods are missing. ``steps``: numbers, from 1, of those that start it."""

    gang: str
    priority: int
    gpus: float
    starts_if: StartsIf
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AuditMove:
    """A gang that restarts, the nodes that it leaves and those to which it comes."""

    gang: str
    gpus: float
    leaves: tuple[str, ...]
    comes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditStep:
    """Gangs that restart together, and what that brings beyond what is possible without any move.

    ``lost_gpu_seconds``: GPUs times seconds since the last checkpoint or the start; None if one is not known.
    ``starts``, ``faster``, ``slower``, ``waits``: gangs. ``allowed``: whether all that restart may move, as
    they say. ``fewest``: proven: no plan with fewer restarts regains as much.
    """

    restarts: int
    gpus: float
    lost_gpu_seconds: int | None
    regains: float
    starts: tuple[str, ...]
    faster: tuple[str, ...]
    slower: tuple[str, ...]
    waits: tuple[str, ...]
    moves: tuple[AuditMove, ...]
    allowed: bool
    fewest: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """``steps``: the cheapest first. ``whole``: of them, the one that regains all that the re-plan does."""

    cluster: str
    created_at: str
    generator: str
    gpus: AuditGpus
    stranded: tuple[AuditCause, ...]
    effective: AuditEffective
    waiting: tuple[AuditWaiting, ...]
    steps: tuple[AuditStep, ...]
    whole: int | None
    notes: tuple[str, ...]


def free_to_move(instance: Instance) -> set[int]:
    """Running gangs that some plan could move: no pod of theirs is missing, and nothing holds them."""
    return {
        index
        for index, gang in enumerate(instance.gangs)
        if gang.running and gang.hold is None and index not in instance.incomplete
    }


class AuditWriter:
    """Writes an audit. ``stated``: the instance as it was read; ``free``: in which gangs move at no price.

    ``steps``: plans with few moves; for each whether that no fewer regain as much is proven.
    """

    def __init__(
        self,
        stated: Instance,
        free: Instance,
        unmoved: Sequence[GangDecision],
        replanned: Sequence[GangDecision],
        steps: Sequence[tuple[Sequence[GangDecision], bool]],
    ) -> None:
        self._stated, self._free = stated, free
        self._base = base_decisions(stated)
        self._unmoved, self._replanned = unmoved, replanned
        self._steps = steps
        self._nodes = [node.name for node in free.cluster.nodes]
        self._names = ["/".join(gang.key) for gang in free.gangs]

    def compose(
        self,
        *,
        created_at: str,
        generator: str,
        at_most: float | None,
        whole: int | None,
        notes: Sequence[str],
    ) -> Audit:
        """``at_most``: effective GPUs that no better plan exceeds. ``whole``: number of a step, from 1."""
        return Audit(
            self._stated.cluster.name,
            created_at,
            generator,
            self._gpus(),
            self._causes(),
            self._effective(at_most),
            self._waiting(),
            tuple(self._step(plan, fewest=fewest) for plan, fewest in self._steps),
            whole,
            tuple(notes),
        )

    def _gpus_of(self, plan: Sequence[GangDecision]) -> list[int]:
        """Permille-GPU of every gang."""
        return gpus_at_speed(Evaluation(self._free, plan))

    def _amount(self, permille: int) -> float:
        """Effective GPUs of what they count in permille."""
        return number(Fraction(permille, 1000 * self._free.gpu_unit))

    @cached_property
    def _stranded(self) -> dict[str, dict[int, Fraction]]:
        return stranded_by_cause(self._stated, self._base)

    def _gpus(self) -> AuditGpus:
        installed = sum(node.whole_gpus for node in self._free.cluster.nodes)
        free = sum(free_gpus(self._stated, self._base).unheld)
        stranded = sum(_thousandths(nodes.values()) for nodes in self._stranded.values())
        return AuditGpus(installed, installed - free, free, number(Fraction(stranded, 1000)))

    def _causes(self) -> tuple[AuditCause, ...]:
        found = []
        for cause, gpus in self._stranded.items():
            nodes = sorted(gpus, key=lambda n: (-gpus[n], self._nodes[n]))
            names = first_of([self._nodes[n] for n in nodes], MAX_NAMED)
            total = number(Fraction(_thousandths(gpus.values()), 1000))
            found.append(AuditCause(cause, total, len(nodes), f"{CAUSES[cause]}: {names}"))
        return tuple(sorted(found, key=lambda one: -one.gpus))

    def _effective(self, at_most: float | None) -> AuditEffective:
        now, after = (sum(self._gpus_of(plan)) for plan in (self._base, self._replanned))
        price, lost = self._stated.policy.gpu_hour_price, Fraction(after - now, 1000)
        per_day = None if price is None else price * DAY_H * lost / self._free.gpu_unit
        return AuditEffective(
            now=self._amount(now),
            unmoved=self._amount(sum(self._gpus_of(self._unmoved))),
            replanned=self._amount(after),
            at_most=None if at_most is None else max(at_most, self._amount(after)),
            lost_per_day=None if per_day is None else number(Fraction(round(per_day * 100), 100)),
        )

    def _on(self, pods: Iterable[PodPlacement]) -> tuple[str, ...]:
        return tuple(self._nodes[n] for n in sorted({pod.node for pod in pods}))

    def _waiting(self) -> tuple[AuditWaiting, ...]:
        lines = Evaluation(self._free, self._base).lines
        waiting = [i for i, one in enumerate(lines) if not one.admitted]
        waiting.sort(key=lambda i: (-self._free.gangs[i].priority, i))
        starting = [{i for i in waiting if plan[i].decision in STARTS} for plan, _ in self._steps]
        found = []
        for i in waiting:
            steps = tuple(n for n, gangs in enumerate(starting, 1) if i in gangs)
            starts_if = self._starts_if(i, in_steps=bool(steps))
            gang = self._free.gangs[i]
            found.append(
                AuditWaiting(
                    self._names[i],
                    gang.shown_priority,
                    self._free.in_gpus(gang.least_units),
                    starts_if,
                    () if starts_if == "now" else steps,
                )
            )
        return tuple(found)

    def _starts_if(self, index: int, *, in_steps: bool) -> StartsIf:
        """Under which condition a gang that does not run whole starts, or is completed."""
        if self._free.gangs[index].hold is not None:
            return "held"
        if self._unmoved[index].decision in STARTS:
            return "now"
        if in_steps or self._replanned[index].decision in STARTS:
            return "others moved"
        reasons = (plan[index].reason for plan in (self._unmoved, self._replanned))
        stated = any(reason is not None and reason.code == NEVER for reason in reasons)
        starts = self._free.once(EmptyStarts)
        able = starts.can_now(index)
        refused = not able and starts.refused[index] in (Answer.NEVER, Answer.NOT_NOW)
        return "never" if stated or refused else "others ended"

    def _step(self, plan: Sequence[GangDecision], *, fewest: bool) -> AuditStep:
        before, after = (Evaluation(self._free, one) for one in (self._unmoved, plan))
        moved = [i for i, one in enumerate(plan) if one.decision == "move"]
        gangs = [self._stated.gangs[i] for i in moved]
        gpus = [standing_gpus(self._free, i) for i in moved]
        times = [self._stated.lost_work_s(gang) for gang in gangs]
        work = [
            held * max(0, one) for held, one in zip(gpus, times, strict=True) if one is not None
        ]
        speeds = [
            tuple(one.speed or 0 if one.admitted else -1 for one in pair)
            for pair in zip(before.lines, after.lines, strict=True)
        ]
        regained = sum(gpus_at_speed(after)) - sum(gpus_at_speed(before))

        def named(chosen: Iterable[bool]) -> tuple[str, ...]:
            return tuple(itertools.compress(self._names, chosen))

        return AuditStep(
            restarts=len(moved),
            gpus=self._free.in_gpus(sum(gpus)),
            lost_gpu_seconds=None if None in times else sum(work) // self._free.gpu_unit,
            regains=self._amount(regained),
            starts=named(old < 0 <= new for old, new in speeds),
            faster=named(0 <= old < new for old, new in speeds),
            slower=named(0 <= new < old for old, new in speeds),
            waits=named(new < 0 <= old for old, new in speeds),
            moves=tuple(
                AuditMove(
                    self._names[i],
                    self._free.in_gpus(held),
                    self._on(self._base[i].pods),
                    self._on(plan[i].pods),
                )
                for i, held in zip(moved, gpus, strict=True)
            ),
            allowed=all(gang.movable for gang in gangs),
            fewest=fewest,
        )


def _thousandths(gpus: Iterable[Fraction]) -> int:
    return round(1000 * sum(gpus, Fraction(0)))
