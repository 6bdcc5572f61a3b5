"""Limits of one apply run, and its results: an outcome per gang and the verdict of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from models.apply.live_state import LivePod
from models.apply.plan_actions import Key, PodStart, Resize
from models.instance.policy import KubernetesPolicy

_DEFAULTS = KubernetesPolicy()

_LONGEST_WAIT = 5
"""Most ticks between two readings."""


@dataclass(frozen=True, slots=True)
class ApplyLimits:
    """``max_evictions``: pods that this run may evict. ``evict_partial``: evict partial gangs.

    ``wait_rounds``: ticks of ``tick_s`` seconds to wait at most for pods to go, appear or be bound.
    ``gate``, ``backend``, ``pending_limit_s``: of the Policy. ``dry``: nothing is written, so nothing is
    waited for.
    """

    allow_evictions: bool = False
    max_evictions: int = 0
    evict_partial: bool = False
    wait_rounds: int = 30
    tick_s: float = 2.0
    gate: str = _DEFAULTS.scheduling_gate
    backend: str = "annotation"
    dry: bool = False
    pending_limit_s: int | None = _DEFAULTS.pending_limit_s

    def waits(self) -> Iterator[float]:
        """Seconds before each further reading, growing; ``wait_rounds * tick_s`` in total."""
        left, last, step = self.wait_rounds, 0, 1
        while left > 0:
            taken = min(step, left, _LONGEST_WAIT)
            yield taken * self.tick_s
            left -= taken
            last, step = step, last + step


class Outcome(StrEnum):
    """Result for one gang."""

    started = "started"
    """Every pod is bound."""
    pending = "pending"
    """Every pod is started; the scheduler has not bound all of them yet."""
    unchanged = "unchanged"
    """It was whole before: nothing was written."""
    skipped = "skipped"
    """Nothing of it is started and no intent is left: a conflict, or a fact the plan relied on changed."""
    partial = "partial"
    """Some pods are started and the others cannot be: needs an operator or --evict-partial."""
    halted = "halted"
    """The run stopped in the middle of it: the same command resumes it."""
    stopped = "stopped"
    """The pods that had to go are gone: preempted or about to restart elsewhere."""
    resized = "resized"
    """Its controller has another number of pods: it shrank, or a later plan starts its new pods."""
    withheld = "withheld"
    """It needs evictions that are not allowed or that a budget forbids."""
    undone = "undone"
    """It was partial, and its started pods were evicted."""
    advised = "advised"
    """Its controller has no scale field that we may set: an operator has to resize it."""


PodId = tuple[str, str, str]
"""(namespace, name, uid)."""


def pod_ids(pods: Iterable[PodStart | LivePod]) -> tuple[PodId, ...]:
    return tuple((*pod.key, pod.uid) for pod in pods)


@dataclass(frozen=True, slots=True)
class GangVerdict:
    """``why``: one sentence, empty if the outcome says everything. ``pods``: started now.

    ``undo``: the running pods of a gang that is partial or half stopped.
    ``plan``: id of the plan of its intents.
    ``unsure``: it may have been whole and be at work, so only an operator may undo it.
    """

    gang: Key
    outcome: Outcome
    plan: str
    why: str = ""
    pods: int = 0
    undo: tuple[PodId, ...] = ()
    unsure: bool = False
    resizes: tuple[Resize, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a run. ``stop``: why it ended early; ``lock_lost``: because the lock was lost.

    ``writes``: requests that changed something or may have.
    """

    gangs: tuple[GangVerdict, ...] = ()
    stop: str | None = None
    lock_lost: bool = False
    writes: int = 0
    evicted: int = 0
