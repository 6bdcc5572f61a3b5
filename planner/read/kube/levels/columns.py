"""Columns: what each node says at one level, and how columns divide the nodes and nest.

Promises: plain data; equal input gives equal order; a value is a valid domain name.
Called by the finders of levels (families, topologies, hypernodes) and by ``levels``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from pydantic import TypeAdapter, ValidationError

from models.cluster import Level
from models.documents.base import LabelKey, Name, ShortName
from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL
from planner.read.findings import Remarks
from planner.read.kube.records import KubeNode

Division = tuple[int, ...]
"""One dense number a node, in the order of the nodes: equal numbers, one domain."""

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_SHORT: TypeAdapter[str] = TypeAdapter(ShortName)
_KEY: TypeAdapter[str] = TypeAdapter(LabelKey)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One level before it has its final name.

    ``keys``: the labels it is read from, the first one a node has counting; ``values``: node name
    to domain. ``tiers``: of the HyperNodes that it stands for. ``stated``: by the Policy, which then
    also says which levels are NVLink domains. ``wide``: a region or zone, never a stand-in for a
    level that was found otherwise. ``origin``: said to people of a level from another source.
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

    def label(self, nodes: Sequence[KubeNode]) -> str | None:
        """The label that says on every node what the column says; None if there is none such.

        A level's label is implied on the nodes of its domains: no other label may be named.
        """
        for key in self.keys:
            if not is_key(key) or key == HOSTNAME_LABEL:
                continue
            if all(node.labels.get(key) == self.values.get(node.name) for node in nodes):
                return key
        return None


@dataclass(frozen=True, slots=True)
class Found:
    """The levels of one source, widest first, and how people call the source."""

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
        """Put a column where it nests, innermost if it nests nowhere: then False.

        Of several places the innermost; for a region or zone the outermost. Nodes that stand alone
        at a wider level do so wherever the column goes, and are not counted against a place.
        """
        own = divided(_whole(self.nodes), column, self.nodes)
        last = len(self.columns)
        regions = next((i for i, one in enumerate(self.columns) if not one.wide), last)
        inward = [*range(regions, last + 1), *range(regions - 1, -1, -1)]
        for at in inward if column.wide else range(last, -1, -1):
            inside = at == 0 or self._lies_in(own, at - 1)
            around = at == last or nests(self.divisions[at], own)
            if inside and around:
                self.set([*self.columns[:at], column, *self.columns[at:]])
                return True
        self.set([*self.columns, column])
        return False

    def _lies_in(self, own: Division, level: int) -> bool:
        """Whether domains lie each in one of a level, among the nodes that have a value so far."""
        wider = self.columns[: level + 1]
        there = [
            i for i, node in enumerate(self.nodes) if all(node.name in one.values for one in wider)
        ]
        return nests([own[i] for i in there], [self.divisions[level][i] for i in there])

    def same(self, column: Column, among: Sequence[KubeNode]) -> Column | None:
        """The innermost column that divides these nodes exactly as this one does, regions aside.

        By itself or by whole path: inside the same wider domains both come to the same.
        """
        chosen = {node.name for node in among}
        places = [i for i, node in enumerate(self.nodes) if node.name in chosen]
        whole = _whole(self.nodes)
        wanted = _renumbered(divided(whole, column, self.nodes), places)
        for here, division in zip(reversed(self.columns), reversed(self.divisions), strict=True):
            if here.wide:
                continue
            by_itself = divided(whole, here, self.nodes)
            if wanted in (_renumbered(division, places), _renumbered(by_itself, places)):
                return here
        return None


def _renumbered(division: Division, places: Sequence[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(division[i], len(numbers)) for i in places]


def _whole(nodes: Sequence[KubeNode]) -> Division:
    return (0,) * len(nodes)


def divisions(columns: Sequence[Column], nodes: Sequence[KubeNode]) -> list[Division]:
    """The division at each column: a node without a value is alone there and below."""
    result = []
    current = _whole(nodes)
    for column in columns:
        current = divided(current, column, nodes)
        result.append(current)
    return result


def divided(parents: Division, column: Column, nodes: Sequence[KubeNode]) -> Division:
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
            what = f"its label {key} cannot name a domain: ignored"
            remarks.add(node.object.subject, what, "letters, digits, '-', '_' and '.'")
    return Column(name, values, tuple(keys))


def within_names(columns: Sequence[Column]) -> list[Column]:
    """The columns under names that can stand in a document, each its own."""
    taken = {NODE_LEVEL}
    result = []
    for column in columns:
        wished = name = short_name(column.name)
        number = 2
        while name in taken:
            name = f"{wished[:58]}-{number}"
            number += 1
        taken.add(name)
        result.append(replace(column, name=name))
    return result


def short_name(text: str) -> str:
    """The text as a name of a level; a label key goes by its last segment."""
    last = text.rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:63].strip("-._")
    return plain if plain and _is(_SHORT, plain) else "level"


@lru_cache(maxsize=65_536)
def is_name(text: str) -> bool:
    """Whether the text can name a domain."""
    return _is(_NAME, text)


@lru_cache(maxsize=4096)
def is_key(text: str) -> bool:
    """Whether the text is a label key."""
    return _is(_KEY, text)


def _is(form: TypeAdapter[str], text: str) -> bool:
    try:
        form.validate_python(text)
    except ValidationError:
        return False
    return True


def to_level(column: Column, nodes: Sequence[KubeNode]) -> Level:
    """The level of a column that has its final name."""
    return Level(column.name, column.label(nodes), column.oversubscription, column.nvlink)
