"""The map of a cluster as text: a letter for each GPU, large clusters folded to a line for each domain.

The letters tell gangs apart where there is no colour; the table below says whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import ascii_letters

from models.documents.plan import PlanDocument
from models.results.plan_gpus import gpu_count
from models.units import plural
from planner.show.cluster_map import (
    CLOSED,
    FREE,
    PARTITIONED,
    UNHEALTHY,
    ClusterMap,
    Holders,
    MapDomain,
    MapNode,
    cluster_map,
)
from planner.show.console import WIDTH, Console
from planner.show.plan.gang_groups import Requests
from planner.show.plan.plan_tables import STYLE
from planner.show.plan.selection import Selection
from planner.show.table import STYLES, Cell, Table, columns_of, row_of
from planner.show.text import compress, number, short_names
from planner.show.text import width as text_width
from planner.untrusted_text import safe

MAX_NODES = 200
"""Nodes that are drawn one by one; a larger cluster is folded to its domains."""

MAX_DOMAINS = 60
"""Domains that are listed: the narrowest level at which there are no more."""

LETTERS = ascii_letters.replace("x", "").replace("o", "")
"""One for each gang; of many gangs those far from each other share one."""

OTHER, FREE_SIGN, UNHEALTHY_SIGN, PARTITIONED_SIGN, CLOSED_SIGN = "o", ".", "x", "/", "_"

NOT_OPEN = f"{CLOSED_SIGN} held by nobody, but its node is cordoned, not ready or tainted"

COLOURS = ("33", "36", "32", "93", "34", "31", "35")
"""SGR codes of gangs; colour only repeats what the letters say."""

LEAST_NAME = 12
"""Characters of a node's name that fit at least; of longer ones what tells them apart, or the end."""

BAR = 24
"""Characters of the bar of a folded domain."""

_APART = 3


def drawn(console: Console, plan: PlanDocument, only: Selection) -> str:
    """The map as it goes to stdout. ``only``: gangs with letters; the others are ``o``."""
    found = cluster_map(plan, styles=len(LETTERS))
    if found.cluster.counts.nodes > MAX_NODES:
        table = console.drawn(_folded(found))
        bars = "HELD" in table.partition("\n")[0]  # unless the terminal is too narrow
        counts = found.cluster.counts
        legend = _BAR_LEGEND + ", / partitioned (MIG) or shared" * bool(counts.partitioned)
        legend += f", {NOT_OPEN}" * bool(counts.not_open)
        return f"{table}\n{console.lines([legend])}" if bars else table
    width = console.width or WIDTH
    most = max(LEAST_NAME, width // 3)
    detail = _Detail(found, only, most, console.shorten, color=console.use_color(console.stdout))
    lines = list(detail.lines(found.cluster, 0, width))
    whose = _legend(found, only, plan.instance.gangs_by_key())
    legend = console.drawn(whose) if whose.rows else ""
    signs = console.lines(list(detail.signs(found)))
    return "\n".join(part for part in ("\n".join([*lines, ""]), legend, signs) if part)


class _Detail:
    """Every GPU of every node. ``most``: characters of a node's name. ``shorten``: names in titles."""

    def __init__(
        self,
        found: ClusterMap,
        only: Selection,
        most: int,
        shorten: Callable[[str], str] | None,
        *,
        color: bool,
    ) -> None:
        self._color = color
        self._names = {
            name: _end(safe(short), most)
            for name, short in short_names(
                (node.name for node in found.cluster.all_nodes()), most
            ).items()
        }
        self._shorten = shorten or str
        self._letters = {
            FREE: FREE_SIGN,
            UNHEALTHY: UNHEALTHY_SIGN,
            PARTITIONED: PARTITIONED_SIGN,
            CLOSED: CLOSED_SIGN,
        }
        for gang, (stated, style) in enumerate(zip(found.gangs, found.styles, strict=True)):
            self._letters[gang] = LETTERS[style] if only.takes(stated) else OTHER

    def lines(self, domain: MapDomain, depth: int, width: int) -> Iterator[str]:
        """The domain's own line, the domains in it, then its nodes in columns."""
        pad = "  " * max(0, depth - 1)
        if depth:
            title = _title(domain, width - len(pad), self._shorten)
            yield pad + (f"\x1b[{STYLES['head']}m{title}\x1b[0m" if self._color else title)
        for inner in domain.domains:
            yield from self.lines(inner, depth + 1, width)
        yield from self._nodes(domain.nodes, "  " * depth, width)

    def _nodes(self, nodes: Sequence[MapNode], pad: str, width: int) -> Iterator[str]:
        """As many to a line as fit, from top to bottom."""
        if not nodes:
            return
        named = max(text_width(self._names[node.name]) for node in nodes)
        cells = [self._node(node, named) for node in nodes]
        widest = max(size for _, size in cells)
        columns = max(1, (width - len(pad) + _APART) // (widest + _APART))
        rows = -(-len(cells) // columns)
        for row in range(rows):
            line = [text + " " * (widest + _APART - size) for text, size in cells[row::rows]]
            yield (pad + "".join(line)).rstrip()

    def _node(self, node: MapNode, named: int) -> tuple[str, int]:
        """``gpu-01  ....aaaa > bbbbaaaa  cordoned``, and its width."""
        name = self._names[node.name]
        parts = [name + " " * (named - text_width(name))]
        if node.gpus:
            states = (node.before, node.after) if node.changes else (node.after,)
            parts.append(" > ".join(self._gpus(node, holders) for holders in states))
        parts += node.marks
        plain = sum(len(island) for island in node.islands) + len(node.islands) - 1
        gpus = [2 * plain + 3 if node.changes else plain] if node.gpus else []
        size = named + sum(2 + one for one in (*gpus, *map(len, node.marks)))
        return "  ".join(parts), size

    def _gpus(self, node: MapNode, holders: Holders) -> str:
        """A letter for each GPU, a space between groups that no NVLink joins."""
        return " ".join(
            "".join(self._letter(holders[gpu]) for gpu in island) for island in node.islands
        )

    def _letter(self, holder: int) -> str:
        letter = self._letters[holder]
        if not self._color or holder < 0:
            return letter
        return f"\x1b[{COLOURS[LETTERS.find(letter) % len(COLOURS)]}m{letter}\x1b[0m"

    def signs(self, found: ClusterMap) -> Iterator[str]:
        """What the signs mean that are on the map."""
        nodes = list(found.cluster.all_nodes())
        counts = found.cluster.counts
        said = [f"{FREE_SIGN} free"]
        if any(CLOSED in (*node.before, *node.after) for node in nodes):
            said.append(NOT_OPEN)
        if counts.unhealthy:
            said.append(f"{UNHEALTHY_SIGN} unhealthy or shared")
        if counts.partitioned:
            said.append(f"{PARTITIONED_SIGN} partitioned (MIG) or shared")
        if OTHER in self._letters.values():
            said.append(f"{OTHER} other gangs")
        if any(node.changes for node in nodes):
            said.append("before > after where a node changes")
        kinds = sorted({node.kind for node in nodes if node.kind})
        said += [f"a space inside a node: another {kind} group" for kind in kinds]
        if any(node.guessed for node in nodes):
            said.append("GPUs of unknown index are drawn at the first free places")
        yield "; ".join(said)


def _end(name: str, columns: int) -> str:
    """The name, or the end of it that fits: beginnings of long names are alike."""
    return name if text_width(name) <= columns else f"..{name[2 - columns :]}"


def _title(domain: MapDomain, columns: int, shorten: Callable[[str], str]) -> str:
    """``rack r1: 24 GPUs, 16 held``; of a name that is too long its end."""
    fabric = ", one NVLink fabric" if domain.nvlink else ""
    counts = domain.counts
    held = f"{counts.held_after:,} held"
    if counts.held_before != counts.held_after:
        held = f"{counts.held_before:,} -> {held}"
    rest = f": {plural(counts.gpus, 'GPU')}, {held}{fabric}"
    level = safe(shorten(domain.level))
    room = columns - text_width(level) - 1 - len(rest)
    return f"{level} {_end(safe(shorten(domain.name)), max(LEAST_NAME, room))}{rest}"


def _legend(found: ClusterMap, only: Selection, requests: Requests) -> Table:
    """Whose the letters are."""
    rows = [
        row_of(
            LETTERS[style],
            "/".join(gang.key),
            Cell(gang.decision, STYLE[gang.decision]),
            number(gpu_count(gang, requests.get(gang.key))),
            compress((pod.node for pod in gang.pods), " "),
        )
        for gang, style in zip(found.gangs, found.styles, strict=True)
        if style >= 0 and only.takes(gang)
    ]
    return Table(columns_of("|GANG|DECISION?|>GPUS|NODES~"), tuple(rows))


_LOST = {UNHEALTHY: UNHEALTHY_SIGN, PARTITIONED: PARTITIONED_SIGN, CLOSED: CLOSED_SIGN}

_BAR_LEGEND = "# held before and after, + held after alone, - freed, . free, x unhealthy or shared"


def _folded(found: ClusterMap) -> Table:
    """A line for each domain, down to the narrowest level of which all can be listed."""
    depth = 0
    while (
        depth < len(found.levels) and len(list(_rows(found.cluster, depth + 1, 0))) <= MAX_DOMAINS
    ):
        depth += 1
    listed = list(_rows(found.cluster, max(depth, 1), 0))
    rows = [_row(domain, indent) for domain, indent in listed[:MAX_DOMAINS]]
    notes = []
    if len(listed) > MAX_DOMAINS:
        notes.append(f"and {len(listed) - MAX_DOMAINS:,} more domains")
    if depth < len(found.levels):
        notes.append(f"folded: narrower levels are {', '.join(map(safe, found.levels[depth:]))}")
    columns = columns_of(
        "DOMAIN|>NODES?|>GPUS|>BEFORE|>AFTER|>FREE|>UNHEALTHY?|>MIG?|>CLOSED?|>GANGS?|HELD?"
    )
    return Table(columns, tuple(rows), tuple(notes)).without_empty_columns()


def _rows(domain: MapDomain, depth: int, indent: int) -> Iterator[tuple[MapDomain, int]]:
    """The domain and those inside it, ``depth`` levels down."""
    yield domain, indent
    for inner in domain.domains if depth else ():
        yield from _rows(inner, depth - 1, indent + 1)


def _row(domain: MapDomain, indent: int) -> tuple[Cell, ...]:
    counts = domain.counts
    gangs = {holder for node in domain.all_nodes() for holder in node.after if holder >= 0}
    name = f"{domain.level} {domain.name}" if domain.level else "cluster"
    return row_of(
        "- " * indent + name,
        number(counts.nodes),
        number(counts.gpus),
        number(counts.held_before),
        number(counts.held_after),
        number(counts.free),
        number(counts.unhealthy) if counts.unhealthy else "",
        number(counts.partitioned) if counts.partitioned else "",
        number(counts.closed) if counts.closed else "",
        number(len(gangs)),
        _bar(domain),
    )


def _bar(domain: MapDomain) -> str:
    """The domain's GPUs in proportion; every kind that there is has a character, if there is room."""
    kinds = dict.fromkeys("#+-.x/_", 0)
    for node in domain.all_nodes():
        for before, after in zip(node.before, node.after, strict=True):
            if after <= UNHEALTHY:
                kinds[_LOST[after]] += 1
            elif after >= 0:
                kinds["#" if before >= 0 else "+"] += 1
            else:
                kinds["-" if before >= 0 else "."] += 1
    total = sum(kinds.values())
    if not total:
        return ""
    sizes = {sign: max(1, BAR * count // total) for sign, count in kinds.items() if count}
    largest = max(sizes, key=lambda sign: sizes[sign])
    sizes[largest] += BAR - sum(sizes.values())
    return "".join(sign * size for sign, size in sizes.items())
