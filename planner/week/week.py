"""The figures of a journal: what stood idle while gangs waited, what was lost to what, and who waited.

Times are integer seconds, GPUs integer thousandths; sums of their products are divided once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import starmap
from typing import Literal

from models.units import number, plural
from planner.errors import Fault, InputError
from planner.week.history import History, Pick
from planner.week.journal import Figures, Idle, Journal
from planner.week.replay import Replay, Replayed, nodes_of

MILLI, HOUR_S = 1000, 3600

WORST = 10

CAUSES = {"order": "now", "fragmentation": "moving", "quotas": "quotas", "spread": None}
"""What GPUs were lost to, and the figure of a round that has it."""

Proof = Literal["proven", "at least"]


@dataclass(frozen=True, slots=True)
class Loss:
    """GPU-hours lost to one thing, and GPUs on average. ``price``: None without one.

    ``proven_hours``: permille of all hours in which no plan starts more.
    """

    cause: str
    gpu_hours: float
    gpus: float
    proof: Proof
    proven_hours: int
    price: float | None


@dataclass(frozen=True, slots=True)
class Waited:
    """Gangs of a size: hours that they waited, would have waited, and waited longer than they had to.

    ``later``: hours that others of them would have waited longer.
    """

    size: str
    gangs: int
    waited: float
    would: float
    longer: float
    later: float


@dataclass(frozen=True, slots=True)
class Case:
    """A gang in truth and in the replay: seconds since the epoch, None where it did not start or end."""

    gang: str
    gpus: float
    arrived: int
    started: int | None
    ended: int | None
    would_start: int | None
    would_end: int | None
    nodes: tuple[str, ...]
    would_be_on: tuple[str, ...]
    longer: float


@dataclass(frozen=True, slots=True)
class Sureness:
    """How sure the replay is. ``alike``: gangs that started within a round of when they do in the replay.

    ``least``, ``most``: hours that all waited longer, by when they ended. ``unknown``: gangs of which nobody
    saw the end: they run to the end of the journal. ``unseen``: gangs that waited and left, and if they ran,
    then between two rounds. ``scaled``: gangs whose seconds were scaled by speed.
    """

    least: float
    most: float
    unknown: int
    unseen: tuple[str, ...]
    scaled: int
    alike: int


@dataclass(frozen=True, slots=True)
class Week:
    """``covered``: hours that figures are about; ``gaps``: (from, to), seconds since the epoch.

    ``allocated``, ``would_be``: permille of the installed GPUs that gangs held, in truth and in the replay.
    ``restart_cost``: GPU-hours of work that a restart loses on average, None if nothing is known of one.
    """

    start: int
    end: int
    rounds: int
    interval: int
    covered: float
    gaps: tuple[tuple[int, int], ...]
    remarks: tuple[str, ...]
    installed: float
    held: float
    free: float
    effective: float
    restarts: int
    losses: tuple[Loss, ...]
    stranded: tuple[tuple[str, float], ...]
    restart_cost: float | None
    gangs: int
    allocated: int
    would_be: int
    classes: tuple[Waited, ...]
    worst: tuple[Case, ...]
    sureness: Sureness
    gpu_hour_price: float | None
    schedule: tuple[Case, ...]


def week_of(folder: str) -> Week:
    """The week of a journal. Raises MissingPathError, InputError."""
    journal = Journal(folder)
    history = History.of(journal.rounds())
    remarks = list(journal.remarks)
    if history.lost:
        remarks.append(f"{plural(history.lost, 'record')} left out: one before is missing")
    if not history.covered():
        remarks.append("no two rounds follow each other: no GPU-hours are counted")
    picks: tuple[Pick, ...] = ("middle", "earliest", "latest")
    replays = [Replay(history, pick) for pick in picks]
    try:
        played = [replay.run() for replay in replays]
    except InputError as error:
        fault = error.faults[0]
        what = f"a document of the journal is none: {fault.what}"
        raise InputError(Fault(what, fault.hint, folder)) from error
    return _Counter(history, played, replays[0].largest_node, remarks).week()


class _Counter:
    """``played``: the gangs of each replay; the first is that which counts. ``node``: GPUs of the largest."""

    def __init__(
        self, history: History, played: Sequence[list[Replayed]], node: int, remarks: Sequence[str]
    ) -> None:
        self._history, self._node, self._remarks = history, node, remarks
        self._played = [[one for one in gangs if one.gpus] for gangs in played]
        self._gangs = self._played[0]
        self._covered, self._stretches = history.covered(), history.stretches()
        self._seconds = sum(seconds for _, seconds in self._covered)
        self._start, self._end = history.rounds[0].time, history.rounds[-1].time
        price = next(
            seen.state.head["policy"]["spec"].get("gpuHourPrice")
            for seen in reversed(history.rounds)
            if seen.state is not None
        )
        self._price = None if price is None else Fraction(str(price))

    def week(self) -> Week:
        lives = [one.life for one in self._gangs]
        cases = [self._case(one) for one in self._gangs]
        waits = sorted(cases, key=lambda one: (-one.longer * one.gpus, one.gang))
        sums = [sum(map(self._longer, gangs)) for gangs in self._played]
        moved = [move for seen, _ in self._covered for move in seen.figures.moving.moved]
        lost = [seconds for _, _, seconds in moved if seconds is not None]
        return Week(
            start=self._start,
            end=self._end,
            rounds=len(self._history.rounds),
            interval=self._history.interval,
            covered=self._hours(self._seconds),
            gaps=tuple(self._history.gaps()),
            remarks=tuple(self._remarks),
            installed=self._mean(lambda one: one.installed),
            held=self._mean(lambda one: one.held),
            free=self._mean(lambda one: one.free),
            effective=self._mean(lambda one: one.effective),
            restarts=self._history.rounds[-1].figures.restarts,
            losses=tuple(starmap(self._loss, CAUSES.items())),
            stranded=tuple(self._stranded()),
            restart_cost=self._hours(sum(lost) // len(lost)) if lost else None,
            gangs=len(cases),
            allocated=self._share(self._ran),
            would_be=self._share(lambda one: one.ran),
            classes=tuple(self._classes()),
            worst=tuple(one for one in waits[:WORST] if one.longer > 0),
            sureness=Sureness(
                self._hours(min(sums)),
                self._hours(max(sums)),
                sum(life.gone is None for life in lives),
                tuple(life.name for life in lives if life.gone is not None and not life.runs),
                sum(one.scaled for one in self._gangs),
                sum(map(self._alike, cases)),
            ),
            gpu_hour_price=None if self._price is None else float(self._price),
            schedule=tuple(cases),
        )

    # what stood idle

    def _mean(self, of: Callable[[Figures], int]) -> float:
        """GPUs on average over the hours that are covered."""
        total = sum(of(seen.figures) * seconds for seen, seconds in self._covered)
        return number(Fraction(round(Fraction(total, max(1, self._seconds))), MILLI))

    @staticmethod
    def _hours(seconds: Fraction | int) -> float:
        return _hundredths(Fraction(seconds, HOUR_S))

    def _loss(self, cause: str, kind: str | None) -> Loss:
        """What was lost to a cause. ``kind``: the figure that has it; None: spread."""
        total = proven = 0
        for seen, seconds in self._covered:
            idle = Idle(seen.figures.spread) if kind is None else getattr(seen.figures, kind)
            total += idle.gpus * seconds
            proven += seconds * idle.proven
        hours, whole = Fraction(total, MILLI * HOUR_S), self._end - self._start
        return Loss(
            cause,
            _hundredths(hours),
            number(Fraction(round(Fraction(total, max(1, self._seconds))), MILLI)),
            "proven" if proven == whole > 0 else "at least",
            MILLI * proven // max(1, whole),
            None if self._price is None else _hundredths(hours * self._price),
        )

    def _stranded(self) -> Iterator[tuple[str, float]]:
        causes = sorted({cause for seen, _ in self._covered for cause in seen.figures.stranded})
        for cause in causes:
            yield cause, self._mean(_of_cause(cause))

    # who waited

    def _beside_gaps(self, start: int, end: int) -> int:
        """Seconds between these times that are in no gap."""
        return sum(max(0, min(end, b) - max(start, a)) for a, b in self._stretches)

    def _waited(self, one: Replayed) -> int:
        """Seconds that a gang waited in truth."""
        life = one.life
        until = life.gone if life.started is None else life.start("middle")
        return self._beside_gaps(life.arrived, self._end if until is None else until)

    def _longer(self, one: Replayed) -> int:
        return self._waited(one) - one.waited

    def _ran(self, one: Replayed) -> int:
        """Seconds that a gang ran in truth."""
        life = one.life
        begun = life.start("middle")
        if begun is None:
            return 0
        ended = self._end if life.gone is None else life.end("middle")
        return max(0, self._beside_gaps(begun, ended) - life.paused)

    def _case(self, one: Replayed) -> Case:
        life = one.life
        return Case(
            life.name,
            number(one.gpus),
            life.arrived,
            life.start("middle"),
            life.end("middle") if life.gone is not None and life.runs else None,
            one.started,
            one.ended,
            nodes_of(life.runs[0][1]) if life.runs else (),
            one.nodes,
            self._hours(self._longer(one)),
        )

    def _alike(self, case: Case) -> bool:
        one, other = case.started, case.would_start
        return bool(one and other) and abs((one or 0) - (other or 0)) <= self._history.interval

    def _classes(self) -> Iterator[Waited]:
        groups: dict[int, list[Replayed]] = {}
        for one in self._gangs:
            if not one.life.at_first:
                groups.setdefault(_size(one.gpus, self._node), []).append(one)
        for size, gangs in sorted(groups.items()):
            longer = list(map(self._longer, gangs))
            yield Waited(
                SIZES[size],
                len(gangs),
                self._hours(sum(map(self._waited, gangs))),
                self._hours(sum(one.waited for one in gangs)),
                self._hours(sum(max(0, more) for more in longer)),
                self._hours(sum(max(0, -more) for more in longer)),
            )

    def _share(self, seconds: Callable[[Replayed], int]) -> int:
        """Permille of the GPUs that gangs held so long, beside gaps."""
        held = sum((one.gpus * seconds(one) for one in self._gangs), Fraction())
        installed = sum(seen.figures.installed * s for seen, s in self._covered)
        return int(MILLI * MILLI * held / installed) if installed else 0


def _hundredths(value: Fraction) -> float:
    return number(Fraction(round(value * 100), 100))


def _of_cause(cause: str) -> Callable[[Figures], int]:
    return lambda one: one.stranded.get(cause, 0)


SIZES = "part of a node", "one node", "up to 4 nodes", "up to 16 nodes", "more than 16 nodes"
"""Classes of gangs by their GPUs, in those of the largest node."""


def _size(gpus: Fraction, node: int) -> int:
    """The class of a gang."""
    return sum(gpus > most * node for most in (1, 4, 16)) + (gpus >= node)
