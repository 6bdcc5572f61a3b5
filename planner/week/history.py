"""When gangs came, ran and ended, from the rounds of a journal: known exactly, or between two rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from models.units import epoch_seconds
from planner.week.figures import Figures
from planner.week.journal import Round, State, Tree

Pick = Literal["earliest", "middle", "latest"]
"""Which of the times between two rounds counts."""

MANY = 2.5
"""Times the usual interval: a longer one is a gap."""


@dataclass(slots=True)
class Life:
    """One gang from its arrival. ``name``: its own in this journal; ``document``: as it waited, or first ran.

    ``arrived``: since when it waits. ``started``: (earliest, latest), None if it was never seen running.
    ``seen``: the last round that saw it run. ``paused``: seconds between its runs. ``at_first``: it ran at
    the first round. ``gone``: the first round after it; None: it is there at the end. ``places``: pods of its
    first run. ``holds``: (time, why it must not start).
    """

    name: str
    document: Tree
    submitted: str | None
    arrived: int
    started: tuple[int, int] | None = None
    seen: int | None = None
    paused: int = 0
    running: bool = False
    at_first: bool = False
    gone: int | None = None
    places: list[Tree] = field(default_factory=list)
    holds: list[tuple[int, Tree | None]] = field(default_factory=list)

    def start(self, pick: Pick) -> int | None:
        """When it started; None if it never did."""
        return None if self.started is None else _picked(*self.started, pick)

    def seconds(self, pick: Pick) -> int | None:
        """How long it ran; None where nobody saw it start or end."""
        if self.started is None or self.gone is None or self.seen is None or self.at_first:
            return None
        begun = self.start("middle" if pick == "middle" else _OPPOSITE[pick])
        assert begun is not None
        return max(1, _picked(self.seen, self.gone, pick) - begun - self.paused)

    def end(self, pick: Pick) -> int:
        """When it ended, of one that did."""
        assert self.seen is not None
        assert self.gone is not None
        return _picked(self.seen, self.gone, pick)


_OPPOSITE: dict[Pick, Pick] = {"earliest": "latest", "latest": "earliest"}


def _picked(least: int, most: int, pick: Pick) -> int:
    return {"earliest": least, "middle": (least + most) // 2, "latest": most}[pick]


@dataclass(frozen=True, slots=True)
class Seen:
    """A round: its time, its figures, and the cluster where it differs from that of the round before."""

    time: int
    figures: Figures
    state: State | None = None


@dataclass(slots=True)
class History:
    """``lives``: every gang, by arrival. ``nodes``: every node that was there, as it was last."""

    rounds: list[Seen] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    nodes: dict[str, Tree] = field(default_factory=dict)
    lost: int = 0
    _current: dict[str, Life] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _like: tuple[object, object] | None = None

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> History:
        """What these rounds say. Those whose cluster is unknown are counted: one before them is missing."""
        made = cls()
        for one in rounds:
            if one.state is None:
                made.lost += 1
                continue
            made.see(one)
        return made

    @property
    def interval(self) -> int:
        """Seconds between two rounds, as usual."""
        steps = sorted(b.time - a.time for a, b in zip(self.rounds, self.rounds[1:], strict=False))
        return steps[len(steps) // 2] if steps else 0

    def covered(self) -> list[tuple[Seen, int]]:
        """Each round, and the seconds for which it counts: to the next round, none before a gap."""
        most = MANY * self.interval
        times = [(a, b.time - a.time) for a, b in zip(self.rounds, self.rounds[1:], strict=False)]
        return [(one, seconds) for one, seconds in times if seconds <= most]

    def gaps(self) -> list[tuple[int, int]]:
        """(from, to) where rounds are missing."""
        most = MANY * self.interval
        steps = zip(self.rounds, self.rounds[1:], strict=False)
        return [(a.time, b.time) for a, b in steps if b.time - a.time > most]

    def see(self, one: Round) -> None:
        """Take the next round into account."""
        state, time = one.state, one.record.time
        assert state is not None
        last = self.rounds[-1].time if self.rounds else None
        like = state.head, state.nodes
        self.rounds.append(Seen(time, one.record.figures, None if like == self._like else state))
        self._like = like
        self.nodes.update(state.nodes)
        for name, document in state.gangs.items():
            known = self._current.get(name)
            if known is None or known.submitted != document["spec"].get("submittedAt"):
                if known is not None:
                    self._ended(known, time)
                known = self._current[name] = self._new(name, document, last, time)
            self._look(known, document, last, time)
        for name in self._current.keys() - state.gangs.keys():
            self._ended(self._current.pop(name), time)

    def _new(self, name: str, document: Tree, last: int | None, time: int) -> Life:
        """A gang that came since the last round."""
        own, count = name, 1
        while own in self._used:
            count += 1
            own = f"{name}.{count}"
        self._used.add(own)
        submitted = document["spec"].get("submittedAt")
        stated = None if submitted is None else epoch_seconds(submitted)
        arrived = time if stated is None or last is None else max(last, min(stated, time))
        life = Life(own, document, submitted, arrived)
        self.lives.append(life)
        return life

    def _look(self, life: Life, document: Tree, last: int | None, time: int) -> None:
        pods = document["status"]["pods"]
        runs = any("node" in pod for pod in pods)
        hold = document["status"].get("hold")
        if not life.holds or life.holds[-1][1] != hold:
            life.holds.append((time, hold))
        if runs and life.started is None:
            life.places = pods
            life.started = _started(document, life, last, time)
            life.at_first = last is None
            if life.at_first:
                life.document = document
        elif runs and not life.running and life.seen is not None:
            life.paused += time - life.seen  # the pause between two runs
        elif not runs and life.started is None:
            life.document = document
        life.running = runs
        if runs:
            life.seen = time

    def _ended(self, life: Life, time: int) -> None:
        life.gone = time


def _started(document: Tree, life: Life, last: int | None, time: int) -> tuple[int, int]:
    """Between which times it started: its own word where that is possible."""
    earliest = life.arrived if last is None else max(last, life.arrived)
    stated = document["status"].get("startedAt")
    if stated is not None and (last is None or last < (at := epoch_seconds(stated)) <= time):
        at = epoch_seconds(stated)
        return at, at
    return earliest, time
