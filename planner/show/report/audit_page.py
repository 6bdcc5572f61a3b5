"""The page of an audit: what the present placement costs, in GPUs and money, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from models.documents.audit import AuditDocument
from models.documents.plan import PlanDocument
from models.units import plural, time_text
from planner.show.audit import headline, sections_of
from planner.show.cluster_map import cluster_map
from planner.show.report.map_view import MapView
from planner.show.report.page import Figure, Page, Part, Section
from planner.show.report.plan_page import cluster_name, gang_data, lines_table, search_rows
from planner.show.table import Table
from planner.show.text import gpu_amount, number
from planner.untrusted_text import safe

_SECTIONS = {
    "RUNNING GANG": ("losses", "Running gangs, and what each lacks"),
    "MOVE": ("moves", "The moves that regain most"),
    "STARTS": ("waiting", "Waiting gangs, and when each starts"),
    "STRANDED": ("stranded", "Stranded GPUs: free, and of no use to the next request"),
    "WHOLLY FREE": ("whole", "Wholly free nodes and domains"),
    "TIER": ("tiers", "Tier by tier: now, re-planned, bound"),
}
"""Of each table, by its first column, in the order of the page: the name and title of its section."""


def audit_page(audit: AuditDocument) -> Page:
    """The page; its map shows the re-plan, where the audit holds it."""
    plan = audit.status.plan
    view, data, gangs = _map(plan)
    name = safe(audit.cluster.name) if plan is None else cluster_name(plan.instance.cluster)
    found = sections_of(audit, wide=True)
    return Page(
        title=f"Audit of {name}",
        subject=f"{plural(audit.cluster.nodes, 'node')}, {plural(audit.cluster.gpus, 'GPU')}",
        made=f"made {time_text(audit.metadata.created_at)} by {safe(audit.metadata.generator)}",
        headline=[f"{safe(line[:1].upper() + line[1:])}." for line in headline(audit)],
        figures=list(_figures(audit)),
        sections=list(_sections(audit, [one for one in found if isinstance(one, Table)])),
        map=view,
        map_title="The cluster now, and re-planned",
        gangs=gangs,
        data=data,
    )


def _map(plan: PlanDocument | None) -> tuple[MapView | None, dict[str, Any], dict[str, int]]:
    """The map of the re-plan, what the script says of its gangs, and their numbers by name."""
    if plan is None:
        return None, {}, {}
    drawn = cluster_map(plan)
    view = MapView(drawn, states=("Now", "Re-planned"))
    numbers = {safe("/".join(gang.key)): number for number, gang in enumerate(plan.spec.gangs)}
    return view, {**gang_data(plan, drawn), **view.overview()}, numbers


def _figures(audit: AuditDocument) -> Iterator[Figure]:
    status, lost = audit.status, audit.status.lost
    proven = lost.at_most == lost.gpus
    bound = "proven: no re-plan regains more" if proven else f"at most {gpu_amount(lost.at_most)}"
    yield Figure("GPUs a re-plan regains", gpu_amount(lost.gpus), bound)
    style = "warn" * bool(lost.placement)
    rest = f"the other {gpu_amount(lost.startable)} start without a move" if lost.startable else ""
    yield Figure("Of these, placement costs", gpu_amount(lost.placement), rest, style)
    if lost.money_per_day is not None:
        most = lost.money_per_day_at_most or 0.0
        yield Figure(
            "Regained a day, in money", f"{lost.money_per_day:,.0f}", f"at most {most:,.0f}"
        )
    effective = status.effective_gpus
    way = f"{gpu_amount(effective.before)} → {gpu_amount(effective.possible)}"
    yield Figure("Effective GPUs", way, f"of {number(status.gpus.installed)}; now, and re-planned")
    free = f"of {number(status.gpus.free)} free GPUs"
    price = lost.stranded_money_per_day
    money = "" if price is None else f"; {price:,.0f} a day"
    yield Figure("Stranded GPUs", gpu_amount(status.gpus.stranded), free + money)
    starts = [one for one in status.waiting if one.starts_if == "others stood better"]
    total = sum(one.gpus for one in starts)
    yield Figure(
        "Gangs that start only in the re-plan",
        number(len(starts)),
        f"of {number(len(status.waiting))} that wait; {plural(total, 'GPU')}",
    )
    yield Figure(
        "Moves that help",
        number(len(status.moves)),
        "each with its price below" * bool(status.moves),
    )


def _sections(audit: AuditDocument, tables: list[Table]) -> Iterator[Section]:
    by_title = {table.columns[0].title: table for table in tables}
    for key, (name, title) in _SECTIONS.items():
        if key in by_title:
            yield Section(name, title, (), [Part(by_title[key])])
    yield Section("method", "How it was found", (), [Part(search_rows(audit.status.search, ()))])
    notes = [safe(note) for note in (*audit.status.notes, *audit.status.remarks)]
    if notes:
        yield Section("notes", "Notes and remarks", (), [Part(lines_table(notes))])
