"""Gangs of a plan: which are shown, which share a row, what it is called; why they wait or run slowly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from models.documents.base import suggestion
from models.documents.gang import GangDocument
from models.documents.plan import GangKey, PlanGang
from models.instance.speed import FULL_SPEED
from models.units import first_of, plural, time_text
from planner.errors import Fault, UsageError
from planner.show.reason_words import sentence
from planner.show.text import Format, compress, permille

Requests = Mapping[GangKey, GangDocument]

ORDER = ("place", "complete", "move", "resize", "preempt", "wait", "keep")
"""The decisions: what happens, before what waits and what stays."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The gangs that every given filter takes; without filters all of them.

    ``gangs``: ``[NAMESPACE/]NAME``. ``everything``: one row for each gang, whatever its decision.
    """

    gangs: tuple[str, ...] = ()
    namespace: str | None = None
    decisions: tuple[str, ...] = ()
    everything: bool = False

    @property
    def filters(self) -> bool:
        return bool(self.gangs or self.namespace is not None or self.decisions)

    def check_options(self, output: Format) -> None:
        """Raises UsageError for an unknown decision, and for filters of a whole document."""
        for decision in self.decisions:
            _check("--decision", decision, ORDER, "no such decision", "decisions")
        if self.filters and output in (Format.json, Format.yaml):
            what = f"--gang, --namespace and --decision do not cut the document of -o {output}"
            hint = "use -o table, wide or name with them, or explain PLAN GANG -o json"
            raise UsageError(Fault(what, hint))

    def check(self, known: Collection[GangKey]) -> None:
        """Raises UsageError for a gang or a namespace that is not among ``known``."""
        if self.namespace is not None:
            namespaces = {one for one, _ in known}
            said = "no gang in this namespace"
            _check("--namespace", self.namespace, namespaces, said, "namespaces")
        for name in self.gangs:
            matching(name, self.namespace, known, "--gang")

    def takes(self, gang: PlanGang) -> bool:
        """Whether the gang is shown."""
        return (
            (not self.decisions or gang.decision in self.decisions)
            and self.namespace in (None, gang.namespace)
            and (not self.gangs or any(_is(name, gang.key) for name in self.gangs))
        )


EVERY_GANG = Selection()


def matching(
    name: str, namespace: str | None, known: Iterable[GangKey], option: str
) -> list[GangKey]:
    """The gangs that ``[NAMESPACE/]NAME`` means, in ``namespace`` if given.

    Raises UsageError if there is none; ``option`` is what was given.
    """
    keys = sorted(key for key in known if namespace in (None, key[0]))
    found = [key for key in keys if _is(name, key)]
    if not found:
        where = "" if namespace is None else f" in namespace {namespace}"
        hint = suggestion(name.rpartition("/")[2], {bare for _, bare in keys}, "gangs")
        raise UsageError(Fault(f"{option} {name}: no such gang{where}", hint))
    return found


def _check(option: str, given: str, known: Collection[str], said: str, called: str) -> None:
    """Raises UsageError, with the name that may be meant."""
    if given not in known:
        raise UsageError(Fault(f"{option} {given}: {said}", suggestion(given, known, called)))


def _is(name: str, key: GangKey) -> bool:
    """Whether ``name`` means the gang; ``gang/NAMESPACE/NAME`` is what ``-o name`` prints."""
    namespace, slash, bare = name.rpartition("/")
    return bare == key[1] and (not slash or namespace in (key[0], f"gang/{key[0]}"))


class Sharing(IntEnum):
    """Which gangs share a row: none; those that wait for equal reasons; many of one decision as well."""

    none = 0
    alike = 1
    decision = 2


FIRST_NAMES = 3
"""Gangs of a row, or that delay another, that are named; the others are counted."""

MAX_ROWS = 6
"""Rows of one decision where many share one: of gangs that wait the first; if more happen, they share."""


def rank(gang: PlanGang, request: GangDocument | None) -> tuple[int, int, str, str]:
    """Sort key of gangs: decision, priority, name."""
    priority = request.shown_priority if request else 0
    return (ORDER.index(gang.decision), -priority, gang.namespace, gang.name)


def groups(
    listed: Iterable[PlanGang], requests: Requests, sharing: Sharing
) -> list[list[PlanGang]]:
    """The gangs of each row, in the order of ``rank`` of the first of each."""
    found: dict[Hashable, list[PlanGang]] = {}
    ordered = sorted(listed, key=lambda gang: rank(gang, requests.get(gang.key)))
    count = Counter(gang.decision for gang in ordered if sharing == Sharing.decision)
    for gang in ordered:
        many = count[gang.decision] > MAX_ROWS
        found.setdefault(_shared(gang, sharing, many=many), []).append(gang)
    return list(found.values())


def _shared(gang: PlanGang, sharing: Sharing, *, many: bool) -> Hashable:
    """Equal for gangs that share a row: those that wait never for different reasons."""
    alone = gang.decision == "wait" and (gang.reserved or gang.delayed) is not None
    if sharing == Sharing.none or alone:
        return gang.key
    if gang.reason is not None and gang.decision in ("wait", "keep"):
        facts = gang.reason.message if gang.reason.fields is None else gang.reason.fields
        return gang.decision, gang.reason.code, gang.aged, facts
    return gang.decision if many else gang.key


def folded_note(hidden: Sequence[PlanGang], gpus: float) -> str:
    """``and 150 more gangs wait, for 1,200 GPUs: NoRoom 120, Outranked 30``."""
    codes = Counter("Unknown" if one.reason is None else one.reason.code for one in hidden)
    ordered = sorted(codes.items(), key=lambda one: (-one[1], one[0]))
    listed = ", ".join(f"{code} {count:,}" for code, count in ordered)
    waits = "gang waits" if len(hidden) == 1 else "gangs wait"
    count = f"and {len(hidden):,} more {waits}, for {plural(gpus, 'GPU')}"
    return f"{count}: {listed}; --all or --gang NAME shows why"


def kept_note(kept: Sequence[PlanGang], gpus: float) -> str:
    """One line for the running gangs that do not change, with a few names."""
    are = "gang stays as it is" if len(kept) == 1 else "gangs stay as they are"
    named = names(sorted(kept, key=lambda gang: gang.key), FIRST_NAMES + 1)
    return f"{len(kept):,} running {are}, on {plural(gpus, 'GPU')} ({named})"


def names(gangs: Sequence[PlanGang], most: int | None = None) -> str:
    """``team-a: x-[1-3], y; team-b: z``; one alone is ``team-a/x``. ``most``: a count of the others."""
    if len(gangs) == 1:
        return "/".join(gangs[0].key)
    by_namespace: dict[str, list[str]] = {}
    for gang in gangs[:most]:
        by_namespace.setdefault(gang.namespace, []).append(gang.name)
    listed = "; ".join(f"{one}: {compress(own, ', ')}" for one, own in by_namespace.items())
    more = 0 if most is None else len(gangs) - most
    return f"{listed} and {more:,} more" if more > 0 else listed


def priorities(gangs: Iterable[PlanGang], requests: Requests) -> str:
    """``10``, or the lowest and the highest as ``0 to 100``; ``-`` if unknown."""
    found = {requests[gang.key].shown_priority for gang in gangs if gang.key in requests}
    if not found:
        return "-"
    low, high = min(found), max(found)
    return str(low) if low == high else f"{low} to {high}"


def below(gangs: Sequence[PlanGang]) -> str:
    """What is said of a row: when it starts, its delay, why it waits; of several gangs their names, too."""
    first = gangs[0]
    if len(gangs) > 1 and first.decision not in ("wait", "keep"):
        return names(sorted(gangs, key=lambda gang: gang.key))
    said = "; ".join(filter(None, (starts(gangs), delay(first), why(first))))
    return said if len(gangs) == 1 else f"{said} ({names(gangs, FIRST_NAMES)})"


def starts(gangs: Sequence[PlanGang]) -> str:
    """When the first of these is to start: reserved, which no row shares, ``by`` a time; or ``about`` one."""
    first, who = gangs[0], "the first starts" if len(gangs) > 1 else "starts"
    if first.decision == "wait" and first.reserved is not None:
        return f"starts by {time_text(first.reserved.start)}"
    expected = [gang.expected_start for gang in gangs if gang.expected_start is not None]
    return f"{who} about {time_text(min(expected))}" if expected else ""


_CAUSES = {
    "Arrival": "gangs came since, or may start first",
    "Failure": "nodes are out of order or gone",
    "Overrun": "gangs run longer than expected",
    "Input": "the input is another",
}


def delay(gang: PlanGang) -> str:
    """``promised 14:10 by an earlier plan; gangs run longer than expected (x)``; empty without a delay."""
    late = gang.delayed
    if late is None:
        return ""
    by = f" ({first_of(late.by, FIRST_NAMES)})" if late.by else ""
    return f"promised {time_text(late.promised)} by an earlier plan; {_CAUSES[late.cause]}{by}"


def why(gang: PlanGang) -> str:
    """``Code: sentence``; empty without a reason."""
    reason = gang.reason
    if reason is None:
        return ""
    said = reason.message if reason.fields is None else sentence(reason.code, reason.fields)
    return f"{reason.code}: {said}"


PASSED_OVER = {
    "NoStart": "no start was found for it within the horizon",
    "Promised": "the reservation of its priority was promised to a gang behind it by an earlier plan",
}
"""Why a gang behind it holds a reservation and it does not."""


def slowed_by(gang: PlanGang, request: GangDocument | None, speeds: Mapping[str, Fraction]) -> str:
    """``links, GPU model at 31.5 %``: those that apply; empty at full speed. ``speeds``: of nodes."""
    if gang.speed_to_come is None or gang.speed_to_come >= FULL_SPEED or request is None:
        return ""
    communication = request.spec.communication
    causes = []
    if communication.pattern != "none" and communication.fraction:
        causes += ["links"] * (gang.share is not None and gang.share < FULL_SPEED)
    with_gpus = {role.name for role in request.spec.roles if role.gpus}
    own = [speeds.get(pod.node, 1) for pod in gang.pods if pod.role in with_gpus]
    relative = int(FULL_SPEED * min(own, default=1))
    if relative < FULL_SPEED and communication.speed != "ignore":
        causes.append(f"GPU model at {permille(relative)}")
    return ", ".join(causes)
