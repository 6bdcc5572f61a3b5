"""How far one run may go: evictions, waits, and how pods of ours are told.

Promises: plain data. Made by ``planner.pipelines.apply_steps``; read by the machine in this package.

What became of each gang, and of the whole: the machine's last word.

Promises: plain data, ready to be shown; a gang that is partial names its pods, so that commands that
undo it can be written. Made by the machine in this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from models.apply.orders import Key, Resize
from models.policy import KubernetesPolicy

_DEFAULTS = KubernetesPolicy()

_LONGEST = 5
"""Ticks between two looks at most."""


@dataclass(frozen=True, slots=True)
class ApplyLimits:
    """``max_evictions``: pods evicted in this run at most. ``evict_partial``: undo what is partial.

    ``wait_rounds``: so many times ``tick_s`` seconds are waited at most while pods go, come or are being
    bound. ``gate``, ``scheduler``, ``backend``: of the Policy. ``dry``: nothing is really written,
    so nothing is waited for. ``open_nodes``: (node, why) that no further gang is bound to, for other
    schedulers may fill them.
    """

    allow_evictions: bool = False
    max_evictions: int = 0
    evict_partial: bool = False
    wait_rounds: int = 30
    tick_s: float = 2.0
    gate: str = _DEFAULTS.scheduling_gate
    scheduler: str = _DEFAULTS.scheduler_name
    backend: str = "annotation"
    dry: bool = False
    open_nodes: tuple[tuple[str, str], ...] = ()

    def waits(self) -> Iterator[float]:
        """Seconds before each next look while something is waited for: short at first, then longer.

        Reading a large cluster takes seconds itself. Together they are ``wait_rounds * tick_s``.
        """
        left, last, step = self.wait_rounds, 0, 1
        while left > 0:
            taken = min(step, left, _LONGEST)
            yield taken * self.tick_s
            left -= taken
            last, step = step, last + step


class Outcome(StrEnum):
    """Of one gang."""

    started = "started"
    """Every pod is bound."""
    pending = "pending"
    """Every pod is started; the scheduler has not bound all of them yet."""
    unchanged = "unchanged"
    """It was whole already: nothing was written."""
    skipped = "skipped"
    """Nothing of it was started, and no intent is left: a conflict, or something it relied on moved."""
    partial = "partial"
    """Some of its pods are started and others cannot be: it needs a human, or --evict-partial."""
    halted = "halted"
    """We had to stop while it was under way: the same command resumes it."""
    stopped = "stopped"
    """All its pods that had to go are gone: preempted, shrunk or about to restart elsewhere."""
    withheld = "withheld"
    """It needs evictions that are not allowed, or one that a budget forbids."""
    undone = "undone"
    """It was partial, and its started pods were evicted."""
    advised = "advised"
    """Its controller has no scale field that we may set: what to do is said, nothing was written."""


@dataclass(frozen=True, slots=True)
class GangVerdict:
    """``why``: one sentence, empty where the outcome says all. ``pods``: started now.

    ``undo``: (namespace, name, uid) of its started pods, where it is partial. ``atomic``: a native
    PodGroup starts it all or none. ``plan``: id of the plan whose intents these are. ``unsure``: it may
    have been whole and be at work, so that it is a human's to judge whether it is undone.
    """

    gang: Key
    outcome: Outcome
    plan: str
    why: str = ""
    pods: int = 0
    undo: tuple[tuple[str, str, str], ...] = ()
    atomic: bool = False
    unsure: bool = False
    resizes: tuple[Resize, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole. ``stop``: why it ended early, None if it did not; ``lock_lost``: that was it.

    ``writes``: requests that changed something, for the summary.
    """

    gangs: tuple[GangVerdict, ...] = ()
    stop: str | None = None
    lock_lost: bool = False
    writes: int = 0
    evicted: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def whole(self) -> bool:
        """Whether nothing is left to do and nothing needs a human."""
        done = (Outcome.started, Outcome.unchanged, Outcome.stopped, Outcome.undone)
        return self.stop is None and all(gang.outcome in done for gang in self.gangs)
