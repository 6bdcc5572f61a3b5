"""The page of a plan: headline figures, the map, what starts, changes and waits, and what was proven."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from models.documents.answers import CapacityDocument
from models.documents.cluster import NO_NAME, ClusterDocument
from models.documents.plan import PlanDocument
from models.instance.solution import STARTS, Decision
from models.results.plan_gpus import gpu_count, most_effective_gpus, most_possible
from models.units import plural, time_text
from planner.show import capacity_tables
from planner.show.cluster_map import MapDomain
from planner.show.plan import plan_tables
from planner.show.plan.gang_groups import Selection, Sharing
from planner.show.plan.proofs import bought, more_work
from planner.show.plan.short_names import shortener_of_plans
from planner.show.report.map_view import MapView
from planner.show.report.page import MAX_ROWS, Figure, Page, Part, Section
from planner.show.table import Table, columns_of, pairs, row_of
from planner.show.text import compress, listed, number
from planner.untrusted_text import safe

CHANGED: tuple[Decision, ...] = ("move", "resize", "preempt")


def plan_page(
    plan: PlanDocument,
    capacity: CapacityDocument | str | None = None,
    *,
    changed: bool = False,
) -> Page:
    """The page. ``capacity``: what else could start before and after the plan, or why that is not known.

    ``changed``: the plan's digests do not match, which is the first thing to know.
    """
    view = MapView(plan)
    facts = {what.text: text.text for what, text in plan_tables.facts(plan).rows}
    return Page(
        title=f"Plan of {cluster_name(plan.instance.cluster)}",
        subject="; ".join(facts[key] for key in ("nodes", "not in use", "gangs") if key in facts),
        made=f"made {time_text(plan.metadata.created_at)} by {safe(plan.metadata.generator)}",
        headline=[
            _sentence(line) for line in (*plan_tables.results(plan), *plan_tables.besides(plan))
        ],
        figures=list(_figures(plan, view.cluster)),
        sections=[
            one
            for one in _sections(plan, capacity)
            if one.lines or any(part.table and part.table.rows for part in one.parts)
        ],
        map=view,
        warnings=list(_warnings(plan, changed=changed)),
    )


def cluster_name(cluster: ClusterDocument) -> str:
    """Its name. One without a name is known by its uid and by what the names of its nodes begin with."""
    metadata, name = cluster.metadata, safe(cluster.metadata.name)
    if metadata.name != NO_NAME:
        return name
    uid = "" if metadata.uid is None else f" {safe(metadata.uid[:8])}"
    names = [node.name for node in cluster.spec.nodes] or [""]
    letters = zip(min(names), max(names), strict=False)
    start = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], letters))
    start = start[: 1 + max(start.rfind(separator) for separator in "-_.")]
    return f"{name}{uid}" + (f", nodes {safe(start)}…" if start and len(names) > 1 else "")


def _warnings(plan: PlanDocument, *, changed: bool) -> Iterator[str]:
    if changed:
        yield "This plan was changed after it was saved: `gangplan verify` lists what does not match."
    if plan.instance.what_if is not None:
        yield _sentence(f"a what-if {plan.instance.what_if}: it cannot be applied")
    yield from map(_sentence, plan_tables.to_partition(plan))


def _sentence(line: str) -> str:
    return safe(f"{line[:1].upper()}{line[1:]}.")


def _figures(plan: PlanDocument, cluster: MapDomain) -> Iterator[Figure]:
    before, after = cluster.before, cluster.after
    effective = plan.status.effective_gpus
    usable, given = cluster.usable, "given whole" if after["shared"] else "healthy"
    if effective is not None:
        most = number(most_possible(plan))
        way = _way(effective.before, effective.after)
        yield Figure("Effective GPUs", way, f"GPUs times speed, of at most {most}")
        yield _bound(plan)
    yield Figure(
        "GPUs held",
        _way(before["held"], after["held"]),
        f"of {number(usable)} {given}, {number(after['free'])} free"
        + f"; {number(after['closed'])} on nodes not open to every pod" * bool(after["closed"]),
    )
    requests = plan.instance.gangs_by_key()
    of = Counter[str]()
    gpus: defaultdict[str, float] = defaultdict(int)
    for gang in plan.spec.gangs:
        key = "never" if gang.never else gang.decision
        of[key] += 1
        gpus[key] += gpu_count(gang, requests.get(gang.key)) or 0
    starts, started = _sum(of, STARTS), sum(gpus[key] for key in STARTS)
    yield Figure("Gangs that start", number(starts), f"on {plural(started, 'GPU')}" * bool(starts))
    never = f"; {plural(of['never'], 'other')} can never start" * bool(of["never"])
    yield Figure("Gangs that wait", number(of["wait"]), f"for {plural(gpus['wait'], 'GPU')}{never}")
    touched = [f"{of[one]:,} {word}" for one, word in _TOUCHED if of[one]]
    yield Figure("Gangs disturbed", number(_sum(of, CHANGED)), ", ".join(touched))


_TOUCHED = (("move", "moved"), ("resize", "resized"), ("preempt", "stopped"))


def _bound(plan: PlanDocument) -> Figure:
    """How much more work a better plan could do."""
    most, more = most_effective_gpus(plan), more_work(plan)
    if more == "0 %":
        return Figure(
            "More work possible", "none", "no better plan has more effective GPUs", "good"
        )
    value = "not known" if more is None else f"at most {more.replace(' ', NO_BREAK)}"
    of = "" if most is None else f"no better plan has more than {number(most)} effective GPUs"
    return Figure("More work possible", value, of)


NO_BREAK = "\N{NO-BREAK SPACE}"


def _sum(counts: Counter[str], keys: Sequence[str]) -> int:
    return sum(counts[key] for key in keys)


def _way(before: float, after: float) -> str:
    """``2,667 → 3,890``: what is large is rounded, unless nothing would be left of the change."""
    whole = max(before, after) >= ROUNDED and round(before) != round(after)
    shown = [number(round(one) if whole else one) for one in (before, after)]
    return shown[1] if before == after else " → ".join(shown)


ROUNDED = 100
"""From so many GPUs on the headline figures are whole numbers; the summary below has them exactly."""


def _sections(plan: PlanDocument, capacity: CapacityDocument | str | None) -> Iterator[Section]:
    yield Section("starts", "What starts", (), [Part(_gangs(plan, ("place", "complete")))])
    changes = Part(plan_tables.changes(plan))
    moves = Part(plan_tables.moves(plan).with_below("Brings"), "What the moves bring")
    yield Section("changes", "What changes for running gangs", (), [changes, moves])
    yield Section("waits", "What waits, and why", (), [Part(_gangs(plan, ("wait",)))])
    yield Section("reserved", "Reservations", (), [Part(_reservations(plan))])
    yield Section("running", "What keeps running", (), [Part(_gangs(plan, ("keep",)))])
    yield Section("queues", "Queues", (), [Part(plan_tables.queues(plan, wide=True, every=True))])
    if capacity is not None:
        yield Section("capacity", "What else could start", *_capacity(plan, capacity))
    tiers = [Part(plan_tables.tiers(plan, wide=True)), Part(_search(plan), "How it was found")]
    yield Section("proof", "How good the plan is", (), tiers)
    notes = tuple(row_of(note) for note in (*plan.status.notes, *plan.status.remarks))
    yield Section("notes", "Assumptions and remarks", (), [Part(Table(columns_of(""), notes))])


def _gangs(plan: PlanDocument, decisions: Sequence[str]) -> Table:
    """A row for each gang; those that wait share rows by their reasons if they are many."""
    only = Selection(decisions=tuple(decisions))
    many = sum(only.takes(gang) for gang in plan.spec.gangs) > MAX_ROWS
    waits = decisions == ("wait",)
    sharing = Sharing.alike if many and waits else Sharing.none
    if not any(only.takes(gang) for gang in plan.spec.gangs):
        return Table((), ())
    table = plan_tables.gangs(plan, wide=True, sharing=sharing, only=only)
    out = ["", "DOMAINS"] + ["PODS"] * waits + ["DECISION"] * (len(decisions) == 1)
    table = table.of_columns([c for c, one in enumerate(table.columns) if one.title not in out])
    levels = {
        one.name.upper(): f"{one.name}s".capitalize() for one in plan.instance.cluster.spec.levels
    }
    titles = {**levels, "NODE": "Nodes", "NODES": "Reserved" if waits else "Where"}
    columns = [replace(one, title=titles.get(one.title, one.title)) for one in table.columns]
    table = replace(table, columns=tuple(columns))
    return table.with_below("Why") if table.below else table


def _reservations(plan: PlanDocument) -> Table:
    rows = [
        row_of(
            "/".join(gang.key),
            time_text(gang.reserved.start),
            gang.reserved.domain or "-",
            compress(gang.reserved.nodes, " "),
            listed(gang.reserved.beside, "and") or "-",
        )
        for gang in plan.spec.gangs
        if gang.reserved is not None and gang.reserved.nodes
    ]
    columns = columns_of("GANG|STARTS BY|IN~|NODES~|GANGS AHEAD OF IT THAT MAY USE THEM~")
    return Table(columns, tuple(rows)).without_empty_columns()


def _capacity(plan: PlanDocument, found: CapacityDocument | str) -> tuple[list[str], list[Part]]:
    if isinstance(found, str):
        return [f"Not counted: {safe(found)}."], []
    lines = [safe(line) + "." for line in capacity_tables.facts(found)]
    largest = capacity_tables.largest(found).reworded(shortener_of_plans(plan.instance))
    return [*lines, *map(safe, found.status.notes)], [
        Part(capacity_tables.shapes(found), "Gangs that could start together, before -> after"),
        Part(largest, "The largest gang that could start, in pods"),
    ]


_STOPPED = {
    "proof": "every tier was proven best",
    "budget": "the deterministic budget was used up",
    "time": "the time limit was reached",
    "signal": "it was interrupted",
}


def _search(plan: PlanDocument) -> Table:
    """What the plan states of its search, and what it does not."""
    status, search = plan.status, plan.status.search
    rows = [
        ("solver", f"{search.solver}, seed {search.seed}"),
        ("stopped because", _STOPPED.get(search.stopped_by, search.stopped_by)),
        ("budget used", number(search.effort)),
        ("budget allowed", number(plan.instance.policy.spec.solve.budget)),
        ("digest of the instance", status.digests.instance),
        ("digest of the decisions", status.digests.spec),
        ("not recorded", "the order in which the search found its plans, and how long it took"),
    ]
    if (fewer := bought(plan)) is not None:
        rows.append(("bought with fewer effective GPUs", fewer))
    return pairs(rows)
