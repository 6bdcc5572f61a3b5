"""Columns: the domain of each node at one level, how columns divide the nodes, and how they nest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL, Level
from planner.read.findings import Remarks
from planner.read.kube.lookup import SHORT, is_label_key, is_name
from planner.read.kube.records import KubeNode

Division = tuple[int, ...]
"""One number a node, in the order of the nodes: equal numbers are one domain."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One level before it has its final name.

    ``keys``: its labels, of which the first one on a node counts; ``values``: node name to domain.
    ``tiers``: of HyperNodes. ``stated``: by the Policy, which then also states the NVLink domains.
    ``wide``: a region or zone, which no other level is an alias of. ``origin``: where a level comes
    from, if not from the source of the others. ``named``: a gang has named it by its first label.
    ``counted``: see ``models.instance.cluster.Level``.
    """

    name: str
    values: Mapping[str, str]
    keys: tuple[str, ...] = ()
    tiers: tuple[int, ...] = ()
    nvlink: bool = False
    oversubscription: Fraction = Fraction(1)
    stated: bool = False
    wide: bool = False
    origin: str = ""
    named: bool = False
    counted: bool = True

    def label(self, nodes: Sequence[KubeNode]) -> str | None:
        """The label whose value is the domain on every node; None if there is none.

        A level's label is implied on the nodes of its domains: no other label may be named.
        """
        for key in self.keys:
            if not is_label_key(key) or key == HOSTNAME_LABEL:
                continue
            if all(node.labels.get(key) == self.values.get(node.name) for node in nodes):
                return key
        return None

    def to_level(self, nodes: Sequence[KubeNode]) -> Level:
        label = self.label(nodes)
        return Level(self.name, label, self.oversubscription, self.nvlink, self.counted)


@dataclass(frozen=True, slots=True)
class Found:
    """The levels of one source, widest first, and the name of the source in messages."""

    source: str
    columns: tuple[Column, ...] = ()


@dataclass(slots=True)
class Chain:
    """Columns widest first, and the division of the nodes at each one, by whole path."""

    nodes: Sequence[KubeNode]
    columns: list[Column] = field(default_factory=list)
    divisions: list[Division] = field(default_factory=list)

    def set(self, columns: Sequence[Column]) -> None:
        self.columns = list(columns)
        self.divisions = divisions(columns, self.nodes)

    def replace(self, old: Column, new: Column) -> None:
        """Put one column in the place of another."""
        self.set([new if one is old else one for one in self.columns])

    def insert(self, column: Column) -> bool:
        """Put a column where it nests and cuts no domain of another; False if there is no such place.

        Of several places the innermost counts; for a region or zone the outermost. Nodes that are
        alone at a wider level stay alone wherever the column goes, and are not compared.
        """
        own = _divide(_undivided(self.nodes), column, self.nodes)
        last = len(self.columns)
        regions = next((i for i, one in enumerate(self.columns) if not one.wide), last)
        inward = [*range(regions, last + 1), *range(regions - 1, -1, -1)]
        for at in inward if column.wide else range(last, -1, -1):
            inside = at == 0 or self._lies_in(own, at - 1)
            around = at == last or nests(self.divisions[at], own)
            if inside and around:
                self.set([*self.columns[:at], column, *self.columns[at:]])
                return True
        return False

    def _lies_in(self, own: Division, level: int) -> bool:
        """Whether each domain lies in one of a level, among the nodes that have a value so far."""
        wider = self.columns[: level + 1]
        there = [
            i for i, node in enumerate(self.nodes) if all(node.name in one.values for one in wider)
        ]
        return nests([own[i] for i in there], [self.divisions[level][i] for i in there])

    def same(self, column: Column, among: Sequence[KubeNode]) -> Column | None:
        """The innermost column that divides these nodes exactly as this one does, regions excluded.

        By itself or by whole path: inside the same wider domains both are equal.
        """
        chosen = {node.name for node in among}
        places = [i for i, node in enumerate(self.nodes) if node.name in chosen]
        whole = _undivided(self.nodes)
        wanted = _renumbered(_divide(whole, column, self.nodes), places)
        for here, division in zip(reversed(self.columns), reversed(self.divisions), strict=True):
            if here.wide:
                continue
            by_itself = _divide(whole, here, self.nodes)
            if wanted in (_renumbered(division, places), _renumbered(by_itself, places)):
                return here
        return None


def _renumbered(division: Division, places: Sequence[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(division[i], len(numbers)) for i in places]


def _undivided(nodes: Sequence[KubeNode]) -> Division:
    return (0,) * len(nodes)


def divisions(columns: Sequence[Column], nodes: Sequence[KubeNode]) -> list[Division]:
    """The division at each column: a node without a value is alone there and below."""
    result = []
    current = _undivided(nodes)
    for column in columns:
        current = _divide(current, column, nodes)
        result.append(current)
    return result


def _divide(parents: Division, column: Column, nodes: Sequence[KubeNode]) -> Division:
    """The domains that the values of a column make inside those of the wider level."""
    numbers: dict[tuple[int, str | None, int], int] = {}
    result = []
    for i, node in enumerate(nodes):
        value = column.values.get(node.name)
        key = (parents[i], value, -1 if value is not None else i)
        result.append(numbers.setdefault(key, len(numbers)))
    return tuple(result)


def nests(inner: Sequence[int], outer: Sequence[int]) -> bool:
    """Whether every domain of the one lies in one domain of the other."""
    around: dict[int, int] = {}
    return all(around.setdefault(i, o) == o for i, o in zip(inner, outer, strict=True))


def alone(division: Division) -> bool:
    """Whether every domain is a single node."""
    return len(set(division)) == len(division)


def labelled(name: str, keys: Sequence[str], nodes: Sequence[KubeNode], remarks: Remarks) -> Column:
    """The column of the first of these labels that each node has."""
    values: dict[str, str] = {}
    for node in nodes:
        for key in keys:
            value = node.labels.get(key)
            if not value:
                continue
            if is_name(value):
                values[node.name] = value
                break
            what = f"its label {key} cannot be the name of a domain; ignored"
            remarks.add(node.object.subject, what, "letters, digits, '-', '_' and '.'")
    return Column(name, values, tuple(keys))


def with_distinct_names(columns: Sequence[Column]) -> list[Column]:
    """The columns with names that are valid in a document and distinct."""
    taken = {NODE_LEVEL}
    result = list(columns)
    # Levels that only gangs name come last, and take no name from others.
    for i in sorted(range(len(columns)), key=lambda i: not columns[i].counted):
        wanted = name = _level_name(columns[i].name)
        number = 2
        while name in taken:
            name = f"{wanted[:58]}-{number}"
            number += 1
        taken.add(name)
        result[i] = replace(columns[i], name=name)
    return result


def _level_name(text: str) -> str:
    """The text as the name of a level; a label key without its prefix."""
    last = text.rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:SHORT].strip("-._")
    return plain if plain and is_name(plain, SHORT) else "level"
