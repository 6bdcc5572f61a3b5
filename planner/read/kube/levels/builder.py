"""Levels put together: those of the source, NVLink domains, and those that gangs name.

Every level is where it nests; one division of the nodes is one level, whatever it is called. What gangs
name changes nothing for others: their levels are not counted, cut no domain, and take no level's place.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from models.documents.cluster import HOSTNAME_LABEL, MAX_LEVELS
from planner.read.findings import Remarks
from planner.read.kube.levels.label_families import family_on, nvlink_column
from planner.read.kube.levels.node_domains import (
    Chain,
    Column,
    Found,
    Tiers,
    alone,
    divisions,
    labelled,
    with_distinct_names,
)
from planner.read.kube.records import KubeNode, LevelAsk


class LevelBuilder:
    """Builds the levels. ``single``: columns of single nodes. ``refused``: by ask, why there is no level."""

    def __init__(self, nodes: Sequence[KubeNode], hypernodes: Tiers, remarks: Remarks) -> None:
        self.nodes = nodes
        self.with_gpus = [node for node in nodes if node.gpus or node.installed] or list(nodes)
        self.hypernodes = hypernodes
        self.remarks = remarks
        self.chain = Chain(nodes)
        self.present = {key for node in nodes for key in node.labels}
        self.single: list[Column] = []
        self.refused: dict[LevelAsk, str] = {}

    def start(self, found: Found) -> None:
        """Take the levels of the source, without those that name single nodes or nothing."""
        kept = []
        for column in found.columns:
            if column.keys == (HOSTNAME_LABEL,):
                self.single.append(column)
            elif column.values or column.stated:
                kept.append(column)
            elif column.keys:
                what = f"its level {column.name} is left out; no node has the label"
                self.remarks.add(found.source, what)
        # By whole paths: a host number may be used again in another rack.
        while kept and not kept[-1].stated and alone(divisions(kept, self.nodes)[-1]):
            self.single.append(kept.pop())
        self.chain.set(kept)

    def is_single(self, column: Column) -> bool:
        """Whether no two nodes share a domain of it."""
        return alone(divisions([column], self.nodes)[0])

    def add_nvlink(self) -> None:
        """Mark the level of the NVLink domains, or add one."""
        column = nvlink_column(self.nodes, self.remarks)
        if column is None:
            return
        if self.is_single(column):
            self.single.append(column)
            return
        same = next((one for one in self.chain.columns if set(one.keys) & set(column.keys)), None)
        if same is not None and not same.stated and set(column.keys) <= set(same.keys):
            own, there = (divisions([one], self.nodes)[0] for one in (column, same))
            if own != there:
                without_zeros = replace(same, values=column.values)
                self.chain.replace(same, without_zeros)
                same = without_zeros
        same = same or self.chain.same(column, self.with_gpus)
        if same is None:
            self.insert(replace(column, origin=f"from {column.keys[0]}"))
        elif not same.stated:
            self.alias(same, column, nvlink=True)
        self.report_outside_nvlink()

    def report_outside_nvlink(self) -> None:
        """Report servers without an NVLink domain next to servers that have one."""
        for i, column in enumerate(self.chain.columns):
            if not column.nvlink or i == 0:
                continue
            around = dict(
                zip((n.name for n in self.nodes), self.chain.divisions[i - 1], strict=True)
            )
            having = {around[name] for name in column.values if name in around}
            for node in self.with_gpus:
                if node.name not in column.values and around[node.name] in having:
                    what = "is in no NVLink domain, but its neighbours are; it counts alone"
                    hint = f"its label {column.keys[0]} is missing" if column.keys else None
                    self.remarks.add(node.object.subject, what, hint)

    def add_asked(self, ask: LevelAsk) -> None:
        """Add a level that a gang names."""
        column = self.find(ask)
        if column is None:
            return
        if column in self.chain.columns:
            self.name_by_label(column, ask.label)
        elif column in self.single:
            return
        elif self.is_single(column):
            self.single.append(column)
        elif (same := self.twin(column)) is not None:
            self.name_by_label(self.alias(same, column), ask.label)
        else:
            self.insert_asked(column, ask)

    def insert_asked(self, column: Column, ask: LevelAsk) -> None:
        """Add the level of a gang where it cuts no domain of others.

        Above the limit another that divides the nodes equally counts for it.
        """
        full = len(self.chain.columns) >= MAX_LEVELS
        same = self.chain.same(column, self.nodes) if full and not column.wide else None
        if same is not None:
            self.alias(same, column)
            return
        self.release_labels(column)
        own = replace(column, origin="requested by a gang", named=True, counted=False)
        if full or not self.chain.insert(own):
            more = f"would be one more than {MAX_LEVELS}"
            why = more if full else "cuts domains of other levels"
            self.refused[ask] = f"which {why}"
            what = f"left out: a gang names it, but it {why}; gangs that require it are held"
            self.remarks.add(f"level {column.name}", what, "state `levels` in the Policy")

    def name_by_label(self, column: Column, label: str | None) -> None:
        """Name a level by the label of the first gang that asks for it, if several are equivalent."""
        if label not in column.keys or column.stated or column.named:
            return
        others = (key for key in column.keys if key != label)
        named = replace(column, keys=(label, *others), named=True)
        if named.keys == column.keys or named.label(self.nodes) == label:
            self.chain.replace(column, named)

    def find(self, ask: LevelAsk) -> Column | None:
        """The column of an ask: an existing one, else a new one; None if no node has it."""
        there = (*self.chain.columns, *self.single)
        if ask.label is not None:
            known = next((one for one in there if ask.label in one.keys), None)
            return self.find_label(ask.label, known) if ask.label in self.present else known
        tier = self.hypernodes.tier(ask)
        if tier is None:
            return None
        found = next((one for one in there if tier in one.tiers), None)
        return self.hypernodes.columns[tier] if found is None else found

    def find_label(self, label: str, known: Column | None) -> Column | None:
        """The column of a label that nodes have; ``known``: the one that has the label so far."""
        fixed = known is not None and (known.stated or known in self.single)
        if known is not None and (fixed or known.keys[0] == label):
            return known
        family = family_on(label, self.nodes)
        keys = tuple(key for key in family.keys if key in self.present)
        column = labelled(family.name, keys, self.nodes, self.remarks)
        if known is not None and (
            known.values == column.values or column.label(self.nodes) is None
        ):
            return known
        return replace(column, wide=family.wide) if column.values else None

    def twin(self, column: Column) -> Column | None:
        """A level of the same values; for tiers, and in a Policy, one that divides in the same way.

        A label that a gang names stays a level of its own even if another one divides the existing
        nodes equally: domains keep the names that people know, and planned nodes may differ.
        """
        alike = (one for one in self.chain.columns if one.stated or one.wide == column.wide)
        equal = next((one for one in alike if one.values == column.values), None)
        if equal is not None or column.wide:
            return equal
        same = self.chain.same(column, self.nodes)
        own_name = column.tiers == () and column.label(self.nodes) is not None
        return None if same is None or (own_name and not same.stated) else same

    def alias(self, same: Column, other: Column, *, nvlink: bool = False) -> Column:
        """Let one column count for another that divides the nodes in the same way."""
        both = replace(
            same,
            nvlink=same.nvlink or nvlink,
            keys=tuple(dict.fromkeys((*same.keys, *other.keys))),
            tiers=tuple(dict.fromkeys((*same.tiers, *other.tiers))),
        )
        self.chain.replace(same, both)
        return both

    def release_labels(self, column: Column) -> None:
        """Take the labels of a new level from all others."""
        for one in self.chain.columns:
            if rest := set(one.keys) & set(column.keys):
                left = replace(one, keys=tuple(key for key in one.keys if key not in rest))
                self.chain.replace(one, left)

    def insert(self, column: Column) -> None:
        """Add a column where it nests, else innermost."""
        if not self.chain.insert(column):
            self.chain.set([*self.chain.columns, column])
            what = "does not nest: domains of wider levels cut its own"
            self.remarks.add(f"level {column.name}", what, "state `levels` in the Policy")

    def limit(self) -> None:
        """Keep at most MAX_LEVELS of the cluster's own."""
        while len(self.chain.columns) > MAX_LEVELS:
            # None that the Policy states or NVLink joins: one of one domain for all, else the innermost.
            free = [i for i, one in enumerate(self.chain.columns) if not one.stated]
            places = [i for i in free if not self.chain.columns[i].nvlink] or free
            trivial = (i for i in places if len(set(self.chain.divisions[i])) == 1)
            gone = self.chain.columns[next(trivial, places[-1])]
            what = f"left out: more than {MAX_LEVELS} levels"
            self.remarks.add(f"level {gone.name}", what, "state `levels` in the Policy")
            self.chain.set([one for one in self.chain.columns if one is not gone])

    def finish(self) -> None:
        """Give each level a name of its own, and report servers that lack a domain, so are alone there."""
        self.chain.set(with_distinct_names(self.chain.columns))
        columns = self.chain.columns
        for node in self.with_gpus:
            having = [node.name in one.values for one in columns]
            if False in having and True in having[having.index(False) :]:
                level = columns[having.index(False)]
                what = f"has no domain at level {level.name}; it is alone there and below"
                hint = f"its label {level.keys[0]} is missing" if level.keys else None
                self.remarks.add(node.object.subject, what, hint)
