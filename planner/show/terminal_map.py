"""The map of a cluster as text: a letter for each GPU, or of a large cluster a line for each domain.

The letters tell gangs apart where there is no colour; the table below says whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import ascii_letters

from models.documents.plan import PlanDocument
from models.results.plan_gpus import gpu_count
from planner.show.cluster_map import (
    ClusterMap,
    Holder,
    Holders,
    MapDomain,
    MapNode,
    cluster_map,
    domains,
)
from planner.show.console import WIDTH, Console
from planner.show.plan.gang_groups import Requests, Selection
from planner.show.plan.plan_tables import STYLE
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import compress, number, short_names
from planner.show.text import width as text_width
from planner.untrusted_text import safe

MAX_NODES = 200
"""Nodes that are drawn one by one; of a larger cluster its domains are listed."""

LETTERS = ascii_letters.replace("x", "").replace("o", "")
"""One for each gang; of many gangs those far from each other share one."""

OTHER = "o"

SIGNS: Mapping[Holder, str] = {"free": ".", "unhealthy": "x", "shared": "/", "closed": "_"}

COLOURS = ("33", "36", "32", "93", "34", "31", "35")
"""SGR codes of gangs; colour only repeats what the letters say."""

LEAST_NAME = 12
"""Characters of a node's name that fit at least; longer ones are shown by what tells them apart."""

_COLOUR = re.compile(r"\x1b\[[0-9]+m")

_APART = "   "


def drawn(console: Console, plan: PlanDocument, only: Selection) -> str:
    """The map as it goes to stdout. ``only``: gangs with letters; the others are ``o``."""
    found = cluster_map(plan, styles=len(LETTERS))
    if len(found.cluster.nodes) > MAX_NODES:
        return console.drawn(domains(found))
    drawing = _Drawing(console, found, only)
    whose = _legend(found, only, plan.instance.gangs_by_key())
    legend = console.drawn(whose) if whose.rows else ""
    lines = "".join(f"{line}\n" for line in drawing.lines(found.cluster, 0))
    return "\n".join(filter(None, (lines, legend, console.lines([drawing.signs(found)]))))


class _Drawing:
    """Every GPU of every node."""

    def __init__(self, console: Console, found: ClusterMap, only: Selection) -> None:
        self._width = console.width or WIDTH
        self._shorten = console.shorten or str
        names = (node.name for node in found.cluster.nodes)
        self._names = short_names(names, max(LEAST_NAME, self._width // 3))
        color = console.use_color(console.stdout)
        self._letters = dict(SIGNS)
        self._others: set[Holder] = set()
        for gang, (stated, style) in enumerate(zip(found.gangs, found.styles, strict=True)):
            letter, code = LETTERS[style], COLOURS[style % len(COLOURS)]
            self._letters[gang] = f"\x1b[{code}m{letter}\x1b[0m" if color else letter
            if not only.takes(stated):
                self._letters[gang] = OTHER
                self._others.add(gang)

    def lines(self, domain: MapDomain, depth: int) -> Iterator[str]:
        """The domain's own line, the domains in it, then its nodes in columns, from top to bottom."""
        if depth:
            name = safe(self._shorten(f"{domain.level} {domain.name}"))
            fabric = ", one NVLink fabric" * domain.nvlink
            yield f"{'  ' * (depth - 1)}{name}: {domain.held('->')}{fabric}"
        for inner in domain.domains:
            yield from self.lines(inner, depth + 1)
        named = max((text_width(self._names[node.name]) for node in domain.alone), default=0)
        cells = [self._node(node, named) for node in domain.alone]
        sizes = [text_width(_COLOUR.sub("", cell)) + len(_APART) for cell in cells]
        widest, pad = max(sizes, default=1), "  " * depth
        rows = -(-len(cells) // max(1, (self._width - len(pad) + len(_APART)) // widest))
        for row in range(rows):
            line = zip(cells[row::rows], sizes[row::rows], strict=True)
            spaced = (cell + " " * (widest - size + len(_APART)) for cell, size in line)
            yield (pad + "".join(spaced)).rstrip()

    def _node(self, node: MapNode, named: int) -> str:
        """``gpu-01  ....aaaa > bbbbaaaa  cordoned``."""
        name = safe(self._names[node.name])
        states = dict.fromkeys((node.before, node.after)) if node.after else ()
        gpus = " > ".join(self._gpus(node, holders) for holders in states)
        parts = (name + " " * (named - text_width(name)), gpus, *node.marks)
        return "  ".join(filter(None, parts))

    def _gpus(self, node: MapNode, holders: Holders) -> str:
        """A letter for each GPU, a space between groups of them."""
        return " ".join(
            "".join(self._letters[holders[gpu]] for gpu in island) for island in node.islands
        )

    def signs(self, found: ClusterMap) -> str:
        """What the signs mean that are on the map."""
        nodes = found.cluster.nodes
        there = {holder for node in nodes for holder in (*node.before, *node.after)}
        meanings: dict[Holder, str] = {
            "free": "free",
            "closed": "held by nobody, but its node is cordoned, not ready or tainted",
            "unhealthy": "unhealthy or shared",
            "shared": "partitioned (MIG) or shared",
        }
        said = [
            f"{SIGNS[state]} {meaning}" for state, meaning in meanings.items() if state in there
        ]
        if self._others & there:
            said.append(f"{OTHER} other gangs")
        if any(node.changes for node in nodes):
            said.append("before > after where a node changes")
        kinds = sorted({node.kind for node in nodes if node.kind})
        said += [f"a space inside a node: another {kind} group" for kind in kinds]
        if any(node.guessed for node in nodes):
            said.append("GPUs of unknown index are drawn at the first free places")
        return "; ".join(said)


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
