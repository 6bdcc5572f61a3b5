"""Columns: the domain of each node at one level, how columns divide the nodes, and how they nest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL, Level
from planner.read.findings import Remarks
from planner.read.kube.lookup import SHORT, distinct, is_label_key, is_name
from planner.read.kube.records import KubeNode, LevelAsk

Division = tuple[int, ...]
"""One number a node, in the order of the nodes: equal numbers are one domain."""


class Column(Struct, frozen=True, eq=False):
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


class Found(Struct, frozen=True):
    """The levels of one source, widest first, and the name of the source in messages."""

    source: str
    columns: tuple[Column, ...] = ()


class Tiers(Struct, frozen=True):
    """Columns by tier; ``names``: tier names to tiers."""

    columns: Mapping[int, Column] = {}
    names: Mapping[str, int] = {}

    def tier(self, ask: LevelAsk) -> int | None:
        """The tier a gang may span: the highest that exists up to the one it names."""
        tier = ask.tier if ask.tier_name is None else self.names.get(ask.tier_name)
        if tier is None or not self.columns:
            return None
        most = tier or min(self.columns)
        return max((one for one in self.columns if one <= most), default=None)

    def found(self) -> Found | None:
        """The tiers as levels, widest first."""
        columns = tuple(self.columns[tier] for tier in sorted(self.columns, reverse=True))
        return Found("HyperNodes", columns) if columns else None


class Chain(Struct):
    """Columns widest first, and the division of the nodes at each one, by whole path."""

    nodes: Sequence[KubeNode]
    columns: list[Column] = []
    divisions: list[Division] = []

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
        (own,) = divisions([column], self.nodes)
        last = len(self.columns)
        regions = next((i for i, one in enumerate(self.columns) if not one.wide), last)
        inward = [*range(regions, last + 1), *range(regions - 1, -1, -1)]
        for at in inward if column.wide else range(last, -1, -1):
            wider = self.columns[:at]
            there = [
                i for i, n in enumerate(self.nodes) if all(n.name in one.values for one in wider)
            ]
            around = self.divisions[at - 1] if at else own
            inside = nests([own[i] for i in there], [around[i] for i in there])
            if inside and (at == last or nests(self.divisions[at], own)):
                self.set([*wider, column, *self.columns[at:]])
                return True
        return False

    def same(self, column: Column, among: Sequence[KubeNode]) -> Column | None:
        """The innermost column that divides these nodes exactly as this one does, regions excluded.

        By itself or by whole path: inside the same wider domains both are equal.
        """
        chosen = {node.name for node in among}
        places = [i for i, node in enumerate(self.nodes) if node.name in chosen]
        wanted = _renumbered(divisions([column], self.nodes)[0], places)
        for here, division in zip(reversed(self.columns), reversed(self.divisions), strict=True):
            both = (division, *divisions([here], self.nodes))
            if not here.wide and wanted in [_renumbered(one, places) for one in both]:
                return here
        return None


def _renumbered(division: Division, places: Sequence[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(division[i], len(numbers)) for i in places]


def divisions(columns: Sequence[Column], nodes: Sequence[KubeNode]) -> list[Division]:
    """The division at each column: a node without a value is alone there and below."""
    result = []
    current: Division = (0,) * len(nodes)
    for column in columns:
        numbers: dict[tuple[int, str | int], int] = {}
        keys = ((current[i], column.values.get(node.name, i)) for i, node in enumerate(nodes))
        current = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
        result.append(current)
    return result


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
        last = columns[i].name.rpartition("/")[2]  # of a label key
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:SHORT].strip("-._")
        wanted = plain if plain and is_name(plain, SHORT) else "level"
        result[i] = replace(columns[i], name=distinct(wanted, taken, SHORT))
    return result
