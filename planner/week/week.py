"""The figures of a journal: what stood idle while gangs waited, what was lost to what, and who waited.

Times are integer seconds, GPUs integer thousandths; sums of their products are divided once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from models.units import number, plural
from planner.errors import Fault, InputError
from planner.week.figures import Figures
from planner.week.history import History, Pick
from planner.week.journal import Journal
from planner.week.replay import Replay, Replayed

MILLI, HOUR_S = 1000, 3600

WORST = 10

Proof = Literal["proven", "at least"]


@dataclass(frozen=True, slots=True)
class Loss:
    """GPU-hours lost to one thing, and GPUs on average. ``price``: None without one.

    ``proven_hours``: permille of the hours in which no plan starts more.
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
    saw the end: they run to the end of the journal. ``scaled``: gangs whose seconds were scaled by speed.
    """

    least: float
    most: float
    unknown: int
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
    try:
        replays = [Replay(history, pick) for pick in picks]
        for replay in replays:
            replay.run()
    except InputError as error:
        fault = error.faults[0]
        what = f"a document of the journal is none: {fault.what}"
        raise InputError(Fault(what, fault.hint, folder)) from error
    return _Counter(history, replays, remarks).week()


class _Counter:
    """``replays``: the first is that which counts."""

    def __init__(self, history: History, replays: Sequence[Replay], remarks: Sequence[str]) -> None:
        self._history, self._replays, self._remarks = history, replays, remarks
        self._gangs, self._unit = replays[0].gangs, replays[0].gpu_unit
        self._covered = history.covered()
        self._seconds = sum(seconds for _, seconds in self._covered)
        self._start, self._end = history.rounds[0].time, history.rounds[-1].time
        price = next(
            seen.state.head["policy"]["spec"].get("gpuHourPrice")
            for seen in reversed(history.rounds)
            if seen.state is not None
        )
        self._price = None if price is None else Fraction(str(price))

    def week(self) -> Week:
        cases = [self._case(one) for one in self._gangs if one.gpus]
        waits = sorted(cases, key=lambda one: (-one.longer * one.gpus, one.gang))
        sums = [self._longer(replay.gangs) for replay in self._replays]
        moved = [move for seen, _ in self._covered for move in seen.figures.moving.moved]
        lost = [seconds for _, _, seconds in moved if seconds is not None]
        last = self._history.rounds[-1].figures
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
            restarts=last.restarts,
            losses=tuple(self._losses()),
            stranded=tuple(self._stranded()),
            restart_cost=self._hours(sum(lost) // len(lost)) if lost else None,
            gangs=len(cases),
            allocated=self._allocated(truly=True),
            would_be=self._allocated(truly=False),
            classes=tuple(self._classes()),
            worst=tuple(one for one in waits[:WORST] if one.longer > 0),
            sureness=Sureness(
                self._hours(min(sums)),
                self._hours(max(sums)),
                sum(one.length is None and not one.life.at_first for one in self._gangs),
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
    def _hours(seconds: int) -> float:
        return number(Fraction(round(Fraction(seconds * 100, HOUR_S)), 100))

    def _losses(self) -> Iterator[Loss]:
        """What was lost to what: in GPU-hours."""
        yield self._loss("order", [(f.figures.now.gpus, s) for f, s in self._covered], "now")
        yield self._loss(
            "fragmentation", [(f.figures.moving.gpus, s) for f, s in self._covered], "moving"
        )
        yield self._loss("quotas", [(f.figures.quotas.gpus, s) for f, s in self._covered], "quotas")
        yield self._loss("spread", [(f.figures.spread, s) for f, s in self._covered], None)

    def _loss(self, cause: str, parts: Sequence[tuple[int, int]], kind: str | None) -> Loss:
        total = sum(gpus * seconds for gpus, seconds in parts)
        open_s = int(not self._covered) + sum(
            seconds
            for seen, seconds in self._covered
            if kind is not None and not getattr(seen.figures, kind).proven
        )
        hours = Fraction(total, MILLI * HOUR_S)
        return Loss(
            cause,
            number(Fraction(round(hours * 100), 100)),
            number(Fraction(round(Fraction(total, max(1, self._seconds))), MILLI)),
            "at least" if open_s else "proven",
            MILLI - -(-MILLI * open_s // max(1, self._seconds)),
            None
            if self._price is None
            else number(Fraction(round(hours * self._price * 100), 100)),
        )

    def _stranded(self) -> Iterator[tuple[str, float]]:
        causes = sorted({cause for seen, _ in self._covered for cause in seen.figures.stranded})
        for cause in causes:
            yield cause, self._mean(_of_cause(cause))

    # who waited

    def _wait(self, one: Replayed, *, truly: bool) -> int:
        """Seconds that a gang waited in the time of the journal."""
        life = one.life
        if life.at_first:
            return 0
        until = min(self._end, life.gone or self._end) if life.started is None else self._end
        started = life.start("middle") if truly else one.started
        return max(0, min(until, self._end if started is None else started) - life.arrived)

    def _longer(self, gangs: Iterable[Replayed]) -> int:
        return sum(
            self._wait(one, truly=True) - self._wait(one, truly=False) for one in gangs if one.gpus
        )

    def _case(self, one: Replayed) -> Case:
        life = one.life
        longer = self._wait(one, truly=True) - self._wait(one, truly=False)
        ended = life.end("middle") if life.gone is not None and life.seen is not None else None
        return Case(
            life.name,
            number(Fraction(one.gpus, self._unit)),
            life.arrived,
            life.start("middle"),
            ended,
            one.started,
            one.ended if one.ended is not None and one.ended <= self._end else None,
            tuple(sorted({pod["node"] for pod in life.places if "node" in pod})),
            one.nodes,
            self._hours(longer),
        )

    def _alike(self, case: Case) -> bool:
        started, would = case.started or 0, case.would_start or 0
        return bool(started and would) and abs(started - would) <= self._history.interval

    def _classes(self) -> Iterator[Waited]:
        node = self._replays[0].largest_node
        groups: dict[int, list[Replayed]] = {}
        for one in self._gangs:
            if one.gpus and not one.life.at_first:
                groups.setdefault(_size(Fraction(one.gpus, self._unit), node), []).append(one)
        for size in sorted(groups):
            gangs = groups[size]
            waited = [self._wait(one, truly=True) for one in gangs]
            would = [self._wait(one, truly=False) for one in gangs]
            pairs = list(zip(waited, would, strict=True))
            yield Waited(
                SIZES[size],
                len(gangs),
                self._hours(sum(waited)),
                self._hours(sum(would)),
                self._hours(sum(max(0, a - b) for a, b in pairs)),
                self._hours(sum(max(0, b - a) for a, b in pairs)),
            )

    def _allocated(self, *, truly: bool) -> int:
        """Permille of the GPUs that gangs held between the first round and the last."""
        held = 0
        for one in self._gangs:
            life = one.life
            begun, ended = one.started, one.ended
            if truly:
                begun = self._start if life.at_first else life.start("middle")
                ended = None if life.gone is None or life.seen is None else life.end("middle")
            if begun is not None:
                until = min(self._end, self._end if ended is None else ended)
                held += one.gpus * max(0, until - begun - (life.paused if truly else 0))
        installed = sum(seen.figures.installed * s for seen, s in self._covered)
        whole = Fraction(installed * (self._end - self._start), max(1, self._seconds))
        return int(MILLI * Fraction(MILLI * held, self._unit) / whole) if whole else 0


def _of_cause(cause: str) -> Callable[[Figures], int]:
    return lambda one: one.stranded.get(cause, 0)


SIZES = (
    "part of a node",
    "one node",
    "up to 4 nodes",
    "up to 16 nodes",
    "more than 16 nodes",
)
"""Classes of gangs by their GPUs, in those of the largest node."""


def _size(gpus: Fraction, node: int) -> int:
    """The class of a gang."""
    return sum(gpus > most * node for most in (1, 4, 16)) + (gpus >= node)
