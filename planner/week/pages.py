"""A week in words: its tables, and its page. Each figure is defined in the sentence beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from pydantic.alias_generators import to_camel

from models.units import plural, time_text
from planner.show.console import Console
from planner.show.report.page import Figure, Page, Part, Section
from planner.show.table import Cell, Table, columns_of, pairs, row_of
from planner.show.text import Format, compress, number
from planner.untrusted_text import safe
from planner.week.week import HOUR_S, Week

MEANS = {
    "order": "most GPUs of waiting gangs that fit together as things are",
    "fragmentation": "what fits beyond these if at most {} may restart elsewhere",
    "quotas": "what fits beyond order, with nothing moved, if no queue had a limit",
    "spread": "running GPUs, less what slower links than the best leave of their speed",
}
"""What each loss is, times the hours until the next round."""

WAITED = {
    "WAITED": "hours from the arrival of a gang to its first start, or to the end of the journal",
    "REPLAY": "the same in the replay",
    "LONGER": "hours by which gangs waited longer than in the replay",
    "LATER": "hours by which others of them wait longer in the replay",
}
"""What each column of the waits is."""

PROOFS = (
    "at least: a plan that the judge accepts starts so much",
    "proven: beyond that, no plan starts more, whatever its order; in brackets, in how many of all hours",
)

REPLAY = (
    "the replay starts gangs by the plans of that moment, which know only what was known then",
    "what it starts keeps its room for as long as the gang really ran; nothing is moved or stopped",
    "after a gap it begins anew, with what truly ran and waited then; hours within gaps count nowhere",
    "allocated: the share of the installed GPUs that gangs held, beside gaps",
)

REPLAY_ERROR = "1 %"
"""Most by which a replay differs from a simulation of the same gangs, in the tests."""

GAPS = "they count in no figure; give or take 2 % of WAITED, LONGER is at least, REPLAY and LATER at most"
"""What gaps make of the figures, by gaps that were cut into the example."""

MOST_NAMES = 10
"""Gangs that a line names."""

UNKNOWN = (
    "what happened between two rounds: a gang that came and ended there is in no figure",
    "how long a gang runs that was not seen to end: in the replay it keeps its room to the end or next gap",
    "whether a gang that left without being seen to run was withdrawn, or ran between two rounds",
    "what else people would have submitted, had their gangs started earlier",
    "why a gang was not started: order also has the time that its scheduler took, and its own rules",
    "how fast a gang ran: speeds are predicted, and scale only hours of gangs that state a fraction",
)
"""What rounds cannot know."""


def show(console: Console, output: Format, week: Week) -> None:
    """Print the week."""
    if output in (Format.json, Format.yaml):
        tree = asdict(week, dict_factory=lambda own: {to_camel(name): one for name, one in own})
        console.document(tree, output)
        return
    tables = (_losses(week), _stranded(week), _classes(week), _worst(week))
    shown = [one for one in tables if one.rows]
    console.data(console.sections([_headline(week), *shown, _sure(week)]))


def _sums(week: Week) -> tuple[str, str, str]:
    """Hours that gangs waited longer, and later, and the share of GPUs that they hold in the replay."""
    least, most = ("at least ", "at most ") if week.gaps else ("", "")
    longer = _tenths(sum(one.longer for one in week.classes))
    later = _tenths(sum(one.later for one in week.classes))
    return least + longer, most + later, most + _percent(week.would_be)


def _headline(week: Week) -> list[str]:
    """What the week was, in a few lines."""
    order, more = week.losses[:2]
    longer, later, would_be = _sums(week)
    held = f"{number(week.installed)} GPUs, {_tenths(week.held)} of them held on average"
    idle = f"{_tenths(order.gpu_hours)} GPU-hours ({order.proof})"
    restarts = plural(week.restarts, "restart")
    return [
        f"{_span(week)}: {held}",
        f"idle while a gang waited that could have run: {idle}",
        f"with at most {restarts}: {_tenths(more.gpu_hours)} more ({more.proof})",
        f"waited longer than in the replay: {longer} hours; later in the replay: {later}",
        f"allocated: {_percent(week.allocated)}; in the replay: {would_be}",
    ]


def _span(week: Week) -> str:
    gaps = f", {plural(len(week.gaps), 'gap')}" * bool(week.gaps)
    return f"{time_text(week.start)} to {time_text(week.end)}, {plural(week.rounds, 'round')}{gaps}"


def _tenths(value: float) -> str:
    """The number to a tenth: no figure is more exact than its rounds."""
    return f"{value:,.1f}"


def _percent(permille: int) -> str:
    return f"{permille / 10:.1f} %"


def _losses(week: Week) -> Table:
    rows = []
    for one in week.losses:
        price = "-" if one.price is None else f"{one.price:,.2f}"
        said = MEANS[one.cause].format(plural(week.restarts, "gang"))
        hours, gpus = _tenths(one.gpu_hours), _tenths(one.gpus)
        share = f" ({_percent(one.proven_hours)})" * (one.proof != "proven")
        rows.append(row_of(one.cause, hours, gpus, one.proof + share, price, said))
    table = Table(columns_of("LOST TO|>GPU-HOURS|>GPUS|PROOF|>PRICE|IS~"), tuple(rows))
    return table.without_empty_columns()


def _stranded(week: Week) -> Table:
    rows = tuple(row_of(cause, _tenths(gpus)) for cause, gpus in week.stranded if gpus)
    note = "stranded: free GPUs, on average, that the next request of the policy's mix cannot use"
    return Table(columns_of("STRANDED|>GPUS"), rows, (note,) if rows else ())


def _classes(week: Week) -> Table:
    rows = []
    for one in week.classes:
        hours = map(_tenths, (one.waited, one.would, one.longer, one.later))
        rows.append(row_of(one.size, number(one.gangs), *hours))
    return Table(columns_of("|>".join(("GANGS OF", "GANGS", *WAITED))), tuple(rows))


def _worst(week: Week) -> Table:
    rows, below = [], {}
    for place, one in enumerate(week.worst):
        longer = Cell(_tenths(one.longer), "warn")
        times = (one.arrived, one.started, one.would_start)
        when = ("not yet" if time is None else time_text(time) for time in times)
        rows.append(row_of(one.gang, number(one.gpus), longer, *when))
        real = f"ran on {compress(one.nodes)}" if one.nodes else "did not run"
        replayed = f"on {compress(one.would_be_on)}" if one.would_be_on else "neither"
        below[place] = Cell(f"{real}; in the replay {replayed}")
    titles = "SUFFERED MOST|>GPUS|>HOURS|ARRIVED?|STARTED?|IN THE REPLAY?"
    return Table(columns_of(titles), tuple(rows), below=below)


def _sure(week: Week) -> list[str]:
    """How sure the figures are."""
    sure = week.sureness
    least, most = "at least " * bool(week.gaps) + _tenths(sure.least), _tenths(sure.most)
    alike = f"{sure.alike:,} of {week.gangs:,} started within a round of the replay"
    open_ends = f"{sure.unknown:,} were not seen to end"
    lines = [
        f"longer less later: {least} to {most} hours, by when gangs ended between two rounds",
        f"error of the replay: up to {REPLAY_ERROR} of these hours, against simulations of made-up gangs",
        f"gangs: {alike}, {open_ends}, hours of {sure.scaled:,} scaled by speed",
    ]
    if sure.unseen:
        names = ", ".join(sure.unseen[:MOST_NAMES]) + ", ..." * (len(sure.unseen) > MOST_NAMES)
        lines.append(f"left without being seen to run: {len(sure.unseen):,} ({names})")
    for start, end in week.gaps:
        hours = (end - start) / HOUR_S
        lines.append(f"gap: {time_text(start)} to {time_text(end)}, {hours:.1f} hours")
    lines += [f"gaps: {GAPS}"] * bool(week.gaps)
    return [*lines, *(f"note: {one}" for one in week.remarks)]


def page(week: Week, made: str) -> Page:
    """The page."""
    hours = sum(end - start for start, end in week.gaps) / HOUR_S
    gaps = f"{plural(len(week.gaps), 'gap')} of {hours:.1f} hours: {GAPS}."
    return Page(
        title="What placement cost",
        subject=safe(_span(week)),
        made=safe(made),
        headline=[f"{line[:1].upper()}{line[1:]}." for line in _headline(week)],
        figures=list(_figures(week)),
        sections=[one for one in _sections(week) if one.lines or one.parts],
        warnings=[gaps] if week.gaps else [],
    )


def _figures(week: Week) -> Iterator[Figure]:
    order, more = week.losses[:2]
    longer, later, would_be = _sums(week)
    said = f"{order.proof}: waiting gangs could have run, nothing moved"
    yield Figure("GPU-hours idle", _tenths(order.gpu_hours), said)
    said = f"{more.proof}, with at most {plural(week.restarts, 'restart')}"
    yield Figure("GPU-hours more", _tenths(more.gpu_hours), said)
    yield Figure("Hours waited longer", longer, f"than in the replay; {later} the other way round")
    way = f"{_percent(week.allocated)} → {would_be}"
    yield Figure("GPUs allocated", way, "in truth, and in the replay")
    if week.gpu_hour_price is not None:
        price = f"{sum(one.price or 0 for one in (order, more)):,.2f}"
        yield Figure("Price of idle GPUs", price, f"at {week.gpu_hour_price:g} a GPU-hour")


def _sections(week: Week) -> Iterator[Section]:
    said = "GPU-hours: the GPUs that the last column says, times the hours until the next round"
    lines = [said, "GPUs: the same for each of these hours", *PROOFS]
    if week.gpu_hour_price is not None:
        lines.append("price: GPU-hours times gpuHourPrice of the Policy")
    if week.restart_cost is not None:
        cost = _tenths(week.restart_cost)
        lines.append(
            f"a restart would lose {cost} GPU-hours of work on average, counted in no figure"
        )
    yield _section("lost", "What was lost to what", lines, _losses(week))
    if (stranded := _stranded(week)).rows:
        yield _section("stranded", "Free GPUs of no use to the usual requests", (), stranded)
    lines = [f"{title.lower()}: {said}" for title, said in WAITED.items()]
    yield _section("waits", "How long gangs waited", lines, _classes(week))
    if (worst := _worst(week)).rows:
        lines = ["hours: waited longer than in the replay; by them times GPUs"]
        yield _section("worst", "Who suffered most", lines, worst.with_below("WHERE"))
    rows = ((what, rest) for what, _, rest in (one.partition(": ") for one in _sure(week)))
    yield _section("sure", "How sure this is", REPLAY, pairs(rows))
    yield _section("unknown", "What rounds cannot know", UNKNOWN)


def _section(name: str, title: str, lines: Iterable[str], table: Table | None = None) -> Section:
    said = [f"{line[:1].upper()}{line[1:]}." for line in lines]
    return Section(name, title, said, [] if table is None else [Part(table)])
