"""When gangs came, ran and ended, from the rounds of a journal: known exactly, or between two rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, count, pairwise
from typing import Literal

from models.units import epoch_seconds
from planner.week.journal import Figures, Round, State, Tree

Pick = Literal["earliest", "middle", "latest"]
"""Which of the times between two rounds counts."""

MANY = 2.5
"""Times the usual interval: a longer one is a gap."""


@dataclass(slots=True)
class Life:
    """One gang from its arrival. ``name``: its own in this journal; ``document``: as it waited, or first ran.

    ``arrived``: since when it waits. ``started``: (earliest, latest), None if it was never seen running.
    ``seen``: the last round that saw it run; ``met``: that saw it. ``paused``: seconds between its runs.
    ``at_first``: it ran at the first round. ``gone``: the first round after it; None: it is there at the end.
    ``runs``: (time, its pods on nodes from this round on). ``holds``: (time, why it must not start).
    """

    name: str
    document: Tree
    submitted: str | None
    arrived: int
    started: tuple[int, int] | None = None
    seen: int | None = None
    met: int = 0
    paused: int = 0
    at_first: bool = False
    gone: int | None = None
    runs: list[tuple[int, list[Tree]]] = field(default_factory=list)
    holds: list[tuple[int, Tree | None]] = field(default_factory=list)

    def start(self, pick: Pick) -> int | None:
        """When it started; None if it never did."""
        return None if self.started is None else _picked(*self.started, pick)

    def seconds(self, pick: Pick) -> int | None:
        """How long it ran; None where nobody can know. Who left unseen ran between two rounds, if at all."""
        if self.gone is None or self.at_first:
            return None
        begun = self.start("middle" if pick == "middle" else _OPPOSITE[pick])
        if begun is None:
            return max(1, _picked(0, self.gone - self.met, pick))
        return max(1, self.end(pick) - begun - self.paused)

    def end(self, pick: Pick) -> int:
        """When it ended, of one that did."""
        assert self.seen is not None
        return _picked(self.seen, self.runs[-1][0], pick)

    def within(self, start: int, end: int) -> bool:
        """Whether a round between these saw it."""
        return self.holds[0][0] <= end and (self.gone is None or self.gone > start)

    def pods(self, time: int) -> list[Tree]:
        """Its pods on nodes at a round."""
        return next((pods for at, pods in reversed(self.runs) if at <= time), [])


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

    def _steps(self) -> list[tuple[Seen, int]]:
        """Each round but the last, and the seconds to the next one."""
        return [(one, later.time - one.time) for one, later in pairwise(self.rounds)]

    @property
    def interval(self) -> int:
        """Seconds between two rounds, as usual."""
        steps = sorted(seconds for _, seconds in self._steps())
        return steps[len(steps) // 2] if steps else 0

    def covered(self) -> list[tuple[Seen, int]]:
        """Each round, and the seconds for which it counts: to the next round, none before a gap."""
        most = MANY * self.interval
        return [(one, seconds) for one, seconds in self._steps() if seconds <= most]

    def gaps(self) -> list[tuple[int, int]]:
        """(from, to) where rounds are missing."""
        most = MANY * self.interval
        return [(one.time, one.time + step) for one, step in self._steps() if step > most]

    def stretches(self) -> list[tuple[int, int]]:
        """(first round, last round) between gaps."""
        times = [
            self.rounds[0].time,
            *(t for gap in self.gaps() for t in gap),
            self.rounds[-1].time,
        ]
        return list(zip(times[::2], times[1::2], strict=True))

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
            known, came = self._current.get(name), document["spec"].get("submittedAt")
            # A gang that waits came with its last pod, one that runs with its first.
            changed = known is not None and came not in {None, known.submitted}
            if known is None or (changed and epoch_seconds(came) > (last or 0)):
                if known is not None:
                    _end(known, time)
                known = self._current[name] = self._new(name, document, last, time)
            _look(known, document, last, time)
        for name in self._current.keys() - state.gangs.keys():
            _end(self._current.pop(name), time)

    def _new(self, name: str, document: Tree, last: int | None, time: int) -> Life:
        """A gang that came since the last round."""
        names = chain([name], (f"{name}.{number}" for number in count(2)))
        own = next(one for one in names if one not in self._used)
        self._used.add(own)
        submitted = document["spec"].get("submittedAt")
        stated = None if submitted is None else epoch_seconds(submitted)
        arrived = time if stated is None or last is None else max(last, min(stated, time))
        life = Life(own, document, submitted, arrived)
        self.lives.append(life)
        return life


def _look(life: Life, document: Tree, last: int | None, time: int) -> None:
    """What a round sees of a gang."""
    pods = [pod for pod in document["status"]["pods"] if "node" in pod]
    hold = document["status"].get("hold")
    held = life.runs[-1][1] if life.runs else []
    life.met = time
    if not life.holds or life.holds[-1][1] != hold:
        life.holds.append((time, hold))
    if pods and life.started is None:
        life.started = _started(document, life, last, time)
        life.at_first = last is None
    elif life.started is None:
        life.document = document
    elif pods and not held and life.seen is not None:
        life.paused += time - life.seen  # the pause between two runs
    if pods != held:
        life.runs.append((time, pods))
    if pods:
        life.seen = time


def _end(life: Life, time: int) -> None:
    life.gone = time
    if life.runs and life.runs[-1][1]:
        life.runs.append((time, []))


def _started(document: Tree, life: Life, last: int | None, time: int) -> tuple[int, int]:
    """Between which times it started: its own word where that is possible."""
    stated = document["status"].get("startedAt")
    at = None if stated is None else epoch_seconds(stated)
    if at is not None and (last is None or last < at <= time):
        return at, at
    return life.arrived if last is None else max(last, life.arrived), time
